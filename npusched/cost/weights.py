"""Encoded sizes of weights and scales (VELA_SPEC §5, VELA_SPEC_2 §7).

Sizes of scales follow from a formula. Sizes of weight streams depend on their values, on the OFM
block depth and the traversal; they are exact where Vela has encoded just that, else computed from
the values by ``weight_coding`` and marked as estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from npusched.cost.arith import ceil_div, round_up
from npusched.cost.types import BlockConfig, Traversal, WeightBytes
from npusched.cost.weight_coding import encoded_bytes
from npusched.cost.weight_stream import Values, core_streams
from npusched.graph.types import KernelKind, ScheduledOp, Weights
from npusched.hardware.target import Accelerator, AcceleratorU55, AcceleratorU85, Target

_LARGEST_SPARSE = 127
"""Largest magnitude that the 2:4 format holds."""

SCALE_BYTES = 10
"""Encoded bias, multiplier and shift of one channel (VELA_SPEC §5)."""


@dataclass(frozen=True, slots=True)
class EncodedKey:
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
) -> WeightBytes:
    """Encoded bytes of an op's weights and scales, all slices and cores.

    ``borders``: first channel of each depth slice and the depth, e.g. (0, 32, 64); default one
    slice. ``exact`` only if ``known`` has every stream. No weights: nothing, exactly.
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
    sparse = uses_sparse_weights(target, op)
    streams = _estimate(accelerator, op, op.weights, block, slices, sparse=sparse)
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


def is_sparse(weights: Weights) -> bool:
    """True if every four neighbouring input channels hold at least two zeros (2:4, U85).

    Channels beyond the last count as zeros, so one or two input channels always qualify (Vela
    5.2.0, ethos_u85_weight_encoder.cpp, the sparsity check).
    """
    values = _centred(weights)
    if values is None or int(np.abs(values).max(initial=0)) > _LARGEST_SPARSE:
        return False
    missing = -values.shape[3] % 4
    padded = np.pad(values, ((0, 0), (0, 0), (0, 0), (0, missing)))
    zeros = (padded.reshape(-1, 4) == 0).sum(axis=1)
    return bool((zeros >= 2).all())


def uses_sparse_weights(target: Target, op: ScheduledOp) -> bool:
    """True if Vela would encode the op's weights 2:4 (U85, not depthwise, weights that allow it).

    Vela also asks that the op is not slower for it, which 2:4 never makes it (VELA_SPEC §3.3).
    """
    if not isinstance(target.accelerator, AcceleratorU85) or op.weights is None:
        return False
    return op.kind is not KernelKind.DEPTHWISE and is_sparse(op.weights)


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
    *,
    sparse: bool,
) -> int:
    """Sum of all streams' lengths; unknown values count one byte each."""
    values = _centred(weights)
    if values is None:
        return round_up(weights.elements, 16)
    bits = op.ifms[0].dtype.bits
    return sum(
        encoded_bytes(stream)
        for start, end in slices
        for stream in core_streams(
            accelerator, values[start:end], op.kernel, block, bits, sparse=sparse
        )
    )


def _centred(weights: Weights) -> Values | None:
    """Weights minus zero points as (O, H, W, I), None if the values are not known."""
    if weights.values is None:
        return None
    values = np.asarray(weights.values).reshape(weights.shape).astype(np.int32)
    zero_points = np.asarray(weights.zero_points, dtype=np.int32)
    if len(zero_points) == values.shape[0]:
        zero_points = zero_points.reshape(-1, 1, 1, 1)
    else:
        zero_points = zero_points[:1]
    centred: Values = np.clip(values - zero_points, -255, 255).astype(np.int16)
    return centred
