"""The timeline: which resource is busy when, one lane each, kernels one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from npusched.report.svg.axis_of_time import LEFT, RIGHT, WIDTH, TimeAxis
from npusched.report.svg.draw import (
    Drawing,
    box,
    boxes,
    label,
    line,
    mark,
    marks,
    time_label,
    x_axis,
)
from npusched.report.svg.words import bound_name, op_title, ops_of_segments, segment_range
from npusched.report.text_tables import op_seconds
from npusched.report.types import OpFacts, PlanReport
from npusched.report.units import group_digits, human_seconds, percent, plain_text, plural

LANE: Final = 30
BAR: Final = 20
TOP: Final = 12
MAX_OPS: Final = 320
"""Most kernels that can be pointed at: the longest; all are in the lanes."""

_MEMORY_CLASSES: Final = ("c4", "c3", "c5")
_CORE_CLASSES: Final = {"mac": "c1", "output": "c2"}


class _Slot(NamedTuple):
    """A kernel's place: pixels, and how many seconds it takes."""

    op: OpFacts
    left: float
    right: float
    seconds: float


class _Lane(NamedTuple):
    """A resource; bars (left, width) by their colour class."""

    name: str
    bars: dict[str, list[tuple[float, float]]]


def draw_timeline(report: PlanReport) -> Drawing | None:
    """Return the lanes; None if the plan takes no time."""
    axis = TimeAxis(report)
    if not axis.total_s:
        return None
    slots = list(_slots(report, axis))
    lanes = [lane for lane in _lanes(report, slots) if any(lane.bars.values())]
    bottom = TOP + LANE * len(lanes)
    parts = [x_axis(axis.scale, axis.ticks(), bottom, TOP, time_label, "time")]
    for index, lane in enumerate(lanes):
        y = TOP + index * LANE + (LANE - BAR) / 2
        parts.append(label(LEFT - 8, y + BAR / 2 + 4, lane.name, "t", anchor="end"))
        parts.append(line(LEFT, y + BAR, RIGHT, y + BAR, "g"))
        for classes, bars in lane.bars.items():
            parts.append(boxes([(x, y, width, BAR) for x, width in bars], classes))
    pointed = sorted(sorted(slots, key=lambda s: -s.seconds)[:MAX_OPS], key=lambda s: s.left)
    columns = [_column(report, slot, axis.total_s, bottom - TOP) for slot in pointed]
    parts.append(marks(columns, "z"))
    summary = _summary(report, slots)
    body, height = "".join(parts), bottom + 38
    return Drawing("timeline", "Timeline", summary, WIDTH, height, body, _legend(lanes))


def _slots(report: PlanReport, axis: TimeAxis) -> Iterator[_Slot]:
    """Kernels in order; those of a chain one after the other, though they take turns."""
    for at, ops in zip(axis.starts, ops_of_segments(report), strict=False):
        for op in ops:
            seconds = op_seconds(report, op)
            yield _Slot(op, axis.scale.at(at), axis.scale.at(at + seconds), seconds)
            at += seconds


def _lanes(report: PlanReport, slots: list[_Slot]) -> Iterator[_Lane]:
    target = report.target
    per_cycle = (RIGHT - LEFT) / (TimeAxis(report).total_s * target.clock_hz)
    npu = [slot for slot in slots if slot.op.placement == "npu"]
    if target.accelerator is not None:
        rate = target.accelerator.macs_per_cycle
        used = [(slot.left, slot.op.macs / rate * per_cycle) for slot in npu]
        yield _Lane("MACs, ideal", {"c6": _joined(used)})
        core: dict[str, list[tuple[float, float]]] = {}
        for slot in npu:
            classes = _CORE_CLASSES.get(slot.op.bound_by, "c7")
            core.setdefault(classes, []).append((slot.left, slot.op.npu_cycles * per_cycle))
        yield _Lane("NPU core", {classes: _joined(bars) for classes, bars in core.items()})
    for index, memory in enumerate(target.memories):
        busy = [(s.left, s.op.memory_cycles.get(memory.name, 0) * per_cycle) for s in npu]
        classes = _MEMORY_CLASSES[index % len(_MEMORY_CLASSES)]
        yield _Lane(plain_text(memory.name, 12), {classes: _joined(busy)})
    cpu = [(s.left, s.right - s.left) for s in slots if s.op.placement == "cpu"]
    yield _Lane("CPU", {"c5": _joined(cpu)})
    chains: dict[int, list[_Slot]] = {}
    for slot in slots:
        chains.setdefault(slot.op.segment, []).append(slot)
    fused = [(c[0].left, c[-1].right - c[0].left) for c in chains.values() if len(c) > 1]
    yield _Lane("chains", {"o": [(left, max(width - 1, 1)) for left, width in fused]})


def _legend(lanes: list[_Lane]) -> tuple[tuple[str, str], ...]:
    """What the colours of the NPU's lane mean."""
    named = {
        "c1": "NPU bound by the MAC array",
        "c2": "by the output stage",
        "c7": "otherwise (element by element, or waiting for a memory)",
    }
    used = {classes for lane in lanes if lane.name == "NPU core" for classes in lane.bars}
    return tuple((classes, text) for classes, text in named.items() if classes in used)


def _joined(bars: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Bars that touch become one; what is thinner than a tenth of a pixel is left out."""
    found: list[tuple[float, float]] = []
    for left, width in bars:
        if width < 0.05:
            continue
        if found and left - sum(found[-1]) < 0.15:
            start = found[-1][0]
            found[-1] = (start, left + width - start)
        else:
            found.append((left, width))
    return found


def _column(report: PlanReport, slot: _Slot, total_s: float, height: float) -> str:
    op = slot.op
    lines = [op_title(op)]
    cycles = op.cycles or op.cpu_cycles
    lines.append(
        f"{group_digits(cycles)} {'NPU' if op.placement == 'npu' else 'CPU'} cycles, "
        f"{human_seconds(slot.seconds)}, {percent(slot.seconds, total_s)} of the time"
    )
    if op.placement == "npu":
        busy = [f"{plain_text(k, 12)} {group_digits(n)}" for k, n in op.memory_cycles.items()]
        lines.append(f"core {group_digits(op.npu_cycles)}, {', '.join(busy)}")
        lines.append(f"bound by {bound_name(op.bound_by)}")
    segment = report.segments[op.segment]
    if len(segment.ops) > 1:
        lines.append(f"in the chain {segment_range(segment)}, {plural(segment.stripes, 'stripe')}")
    return mark(box(slot.left, TOP, max(slot.right - slot.left, 0.5), height), lines)


def _summary(report: PlanReport, slots: list[_Slot]) -> str:
    total = sum(slot.seconds for slot in slots)
    waits: dict[str, float] = {}
    for slot in slots:
        waits[slot.op.bound_by] = waits.get(slot.op.bound_by, 0.0) + slot.seconds
    ranked = sorted(waits.items(), key=lambda pair: -pair[1])[:3]
    shares = ", ".join(f"{bound_name(name)} {percent(time, total)}" for name, time in ranked)
    rest = report.totals.latency_s - total
    text = f"What the time goes to: {shares}."
    if rest > 1e-9:
        text += f" Calling the NPU takes {human_seconds(rest)} more, not drawn."
    if any(len(segment.ops) > 1 for segment in report.segments):
        text += " Kernels of a chain are drawn one after the other; they take turns, by stripes."
    if len(slots) > MAX_OPS:
        text += f" Only the {MAX_OPS} longest of {len(slots)} kernels can be pointed at."
    return text
