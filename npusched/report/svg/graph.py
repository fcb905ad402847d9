"""The graph of the plan: one row per segment in order, edges that skip rows drawn at the left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from npusched.report.svg.axis_of_time import segment_seconds
from npusched.report.svg.draw import (
    Drawing,
    dot,
    label,
    mark,
    marks,
    num,
    rect,
    shortened,
)
from npusched.report.svg.words import bound_name, op_title, ops_of_segments, segment_range
from npusched.report.text_tables import brief_kind
from npusched.report.types import OpFacts, PlanReport, SegmentFacts
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_seconds,
    percent,
    plain_text,
    plural,
)

WIDTH: Final = 1000
ROW: Final = 26
TOP: Final = 6
LANE: Final = 9
MAX_LANES: Final = 14
MAX_ROWS: Final = 120
"""Above this many rows, runs of single kernels become one row."""

MAX_RUN: Final = 20
"""Most segments of such a row."""

FRAME: Final = 66
"""Pixels from a point to the frame around what runs there."""

BAR: Final = 300
"""Pixels of the row that takes longest."""


class _Row(NamedTuple):
    """Consecutive segments that are drawn as one."""

    segments: tuple[SegmentFacts, ...]
    ops: tuple[OpFacts, ...]
    reads: frozenset[int]
    seconds: float


class _Edge(NamedTuple):
    start: int
    end: int
    lane: int


def draw_graph(report: PlanReport) -> Drawing | None:
    """Return the rows; None if nothing was planned."""
    rows = _rows(report)
    if not rows:
        return None
    edges = _edges(rows)
    lanes = max((edge.lane for edge in edges), default=-1) + 1
    left = 10 + LANE * min(lanes, MAX_LANES)
    total = sum(row.seconds for row in rows)
    longest = max(row.seconds for row in rows) or 1.0
    parts = [_edge(edge, left) for edge in edges]
    parts.append(_frames(rows, left))
    parts += [_text(row, index, left, longest, total) for index, row in enumerate(rows)]
    points: dict[str, list[str]] = {"c1 k": [], "c2 k": [], "c5 k": []}
    for index, row in enumerate(rows):
        points[_class(row)].append(_point(row, index, left, total))
    parts += [marks(some, classes) for classes, some in points.items()]
    names = ("NPU kernels one by one", "fused chain, stripe by stripe", "CPU")
    legend = [
        (key[:2], name) for (key, some), name in zip(points.items(), names, strict=True) if some
    ]
    height = TOP + ROW * len(rows) + 6
    return Drawing(
        "graph", "Segments", _summary(report, edges), WIDTH, height, "".join(parts), tuple(legend)
    )


def _summary(report: PlanReport, edges: Sequence[_Edge]) -> str:
    fused = [segment for segment in report.segments if len(segment.ops) > 1]
    kernels = sum(len(segment.ops) for segment in fused)
    skips = sum(edge.lane >= 0 for edge in edges)
    text = f"{plural(len(report.segments), 'segment')} in order"
    text += f", {len(fused)} of them fused from {plural(kernels, 'kernel')}" if fused else ""
    if not skips:
        return text + "; a plain chain."
    return text + f"; {skips} data path{' skips' if skips == 1 else 's skip'} rows."


def _rows(report: PlanReport) -> list[_Row]:
    """Segments, those of one source op together; long plans with runs of single ops together."""
    kernels = ops_of_segments(report)
    single = [
        _Row(
            (segment,),
            tuple(kernels[segment.index]),
            frozenset(segment.reads_from),
            segment_seconds(report, segment),
        )
        for segment in report.segments
    ]
    rows = _joined(single, lambda row, after: _is_same_op(row.segments[-1], after.segments[0]))
    if len(rows) > MAX_ROWS:
        skipped = {k for s in report.segments for k in s.reads_from if k < s.index - 1}
        rows = _joined(rows, lambda row, after: _goes_on(row, after, skipped))
    return rows if len(rows) <= 2 * MAX_ROWS else _longest(rows)


def _joined(rows: Sequence[_Row], belong: Callable[[_Row, _Row], bool]) -> list[_Row]:
    """Rows, each that belongs to the one before joined to it."""
    found: list[_Row] = []
    for row in rows:
        if found and belong(found[-1], row):
            last = found[-1]
            found[-1] = _Row(
                last.segments + row.segments,
                last.ops + row.ops,
                last.reads | row.reads,
                last.seconds + row.seconds,
            )
        else:
            found.append(row)
    return found


def _is_same_op(one: SegmentFacts, other: SegmentFacts) -> bool:
    alone = len(one.source_ops) == len(other.source_ops) == 1
    return alone and one.source_ops == other.source_ops


def _goes_on(row: _Row, after: _Row, skipped: set[int]) -> bool:
    """Whether data goes straight from a row to the next, neither of them a chain."""
    last, first = row.segments[-1], after.segments[0]
    return (
        len(row.segments) < MAX_RUN
        and len(last.ops) == len(first.ops) == 1
        and last.placement == first.placement
        and last.index not in skipped
        and set(first.reads_from) <= {last.index}
    )


def _longest(rows: Sequence[_Row]) -> list[_Row]:
    """The longest rows, and one row for all that lies between two of them."""
    longest = sorted(rows, key=lambda row: -row.seconds)[:MAX_ROWS]
    kept = {row.segments[0].index for row in longest}
    return _joined(
        rows,
        lambda row, after: not kept & {row.segments[0].index, after.segments[0].index},
    )


def _edges(rows: Sequence[_Row]) -> list[_Edge]:
    """Edges between rows; each that skips rows gets the first lane that is free there."""
    row_of = {segment.index: k for k, row in enumerate(rows) for segment in row.segments}
    pairs = {(row_of[k], index) for index, row in enumerate(rows) for k in row.reads}
    busy_until: list[int] = []
    found = []
    for start, end in sorted(pair for pair in pairs if pair[0] < pair[1]):
        if end == start + 1:
            found.append(_Edge(start, end, -1))
            continue
        lane = next((k for k, until in enumerate(busy_until) if until <= start), len(busy_until))
        busy_until[lane : lane + 1] = [end]
        found.append(_Edge(start, end, lane))
    return found


def _y(row: int) -> float:
    return TOP + ROW * row + ROW / 2


def _edge(edge: _Edge, left: float) -> str:
    top, bottom = _y(edge.start), _y(edge.end)
    if edge.lane < 0:
        return f'<path d="M{num(left)} {num(top)}V{num(bottom)}" class="e"/>'
    x = left - LANE * (min(edge.lane, MAX_LANES - 1) + 1)
    bend = 8
    path = (
        f"M{num(left)} {num(top)}Q{num(x)} {num(top)} {num(x)} {num(top + bend)}"
        f"V{num(bottom - bend)}Q{num(x)} {num(bottom)} {num(left)} {num(bottom)}"
    )
    return f'<path d="{path}" class="e"/>'


def _frames(rows: Sequence[_Row], left: float) -> str:
    """Boxes behind the kernels of fused chains."""
    return "".join(
        rect(left + FRAME, TOP + ROW * k + 3, 372, ROW - 6, "w")
        for k, row in enumerate(rows)
        if _is_fused(row)
    )


def _is_fused(row: _Row) -> bool:
    return len(row.segments) == 1 and len(row.ops) > 1


def _class(row: _Row) -> str:
    if row.segments[0].placement == "cpu":
        return "c5 k"
    return "c2 k" if _is_fused(row) else "c1 k"


def _kinds(row: _Row) -> str:
    """Kinds of the kernels: a → b → c; many of one op by their number."""
    if _is_fused(row):
        return " → ".join(brief_kind(op.kind) for op in row.ops)
    if len(row.ops) == 1:
        return "+".join(plain_text(part, 32) for part in (row.ops[0].kind, *row.ops[0].fused))
    kinds = sorted({brief_kind(op.kind) for op in row.ops})
    named = ", ".join(kinds[:3]) + (", …" if len(kinds) > 3 else "")
    chains = sum(len(segment.ops) > 1 for segment in row.segments)
    how = f"in {plural(len(row.segments), 'segment')}" if chains else "one by one"
    return f"{plural(len(row.ops), 'kernel')} {how}: {named}"


def _numbers(row: _Row) -> str:
    first, last = segment_range(row.segments[0]), segment_range(row.segments[-1])
    if not first or first == last:
        return last
    return f"{first.split('-')[0]}-{last.split('-')[-1]}"


def _text(row: _Row, index: int, left: float, longest: float, total: float) -> str:
    y = _y(index) + 4
    width = max(BAR * row.seconds / longest, 0.5)
    bar = WIDTH - BAR - 92
    stripes = ""
    if _is_fused(row):
        segment = row.segments[0]
        stripes = f"{group_digits(segment.stripes)} × {plural(segment.stripe_rows, 'row')}"
    kinds = shortened(_kinds(row), 360 if _is_fused(row) else 450)
    return "".join(
        (
            label(left + 12, y, _numbers(row), "t"),
            label(left + FRAME + 7, y, kinds, "i"),
            label(bar - 8, y, stripes, "t", anchor="end") if stripes else "",
            rect(bar, _y(index) - 6, width, 12, "c6"),
            label(bar + width + 6, y, f"{human_seconds(row.seconds)}", "t"),
            label(WIDTH - 2, y, percent(row.seconds, total), "t", anchor="end"),
        )
    )


def _point(row: _Row, index: int, left: float, total: float) -> str:
    first = row.segments[0]
    lines = [op_title(op) for op in row.ops[:6]]
    if len(row.ops) > 6:
        lines.append(f"… {plural(len(row.ops) - 6, 'more kernel')}")
    cycles = sum(segment.cycles + segment.cpu_cycles for segment in row.segments)
    lines.append(f"{group_digits(cycles)} cycles, {percent(row.seconds, total)} of the time")
    alive = max(segment.sram_bytes for segment in row.segments)
    lines.append(f"{human_bytes(alive)} alive, bound by {bound_name(first.bound_by)}")
    if _is_fused(row) and first.unfused_cycles:
        lines.append(f"op by op {group_digits(first.unfused_cycles)} cycles")
    if row.segments[-1].stops_because:
        lines.append(f"stops here: {row.segments[-1].stops_because}")
    shape = 1 if _is_fused(row) else 2 if first.placement == "cpu" else 0
    return mark(dot(left, _y(index), 5, shape), lines)
