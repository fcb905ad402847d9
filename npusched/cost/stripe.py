"""Cost of a kernel that runs in horizontal stripes of its OFM (DESIGN "Cost", PLANNER §1).

Each stripe is a kernel run of its own: the whole-op formulas on the stripe's real area, with the
block that fits the nominal stripe, its own fill and drain, its own reads of the weights. All
interior stripes cost the same, so a stripe's cost depends on its height, the IFM rows it touches,
the nominal height and where things lie; that is what results are memoised by.
"""

from __future__ import annotations

import math
from functools import lru_cache

from msgspec.structs import replace

from npusched.cost.arith import ceil_div, unpermuted
from npusched.cost.blocks import find_block, legal_blocks
from npusched.cost.cycles import npu_op_cycles
from npusched.cost.kinds import ELEMENTWISE, Unit, unit_of
from npusched.cost.op_cost import op_cost, receptive_field, reshaped
from npusched.cost.types import Basis, BlockConfig, CostFm, CostOp, OpCost, WeightBytes
from npusched.graph.types import KernelKind, Reverse, Shape4, Upscale
from npusched.hardware.target import Accelerator, Target

_WHOLE_INPUT = frozenset({KernelKind.GATHER, KernelKind.SCATTER, KernelKind.CPU})
"""Kernels whose rows may need any row of their input."""


def ofm_rows_total(op: CostOp) -> int:
    """Rows of the whole OFM (what stripes divide)."""
    return op.written.shape[1]


def rows_needed(op: CostOp, start: int, end: int) -> tuple[int, int]:
    """IFM rows [lo, hi) that OFM rows [start, end) need, clipped to the IFM.

    Stride, padding, dilation and x2 upscaling count. Kernels that move rows about (a transpose that
    touches H, a reversal of H, a gather) need all rows. Raises ValueError for an empty or
    out-of-range stripe.
    """
    rows = ofm_rows_total(op)
    if not 0 <= start < end <= rows:
        raise ValueError(f"rows [{start}, {end}) are not a stripe of {rows} rows")
    ifm_rows = op.ifm.shape[1]
    if _mixes_rows(op):
        return 0, ifm_rows
    if op.kind in ELEMENTWISE:
        return (start, end) if ifm_rows == rows else (0, ifm_rows)
    if op.kind is KernelKind.RESIZE:
        return _resize_rows(ifm_rows, rows, start, end)
    kernel = op.kernel
    low = start * kernel.stride_h - kernel.pad_top
    high = (end - 1) * kernel.stride_h - kernel.pad_top + kernel.dilated_h
    if op.upscale is not Upscale.NONE:
        low, high = low // 2, ceil_div(max(high, 0), 2)
    elif kernel.h == 1 and kernel.stride_h == 1 and ifm_rows != rows:
        return 0, ifm_rows  # a reduction or a reshape in height
    low = min(max(low, 0), ifm_rows - 1)
    return low, max(min(high, ifm_rows), low + 1)


def rows_needed_of(op: CostOp, fm: CostFm, start: int, end: int) -> tuple[int, int]:
    """Rows of a second (or chained) input that OFM rows [start, end) need: the same, or all."""
    rows = ofm_rows_total(op)
    return (start, end) if fm.shape[1] == rows and not _mixes_rows(op) else (0, fm.shape[1])


def stripe_cost(
    target: Target,
    op: CostOp,
    start: int,
    end: int,
    weights: WeightBytes | None = None,
    *,
    nominal_rows: int | None = None,
    basis: Basis = Basis.PHYSICAL,
    weights_memory: str | None = None,
    scales_memory: str | None = None,
    lut_loaded: bool = False,
    block: BlockConfig | None = None,
) -> OpCost:
    """Cost of OFM rows [start, end) of ``op`` (the CostOp of the whole op).

    ``nominal_rows``: height of the stripes that the block is fitted to (default: end - start).
    ``weights`` are read once per block row and column of this stripe from ``weights_memory``
    (default: the constants' memory), scales from ``scales_memory`` (default: the same); DMA that
    makes weights resident is the caller's (``bursts.dma_cycles``). ``lut_loaded``: the look-up
    table is already in the NPU. ``block``: default as Vela chooses it. The feature maps' memories
    are those in ``op``. Raises TargetError if no block fits.
    """
    low, high = rows_needed(op, start, end)
    second = 0
    if op.ifm2 is not None:
        low2, high2 = rows_needed_of(op, op.ifm2, start, end)
        second = high2 - low2
    return _stripe_cost(
        target,
        op,
        end - start,
        high - low,
        second,
        nominal_rows or end - start,
        weights or WeightBytes(),
        basis,
        weights_memory,
        scales_memory,
        lut_loaded,
        block,
    )


def stripe_block(target: Target, op: CostOp, rows: int) -> BlockConfig:
    """Block of stripes of ``rows`` OFM rows, fitted to the first one. Raises TargetError."""
    assert target.accelerator is not None
    low, high = rows_needed(op, 0, rows)
    second = 0
    if op.ifm2 is not None:
        low2, high2 = rows_needed_of(op, op.ifm2, 0, rows)
        second = high2 - low2
    return _fitted_block(target.accelerator, op, rows, high - low, second, rows)


def legal_stripe_blocks(target: Target, op: CostOp, rows: int) -> tuple[BlockConfig, ...]:
    """Blocks that stripes of ``rows`` OFM rows may have, where they can be enumerated."""
    assert target.accelerator is not None
    low, high = rows_needed(op, 0, rows)
    second = 0
    if op.ifm2 is not None:
        low2, high2 = rows_needed_of(op, op.ifm2, 0, rows)
        second = high2 - low2
    return legal_blocks(target.accelerator, _striped(op, rows, high - low, second))


def striped_nominal(
    target: Target,
    op: CostOp,
    rows: int,
    *,
    basis: Basis = Basis.VELA,
    bias_memory: str | None = None,
) -> int:
    """NPU cycles of an interior stripe, edges not clipped, times the number of stripes.

    trunc(max(1, H / rows) · stripe), a part of a stripe counted as such: with Vela's basis its
    ``est_op_cycles_without_buffering`` (VELA_SPEC_2 §6), for a single depth slice.
    ``bias_memory``: the staging memory if weights are staged, else (None) the constants'.
    """
    one = _interior_cycles(target, op, rows, basis, bias_memory)
    return math.trunc(max(1.0, ofm_rows_total(op) / rows) * one)


def _interior_cycles(
    target: Target, op: CostOp, rows: int, basis: Basis, bias_memory: str | None
) -> int:
    """NPU cycles of one batch of an interior stripe with its own block.

    A transpose fused into a convolution keeps the depth before transposition and the stored h and
    w, as Vela does.
    """
    assert target.accelerator is not None
    height = min(rows, ofm_rows_total(op))
    fitted = op
    if height < ofm_rows_total(op):
        second = min(height, op.ifm2.shape[1]) if op.ifm2 is not None else 0
        fitted = _striped(op, height, min(_unclipped_rows(op, height), op.ifm.shape[1]), second)
    block = find_block(target.accelerator, fitted)
    _, _, w, depth = op.written.shape
    if unit_of(target.accelerator, op.kind) in (Unit.CONV, Unit.DEPTHWISE):
        depth = unpermuted(op.written.shape, op.transpose)[3]
    area = (1, height, w, depth)
    stripe = reshaped(op, ifm=receptive_field(op, area), ofm=area)
    return npu_op_cycles(target, stripe, block, basis=basis, bias_memory=bias_memory)


def _unclipped_rows(op: CostOp, rows: int) -> int:
    """IFM rows of an interior stripe (VELA_SPEC_2 §6)."""
    kernel = op.kernel
    rounding = 1 if op.upscale is Upscale.NEAREST else 0
    needed = (rows - 1) * kernel.stride_h * op.ifm_step[0] + kernel.dilated_h + rounding
    return needed if op.upscale is Upscale.NONE else ceil_div(needed, 2)


@lru_cache(maxsize=1 << 17)
def _stripe_cost(
    target: Target,
    op: CostOp,
    rows: int,
    ifm_rows: int,
    ifm2_rows: int,
    nominal_rows: int,
    weights: WeightBytes,
    basis: Basis,
    weights_memory: str | None,
    scales_memory: str | None,
    lut_loaded: bool,
    block: BlockConfig | None,
) -> OpCost:
    assert target.accelerator is not None
    if lut_loaded and op.lut_is_primary:
        op = replace(op, lut_is_primary=False)
    return op_cost(
        target,
        _striped(op, rows, ifm_rows, ifm2_rows),
        weights,
        basis=basis,
        block=block
        or _fitted_block(target.accelerator, op, rows, ifm_rows, ifm2_rows, nominal_rows),
        weights_memory=weights_memory,
        scales_memory=scales_memory,
    )


@lru_cache(maxsize=65536)
def _fitted_block(
    accelerator: Accelerator,
    op: CostOp,
    rows: int,
    ifm_rows: int,
    ifm2_rows: int,
    nominal_rows: int,
) -> BlockConfig:
    """Block that fits stripes of the nominal height, of which this one may be a shorter one."""
    if nominal_rows != rows:
        height = min(nominal_rows, ofm_rows_total(op))
        if op.ifm2 is not None and ifm2_rows == rows:
            ifm2_rows = height
        rows, ifm_rows = height, min(_unclipped_rows(op, height), op.ifm.shape[1])
    return find_block(accelerator, _striped(op, rows, ifm_rows, ifm2_rows))


@lru_cache(maxsize=65536)
def _striped(op: CostOp, rows: int, ifm_rows: int, ifm2_rows: int) -> CostOp:
    """The op on a stripe: OFM and inputs cut to their rows, chained inputs too."""
    total = ofm_rows_total(op)
    cut = reshaped(
        op,
        ifm=_with_rows(op.ifm.shape, ifm_rows),
        ofm=_with_rows(op.ofm.shape, rows),
        ifm2=None if op.ifm2 is None else _with_rows(op.ifm2.shape, ifm2_rows),
    )
    if not any(sub.chained for sub in op.subs):
        return cut
    subs = tuple(
        replace(sub, ifm=_cut_input(sub.ifm, total, rows), ifm2=_cut_input(sub.ifm2, total, rows))
        for sub in cut.subs
    )
    return replace(cut, subs=subs)


def _cut_input(fm: CostFm | None, total: int, rows: int) -> CostFm | None:
    if fm is None or fm.shape[1] != total:
        return fm
    return replace(fm, shape=_with_rows(fm.shape, rows))


def _with_rows(shape: Shape4, rows: int) -> Shape4:
    n, _, w, c = shape
    return (n, rows, w, c)


@lru_cache(maxsize=65536)
def _mixes_rows(op: CostOp) -> bool:
    """True if an OFM row may need any IFM row."""
    permutes = [op.transpose, *(sub.transpose for sub in op.subs)]
    reverses = [op.reverse, *(sub.reverse for sub in op.subs)]
    if any(p is not None and p[0] != 0 for p in permutes) or Reverse.H in reverses:
        return True
    return op.kind in _WHOLE_INPUT


def _resize_rows(ifm_rows: int, rows: int, start: int, end: int) -> tuple[int, int]:
    """Rows around the source positions, whatever the centre convention: one row of margin."""
    low = max(start * ifm_rows // rows - 1, 0)
    high = min(ceil_div(end * ifm_rows, rows) + 1, ifm_rows)
    return min(low, ifm_rows - 1), max(high, 1)
