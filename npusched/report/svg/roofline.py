"""The roofline: how fast each kernel computes against the MAC array and the memories."""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

from npusched.report.svg.draw import (
    Drawing,
    Scale,
    count_label,
    dot,
    label,
    line,
    log_ticks,
    mark,
    marks,
    x_axis,
    y_axis,
)
from npusched.report.svg.words import bound_name, bound_style, op_title
from npusched.report.types import OpFacts, PlanReport
from npusched.report.units import group_digits, plain_text, plural

WIDTH: Final = 490
HEIGHT: Final = 330
LEFT: Final = 44
RIGHT: Final = WIDTH - 14
TOP: Final = 30
BOTTOM: Final = HEIGHT - 40
MAX_DOTS: Final = 320
"""Most kernels that are drawn: the longest."""


class _Dot(NamedTuple):
    """A kernel with the memory that it keeps busiest: MACs per byte of it, MACs per cycle."""

    op: OpFacts
    memory: str
    intensity: float
    speed: float


def draw_roofline(report: PlanReport) -> Drawing | None:
    """Return one dot per kernel of the NPU with MACs and memory traffic; None if there is none."""
    accelerator = report.target.accelerator
    dots = _dots(report)
    if accelerator is None or not dots:
        return None
    peak = accelerator.macs_per_cycle
    bandwidths = {m.name: m.bandwidth_bytes_per_cycle for m in report.target.memories}
    used = [name for name in bandwidths if any(d.memory == name for d in dots)]
    ridges = [peak / bandwidths[name] for name in used]
    low = min(*ridges, *(d.intensity for d in dots)) / 2
    high = max(*ridges, *(d.intensity for d in dots)) * 2
    x = Scale(low, high, LEFT, RIGHT, is_log=True)
    y = Scale(min(d.speed for d in dots) / 2, peak * 1.6, BOTTOM, TOP, is_log=True)
    parts = [
        x_axis(x, log_ticks(low, high), BOTTOM, TOP, count_label, "MACs per byte of the memory"),
        y_axis(y, log_ticks(y.low, y.high), LEFT, RIGHT, count_label, "MACs per cycle"),
        line(x.at(min(ridges)), y.at(peak), RIGHT, y.at(peak), "y"),
        label(RIGHT, y.at(peak) - 5, f"peak {group_digits(peak)}", "b", anchor="end"),
    ]
    parts += [_roof(name, bandwidths[name], peak, x, y) for name in used]
    longest = max(d.op.cycles for d in dots)
    bounds = sorted({d.op.bound_by for d in dots})
    for bound in bounds:
        shape, classes = bound_style(bound)
        some = [_mark(d, x, y, shape, longest) for d in dots if d.op.bound_by == bound]
        parts.append(marks(some, f"{classes} k"))
    legend = tuple((bound_style(bound)[1], f"bound by {bound_name(bound)}") for bound in bounds)
    return Drawing(
        "roofline", "Roofline", _summary(report, dots), WIDTH, HEIGHT, "".join(parts), legend
    )


def _dots(report: PlanReport) -> list[_Dot]:
    """The longest kernels, the longest first (so that small dots lie on top)."""
    found = []
    for op in report.ops:
        if op.placement != "npu" or not op.macs or not op.cycles:
            continue
        moved = _moved_meanwhile(report, op)
        if moved:
            busiest = max(moved, key=lambda name: (op.memory_cycles.get(name, 0), moved[name]))
            found.append(_Dot(op, busiest, op.macs / moved[busiest], op.macs / op.cycles))
    return sorted(found, key=lambda d: -d.op.cycles)[:MAX_DOTS]


def _moved_meanwhile(report: PlanReport, op: OpFacts) -> dict[str, int]:
    """Bytes of the memories that an op uses while it runs.

    More bytes than a memory can move in the op's time were copied ahead, under the op before.
    """
    found = {}
    for memory in report.target.memories:
        count = op.bytes_read.get(memory.name, 0) + op.bytes_written.get(memory.name, 0)
        if 0 < count <= op.cycles * memory.bandwidth_bytes_per_cycle:
            found[memory.name] = count
    return found


def _roof(name: str, bandwidth: float, peak: float, x: Scale, y: Scale) -> str:
    """The slope of a memory: its bandwidth times the intensity, up to the peak."""
    start = max(x.low, y.low / bandwidth)
    ridge = peak / bandwidth
    quarter = start**0.8 * ridge**0.2
    at_x, at_y = x.at(quarter), y.at(quarter * bandwidth)
    text = f"{plain_text(name, 12)} {bandwidth:.3g} B/cycle"
    slope = line(x.at(start), y.at(start * bandwidth), x.at(ridge), y.at(peak), "y")
    return slope + label(at_x + 8, at_y + 10, text, "t")


def _mark(item: _Dot, x: Scale, y: Scale, shape: int, longest: int) -> str:
    radius = 3 + 6 * sqrt(item.op.cycles / longest)
    lines = [
        op_title(item.op),
        f"{item.speed:.3g} MACs per cycle, {group_digits(item.op.cycles)} cycles",
        f"{item.intensity:.3g} MACs per byte of {plain_text(item.memory, 12)}",
        f"bound by {bound_name(item.op.bound_by)}",
    ]
    return mark(dot(x.at(item.intensity), y.at(item.speed), radius, shape), lines)


def _summary(report: PlanReport, dots: list[_Dot]) -> str:
    assert report.target.accelerator is not None
    peak = report.target.accelerator.macs_per_cycle
    macs, cycles = sum(d.op.macs for d in dots), sum(d.op.cycles for d in dots)
    bare = sum(op.placement == "npu" and not op.macs for op in report.ops)
    text = (
        f"{plural(len(dots), 'kernel')} with MACs reach {macs / cycles:.3g} of {peak} MACs per "
        "cycle together; a larger dot takes longer."
    )
    text += f" {bare} without MACs are not shown." if bare else ""
    return text + (f" Only the {MAX_DOTS} longest are." if len(dots) == MAX_DOTS else "")
