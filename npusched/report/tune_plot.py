"""SRAM against latency as characters: our curve, Vela's results, the budget, the knees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Final

from npusched.report.layout import Line, Span, cell_width, line, pad
from npusched.report.tune_types import TunePoint, TuneReport
from npusched.report.units import human_bytes, human_seconds

HEIGHT: Final = 11
_MARKS: Final = {"ours": "o", "vela": "x", "worse": "+", "both": "8", "knee": "K", "budget": "│"}
_STYLES: Final = {"o": "good", "x": "mark", "+": "dim", "8": "mark", "K": "bold", "│": "warn"}
LEGEND: Final = "o ours  x Vela  + Vela, dominated  8 both  K our knee"


def plot_lines(report: TuneReport, width: int, *, height: int = HEIGHT) -> list[Line]:
    """Points in a frame with axes: SRAM linear, latency logarithmic. Empty if there is no time."""
    points = [point for point in report.frontier if point.latency_s > 0]
    if not points:
        return []
    best = [point for point in points if point.dominated_by is None] or points
    slow, fast = max(p.latency_s for p in best), min(p.latency_s for p in best)
    top, bottom = human_seconds(slow), human_seconds(fast)
    margin = max(cell_width(top), cell_width(bottom)) + 2
    columns = max(width - margin - 2, 16)
    low, high = _span(report, best)
    grid = [[" "] * columns for _ in range(height)]

    def place(point: TunePoint) -> tuple[int, int] | None:
        x = round((point.sram_bytes - low) / max(high - low, 1) * (columns - 1))
        share = log(point.latency_s / fast) / log(slow / fast) if slow > fast else 0.0
        y = round((1 - share) * (height - 1))
        return (y, x) if 0 <= x < columns and 0 <= y < height else None

    _budget(grid, report.budget_bytes, low, high)
    ours = [p for p in points if p.source == "npusched" and p.dominated_by is None]
    _steps(grid, [place(p) for p in sorted(ours, key=lambda p: (p.sram_bytes, -p.latency_s))])
    for point in sorted(points, key=lambda p: (p.source == "npusched", p.dominated_by is None)):
        where = place(point)
        if where is not None:
            _mark(grid, where, point)
    for choice in report.curve:
        where = place(report.frontier[choice.point])
        if choice.goal == "knee" and choice.source == "npusched" and where is not None:
            grid[where[0]][where[1]] = _MARKS["knee"]
    labels = {0: top, height - 1: bottom}
    rows = [
        line(pad(labels.get(y, ""), margin - 1, right=True) + " │", *_spans(row))
        for y, row in enumerate(grid)
    ]
    left, right = human_bytes(low), human_bytes(high)
    gap = max(columns - cell_width(left) - cell_width(right), 1)
    rows.append(line(" " * margin + "└" + "─" * columns))
    rows.append(line(" " * (margin + 1) + left + " " * gap + right))
    return rows


def _span(report: TuneReport, best: Sequence[TunePoint]) -> tuple[int, int]:
    """SRAM at the left and right end: all points that none dominates, and the budget if near."""
    low, high = min(p.sram_bytes for p in best), max(p.sram_bytes for p in best)
    budget = report.budget_bytes
    if budget is not None and budget <= 1.25 * high:
        low, high = min(low, budget), max(high, budget)
    return low, high


def _budget(grid: list[list[str]], budget: int | None, low: int, high: int) -> None:
    if budget is None or not low <= budget <= high:
        return
    x = round((budget - low) / max(high - low, 1) * (len(grid[0]) - 1))
    for row in grid:
        row[x] = _MARKS["budget"]


def _steps(grid: list[list[str]], places: Sequence[tuple[int, int] | None]) -> None:
    """Our curve is a step: what is reached with some SRAM is reached with more."""
    known = [place for place in places if place is not None]
    for (y, x), (_, end) in pairwise(known):
        for column in range(x, end):
            if grid[y][column] == " ":
                grid[y][column] = "·"


def _mark(grid: list[list[str]], where: tuple[int, int], point: TunePoint) -> None:
    y, x = where
    if point.source == "npusched":
        is_shared = grid[y][x] in (_MARKS["vela"], _MARKS["both"])
        grid[y][x] = _MARKS["both"] if is_shared else _MARKS["ours"]
    else:
        grid[y][x] = _MARKS["vela"] if point.dominated_by is None else _MARKS["worse"]


def _spans(row: Sequence[str]) -> list[Span]:
    """Runs of characters of one style."""
    spans: list[Span] = []
    for character in row:
        style = _STYLES.get(character, "dim" if character == "·" else "")
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + character, style)
        else:
            spans.append((character, style))
    return spans
