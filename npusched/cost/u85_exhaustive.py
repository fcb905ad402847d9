"""Ethos-U85 blocks of convolutions, matrix products, resizes and copies: an exhaustive search.

All candidate blocks are costed at once, in float32 and in the operation order of Vela, since ties
decide. Source: VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp (FindBlockConfig, TryBlockConfig,
CalcResizeMaxOfmBlockWidth).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.cost.arith import round_up
from npusched.cost.u85_query import (
    ACC_DEPTH_GRANULE,
    BRICK_ELEMENTS,
    CHAIN_BUFFER_SLOTS,
    SUBKERNEL_SIZE,
    BlockQuery,
    BlockUnit,
    allocation_unit,
    volume,
)
from npusched.graph.types import Upscale
from npusched.hardware.target import AcceleratorU85, Block

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]


class SearchSpace(msgspec.Struct, frozen=True):
    """Candidate extents of a block (elements): each axis is a list, all combinations are tried."""

    heights: Ints
    widths: Ints
    depths: Ints


class Candidates(msgspec.Struct, frozen=True):
    """Blocks with the IFM blocks they need: arrays of shape (depths, areas), or broadcastable."""

    h: Ints
    w: Ints
    c: Ints
    ifm_h: Ints
    ifm_w: Ints
    ifm_c: Ints
    ifm_unit_c: Ints


def search(
    accelerator: AcceleratorU85,
    query: BlockQuery,
    ublock: Block,
    granule: Block,
    limit: Block,
    fixed_depth: int,
) -> tuple[Block, Block] | None:
    """Return (OFM block, IFM block) of least cost, or None if nothing fits.

    Two blocks must fit into the input and accumulator buffers; if none does, one suffices.
    """
    space = _search_space(accelerator, query, ublock, granule, limit)
    if not space.depths.size or not space.heights.size or not space.widths.size:
        return None
    for resident in (2, 1):
        candidates = _candidates(accelerator, query, ublock, space, fixed_depth, resident)
        fits = _fits(accelerator, query, candidates, resident)
        if fits.any():
            return _cheapest(query, candidates, fits, fixed_depth)
    return None


def every_block(
    accelerator: AcceleratorU85,
    query: BlockQuery,
    ublock: Block,
    granule: Block,
    limit: Block,
    fixed_depth: int,
) -> list[tuple[Block, Block]]:
    """Every (OFM block, IFM block) that fits twice; of as many pieces of the OFM the smallest."""
    space = _search_space(accelerator, query, ublock, granule, limit)
    if not space.depths.size or not space.heights.size or not space.widths.size:
        return []
    _, ofm_h, ofm_w, _ = query.ofm
    space = SearchSpace(
        _smallest_per_count(space.heights, ofm_h),
        _smallest_per_count(space.widths, ofm_w),
        space.depths,
    )
    candidates = _candidates(accelerator, query, ublock, space, fixed_depth, 2)
    fits = _fits(accelerator, query, candidates, 2)
    return [
        _blocks_at(query, candidates, int(row), int(column), fixed_depth)
        for row, column in np.argwhere(fits)
    ]


def _smallest_per_count(sizes: Ints, extent: int) -> Ints:
    """For each number of blocks in ``extent`` the smallest size."""
    counts = -(-extent // sizes)
    first = np.flatnonzero(np.diff(counts, prepend=-1) != 0)
    return sizes[first]


def resize_width_limit(accelerator: AcceleratorU85, query: BlockQuery) -> int:
    """Widest OFM block (elements) whose IFM block still fits into a chain buffer slot."""
    numerator, denominator = query.resize_w
    slot_bytes = accelerator.chain_buffer_bytes // CHAIN_BUFFER_SLOTS
    bricks = slot_bytes // (BRICK_ELEMENTS * (query.ifm_bits // 8))
    widest = -(-((bricks - 2) * numerator + 1) // denominator)
    return max(1, min(widest, accelerator.max_ofm_block.w))


def _search_space(
    accelerator: AcceleratorU85, query: BlockQuery, ublock: Block, granule: Block, limit: Block
) -> SearchSpace:
    """Multiples of max(micro-block, granule) up to the OFM or the limit; depths see below."""
    _, ofm_h, ofm_w, ofm_c = query.ofm
    step_h, step_w = max(ublock.h, granule.h), max(ublock.w, granule.w)
    end_h = round_up(max(min(ofm_h, limit.h), step_h), ublock.h)
    end_w = round_up(max(min(ofm_w, limit.w), step_w), ublock.w)
    end_c = round_up(max(min(ofm_c, limit.c), ublock.c, granule.c), ublock.c)
    if query.unit is BlockUnit.RESIZE:
        widest = resize_width_limit(accelerator, query)
        step_h, step_w = 1, min(step_w, widest)
        end_h, end_w, end_c = 1, widest, 16
    if query.reverse_c:
        end_c = min(end_c, 16)
    return SearchSpace(
        np.arange(step_h, end_h + 1, step_h, dtype=np.int64),
        np.arange(step_w, end_w + 1, step_w, dtype=np.int64),
        np.array(_depths(ublock.c, end_c, ofm_c), dtype=np.int64),
    )


def _depths(step: int, end: int, ofm_c: int) -> list[int]:
    """Depths from one micro-block (or 16) up, multiples of 16 until the OFM is covered."""
    depth = max(step, min(end, ACC_DEPTH_GRANULE))
    depths: list[int] = []
    while True:
        if depth < ofm_c:
            depth = round_up(depth, ACC_DEPTH_GRANULE)
        if depth > end:
            return depths
        depths.append(depth)
        depth += step


def _candidates(
    accelerator: AcceleratorU85,
    query: BlockQuery,
    ublock: Block,
    space: SearchSpace,
    fixed_depth: int,
    resident: int,
) -> Candidates:
    """All blocks in search order (depth, height, width), without areas that no depth can fit."""
    h, w = (grid.ravel() for grid in np.meshgrid(space.heights, space.widths, indexing="ij"))
    if query.unit is not BlockUnit.RESIZE:
        least = round_up(int(space.depths[0]), ACC_DEPTH_GRANULE) * query.accumulator_bits // 8
        fits = h * w * (least * resident) <= accelerator.accumulator_buffer_bytes
        h, w = h[fits], w[fits]
    c = space.depths[:, None]
    equal_depth = _is_equal_depth(query)
    ifm_depths = [int(d) for d in space.depths] if equal_depth else [fixed_depth]
    units = [allocation_unit(accelerator, ublock, d, query.ifm_bits) for d in ifm_depths]
    unit_h = np.array([[unit.h] for unit in units], dtype=np.int64)
    unit_w = np.array([[unit.w] for unit in units], dtype=np.int64)
    unit_c = np.array([[unit.c] for unit in units], dtype=np.int64)
    window = query.window
    return Candidates(
        h=h,
        w=w,
        c=c,
        ifm_h=_ceil_to(_needed(h, window.stride_h, window.dilated_h, query.upscale), unit_h),
        ifm_w=_ceil_to(_needed(w, window.stride_w, window.dilated_w, query.upscale), unit_w),
        ifm_c=_ceil_to(np.array(ifm_depths, dtype=np.int64)[:, None], unit_c),
        ifm_unit_c=unit_c,
    )


def _fits(
    accelerator: AcceleratorU85, query: BlockQuery, candidates: Candidates, resident: int
) -> npt.NDArray[np.bool_]:
    """Which candidates fit ``resident`` times into the input and the accumulator buffer."""
    area = candidates.h * candidates.w
    depth = _ceil_to(candidates.c, np.int64(ACC_DEPTH_GRANULE))
    if query.unit is BlockUnit.RESIZE:
        return np.ones(np.broadcast_shapes(depth.shape, area.shape), dtype=np.bool_)
    accumulator_bytes = area * depth * query.accumulator_bits // 8 * resident
    if _is_equal_depth(query):
        stored_c = _ceil_to(candidates.c, candidates.ifm_unit_c)
    else:
        channels = np.minimum(candidates.ifm_c, query.larger_ifm[3])
        stored_c = _ceil_to(channels, candidates.ifm_unit_c)
    ifm_bytes = candidates.ifm_h * candidates.ifm_w * stored_c * (query.ifm_bits // 8) * resident
    fits: npt.NDArray[np.bool_] = (ifm_bytes <= accelerator.input_buffer_bytes) & (
        accumulator_bytes <= accelerator.accumulator_buffer_bytes
    )
    return fits


def _cheapest(
    query: BlockQuery, candidates: Candidates, fits: npt.NDArray[np.bool_], fixed_depth: int
) -> tuple[Block, Block]:
    """Pick the least cost; of equals the first, unless a later small one covers the IFM better.

    "Small" is at most 4 x 4 (any size for matrix products), "better" at least as well: the
    sequential rule of Vela, of which only the candidates of least cost decide.
    """
    costs = np.broadcast_to(_costs(query, candidates), fits.shape)
    least = costs[fits].min()
    rows, columns = np.nonzero(fits & (costs == least))
    pick = 0
    if rows.size > 1:
        h, w = candidates.h[columns[1:]], candidates.w[columns[1:]]
        allowed = np.flatnonzero(((h <= 4) & (w <= 4)) | (query.unit is BlockUnit.MATMUL)) + 1
        if allowed.size:
            coverage = _coverage(query, candidates)
            coverage = np.broadcast_to(coverage, fits.shape)[rows[allowed], columns[allowed]]
            pick = int(allowed[np.flatnonzero(coverage == coverage.min())[-1]])
    return _blocks_at(query, candidates, int(rows[pick]), int(columns[pick]), fixed_depth)


def _blocks_at(
    query: BlockQuery, candidates: Candidates, row: int, column: int, fixed_depth: int
) -> tuple[Block, Block]:
    """OFM and IFM block of one candidate (row: depth, column: area)."""
    block = Block(int(candidates.h[column]), int(candidates.w[column]), int(candidates.c[row, 0]))
    unit_row = row if candidates.ifm_c.shape[0] > 1 else 0
    ifm = Block(
        int(candidates.ifm_h[unit_row, column]),
        int(candidates.ifm_w[unit_row, column]),
        block.c if _is_equal_depth(query) else fixed_depth,
    )
    return block, ifm


def _costs(query: BlockQuery, candidates: Candidates) -> Floats:
    """Elements fetched per OFM element (IFM and weights), float32; halved if all IFM fits."""
    f32 = np.float32
    _, ofm_h, ofm_w, ofm_c = query.ofm
    h, w, c = (axis.astype(f32) for axis in (candidates.h, candidates.w, candidates.c))
    elements = f32(volume(query.ofm))
    window, ifm = query.window, query.larger_ifm
    if _compares_volume(query):
        costs = elements / (h * w * c)
    else:
        blocks_h, blocks_w, blocks_c = f32(ofm_h) / h, f32(ofm_w) / w, f32(ofm_c) / c
        taps = window.h * window.w if query.unit is BlockUnit.CONVOLUTION else 0
        weights = f32(taps) * f32(ifm[3]) * (np.ceil(blocks_w) * np.ceil(blocks_h))
        weights = weights * (blocks_c * c)
        repeats = -(-window.dilated_w // SUBKERNEL_SIZE) * -(-window.dilated_h // SUBKERNEL_SIZE)
        area = (candidates.ifm_h * candidates.ifm_w).astype(f32)
        fetched = area * f32(ifm[3]) * f32(repeats) * (blocks_w * blocks_h)
        if not _is_equal_depth(query):
            fetched = fetched * np.ceil(blocks_c)
        costs = (fetched + weights) / elements
    ifm_volume = candidates.ifm_h * candidates.ifm_w * candidates.ifm_c
    halved: Floats = np.where(volume(ifm) < ifm_volume * 2, costs / f32(2), costs)
    return halved


def _coverage(query: BlockQuery, candidates: Candidates) -> Floats:
    """IFM area per IFM block area that lies inside it (float32); 1 = one block covers all."""
    _, ifm_h, ifm_w, _ = query.larger_ifm
    inside = np.minimum(candidates.ifm_h, ifm_h) * np.minimum(candidates.ifm_w, ifm_w)
    coverage: Floats = np.float32(ifm_h * ifm_w) / np.maximum(inside, 1).astype(np.float32)
    return coverage


def _is_equal_depth(query: BlockQuery) -> bool:
    """True if the IFM block is as deep as the OFM block."""
    return query.pool_like or query.unit is BlockUnit.RESIZE


def _compares_volume(query: BlockQuery) -> bool:
    """True if the largest block simply wins: resizes, matrix products, whole-IFM windows."""
    if query.unit in {BlockUnit.RESIZE, BlockUnit.MATMUL}:
        return True
    window, ifm = query.window, query.larger_ifm
    whole = (window.dilated_h, window.dilated_w) == ifm[1:3]
    return query.unit is BlockUnit.CONVOLUTION and whole and query.ofm[1] * query.ofm[2] == 1


def _needed(extent: Ints, stride: int, dilated: int, upscale: Upscale) -> Ints:
    """IFM rows or columns that ``extent`` OFM rows or columns need."""
    need = (extent - 1) * stride + min(dilated, SUBKERNEL_SIZE)
    if upscale is Upscale.NONE:
        return need
    return -(-(need + (upscale is Upscale.NEAREST)) // 2)


def _ceil_to(value: Ints, step: Ints | np.int64) -> Ints:
    """Round up to multiples of ``step``, element by element."""
    return -(-value // step) * step
