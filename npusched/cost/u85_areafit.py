"""Ethos-U85 blocks of depthwise convolutions, pools and sums: an area fitted to the buffers.

For every depth the OFM's aspect ratio is scaled down until accumulators and IFM fit; the fit that
wastes least wins, and is shrunk until one more row of IFM can be read ahead. Source: VELA_SPEC_2
§9; Vela 5.2.0, ethos_u85.cpp (AreaFit, FitAreaByAspect, BestTile, FindDepthwiseConfig).
"""

from __future__ import annotations

from math import sqrt

import msgspec

from npusched.cost.arith import round_up
from npusched.cost.u85_query import (
    ACC_DEPTH_GRANULE,
    Window,
    allocation_unit,
    ifm_block,
)
from npusched.hardware.target import AcceleratorU85, Block

_UNCHANGED_ROUNDS = 25
"""Rounds without progress after which the area is cut by a tenth."""


class AreaProblem(msgspec.Struct, frozen=True):
    """One fit. ``ofm`` is rounded to ``granule``; ``limit`` is the largest block; elements.

    ``ifm`` is (h, w, c) of the first input. ``fixed_depth`` 0 = the IFM block is as deep as the
    OFM block. ``accumulators`` and ``inputs`` are the buffers' capacities in elements.
    """

    accelerator: AcceleratorU85
    ublock: Block
    granule: Block
    ofm: Block
    limit: Block
    ifm: Block
    window: Window
    ifm_bits: int
    fixed_depth: int
    accumulators: int
    inputs: int

    def unit(self, depth: int) -> Block:
        """IFM allocation unit for an OFM block of ``depth`` channels."""
        return allocation_unit(
            self.accelerator, self.ublock, self.fixed_depth or depth, self.ifm_bits
        )

    @property
    def accumulator_quantum(self) -> int:
        """Accumulators of one micro-block area, 16 deep."""
        return self.ublock.h * self.ublock.w * ACC_DEPTH_GRANULE


def fit_area(problem: AreaProblem) -> tuple[Block, Block] | None:
    """Return (OFM block, IFM block), or None if nothing fits."""
    fitted = _best_fit(problem)
    return None if fitted is None else _leave_room_for_a_row(problem, fitted)


def _best_fit(problem: AreaProblem) -> Block | None:
    """Try every depth from 16 up; stop at a block that covers the OFM, or when none fits."""
    ofm, limit = problem.ofm, problem.limit
    deepest = min(
        max(
            problem.accelerator.macs_per_cycle,
            problem.accumulators // problem.accumulator_quantum,
        ),
        limit.c,
    )
    best: Block | None = None
    best_metric = float("inf")
    for depth in range(ACC_DEPTH_GRANULE, deepest + 1, ACC_DEPTH_GRANULE):
        fitted = _fit_at_depth(problem, depth)
        if fitted is None:
            break
        metric = _waste(problem, fitted)
        if metric < best_metric:
            best, best_metric = fitted, metric
            if fitted.h >= ofm.h and fitted.w >= ofm.w and fitted.c >= ofm.c:
                return ofm
    return best


def _fit_at_depth(problem: AreaProblem, depth: int) -> Block | None:
    """Scale the area down until accumulators and IFM fit; None if that ends below a micro-block."""
    quantum = problem.accumulator_quantum
    unit = problem.unit(depth)
    ifm = problem.ifm
    whole_ifm = round_up(ifm.h, unit.h) * round_up(ifm.w, unit.w) * round_up(ifm.c, unit.c)
    budget = problem.accumulators
    used_before = -1
    patience = _UNCHANGED_ROUNDS
    while True:
        block = _shape_area(problem, budget // depth, depth)
        used = block.h * block.w * depth
        need = ifm_block(problem.window, block, unit, problem.fixed_depth)
        accumulator_ratio = problem.accumulators / used
        input_ratio = problem.inputs / min(need.h * need.w * need.c, whole_ifm)
        if accumulator_ratio >= 1.0 and input_ratio >= 1.0:
            return block
        if used == used_before:
            patience -= 1
            if patience <= 0:
                input_ratio = 0.9
        used_before = used
        if input_ratio < 1.0 < accumulator_ratio:
            budget = min(budget, used)
        quanta = int(budget // quantum * min(input_ratio, accumulator_ratio))
        scaled = max(quanta, 0) * quantum
        if scaled == budget:
            scaled = budget - quantum
        if scaled < quantum:
            return None
        budget = scaled


def _shape_area(problem: AreaProblem, area: int, depth: int) -> Block:
    """A block of about ``area`` pixels with the OFM's aspect, in granules, evenly tiling W."""
    ofm, limit, granule = problem.ofm, problem.limit, problem.granule
    aspect = ofm.h / ofm.w
    width = sqrt(area / aspect)
    height = width * aspect
    if height < 1.0:
        width, height = width * height, 1.0
    elif width < 1.0:
        height, width = height * width, 1.0
    w = min(_whole_granules(int(width), granule.w), limit.w)
    h = min(_whole_granules(int(height), granule.h), limit.h)
    pixels = w * h
    if w < ofm.w:
        w = _even_tile(ofm.w, granule.w, w)
    return Block(_whole_granules(pixels // w, granule.h), w, depth)


def _waste(problem: AreaProblem, block: Block) -> float:
    """Figure of merit of a fit, 1 = perfect: area coverage x distance in depth x unused units."""
    ofm = problem.ofm
    unit_depth = problem.unit(block.c).c
    used = block.c % unit_depth or unit_depth
    waste = 1.0 + ((unit_depth - used) / unit_depth) / 10
    fit = 1.0 + abs(1.0 - problem.limit.c / block.c) / 10
    if problem.window.dilated_h == problem.window.dilated_w == 1:
        coverage = 1.0 + abs(1.0 - float(ofm.w * ofm.c) / (block.w * block.c))
    else:
        coverage = 1.0 + abs(1.0 - float(ofm.h * ofm.w) / (block.w * block.h))
    return coverage * fit * waste


def _leave_room_for_a_row(problem: AreaProblem, fitted: Block) -> tuple[Block, Block]:
    """Shrink a block that does not cover the OFM until one granule row of IFM fits beside it."""
    ofm, granule = problem.ofm, problem.granule
    h, w, c = fitted.h, fitted.w, fitted.c
    force = 0
    while True:
        unit = problem.unit(c)
        need = ifm_block(problem.window, Block(h, w, c), unit, problem.fixed_depth)
        if w >= ofm.w and h >= ofm.h and c >= ofm.c:
            break
        row = ifm_block(problem.window, Block(granule.h, w, c), unit, problem.fixed_depth)
        if problem.inputs - need.h * need.w * need.c >= row.h * row.w * row.c:
            break
        if (h != ofm.h or force & 2) and h > granule.h:
            h -= granule.h
        elif (c > w or force & 1) and c > granule.c:
            c -= granule.c
        elif (w != ofm.w or force & 4) and w > granule.w:
            w -= granule.w
        elif force != 7:
            force = force << 1 | 1
        elif c > granule.c:
            c = max(c // 2, granule.c)
        else:
            break
    return Block(h, w, c), need


def _whole_granules(value: int, granule: int) -> int:
    """Round down to granules, at least one."""
    return max(value // granule * granule, granule)


def _even_tile(extent: int, granule: int, tile: int) -> int:
    """Return the tile, at most ``tile``, whose last piece of ``extent`` is the fullest."""
    if extent % tile == 0:
        return tile
    even = max(round_up(extent // (extent // tile + 1), granule), granule)
    smallest = max(even - 2 * granule, (even + 1) // 2, granule)
    best, best_rest = tile, extent % tile
    for candidate in range(tile, smallest - 1, -granule):
        rest = extent % candidate or candidate
        if rest > best_rest:
            best, best_rest = candidate, rest
    return best
