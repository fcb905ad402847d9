"""Part of ``check_plan``: buffers that share an address on purpose, copies, weight buffers."""

from __future__ import annotations

from collections.abc import Sequence

from npusched.graph.kinds import POOLS, is_elementwise_like
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.memory import Allocation, LiveRange, align_up, check_allocation
from npusched.schedule.check_overlaps import overlap_faults
from npusched.schedule.types import Buffer, BufferKind, Plan, WeightMode


def live_ranges(buffers: Sequence[Buffer]) -> list[LiveRange]:
    """Live ranges of one memory's buffers in half steps, in order (step k is 2k and 2k + 1).

    A buffer that is taken over ends where that starts. Such a range may be empty: then the buffer
    that takes over stands for it.
    """
    taken = {
        (buffer.in_place_of, buffer.first_step)
        for buffer in buffers
        if buffer.in_place_of is not None and not buffer.shift_bytes
    }
    ranges = []
    for buffer in buffers:
        end = buffer.end_step
        if buffer.kind is not BufferKind.WEIGHTS and (buffer.tensor, end - 1) in taken:
            end -= 1
        ranges.append(
            LiveRange(
                key=f"{buffer.kind.value}:{buffer.name}",
                size_bytes=buffer.size_bytes,
                first_step=2 * buffer.first_step + buffer.late_start,
                end_step=2 * end - buffer.early_end,
            )
        )
    return ranges


def address_faults(buffers: Sequence[Buffer], allocation: Allocation) -> list[str]:
    """What is wrong with the addresses of one memory's buffers (see ``check_allocation``).

    A result that grows over an input (``shift_bytes``) may share its bytes; whether it may at each
    moment is for ``takeovers``.
    """
    kept = [
        (buffer, live, offset)
        for buffer, live, offset in zip(
            buffers, live_ranges(buffers), allocation.offsets, strict=True
        )
        if live.end_step > live.first_step
    ]
    sharing = {
        (min(k, other), max(k, other))
        for k, (buffer, _, _) in enumerate(kept)
        if buffer.shift_bytes
        for other, (old, _, _) in enumerate(kept)
        if old.tensor == buffer.in_place_of
        and old.kind is BufferKind.FEATURE_MAP
        and old.end_step == buffer.first_step + 1
    }
    return check_allocation(
        [live for _, live, _ in kept],
        [offset for _, _, offset in kept],
        limit_bytes=allocation.peak_bytes,
        sharing=sharing,
    )


def takeovers(graph: OpGraph, plan: Plan) -> list[str]:
    """What is wrong with results written over their inputs, and with copies."""
    faults = []
    offsets = _offsets(plan)
    for buffer in plan.buffers:
        if buffer.in_place_of is not None:
            faults += _takeover(graph, plan, buffer, offsets)
    copied = {
        (copy.tensor, copy.destination, step)
        for step, segment in enumerate(plan.segments)
        for copy in segment.copies
    }
    for buffer in plan.buffers:
        if buffer.is_copy and (buffer.tensor, buffer.memory, buffer.first_step) not in copied:
            faults.append(f"nothing fills the copy of {buffer.name!r}")
    return faults


def _takeover(graph: OpGraph, plan: Plan, buffer: Buffer, offsets: dict[int, int]) -> list[str]:
    """An element-wise op may write over an input of the same layout that nobody reads later."""
    name, step = buffer.name, buffer.first_step
    before = [
        other
        for other in plan.buffers
        if other.tensor == buffer.in_place_of
        and other.kind is not BufferKind.WEIGHTS
        and other.first_step <= step < other.end_step
        and other.memory == buffer.memory
    ]
    if not before:
        return [f"{name!r} takes over a buffer that is not alive"]
    old = before[0]
    faults = []
    if buffer.shift_bytes:
        if old.end_step != step + 1 or BufferKind.ROLLING in (old.kind, buffer.kind):
            return [f"{name!r} grows over {old.name!r}, which is needed until {old.end_step}"]
        at, old_at = offsets[id(buffer)], offsets[id(old)]
        return overlap_faults(graph, plan.segments[step], buffer, old, at, old_at)
    if offsets[id(old)] != offsets[id(buffer)] or old.size_bytes != buffer.size_bytes:
        faults.append(f"{name!r} takes over {old.name!r} at another address or size")
    if old.end_step != step + 1:
        faults.append(f"{name!r} takes over {old.name!r}, which is needed until {old.end_step}")
    old_map = graph.feature_maps[old.tensor]
    new_map = graph.feature_maps[buffer.tensor]
    writers = [graph.ops[v] for v in graph.writers[buffer.tensor]]
    for op in writers:
        reads_old = any(access.tensor == old.tensor for access in op.reads)
        if not reads_old or not _by_element(op):
            faults.append(f"op {op.id} writes {name!r} over {old.name!r} but not by element")
    last = max(graph.readers[old.tensor], default=-1)
    if old_map.layout is not new_map.layout or (writers and last > writers[-1].id):
        faults.append(f"{name!r} takes over {old.name!r} of another layout, or too early")
    return faults


def _by_element(op: ScheduledOp) -> bool:
    """True if each element of the result needs one element of an input, in the same order."""
    kernel = op.kernel
    single = (kernel.h, kernel.w, kernel.stride_h, kernel.stride_w) == (1, 1, 1, 1)
    plain = op.transpose is None and op.weights is None
    pool = op.kind in POOLS and single
    return op.placement is Placement.CPU or (plain and (is_elementwise_like(op.kind) or pool))


def weight_faults(plan: Plan) -> list[str]:
    """Resident weights need buffers that are alive; slices start at 0 and rise to the depth."""
    faults = []
    for step, segment in enumerate(plan.segments):
        for run in segment.runs:
            if run.weight_mode is not WeightMode.RESIDENT:
                continue
            mine = [
                b
                for b in plan.buffers
                if b.kind is BufferKind.WEIGHTS
                and b.tensor == run.op
                and b.first_step <= step < b.end_step
            ]
            held = sum(b.size_bytes for b in mine)
            how = run.buffering
            if how is None or how.slices == 1:
                if held < align_up(run.weight_bytes):
                    faults.append(f"op {run.op}: {held} bytes for {run.weight_bytes} of weights")
            elif len(mine) < how.buffers or list(how.borders) != sorted(set(how.borders)):
                faults.append(f"op {run.op}: {len(mine)} buffers for slices {how.borders}")
            if how is None:
                continue
            early = min((b.first_step for b in mine), default=0) < step or bool(segment.copies)
            if how.prefetched and not early:
                faults.append(f"op {run.op}: nowhere to prefetch weights to")
            if how.borders[0] != 0:
                faults.append(f"op {run.op}: the first slice starts at {how.borders[0]}")
    return faults


def _offsets(plan: Plan) -> dict[int, int]:
    """Address by identity of the buffer."""
    found = {}
    for memory, allocation in plan.allocations:
        for buffer, offset in zip(plan.in_memory(memory), allocation.offsets, strict=True):
            found[id(buffer)] = offset
    return found
