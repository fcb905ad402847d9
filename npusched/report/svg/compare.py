"""Ours against Vela's, op by op: a point per op, cycles on both axes, equal ones on the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from npusched.report.compare_types import CompareReport
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
from npusched.report.svg.scatter import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from npusched.report.units import (
    group_digits,
    percent_change,
    plain_text,
    plural,
    short_name,
)

MAX_DOTS: Final = 320
"""Most ops that are drawn: the longest."""


class _Pair(NamedTuple):
    """An op of the file with the cycles of both sides."""

    title: str
    ours: int
    vela: int
    weight: float


_SIDES: Final[tuple[tuple[str, int, str, Callable[[_Pair], bool]], ...]] = (
    ("c4", 0, "npusched faster", lambda pair: pair.ours < pair.vela),
    ("c7", 1, "equal", lambda pair: pair.ours == pair.vela),
    ("c5", 2, "Vela faster", lambda pair: pair.ours > pair.vela),
)


def draw_compare(report: CompareReport) -> Drawing | None:
    """Return the scatter; None if no op runs on the NPU on both sides."""
    pairs = _pairs(report)
    if not pairs:
        return None
    values = [value for pair in pairs for value in (pair.ours, pair.vela)]
    low, high = min(values) / 1.5, max(values) * 1.5
    x = Scale(low, high, LEFT, RIGHT, is_log=True)
    y = Scale(low, high, BOTTOM, TOP, is_log=True)
    ticks = log_ticks(low, high)
    parts = [
        x_axis(x, ticks, BOTTOM, TOP, count_label, "cycles of Vela's schedule"),
        y_axis(y, ticks, LEFT, RIGHT, count_label, "cycles of our plan"),
        line(LEFT, BOTTOM, RIGHT, TOP, "x"),
        label(RIGHT - 6, BOTTOM - 10, "npusched faster", "a", anchor="end"),
        label(LEFT + 8, TOP + 14, "Vela faster", "a"),
    ]
    legend = []
    for classes, shape, title, belongs in _SIDES:
        some = [pair for pair in pairs if belongs(pair)]
        if some:
            legend.append((classes, f"{title} ({len(some)})"))
            parts.append(marks([_mark(pair, x, y, shape) for pair in some], f"{classes} k"))
    title = "Op by op against Vela"
    body = "".join(parts)
    return Drawing("compare", title, _summary(pairs), WIDTH, HEIGHT, body, tuple(legend))


def _pairs(report: CompareReport) -> list[_Pair]:
    found = []
    for op in report.ops:
        ours, theirs = op.npusched, op.vela_recosted or op.vela
        if ours is None or theirs is None or not ours.cycles or not theirs.cycles:
            continue
        title = f"#{op.index} {plain_text(op.kind, 32)} {short_name(op.name, 40)}"
        found.append(_Pair(title, ours.cycles, theirs.cycles, max(ours.cycles, theirs.cycles)))
    return sorted(found, key=lambda pair: -pair.weight)[:MAX_DOTS]


def _mark(pair: _Pair, x: Scale, y: Scale, shape: int) -> str:
    lines = [
        pair.title,
        f"npusched {group_digits(pair.ours)} cycles",
        f"Vela {group_digits(pair.vela)} cycles",
        f"{percent_change(pair.ours, pair.vela)}",
    ]
    return mark(dot(x.at(pair.vela), y.at(pair.ours), 4.5, shape), lines)


def _summary(pairs: list[_Pair]) -> str:
    better = sum(pair.ours < pair.vela for pair in pairs)
    worse = sum(pair.ours > pair.vela for pair in pairs)
    return (
        f"Of {plural(len(pairs), 'op')}, our plan runs {better} faster and {worse} slower than "
        "Vela's schedule, both costed stripe by stripe."
    )
