"""A sweep as text: sums per target and budget, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.layout import Column, Line, line, paint, table, wrap
from npusched.report.sweep_types import SweepGroup, SweepReport, SweepRow
from npusched.report.units import human_bytes, human_seconds, plain_text, plural

MAX_ROWS: Final = 22
"""Most lines of targets and budgets together that the text form has."""

MAX_ERRORS: Final = 3
"""Most failed models that it names."""

_COUNTS: Final = (
    Column(title="ok", right=True),
    Column(title="too small", right=True),
    Column(title="errors", right=True),
    Column(title="optimal", right=True, rank=3),
    Column(title="Vela's", right=True, rank=2),
    Column(title="latency", right=True),
)


def render_sweep(report: SweepReport, *, width: int = 100, colour: bool = False) -> str:
    """Return the summary of a sweep; ``colour`` as ANSI codes."""
    lines = [*_head(report, width), line("")]
    columns = (Column(title="target", least=12), Column(title="models", right=True), *_COUNTS)
    rows = [
        (plain_text(group.target, 40), str(group.models), *_counts(group))
        for group in report.targets[:MAX_ROWS]
    ]
    lines += [*table(columns, rows, width=width), *_more(len(report.targets) - len(rows))]
    if len(report.budgets) > len(report.targets) and len(rows) < MAX_ROWS:
        lines += [line(""), *_budgets(report.budgets, width, MAX_ROWS - len(rows))]
    lines += _errors(report.rows)
    lines += [
        line(""),
        *wrap(
            "  too small: no plan fits the budget; Vela's: its schedule was the better plan; "
            "latency: geometric mean of the jobs with a plan; slower: of latency / the same "
            "model's least on that target",
            width,
            indent=2,
            style="dim",
        ),
    ]
    return paint(lines, width=width, colour=colour)


def _head(report: SweepReport, width: int) -> list[Line]:
    count = {name: sum(row.status == name for row in report.rows) for name in _STATES}
    text = (
        f"{plural(len(report.rows), 'job')}: {plural(report.models, 'model')} on "
        f"{plural(len(report.targets), 'target')}; {count['ok']} with a plan, "
        f"{count['infeasible']} whose budget is too small, {plural(count['error'], 'error')}"
    )
    if report.known_before:
        text += f"; {report.known_before} known before"
    if report.copies:
        text += f"; {plural(report.copies, 'file')} with the content of another"
    return [
        *wrap(text, width, indent=2, style="bold"),
        line((f"  in {plain_text(report.store, 80)}", "dim")),
    ]


_STATES: Final = ("ok", "infeasible", "error")


def _counts(group: SweepGroup) -> tuple[str, ...]:
    latency = group.geomean_latency_s
    return (
        str(group.ok),
        str(group.infeasible),
        str(group.errors),
        str(group.optimal),
        str(group.vela_plans),
        "-" if latency is None else human_seconds(latency),
    )


def _budgets(groups: Sequence[SweepGroup], width: int, most: int) -> list[Line]:
    columns = (
        Column(title="target", least=12),
        Column(title="budget", right=True),
        *_COUNTS,
        Column(title="slower", right=True, rank=1),
    )
    rows = [
        (
            plain_text(group.target, 40),
            "capacity" if group.budget_bytes is None else human_bytes(group.budget_bytes),
            *_counts(group),
            "-" if group.slowdown is None else f"x{group.slowdown:.2f}",
        )
        for group in groups[:most]
    ]
    return [*table(columns, rows, width=width), *_more(len(groups) - len(rows))]


def _more(count: int) -> list[Line]:
    return [line(f"  … {count} more, see --format json")] if count > 0 else []


def _errors(rows: Sequence[SweepRow]) -> list[Line]:
    """Each model that failed, with one of its errors, as far as a line goes."""
    failed: dict[str, list[SweepRow]] = {}
    for row in rows:
        if row.status == "error":
            failed.setdefault(row.model_sha256, []).append(row)
    if not failed:
        return []
    lines = [line("")]
    for some in list(failed.values())[:MAX_ERRORS]:
        what = f"  {plain_text(some[0].model, 40)} ({plural(len(some), 'job')}): "
        lines.append(line((what + plain_text(some[0].error, 300), "bad")))
    return [*lines, *_more(len(failed) - MAX_ERRORS)]
