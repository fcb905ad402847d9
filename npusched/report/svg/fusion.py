"""Fusion level by level as waterfalls: bytes of feature maps, cycles, energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from npusched.report.svg.draw import (
    Drawing,
    Scale,
    box,
    label,
    line,
    mark,
    marks,
    rect,
)
from npusched.report.text_tables import LEVEL_NAMES
from npusched.report.types import FusionLevel, PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    percent_change,
    signed,
)

PANEL: Final = 320
"""Width of one quantity's waterfall."""

GAP: Final = 20
ROW: Final = 30
TOP: Final = 26
LEFT: Final = 78
RIGHT: Final = PANEL - 66


class _Quantity(NamedTuple):
    title: str
    of: Callable[[FusionLevel], float]
    text: Callable[[float], str]


_QUANTITIES: Final = (
    _Quantity("feature maps moved", lambda level: level.traffic_bytes, human_bytes),
    _Quantity("cycles", lambda level: level.cycles, lambda value: f"{human_count(value)}"),
    _Quantity("energy", lambda level: level.energy_nj.typical, human_energy),
)


def draw_fusion(report: PlanReport) -> Drawing | None:
    """Return the three waterfalls side by side; None if nothing was planned."""
    panels = fusion_panels(report)
    if not panels:
        return None
    body = "".join(
        f'<g transform="translate({index * (PANEL + GAP)} 0)">{panel.body}</g>'
        for index, panel in enumerate(panels)
    )
    width = len(panels) * (PANEL + GAP) - GAP
    first = panels[0]
    return Drawing(
        "fusion", "What fusion brings", first.summary, width, first.height, body, first.legend
    )


def fusion_panels(report: PlanReport) -> list[Drawing]:
    """One waterfall per quantity; empty if nothing was planned."""
    levels = report.fusion_levels
    if not levels or not report.ops:
        return []
    legend = [("c7", "a level as a whole"), ("c4", "saved by the step"), ("c5", "added by it")]
    return [
        Drawing(
            f"fusion{index}",
            quantity.title,
            _summary(report),
            PANEL,
            TOP + ROW * len(levels) + 8,
            _panel(levels, quantity),
            tuple(legend),
        )
        for index, quantity in enumerate(_QUANTITIES)
    ]


def _panel(levels: tuple[FusionLevel, ...], quantity: _Quantity) -> str:
    values = [quantity.of(level) for level in levels]
    scale = Scale(0, max(*values, 1e-9), LEFT, RIGHT)
    parts = [label(0, 12, quantity.title, "b"), line(LEFT, TOP, LEFT, TOP + ROW * len(levels), "x")]
    rows: dict[str, list[str]] = {"c7": [], "c4": [], "c5": [], "c1": []}
    before: float | None = None
    for index, (level, value) in enumerate(zip(levels, values, strict=True)):
        y = TOP + ROW * index + 6
        is_whole = level.level in ("as_stored", "L0", "plan")
        start = 0.0 if is_whole or before is None else before
        low, high = sorted((start, value))
        classes = {"plan": "c1", "as_stored": "c7", "L0": "c7"}.get(level.level, "")
        classes = classes or ("c4" if value <= start else "c5")
        name = LEVEL_NAMES[level.level]
        area = box(scale.at(low), y, max(scale.at(high) - scale.at(low), 1.5), ROW - 12)
        rows[classes].append(mark(area, _lines(level, quantity, before)))
        parts.append(label(LEFT - 7, y + 13, name, "t", anchor="end"))
        end = scale.at(max(high, value)) + 6
        parts.append(label(end, y + 13, _shown(quantity, value, before, is_whole), "i"))
        if before is not None and level.level not in ("as_stored", "L0"):
            parts.append(line(scale.at(before), y - 12, scale.at(before), y, "x"))
        if level.level != "as_stored":
            before = value
    bars = "".join(marks(some, classes) for classes, some in rows.items())
    return rect(0, 0, 0, 0) + "".join(parts) + bars


def _shown(quantity: _Quantity, value: float, before: float | None, is_whole: bool) -> str:
    if is_whole or before is None:
        return quantity.text(value)
    if value == before:
        return "same"
    return percent_change(value, before)


def _lines(level: FusionLevel, quantity: _Quantity, before: float | None) -> list[str]:
    value = quantity.of(level)
    lines = [f"{LEVEL_NAMES[level.level]}: {quantity.title} {quantity.text(value)}"]
    if before is not None and value != before:
        step = value - before
        change = f"-{quantity.text(-step)}" if step < 0 else signed(quantity.text(step))
        lines.append(f"{change} ({percent_change(value, before)}) against the level above")
    lines.append(f"{group_digits(level.dispatches)} kernel calls")
    return lines


def _summary(report: PlanReport) -> str:
    by_name = {level.level: level for level in report.fusion_levels}
    plan, plain = by_name["plan"], by_name["L0"]
    return (
        "Against every op for itself (L0), this plan moves "
        f"{_less(plan.traffic_bytes, plain.traffic_bytes)} bytes of feature maps and takes "
        f"{_less(plan.cycles, plain.cycles)} cycles and "
        f"{_less(plan.energy_nj.typical, plain.energy_nj.typical, 'less')} energy."
    )


def _less(value: float, base: float, fewer: str = "fewer") -> str:
    """64 % fewer, 3 % more, or as much."""
    if not base or value == base:
        return "as many" if fewer == "fewer" else "as much"
    return f"{100 * abs(value / base - 1):.3g} % {fewer if value < base else 'more'}"
