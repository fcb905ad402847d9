"""The memory map: time x address, one panel per memory, what lies where and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.svg.axis_of_time import LEFT, RIGHT, WIDTH, TimeAxis
from npusched.report.svg.draw import (
    CHARACTER_WIDTH,
    Drawing,
    Scale,
    box,
    boxes,
    byte_ticks,
    label,
    line,
    mark,
    marks,
    size_label,
    time_label,
    x_axis,
    y_axis,
)
from npusched.report.svg.words import (
    BUFFER_CLASSES,
    BUFFER_NAMES,
    buffer_lines,
    segment_range,
)
from npusched.report.types import AllocationFacts, PlanReport
from npusched.report.units import human_bytes, plain_text, plural, short_name

PANEL: Final = 300
"""Height of the plot of a memory."""

GAP: Final = 78
TOP: Final = 30
MAX_BUFFERS: Final = 620
"""Most buffers that are drawn: those with the largest area (bytes x time)."""

VISIBLE: Final = 3.0
"""Pixels from which a step is worth a word."""

FAR: Final = 1.6
"""A budget above this many times the peak is named, not drawn: the map would be flat."""


def draw_memory(report: PlanReport) -> Drawing | None:
    """Return the map, the budget's memory first; None if nothing is stored anywhere."""
    found = {item.memory for item in report.allocation}
    names = sorted(found, key=lambda name: (name != report.budget_memory, name))
    if not names or not report.segments:
        return None
    axis = TimeAxis(report)
    shown = _largest(report.allocation, axis)
    parts = []
    for index, name in enumerate(names):
        items = [item for item in shown if item.memory == name]
        parts.append(_panel(report, axis, name, items, TOP + index * (PANEL + GAP)))
    kinds = [kind for kind in BUFFER_CLASSES if any(item.kind == kind for item in shown)]
    legend = [(f"{BUFFER_CLASSES[kind]} f", BUFFER_NAMES[kind]) for kind in kinds]
    if any(_padding(item) for item in shown):
        legend.append(("s", "channel padding (share of the buffer)"))
    if _constants(report):
        legend.append(("c7 f", "constants"))
    height = TOP + len(names) * (PANEL + GAP) - GAP + 40
    title = "Memory map"
    summary = _summary(report, len(report.allocation) - len(shown))
    body = "".join(parts)
    return Drawing("memory", title, summary, WIDTH, height, body, tuple(legend))


def peak_buffers(report: PlanReport) -> tuple[int, list[AllocationFacts]]:
    """The step with most bytes alive in the budget memory, and what is alive, largest first."""
    live = report.live_sram_bytes
    step = live.index(max(live)) if live else 0
    alive = [
        item
        for item in report.allocation
        if item.memory == report.budget_memory and item.first_step <= step < item.end_step
    ]
    return step, sorted(alive, key=lambda item: (-item.size_bytes, item.offset))


def _summary(report: PlanReport, left_out: int) -> str:
    step, alive = peak_buffers(report)
    where = segment_range(report.segments[step]) or "the start"
    text = f"The peak is {human_bytes(report.totals.sram_peak_bytes)}"
    if report.budget_bytes is not None:
        text += f" of {human_bytes(report.budget_bytes)}"
    if alive:
        text += f", at {where}: {plural(len(alive), 'buffer')}, the largest "
        text += f"{short_name(alive[0].tensor)} with {human_bytes(alive[0].size_bytes)}"
    if _take_over(report.allocation, TimeAxis(report)):
        text += ". Darker: a result takes the place of an input while that is read"
    if left_out:
        text += f". {plural(left_out, 'small buffer')} not drawn"
    return text + "."


def _take_over(items: Sequence[AllocationFacts], axis: TimeAxis) -> bool:
    """Whether a map begins at the address of another in that one's last step, to be seen."""
    maps = [item for item in items if item.kind == "feature_map"]
    ends = {(item.memory, item.offset, item.end_step - 1) for item in maps}
    return any(
        (item.memory, item.offset, item.first_step) in ends
        and axis.step(item.first_step + 1) - axis.step(item.first_step) >= VISIBLE
        for item in maps
    )


def _largest(items: Sequence[AllocationFacts], axis: TimeAxis) -> list[AllocationFacts]:
    """At most ``MAX_BUFFERS``, the ones that are seen best, in their given order."""
    if len(items) <= MAX_BUFFERS:
        return list(items)

    def area(item: AllocationFacts) -> float:
        return item.size_bytes * (axis.step(item.end_step) - axis.step(item.first_step) + 1)

    kept = sorted(range(len(items)), key=lambda k: -area(items[k]))[:MAX_BUFFERS]
    return [items[k] for k in sorted(kept)]


def _constants(report: PlanReport) -> int:
    """Bytes of the constants that share the budget's memory; 0 if they lie elsewhere."""
    roles = report.target.roles
    shared = roles.const == report.budget_memory and roles.const == roles.arena
    return report.totals.constant_bytes if shared else 0


def _padding(item: AllocationFacts) -> int:
    return max(item.size_bytes - item.logical_bytes, 0) if item.kind != "weights" else 0


def _panel(
    report: PlanReport, axis: TimeAxis, name: str, items: Sequence[AllocationFacts], top: float
) -> str:
    is_budget = name == report.budget_memory
    arena = max((item.offset + item.size_bytes for item in items), default=0)
    constants = _constants(report) if is_budget else 0
    high = arena + constants
    budget = report.budget_bytes if is_budget else None
    reach = max(high, budget or 0) if budget is not None and budget <= FAR * high else high
    scale = Scale(0, max(reach * 1.04, 1), top + PANEL, top)
    title = f"address in {plain_text(name, 20)}"
    parts = [
        y_axis(scale, byte_ticks(0, scale.high), LEFT, RIGHT, size_label, title),
        x_axis(axis.scale, axis.ticks(), top + PANEL, top, time_label, "time"),
    ]
    for kind, classes in BUFFER_CLASSES.items():
        some = [item for item in items if item.kind == kind]
        parts.append(marks([_buffer(report, axis, scale, item) for item in some], f"{classes} f k"))
    padded = [_pad_box(axis, scale, item) for item in items if _padding(item)]
    parts.append(boxes(padded, "s n"))
    parts += [_name(report, axis, scale, item) for item in items]
    if constants:
        area = box(LEFT, scale.at(high), RIGHT - LEFT, scale.at(0) - scale.at(constants))
        text = f"constants, {human_bytes(constants)} (drawn above the arena)"
        parts.append(marks([mark(area, [text])], "c7 f k"))
        parts.append(label(LEFT + 8, scale.at(high) + 14, text, "i"))
    if budget is not None:
        parts.append(_budget(scale, budget, top))
    return "".join(parts)


def _place(axis: TimeAxis, scale: Scale, item: AllocationFacts) -> tuple[float, ...]:
    """x, y, width, height of a buffer; no narrower than a pixel."""
    left, right = axis.step(item.first_step), axis.step(item.end_step)
    bottom, top = scale.at(item.offset), scale.at(item.offset + item.size_bytes)
    return left, top, max(right - left, 1.0), max(bottom - top, 0.5)


def _buffer(report: PlanReport, axis: TimeAxis, scale: Scale, item: AllocationFacts) -> str:
    left, top, width, height = _place(axis, scale, item)
    first = segment_range(report.segments[min(item.first_step, len(report.segments) - 1)])
    last = segment_range(report.segments[min(item.end_step, len(report.segments)) - 1])
    when = f"alive in {first}" if first == last else f"alive from {first} to {last}"
    return mark(box(left, top, width, height), buffer_lines(item, when))


def _pad_box(
    axis: TimeAxis, scale: Scale, item: AllocationFacts
) -> tuple[float, float, float, float]:
    """The top of a buffer, as high as the padding's share (bricks have it all over)."""
    left, top, width, height = _place(axis, scale, item)
    return left, top, width, height * _padding(item) / item.size_bytes


def _name(report: PlanReport, axis: TimeAxis, scale: Scale, item: AllocationFacts) -> str:
    """The buffer's name if it fits, else the number of the op that it belongs to, or nothing."""
    left, top, width, height = _place(axis, scale, item)
    if height < 14:
        return ""
    room = int((width - 8) / CHARACTER_WIDTH)
    number = segment_range(report.segments[min(item.first_step, len(report.segments) - 1)])
    names = (short_name(item.tensor, 40), number.split("-")[0])
    text = next((name for name in names if 0 < len(name) <= room), "")
    padded = height * _padding(item) / item.size_bytes
    if height - padded >= 14:
        top, height = top + padded, height - padded
    return label(left + 4, top + height / 2 + 4, text, "i n") if text else ""


def _budget(scale: Scale, budget: int, top: float) -> str:
    text = f"budget {human_bytes(budget)}"
    if budget > scale.high:
        return label(RIGHT, top - 10, f"{text}, far above ↑", "t", anchor="end")
    y = scale.at(budget)
    under = RIGHT - CHARACTER_WIDTH * len(text) - 4
    return line(LEFT, y, RIGHT, y, "d") + label(under, y - 5, text, "b")
