"""Encoded sizes of weights and scales (VELA_SPEC §5, VELA_SPEC_2 §7).

Sizes of scales follow from a formula. Sizes of weight streams depend on their values, on the OFM
block depth and the traversal; they are exact where Vela has encoded just that, else computed from
the values by ``weight_coding`` and marked as estimated. Over the corpus (1,706 ops per target) the
computed sizes (and on the U85 the chosen formats) equal Vela 5.2's for every op, on the targets
U55-32, -64, -128, -256, U65-256, -512 and all U85; so an estimate errs only where weight values are
unknown. The coders are imported where a size is computed: mostly it is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from npusched.cost.adapt import cost_op
from npusched.cost.arith import ceil_div, round_up
from npusched.cost.types import BlockConfig, Traversal, WeightBytes
from npusched.graph.types import FeatureMap, ScheduledOp, Weights
from npusched.hardware.target import Accelerator, AcceleratorU55, AcceleratorU85, Target

if TYPE_CHECKING:
    from npusched.cost.weight_format import WeightFormat

SCALE_BYTES = 10
"""Encoded bias, multiplier and shift of one channel (VELA_SPEC §5)."""


class EncodedKey(msgspec.Struct, frozen=True):
    """What an encoded weight stream depends on (DESIGN "Cost")."""

    weights: str
    ofm_block_depth: int
    traversal: Traversal
    slice: int = 0
    core: int = 0


EncodedWeights: TypeAlias = Mapping[EncodedKey, int]
"""Bytes of weight streams that are known exactly."""


def weight_bytes(
    target: Target,
    op: ScheduledOp,
    block: BlockConfig,
    known: EncodedWeights | None = None,
    *,
    borders: tuple[int, ...] | None = None,
    form: WeightFormat | None = None,
) -> WeightBytes:
    """Encoded bytes of an op's weights and scales, all slices and cores.

    ``borders``: first channel of each depth slice and the depth, e.g. (0, 32, 64); default one
    slice. ``form``: their format, by default as Vela chooses it. ``exact`` only if ``known`` has
    every stream. No weights: nothing, exactly.
    """
    if op.weights is None:
        return WeightBytes(exact=True)
    accelerator = target.accelerator
    if accelerator is None:
        raise ValueError(f"{target.name} has no NPU")
    depth = op.weights.shape[0]
    borders = borders or (0, depth)
    slices = list(pairwise(borders))
    scales = 0
    if op.has_scales:
        scales = sum(scale_bytes(accelerator, b - a, block.ofm_ublock.c) for a, b in slices)
    found = _lookup(accelerator, op.weights.key, block, known or {}, slices)
    if found is not None:
        return WeightBytes(found, scales, exact=True)
    if form is None:
        from npusched.cost.weight_format import choose_format

        choice = choose_format(target, op, cost_op(op, {}, {}))
        if choice.block == block and len(slices) == 1:
            return WeightBytes(choice.size_bytes, scales, exact=False)
        form = choice.form
    streams = _estimate(accelerator, op, op.weights, block, slices, form)
    return WeightBytes(streams, scales, exact=False)


def estimate_weights(target: Target, op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    """Estimated bytes of an op's weights in one slice, from their values."""
    return weight_bytes(target, op, block)


def scale_bytes(accelerator: Accelerator, channels: int, ublock_channels: int) -> int:
    """Encoded scales of one depth slice, padding included.

    U55, U65: each core's channels, rounded up to 16 bytes. U85: channels rounded up to the
    micro-block (at least 16) (VELA_SPEC_2 §7).
    """
    if isinstance(accelerator, AcceleratorU55):
        cores = min(accelerator.cores, channels)
        return sum(
            round_up(SCALE_BYTES * ceil_div(channels - core, cores), 16) for core in range(cores)
        )
    return SCALE_BYTES * round_up(channels, max(16, ublock_channels))


def weight_format(
    target: Target, op: ScheduledOp, feature_maps: Mapping[int, FeatureMap] | None = None
) -> WeightFormat:
    """Return the format that Vela gives the op's weights (only the U85 has several).

    ``feature_maps`` of the graph give layouts; without them all count as bricks.
    """
    from npusched.cost.weight_format import WeightFormat, choose_format

    if not isinstance(target.accelerator, AcceleratorU85) or op.weights is None:
        return WeightFormat()
    return choose_format(target, op, cost_op(op, feature_maps or {}, {})).form


def uses_sparse_weights(target: Target, op: ScheduledOp) -> bool:
    """True if Vela would encode the op's weights 2:4 (see ``weight_format``)."""
    if op.weights is None or not isinstance(target.accelerator, AcceleratorU85):
        return False
    from npusched.cost.weight_values import is_sparse

    return is_sparse(op.weights) and weight_format(target, op).sparse


def _lookup(
    accelerator: Accelerator,
    key: str,
    block: BlockConfig,
    known: EncodedWeights,
    slices: list[tuple[int, int]],
) -> int | None:
    """Sum of all known streams; None if one is missing."""
    total = 0
    for index, (start, end) in enumerate(slices):
        cores = accelerator.cores
        if isinstance(accelerator, AcceleratorU55):
            cores = min(cores, end - start)
        for core in range(cores):
            size = known.get(EncodedKey(key, block.ofm_block.c, block.traversal, index, core))
            if size is None:
                return None
            total += size
    return total


def _estimate(
    accelerator: Accelerator,
    op: ScheduledOp,
    weights: Weights,
    block: BlockConfig,
    slices: list[tuple[int, int]],
    form: WeightFormat,
) -> int:
    """Sum of all streams' lengths; unknown values count one byte each."""
    from npusched.cost.weight_coding import encoded_bytes
    from npusched.cost.weight_format import fast_bytes
    from npusched.cost.weight_stream import core_streams
    from npusched.cost.weight_values import centred

    values = centred(weights)
    if values is None:
        return round_up(weights.elements, 16)
    bits = op.ifms[0].dtype.bits
    total = 0
    for start, end in slices:
        streams = core_streams(
            accelerator, values[start:end], op.kernel, block, bits, sparse=form.sparse
        )
        if form.fast:
            total += fast_bytes(streams, sparse=form.sparse)
        else:
            total += sum(encoded_bytes(stream) for stream in streams)
    return total
