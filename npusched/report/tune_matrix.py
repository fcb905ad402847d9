"""Several targets side by side: whether a bigger NPU, another mode or more SRAM helps more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from npusched import __version__
from npusched.hardware.target import Target
from npusched.report.layout import Column, Line, flow, line, paint, table, wrap
from npusched.report.tune_matrix_types import (
    TUNE_MATRIX_SCHEMA_VERSION,
    MatrixAnswer,
    MatrixCell,
    MatrixRow,
    TuneMatrix,
)
from npusched.report.tune_types import Goal, Source, TunePoint, TuneReport
from npusched.report.units import human_bytes, human_seconds, plain_text, plural

MORE_SRAM_BYTES: Final = 64 << 10


class Tried(msgspec.Struct, frozen=True):
    """A target and its curves, or why there are none."""

    target: Target
    report: TuneReport | None
    reason: str = ""


def build_matrix(
    tried: Sequence[Tried], *, budget_bytes: int | None, more_sram_bytes: int = MORE_SRAM_BYTES
) -> TuneMatrix:
    """Compare at ``budget_bytes``, or at the SRAM of the first target's knee."""
    reports = [each.report for each in tried if each.report is not None]
    if budget_bytes is None and tried[0].report is not None:
        first_knee = _chosen(tried[0].report, "knee", "npusched")
        budget_bytes = None if first_knee is None else first_knee.sram_bytes
    rows = tuple(_row(each, budget_bytes, more_sram_bytes) for each in tried)
    warnings = dict.fromkeys(text for report in reports for text in report.warnings)
    return TuneMatrix(
        schema_version=TUNE_MATRIX_SCHEMA_VERSION,
        npusched_version=__version__,
        model=reports[0].model if reports else None,
        budget_bytes=budget_bytes,
        more_sram_bytes=more_sram_bytes,
        rows=rows,
        answers=_answers(rows, more_sram_bytes),
        warnings=tuple(warnings),
    )


def _chosen(report: TuneReport, goal: Goal, source: Source) -> TunePoint | None:
    """The point of the whole curve, whatever the limits."""
    for each in report.curve:
        if (each.goal, each.source) == (goal, source):
            return report.frontier[each.point]
    return None


def _row(each: Tried, budget_bytes: int | None, more_sram_bytes: int) -> MatrixRow:
    target, report = each.target, each.report
    more = None if budget_bytes is None else budget_bytes + more_sram_bytes

    def cell(goal: Goal, source: Source = "npusched") -> MatrixCell | None:
        return None if report is None else _cell(_chosen(report, goal, source))

    return MatrixRow(
        config=target.name,
        system_config=target.system_config,
        memory_mode=target.memory_mode_name or target.memory_mode.value,
        budget_memory=target.roles.cache,
        holds_constants=target.roles.const == target.roles.cache,
        floor=cell("floor"),
        knee=cell("knee"),
        fastest=cell("fastest"),
        at_budget=_fastest_within(report, budget_bytes),
        with_more=_fastest_within(report, more),
        vela_knee=cell("knee", "vela"),
        reason=each.reason,
    )


def _cell(point: TunePoint | None) -> MatrixCell | None:
    if point is None:
        return None
    return MatrixCell(
        sram_bytes=point.sram_bytes,
        cycles=point.cycles,
        latency_s=point.latency_s,
        energy_nj=None if point.energy_nj is None else point.energy_nj.typical,
    )


def _fastest_within(report: TuneReport | None, budget_bytes: int | None) -> MatrixCell | None:
    if report is None or budget_bytes is None:
        return None
    fitting = [
        point
        for point in report.frontier
        if point.source == "npusched" and point.sram_bytes <= budget_bytes
    ]
    return _cell(min(fitting, key=lambda p: (p.latency_s, p.sram_bytes), default=None))


def _answers(rows: Sequence[MatrixRow], more_sram_bytes: int) -> tuple[MatrixAnswer, ...]:
    first = rows[0]
    base = first.at_budget
    if base is None or base.latency_s <= 0:
        return ()
    changes = [(f"{human_bytes(more_sram_bytes)} more SRAM", first.with_more)]
    changes += [(_name(row, first), row.at_budget) for row in rows[1:]]
    found = [
        MatrixAnswer(
            change=text,
            latency_s=cell.latency_s,
            change_percent=100 * (cell.latency_s / base.latency_s - 1),
        )
        for text, cell in changes
        if cell is not None
    ]
    return tuple(sorted(found, key=lambda answer: (answer.latency_s, answer.change)))


def _name(row: MatrixRow, first: MatrixRow) -> str:
    """What is different about a target, in words."""
    if row.config == first.config:
        return row.memory_mode
    return f"{row.config} {row.memory_mode}"


def render_matrix(matrix: TuneMatrix, *, width: int = 100, colour: bool = False) -> str:
    """Return the table and the answers as text."""
    width = max(width, 60)
    columns = [
        Column(title="target", least=12),
        Column(title="memory mode", least=10),
        Column(title="least SRAM", right=True),
        Column(title="knee", right=True),
        Column(title="fastest", right=True),
        Column(title=_budget_title(matrix), right=True),
        Column(title="and more", right=True, rank=1),
        Column(title="Vela's knee", right=True, rank=2),
    ]
    rows = [matrix_cells(row) for row in matrix.rows]
    lines: list[Line] = [*_header(matrix, width), line("")]
    lines += [*table(columns, rows, width=width), line("")]
    for text in answer_texts(matrix):
        lines += wrap(f"  {text}", width, indent=4)
    return paint(lines, width=width, colour=colour)


def _header(matrix: TuneMatrix, width: int) -> list[Line]:
    if matrix.model is None:
        return []
    return flow(
        [
            (plain_text(matrix.model.name, 48), "bold"),
            plural(matrix.model.op_count, "op"),
            plural(len(matrix.rows), "target"),
            "our best plans: SRAM, latency",
        ],
        width,
    )


def _budget_title(matrix: TuneMatrix) -> str:
    return "budget" if matrix.budget_bytes is None else f"in {human_bytes(matrix.budget_bytes)}"


def matrix_cells(row: MatrixRow) -> list[str]:
    """One target as table cells."""
    if row.reason:
        return [plain_text(row.config), plain_text(row.memory_mode), *["-"] * 6]
    mark = "†" if row.holds_constants else ""
    return [
        plain_text(row.config),
        plain_text(row.memory_mode) + mark,
        *(_pair(cell) for cell in (row.floor, row.knee, row.fastest)),
        *(_time(cell) for cell in (row.at_budget, row.with_more)),
        _pair(row.vela_knee),
    ]


def _pair(cell: MatrixCell | None) -> str:
    return "-" if cell is None else f"{human_bytes(cell.sram_bytes)}, {_time(cell)}"


def _time(cell: MatrixCell | None) -> str:
    return "-" if cell is None else human_seconds(cell.latency_s)


def answer_texts(matrix: TuneMatrix) -> list[str]:
    """Whether a bigger NPU, another mode or more SRAM helps more."""
    found = []
    first = matrix.rows[0]
    if matrix.answers and first.at_budget is not None and matrix.budget_bytes is not None:
        parts = [
            f"{answer.change} {human_seconds(answer.latency_s)} ({answer.change_percent:+.1f} %)"
            for answer in matrix.answers
        ]
        found.append(
            f"{first.config} in {human_bytes(matrix.budget_bytes)} takes "
            f"{human_seconds(first.at_budget.latency_s)}; instead: {', '.join(parts)}"
        )
    if any(row.holds_constants for row in matrix.rows):
        found.append("† SRAM with all weights in it")
    found += [
        f"{row.config} {row.memory_mode}: {plain_text(row.reason, 200)}"
        for row in matrix.rows
        if row.reason
    ]
    return found
