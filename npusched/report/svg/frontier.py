"""What SRAM buys: our frontier as stairs, Vela's results as points, the plan at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from npusched.report.frontier_types import FrontierPoint, FrontierReport
from npusched.report.svg.draw import (
    Drawing,
    Format,
    count_label,
    dot,
    label,
    line,
    mark,
    marks,
    stairs,
    time_label,
)
from npusched.report.svg.scatter import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    framed,
    spanned,
)
from npusched.report.tune_types import TunePoint, TuneReport
from npusched.report.types import PlanReport
from npusched.report.units import group_digits, human_bytes, human_seconds, plain_text, plural

MAX_POINTS: Final = 300
"""Most plans of ours that get a mark; the stairs have all."""


class _Point(NamedTuple):
    sram_bytes: int
    value: float
    lines: tuple[str, ...]


class _Curve(NamedTuple):
    """Everything that is drawn; ``value`` is what the y axis shows."""

    ours: Sequence[_Point]
    vela: Sequence[_Point]
    chosen: _Point | None
    budget_bytes: int | None
    title: str
    text: Format


def draw_frontier(report: FrontierReport, plan: PlanReport | None = None) -> Drawing | None:
    """Return the frontier, with ``plan`` marked; None if it has no point with cycles."""
    is_host = report.target.accelerator is None
    ours = [_ours(point, is_host) for point in report.points]
    vela = [
        _Point(
            each.sram_peak_bytes,
            each.cycles,
            (
                f"Vela: {plain_text(each.options, 80)}",
                f"{human_bytes(each.sram_peak_bytes)}, {group_digits(each.cycles)} NPU cycles",
            ),
        )
        for each in report.vela
    ]
    chosen = None
    if plan is not None:
        totals = plan.totals
        value = totals.latency_s if is_host else totals.cycles
        chosen = _Point(totals.sram_peak_bytes, value, ("this plan",))
    budget = report.budget_bytes if plan is None else plan.budget_bytes
    title, text = ("latency", time_label) if is_host else ("NPU cycles", count_label)
    curve = _Curve(ours, vela, chosen, budget, title, text)
    return _drawing(curve, _summary(report))


def draw_tune(report: TuneReport) -> Drawing | None:
    """Return both frontiers of ``tune``; None if they have no point."""
    curve = _Curve(
        [_tuned(point) for point in report.frontier if point.source == "npusched"],
        [_tuned(point) for point in report.frontier if point.source == "vela"],
        None,
        report.budget_bytes,
        "latency",
        time_label,
    )
    text = f"{plural(len(curve.ours), 'plan')} of ours and {plural(len(curve.vela), 'result')} "
    return _drawing(curve, text + f"of Vela's, of {plural(report.compilations, 'compilation')}.")


def _ours(point: FrontierPoint, is_host: bool) -> _Point:
    sums = point.totals
    whose = "" if point.source == "npusched" else " (Vela's own schedule)"
    lines = (
        f"{human_bytes(sums.sram_peak_bytes)}{whose}",
        f"{group_digits(sums.cycles or sums.cpu_cycles)} cycles, {human_seconds(sums.latency_s)}",
        f"{plural(point.fused_ops, 'fused op')}, {point.proof}",
    )
    return _Point(sums.sram_peak_bytes, sums.latency_s if is_host else sums.cycles, lines)


def _tuned(point: TunePoint) -> _Point:
    whose = "npusched" if point.source == "npusched" else f"Vela: {plain_text(point.vela_options)}"
    lines = (whose, f"{human_bytes(point.sram_bytes)}, {human_seconds(point.latency_s)}")
    return _Point(point.sram_bytes, point.latency_s, lines)


def _drawing(curve: _Curve, summary: str) -> Drawing | None:
    points = [point for point in (*curve.ours, *curve.vela) if point.value > 0]
    if not points:
        return None
    best = [*curve.ours, *([curve.chosen] if curve.chosen else ())] or points
    ceiling = 1.35 * max(point.value for point in best)
    seen = [point for point in points if point.value <= ceiling or not curve.ours]
    x = spanned(min(p.sram_bytes for p in seen), max(p.sram_bytes for p in seen), LEFT, RIGHT)
    y = spanned(min(p.value for p in seen), max(p.value for p in seen), BOTTOM, TOP)
    ours = sorted((p for p in curve.ours if p.value > 0), key=lambda p: (p.sram_bytes, -p.value))
    at = [(x.at(p.sram_bytes), y.at(p.value)) for p in ours]
    tail = f"H{RIGHT}" if at else ""
    parts = [
        framed(x, y, "SRAM", curve.title, curve.text),
        f'<path d="{stairs(at)}{tail}" class="p"/>' if at else "",
    ]
    if curve.budget_bytes is not None and x.low <= curve.budget_bytes <= x.high:
        where = x.at(curve.budget_bytes)
        parts.append(line(where, TOP, where, BOTTOM, "d"))
        parts.append(label(where, TOP - 6, "budget", "b", anchor="middle"))
    step = max(1, -(-len(ours) // MAX_POINTS))
    small = [mark(dot(*at[k], 3, 0), ours[k].lines) for k in range(0, len(ours), step)]
    parts.append(marks(small, "c1 k"))
    theirs = [p for p in curve.vela if p in seen]
    vela = [mark(dot(x.at(p.sram_bytes), y.at(p.value), 5, 3), p.lines) for p in theirs]
    parts.append(marks(vela, "c2 k"))
    if curve.chosen is not None:
        middle = x.at(curve.chosen.sram_bytes), y.at(curve.chosen.value)
        parts.append(f'<path d="{dot(*middle, 8, 0)}" class="y"/>')
    legend = [("c1", "npusched, best plan for its SRAM")]
    if vela:
        legend.append(("c2", "Vela's schedules, costed the same way"))
    if len(theirs) < len(curve.vela):
        summary += f" {plural(len(curve.vela) - len(theirs), 'slower result')} lie above."
    if curve.chosen is not None:
        summary += " The ring is this plan."
    return Drawing(
        "frontier", "What SRAM buys", summary, WIDTH, HEIGHT, "".join(parts), tuple(legend)
    )


def _summary(report: FrontierReport) -> str:
    most, least = report.points[0].totals, report.points[-1].totals
    text = (
        f"{plural(len(report.points), 'best plan')} from {human_bytes(least.sram_peak_bytes)} to "
        f"{human_bytes(most.sram_peak_bytes)}"
    )
    if most.cycles and least.cycles > most.cycles:
        text += f"; the least SRAM costs {least.cycles / most.cycles:.2f} times the cycles"
    cycles = [point.totals.cycles for point in report.points]
    if report.objective == "cycles" and any(a > b for a, b in pairwise(cycles)):
        text += ". The stairs may rise: cycles + λ × off-chip bytes is what is least"
    return text + "."
