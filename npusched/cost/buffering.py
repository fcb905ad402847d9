"""Which weights are worth staging, and in which depth slices: Vela's own choice, computed.

``propose_buffering`` decides for one op, from what the op before leaves: time (its *slack* hides
DMA) and memory. ``propose_all`` walks a network. Everything follows from shapes, memories and
encoded sizes; the estimates compared are those of Vela's scheduler (VELA_SPEC_2 §6), which assume
all feature maps in the arena. Feature maps that could be staged instead (Dedicated_Sram) are not
weighed against weights: there a few ops that Vela leaves alone come out as staged.
Sources: VELA_SPEC_2 §7; Vela 5.2.0, scheduler.cpp (ProposeSlicedWeightBuffering,
TryWeightBuffering, EstimateSlicedOpPerformance).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from npusched.cost.arith import bandwidth, float32, read_limit_cycles, round_up, unpermuted
from npusched.cost.bursts import Channel, channel_bandwidth, dma_cycles, fm_memory
from npusched.cost.cycles import npu_op_cycles
from npusched.cost.op_cost import as_scheduled, receptive_field, reshaped, slack_of
from npusched.cost.transfers import feature_map_flows, weight_refetches
from npusched.cost.types import Basis, BlockConfig, CostOp
from npusched.graph.types import Reverse
from npusched.hardware.target import AcceleratorU85, Memory, Target

SPLIT_DEPTH = 16
"""Channels below which nothing is sliced (Vela 5.2.0, OFM_SPLIT_DEPTH)."""

STARTUP_CYCLES = 1000
"""Delay that Vela accepts at the start of a schedule, and per slice (STARTUP_DELAY_CYCLES)."""

UNLIMITED_BYTES = 1 << 30
"""Largest buffer limit that Vela works with."""

LOWEST_UTILISATION = 0.3
"""Smallest share of a block's depth that a slice may have, if the op's own cycles dominate."""

Borders: TypeAlias = tuple[int, ...]
"""First channel of each depth slice, and the depth."""

Encode: TypeAlias = Callable[[int, int], int]
"""Encoded bytes (weights and scales) of the channels [start, end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A choice: slices, one buffer or two, and whether slice 0 is copied under the op before.

    ``sizes``: bytes of each slice. ``buffer_bytes``: of each buffer. ``lag_cycles``: cycles of the
    last slice, which hide the next op's DMA.
    """

    borders: Borders
    sizes: tuple[int, ...]
    buffer_bytes: tuple[int, ...]
    prefetched: bool
    lag_cycles: int

    @property
    def is_double(self) -> bool:
        """True if slices take turns in two buffers."""
        return len(self.buffer_bytes) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The op before: cycles and staging bytes that it leaves; a CPU op leaves none."""

    slack_cycles: int
    slack_bytes: int
    on_npu: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An op of a network, in order: described with all its maps in the arena.

    ``block`` None: it runs on the CPU or has no block. ``encode`` None: it has no weights to stage.
    ``weights_key``: equal keys mean the same weights.
    """

    op: CostOp | None
    block: BlockConfig | None = None
    encode: Encode | None = None
    weights_key: str = ""


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Vela's estimates for one way to run an op (EstimatedPerf)."""

    run: int
    with_dma: int
    visible: int
    weights: int
    ifm: int
    last_slice: int


def propose_all(
    target: Target, ops: Sequence[Candidate], *, limit_bytes: int = UNLIMITED_BYTES
) -> list[Staged | None]:
    """Choices for all ops of a network in execution order; None = weights stay where they are."""
    choices: list[Staged | None] = []
    before: Before | None = None
    for index, candidate in enumerate(ops):
        choice = None
        if candidate.op is None or candidate.block is None:
            choices.append(None)
            on_npu = candidate.op is not None
            before = Before(slack_cycles=0, slack_bytes=limit_bytes if on_npu else 0, on_npu=on_npu)
            continue
        if candidate.encode is not None:
            choice = propose_buffering(
                target,
                candidate.op,
                candidate.block,
                candidate.encode,
                before=before,
                limit_bytes=limit_bytes,
                shared=_shares(ops, choices, index),
            )
        choices.append(choice)
        if choice is None:
            slack = slack_of(target, candidate.op, basis=Basis.VELA, block=candidate.block)
            before = Before(slack_cycles=slack, slack_bytes=limit_bytes)
        else:
            last = choice.buffer_bytes[(len(choice.sizes) - 1) % len(choice.buffer_bytes)]
            before = Before(slack_cycles=choice.lag_cycles, slack_bytes=limit_bytes - last)
    return choices


def _shares(ops: Sequence[Candidate], choices: Sequence[Staged | None], index: int) -> bool:
    """True if the op before (for the first op: the one after) has the same weights in one piece."""
    other = index - 1 if index else 1
    if not ops[index].weights_key or not 0 <= other < len(ops):
        return False
    whole = index == 0 or choices[other] is None or len(_must(choices[other]).sizes) == 1
    return whole and ops[other].weights_key == ops[index].weights_key


def _must(choice: Staged | None) -> Staged:
    assert choice is not None
    return choice


def propose_buffering(
    target: Target,
    op: CostOp,
    block: BlockConfig,
    encode: Encode,
    *,
    before: Before | None,
    limit_bytes: int = UNLIMITED_BYTES,
    shared: bool = False,
) -> Staged | None:
    """Vela's choice for one op outside cascades; None = leave the weights where they are.

    ``before`` None: the first op. ``limit_bytes``: staging memory that is free for buffers.
    ``shared``: the neighbour uses the same weights, so they are copied whole, once.
    """
    const, cache = target.const, target.cache
    if const.name == cache.name:
        return None
    query = _Query(target, op, block, encode)
    depth = query.depth
    full = encode(0, depth)
    transfer = query.copy_cycles(full)
    refetches = query.refetches(op)
    unmoved = refetches * query.read_cycles(const, full)
    moved = refetches * query.read_cycles(cache, full)
    if moved >= unmoved:
        return None
    slack = 0 if before is None else before.slack_cycles
    slack_bytes = limit_bytes if before is None else before.slack_bytes
    reference = query.estimate((0, depth), (full,), const, slack=0, is_double=False)
    dominated = reference.run > unmoved
    smallest = int(transfer * float(min(depth, SPLIT_DEPTH)) / depth)
    force = (
        (before is None or not before.on_npu)
        and refetches > 1
        and (smallest < unmoved // 10 or smallest <= STARTUP_CYCLES)
    )
    visible = max(transfer - slack, 0)
    better = moved + visible < unmoved
    can_slice = op.transpose is None and not _transposes(op) and op.reverse is Reverse.NONE
    method = ""
    if can_slice and (
        force
        or better
        or depth // block.ofm_block.c > 2
        or (before is not None and smallest < slack and refetches > 1)
    ):
        method = "sliced"
    hidden = visible < transfer // 20 or visible < STARTUP_CYCLES
    wanted = shared or (not can_slice and (hidden or force))
    if full <= limit_bytes and wanted and (better or not dominated):
        method = "shared" if shared else "whole"
    if not method:
        return None
    borders: Borders = (0, depth)
    if method == "sliced":
        ratio = _prebuffer_ratio(depth, full, transfer, slack, limit_bytes, dominated=dominated)
        if ratio < 1.0:
            found = _slices(query, full, transfer, ratio, limit_bytes // 2, dominated=dominated)
            if found is None:
                return None
            borders = found
    sizes = tuple(encode(start, end) for start, end in pairwise(borders))
    buffers = _buffers(sizes, limit_bytes)
    if not buffers:
        return None
    prefetched = before is not None and buffers[0] < slack_bytes
    usable = slack if prefetched else (STARTUP_CYCLES if force else 0)
    estimate = query.estimate(borders, sizes, cache, slack=usable, is_double=len(buffers) > 1)
    if method != "shared" and not _accept(
        reference, estimate, transfer, refetches, len(sizes), dominated=dominated, force=force
    ):
        return None
    return Staged(
        borders=borders,
        sizes=sizes,
        buffer_bytes=buffers,
        prefetched=prefetched,
        lag_cycles=estimate.last_slice,
    )


def _accept(
    reference: _Estimate,
    estimate: _Estimate,
    transfer: int,
    refetches: int,
    slices: int,
    *,
    dominated: bool,
    force: bool,
) -> bool:
    """Take what looks the same or better, scheduling noise of dominated ops removed."""
    old = max(reference.run, reference.weights, estimate.ifm)
    new = max(estimate.with_dma, estimate.weights, estimate.ifm)
    if dominated:
        if estimate.visible // slices < STARTUP_CYCLES:
            new -= estimate.visible
        if slices > 1 and estimate.with_dma == new and force:
            new -= slices * (STARTUP_CYCLES // 2)
    return old >= new and not (refetches == 1 and transfer + estimate.weights > old)


def _prebuffer_ratio(
    depth: int, full: int, transfer: int, slack: int, limit_bytes: int, *, dominated: bool
) -> float:
    """Share of the depth that is copied before the op starts; 1 = all of it."""
    least = min(SPLIT_DEPTH / depth, 1.0)
    half = min(float(limit_bytes // 2) / full, 1.0)
    hidden = min(float(slack) / transfer, 1.0)
    aligned = math.floor(hidden / least) * least
    ratio = 1.0 if 1.0 - aligned < least / 2 else hidden
    if dominated and 0.5 < ratio < 1.0:
        ratio = round_up(math.floor(depth * 0.5), SPLIT_DEPTH) / depth
        ratio = min(max(ratio, 0.5), 1.0)
    return min(max(ratio, least), half)


def _slices(
    query: _Query, full: int, transfer: int, ratio: float, half: int, *, dominated: bool
) -> Borders | None:
    """Slices whose copies the slices before can hide; None if blocks would be used too badly."""
    depth, block, least = query.depth, query.block.ofm_block.c, query.granule
    first = max(int(depth * ratio) // least * least, SPLIT_DEPTH)
    borders: Borders = (0, depth)
    step = 0
    if first < depth:
        run = query.first_slice_cycles(first)
        step = round_up(max(depth * run // transfer, SPLIT_DEPTH), block)
        if int(step / depth * full) > half:
            step = int(half / full * depth)
    while step:
        unit = block if step > block else least
        step = max(step // unit * unit, least)
        borders = (0, *range(first, depth, step), depth)
        largest = max(query.encode(start, end) for start, end in pairwise(borders))
        if largest <= half or (first == SPLIT_DEPTH and step == least):
            break
        if step > first:
            step = round_up(step // 2, least)
        else:
            first = round_up(first // 2, SPLIT_DEPTH)
    utilisation = float32(step / round_up(step, block)) if step else 1.0
    if len(borders) > 3 and dominated and utilisation < float32(LOWEST_UTILISATION):
        return None
    return borders


def _buffers(sizes: tuple[int, ...], limit_bytes: int) -> tuple[int, ...]:
    """Sizes of the buffers: two that take turns if they fit, else one; () if none fits."""
    if len(sizes) > 1:
        both = (max(sizes[::2]), max(sizes[1::2]))
        if sum(both) <= limit_bytes:
            return both
    return (max(sizes),) if max(sizes) <= limit_bytes else ()


def _transposes(op: CostOp) -> bool:
    return any(sub.transpose is not None for sub in op.subs)


class _Query:
    """One op whose ways to run are estimated, as Vela's scheduler sees it."""

    def __init__(self, target: Target, op: CostOp, block: BlockConfig, encode: Encode) -> None:
        self.target, self.block, self.encode = target, block, encode
        self.op = as_scheduled(target, op, keep_sparse=True)
        transpose = next(
            (t for t in (op.transpose, *(sub.transpose for sub in op.subs)) if t is not None), None
        )
        self.depth = unpermuted(op.written.shape, transpose)[3]
        u85 = isinstance(target.accelerator, AcceleratorU85)
        self.granule = max(SPLIT_DEPTH, block.ofm_ublock.c) if u85 else SPLIT_DEPTH

    def copy_cycles(self, size_bytes: int) -> int:
        """DMA from the constants' memory to the staging memory."""
        return dma_cycles(
            self.target,
            size_bytes,
            source=self.target.const,
            destination=self.target.cache,
            basis=Basis.VELA,
        )

    def read_cycles(self, memory: Memory, size_bytes: int) -> int:
        """Shortest time to read so many bytes of weights."""
        channel = Channel.FAST_WEIGHTS if self.op.fast_weights else Channel.WEIGHTS
        return self._limit(memory, size_bytes, channel)

    def _limit(self, memory: Memory, size_bytes: int, channel: Channel) -> int:
        accelerator = self.target.accelerator
        assert accelerator is not None
        rate = bandwidth(memory, Basis.VELA)
        if isinstance(accelerator, AcceleratorU85):
            rate = channel_bandwidth(accelerator, memory, channel, Basis.VELA)
        return read_limit_cycles(size_bytes, rate, memory.read_latency_cycles)

    def refetches(self, op: CostOp) -> int:
        """How often all weights are read."""
        return weight_refetches(self.target, op, self.block)

    def first_slice_cycles(self, depth: int) -> int:
        """Cycles of the first ``depth`` channels of the whole OFM."""
        n, h, w, _ = self.op.written.shape
        part = reshaped(self.op, ifm=self.op.ifm.shape, ofm=(n, h, w, depth))
        return npu_op_cycles(
            self.target,
            part,
            self.block,
            basis=Basis.VELA,
            last=False,
            bias_memory=self.target.roles.cache,
        )

    def estimate(
        self,
        borders: Borders,
        sizes: tuple[int, ...],
        memory: Memory,
        *,
        slack: int,
        is_double: bool,
    ) -> _Estimate:
        """Estimates with the weights in ``memory``; copies hide under the slice before."""
        target = self.target
        _, h, w, _ = self.op.written.shape
        copied = memory.name != target.const.name
        run = visible = ifm_bytes = weight_bytes = fetches = last = 0
        count = len(sizes)
        for index, (start, end) in enumerate(pairwise(borders)):
            area = (1, h, w, end - start)
            part = reshaped(self.op, ifm=receptive_field(self.op, area), ofm=area)
            ifm_bytes += feature_map_flows(target, part, self.block)[0].transferred_bytes
            refetches = self.refetches(part)
            weight_bytes += sizes[index] * refetches
            fetches += refetches
            last = npu_op_cycles(
                target,
                part,
                self.block,
                basis=Basis.VELA,
                first=index == 0,
                last=index == count - 1,
                bias_memory=memory.name,
            )
            if copied:
                visible += max(self.copy_cycles(sizes[index]) - slack, 0)
            run += last
            slack = last if is_double else 0
        weights = fetches * self.read_cycles(memory, weight_bytes // fetches) if fetches else 0
        return _Estimate(
            run=run,
            with_dma=run + visible,
            visible=visible,
            weights=weights,
            ifm=self._limit(fm_memory(target, self.op.ifm), ifm_bytes, Channel.IFM),
            last_slice=last,
        )
