"""What makes the SRAM peak, buffer by buffer, and what would lower it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.graph.types import BRICK_CHANNELS, FeatureMap, Layout
from npusched.memory import ALIGNMENT_BYTES, align_up, live_bytes, naive_peak
from npusched.report.explain_inputs import Explained
from npusched.report.explain_types import (
    LeverName,
    PeakFacts,
    PeakLever,
    PeakPart,
    PeakShare,
    Role,
)
from npusched.schedule import Buffer, BufferKind, Plan
from npusched.schedule.check_sharing import live_ranges

NEAR: Final[dict[LeverName, float]] = {"within_1_percent": 0.01, "within_10_percent": 0.1}
"""Levers that may cost a share of the objective."""

WORTH = 0.98
"""A lever that leaves more of the peak (of the lever before) than that is not named."""

MOST_KERNELS = 400
"""On larger graphs only the floor is planned: tight budgets of hundreds of kernels take long."""

_HALVINGS = 12
_TRIES = 3


def build_peak(about: Explained) -> PeakFacts:
    """Return what is alive when most of the budget memory is taken."""
    plan = about.plan
    buffers = plan.in_memory(plan.budget_memory)
    ranges = live_ranges(buffers)
    alive = live_bytes(ranges, 2 * len(plan.segments))
    half = alive.index(max(alive)) if alive else 0
    step = min(half // 2, max(len(plan.segments) - 1, 0))
    parts = [
        _part(about, buffer)
        for buffer, live in zip(buffers, ranges, strict=True)
        if live.first_step <= half < live.end_step
    ]
    constants = about.own.shared_bytes
    if constants:
        parts.append(_constants(plan, constants))
    parts.sort(key=lambda part: -part.size_bytes)
    worst = max(parts, key=lambda part: part.padding_bytes, default=None)
    channels = worst.shape[-1] if worst is not None and worst.padding_bytes else None
    live = sum(part.size_bytes for part in parts)
    segment = plan.segments[step] if plan.segments else None
    refs = () if segment is None else _refs(about, segment.ops)
    naive, naive_op = naive_peak(about.subgraph)
    return PeakFacts(
        step=step,
        source_ops=refs,
        kinds=tuple(about.kind_of(ref) for ref in refs),
        stripes=0 if segment is None else segment.stripes,
        sram_peak_bytes=plan.sram_peak_bytes,
        live_bytes=live,
        gap_bytes=plan.sram_peak_bytes - live,
        padding_bytes=sum(part.padding_bytes for part in parts),
        temporary_bytes=sum(part.size_bytes for part in parts if part.role == "temporary"),
        constant_bytes=constants,
        padded_channels=channels,
        stored_channels=None if channels is None else _bricks(channels),
        naive_peak_bytes=naive,
        naive_peak_op=naive_op,
        shares=_shares(parts),
        parts=tuple(parts),
        levers=_levers(about),
    )


def _refs(about: Explained, ops: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({ref for v in ops for ref in about.graph.ops[v].source_ops}))


def _bricks(channels: int) -> int:
    return -(-channels // BRICK_CHANNELS) * BRICK_CHANNELS


def _part(about: Explained, buffer: Buffer) -> PeakPart:
    graph = about.graph
    if buffer.kind is BufferKind.WEIGHTS:
        refs = graph.ops[buffer.tensor].source_ops
        weights = graph.ops[buffer.tensor].weights
        return PeakPart(
            tensor=buffer.name,
            role="weights",
            shape=() if weights is None else weights.shape,
            dtype="encoded",
            layout="",
            rows=0,
            size_bytes=buffer.size_bytes,
            data_bytes=buffer.size_bytes,
            padding_bytes=0,
            rounding_bytes=0,
            source_op=refs[0] if refs else None,
            kind=about.kind_of(refs[0]) if refs else "",
            in_place=False,
            widened=1.0,
        )
    fm = graph.feature_maps[buffer.tensor]
    writers = graph.writers[fm.id]
    refs = graph.ops[writers[0]].source_ops if writers else ()
    data, stored = kept_bytes(fm, buffer)
    size = align_up(buffer.size_bytes)
    return PeakPart(
        tensor=buffer.name,
        role=_role(fm, buffer),
        shape=fm.shape,
        dtype=fm.dtype.label,
        layout=fm.layout.value,
        rows=buffer.rows,
        size_bytes=size,
        data_bytes=data,
        padding_bytes=stored - data if fm.layout is Layout.NHCWB16 else 0,
        rounding_bytes=size - (stored if fm.layout is Layout.NHCWB16 else data),
        source_op=refs[0] if refs else None,
        kind=about.kind_of(refs[0]) if refs else "",
        in_place=buffer.in_place_of is not None,
        widened=_widened(about, fm, refs[0] if refs else None),
    )


def kept_bytes(fm: FeatureMap, buffer: Buffer) -> tuple[int, int]:
    """(logical, stored) bytes of the rows that a buffer keeps of a map."""
    n, h, _, _ = fm.shape
    rows = max(n * h, 1)
    kept = min(buffer.rows * n, rows) if buffer.kind is BufferKind.ROLLING else rows
    return fm.logical_bytes * kept // rows, fm.stored_bytes * kept // rows


def _role(fm: FeatureMap, buffer: Buffer) -> Role:
    if buffer.is_copy:
        return "copy"
    if buffer.kind is BufferKind.ROLLING:
        return "rolling"
    if fm.is_persistent:
        return "variable"
    if fm.is_graph_input:
        return "input"
    if fm.is_graph_output:
        return "output"
    return "temporary" if fm.source is None else "activation"


def _widened(about: Explained, fm: FeatureMap, ref: tuple[int, int] | None) -> float:
    if ref is None or fm.source is not None:
        return 1.0
    outputs = about.subgraph.ops[ref[1]].outputs
    bits = about.subgraph.tensors[outputs[0]].dtype.bits if outputs else fm.dtype.bits
    return fm.dtype.bits / bits if bits else 1.0  # a handle of a variable has no bits


def _constants(plan: Plan, size_bytes: int) -> PeakPart:
    return PeakPart(
        tensor=f"all constants, in {plan.budget_memory}",
        role="constants",
        shape=(),
        dtype="encoded",
        layout="",
        rows=0,
        size_bytes=size_bytes,
        data_bytes=size_bytes,
        padding_bytes=0,
        rounding_bytes=0,
        source_op=None,
        kind="",
        in_place=False,
        widened=1.0,
    )


def _shares(parts: Sequence[PeakPart]) -> tuple[PeakShare, ...]:
    found = [
        PeakShare(
            role=role,
            count=len(mine),
            size_bytes=sum(part.size_bytes for part in mine),
            padding_bytes=sum(part.padding_bytes for part in mine),
        )
        for role in dict.fromkeys(part.role for part in parts)
        for mine in ([part for part in parts if part.role == role],)
    ]
    return tuple(sorted(found, key=lambda share: -share.size_bytes))


def _levers(about: Explained) -> tuple[PeakLever, ...]:
    """What another budget would give: planned, not estimated."""
    peak = about.plan.sram_peak_bytes
    if not about.plan.segments:
        return ()
    least_bytes = about.planner.smallest_budget_bytes()
    if least_bytes >= peak:
        return ()
    floor = about.planner.plan(least_bytes)
    found: list[PeakLever] = []
    near_too = len(about.given.ops) <= MOST_KERNELS
    for name, share in NEAR.items() if near_too else ():
        near = _nearly(about, floor, share)
        least = found[-1].sram_peak_bytes if found else peak
        if near is not None and near.sram_peak_bytes < WORTH * least:
            found.append(_lever(about.plan, near, name))
    if not found or floor.sram_peak_bytes < found[-1].sram_peak_bytes:
        found.append(_lever(about.plan, floor, "floor"))
    return tuple(found)


def _nearly(about: Explained, floor: Plan, share: float) -> Plan | None:
    """The plan of least SRAM that is hardly worse than this one.

    The budget is found by halving, by live sums; the plan for it has addresses. Where these
    fragment it is tried again with a little more.
    """
    limit = about.plan.objective * (1 + share)
    if floor.objective <= limit:
        return floor
    whole, shared = about.own.whole(), about.own.shared_bytes
    low, high = floor.sram_peak_bytes, about.plan.sram_peak_bytes
    for _ in range(_HALVINGS):
        middle = (low + high) // 2 // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        if high - low <= max(ALIGNMENT_BYTES, high // 200) or not low < middle < high:
            break
        solution = whole.search.solve(middle - shared)
        if solution is not None and solution.score <= limit:
            high = solution.peak_bytes + shared
        else:
            low = middle
    for step in range(_TRIES):
        plan = about.planner.plan(high + high * step // 50)
        if plan.objective <= limit:
            return plan
    return None


def _lever(plan: Plan, other: Plan, name: LeverName) -> PeakLever:
    return PeakLever(
        id=name,
        sram_peak_bytes=other.sram_peak_bytes,
        cycles=other.amounts.npu_cycles,
        sram_change_bytes=other.sram_peak_bytes - plan.sram_peak_bytes,
        cycles_change=other.amounts.npu_cycles - plan.amounts.npu_cycles,
        how=f"--sram {other.sram_peak_bytes}",
    )
