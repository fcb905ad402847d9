"""The ops of a graph as ``buffering`` looks at them: whole, maps in the arena, own encodings."""

from __future__ import annotations

from functools import lru_cache

from npusched.cost.adapt import cost_op
from npusched.cost.blocks import find_block
from npusched.cost.buffering import Candidate, Encode
from npusched.cost.types import BlockConfig
from npusched.cost.weight_format import WeightFormat
from npusched.cost.weights import weight_bytes, weight_format
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.hardware.target import Target


def candidates_of(target: Target, graph: OpGraph) -> list[tuple[int, Candidate]]:
    """(op id, candidate) of every piece of every op, in execution order.

    Weight sizes are computed from the values for any slices (``weights.weight_bytes``). Raises
    TargetError if no block fits an op.
    """
    if target.accelerator is None:
        raise ValueError(f"{target.name} has no NPU")
    arena = {
        id_: target.roles.arena for id_, fm in graph.feature_maps.items() if not fm.is_constant
    }
    found: list[tuple[int, Candidate]] = []
    for op in graph.ops:
        if op.placement is Placement.CPU:
            found.append((op.id, Candidate(op=None)))
            continue
        form = weight_format(target, op, graph.feature_maps)
        described = cost_op(
            op,
            graph.feature_maps,
            arena,
            const_memory=target.roles.const,
            sparse=form.sparse,
            fast_weights=form.fast,
        )
        block = find_block(target.accelerator, described)
        candidate = Candidate(
            op=described,
            block=block,
            encode=None if op.weights is None else _encoder(target, op, block, form),
            weights_key="" if op.weights is None else op.weights.key,
        )
        found += [(op.id, candidate)] * op.count
    return found


def _encoder(target: Target, op: ScheduledOp, block: BlockConfig, form: WeightFormat) -> Encode:
    """Encoded bytes of a range of channels, remembered."""

    @lru_cache(maxsize=4096)
    def encode(start: int, end: int) -> int:
        return weight_bytes(target, op, block, borders=(start, end), form=form).total

    return encode
