"""Encoded weight sizes for a graph: exact from one compilation by Vela, else estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from npusched.cost.types import BlockConfig, Traversal, WeightBytes
from npusched.cost.weights import estimate_weights
from npusched.errors import VelaError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import ScheduledOp, SourceRef
from npusched.hardware import Target
from npusched.ir import Model

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from npusched.vela.encoded import EncodedOp
    from npusched.vela.result import VelaResult

VELA_LIMIT_S = 20.0
"""Longest that a plan waits for Vela before it goes on with estimates."""

WEIGHTS_FAILED = "weight sizes are estimated"
"""How a warning begins that says why Vela gave no weight sizes."""

OrderedRef: TypeAlias = tuple[SourceRef, int]
"""A source op, and how manyth of its scheduled ops with weights."""


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """What Vela encoded for one op: bytes for one block depth and traversal, unsliced."""

    weights: int
    scales: int
    block_depth: int
    traversal: Traversal
    channels: int


class WeightTable(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes for the ops of one graph. ``known`` is keyed by (source op, order within it)."""

    target: Target
    known: Mapping[OrderedRef, Encoded]
    order: Mapping[int, OrderedRef]
    vela_version: str | None
    estimates: dict[tuple[str, BlockConfig], WeightBytes] = msgspec.field(default_factory=dict)

    def of(self, op: ScheduledOp, block: BlockConfig) -> WeightBytes:
        """Encoded bytes of an op's weights with this block: exact if Vela encoded just that.

        Another block depth changes the padding and order of the stream: then Vela's size for its
        own depth is the estimate.
        """
        assert op.weights is not None
        found = self.known.get(self.order[op.id])
        if found is not None:
            same = (found.block_depth, found.traversal) == (block.ofm_block.c, block.traversal)
            return WeightBytes(weights=found.weights, scales=found.scales, exact=same)
        key = (op.weights.key, block)
        if key not in self.estimates:
            self.estimates[key] = estimate_weights(self.target, op, block)
        return self.estimates[key]

    def renumbered(self, graph: OpGraph, removed: Sequence[int]) -> WeightTable:
        """The same sizes for the graph of a file that lost the source ops ``removed``."""

        def after(ref: SourceRef) -> SourceRef:
            return ref[0], ref[1] - sum(1 for op in removed if op < ref[1])

        return replace(
            self,
            known={(after(ref), order): size for (ref, order), size in self.known.items()},
            order=_order(graph),
        )


Asked: TypeAlias = "Future[tuple[VelaResult, tuple[EncodedOp, ...]]]"
"""A compilation under way."""


def ask_vela(model: Model, target: Target, pool: Executor, *, use_cache: bool) -> Asked:
    """Submit one compilation by Vela, which runs while the caller goes on (``weight_table``)."""
    return pool.submit(_compile, model, target, use_cache)


def weight_table(
    graph: OpGraph, target: Target, asked: Asked | None, warnings: list[str]
) -> WeightTable:
    """Sizes from the compilation that was asked for; if it failed, a warning and estimates."""
    order = _order(graph)
    known: dict[OrderedRef, Encoded] = {}
    version = None
    if asked is not None and order:
        try:
            result, encoded = asked.result()
            known = {order[op]: size for op, size in _matched(graph, encoded).items()}
            version = result.vela_version
        except VelaError as error:
            why = f" ({error.why})" if error.why else ""
            warnings.append(f"{WEIGHTS_FAILED}: {error.what}{why}")
    return WeightTable(target=target, known=known, order=order, vela_version=version)


def _order(graph: OpGraph) -> dict[int, OrderedRef]:
    """(source op, how manyth of its ops with weights) of every op with weights."""
    seen: Counter[SourceRef] = Counter()
    order = {}
    for op in graph.ops:
        if op.weights is not None:
            ref = op.source_ops[0] if op.source_ops else (graph.subgraph, -1)
            order[op.id] = (ref, seen[ref])
            seen[ref] += 1
    return order


def _compile(
    model: Model, target: Target, use_cache: bool
) -> tuple[VelaResult, tuple[EncodedOp, ...]]:
    from npusched.vela.cache import VelaCache
    from npusched.vela.encoded import encoded_weights
    from npusched.vela.options import Feature, VelaOptions
    from npusched.vela.runner import compile_model

    options = VelaOptions(
        disable=(Feature.CASCADING, Feature.FM_STAGING),
        arena_cache_size_bytes=UNLIMITED_BYTES,
    )
    cache = VelaCache() if use_cache else None
    result = compile_model(model.content, target, options, cache=cache, limit_s=VELA_LIMIT_S)
    return result, encoded_weights(result, model)


def _matched(graph: OpGraph, encoded: Sequence[EncodedOp]) -> dict[int, Encoded]:
    from npusched.vela.weight_match import channels_of, match_encoded

    return {
        number: Encoded(
            weights=op.weights_bytes,
            scales=op.scales_bytes,
            block_depth=op.ofm_block_depth,
            traversal=op.traversal,
            channels=channels_of(op),
        )
        for number, op in match_encoded(graph, encoded).items()
        if op.slices == 1
    }


UNLIMITED_BYTES = 1 << 32
"""An arena that no model reaches: every op gets the block of its whole OFM."""
