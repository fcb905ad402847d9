"""A check as text: one row per gate, and what the failed ones say."""

from __future__ import annotations

from typing import Final

from npusched.report.check_types import CheckReport, Gate
from npusched.report.figures import exact
from npusched.report.layout import Column, Line, flow, line, paint, table, wrap
from npusched.report.units import human_bytes, human_frequency, log_text, percent_change, plural

_COLUMNS: Final = (
    Column(title=""),
    Column(title="gate"),
    Column(title="value", right=True),
    Column(title="limit", right=True),
    Column(title="of the limit", right=True, rank=2),
    Column(title="before", right=True, rank=1),
    Column(title="change", right=True, rank=3),
)
_SETTINGS: Final = 6
"""Most settings of a baseline that are listed."""


def render_check_text(report: CheckReport, *, width: int = 100, colour: bool = False) -> str:
    """Return verdict, gates, and for each failed one what is wrong and what would help."""
    width = max(width, 40)
    failed = failed_gates(report)
    rows = [_row(gate) for gate in report.gates]
    regressions = any(gate.kind == "regression" for gate in report.gates)
    columns = _COLUMNS if regressions else _COLUMNS[:5]
    lines: list[Line] = [
        *flow(
            [
                (report.verdict, "bad" if failed else "good"),
                (log_text(report.model, 48), "bold"),
                f"{log_text(report.target, 40)} @ {human_frequency(report.clock_hz)}",
                log_text(report.memory_mode, 40),
                summary(report),
            ],
            width,
        ),
        line(""),
        *table(columns, [row[: len(columns)] for row in rows], width=width),
    ]
    if failed:
        lines.append(line(""))
    for gate in failed:
        lines += wrap(f"  {gate.id}: {log_text(gate.text, 600)}", width, indent=4, style="bad")
        if gate.help:
            lines += wrap(f"    hint: {log_text(gate.help, 600)}", width, indent=10)
    lines += [line(""), *_notes(report, width)]
    return paint(lines, width=width, colour=colour)


def failed_gates(report: CheckReport) -> list[Gate]:
    """The gates that did not pass."""
    return [gate for gate in report.gates if not gate.passed]


def summary(report: CheckReport) -> str:
    """How many gates failed."""
    failed = len(failed_gates(report))
    gates = plural(len(report.gates), "gate")
    return f"{failed} of {gates} failed" if failed else f"{gates} passed"


def _row(gate: Gate) -> list[str]:
    before = "" if gate.baseline is None else exact(gate.baseline, gate.unit)
    change = "" if gate.baseline is None else percent_change(gate.value, gate.baseline)
    if gate.value == gate.baseline:
        change = "="
    return [
        "pass" if gate.passed else "FAIL",
        gate.title,
        exact(gate.value, gate.unit),
        exact(gate.limit, gate.unit),
        f"{100 * gate.value / gate.limit:.1f} %" if gate.limit else "-",
        before,
        change,
    ]


def _notes(report: CheckReport, width: int) -> list[Line]:
    """What the figures are of."""
    lines: list[Line] = []
    if report.baseline is not None:
        base = report.baseline
        what = log_text(f"{base.file or 'a plan'} of {base.model}", 100)
        same = " (the same model)" if base.sha256 == report.sha256 else ""
        lines += wrap(f"  baseline: {what}{same}", width, indent=4)
        for change in base.settings[:_SETTINGS]:
            text = f"{change.setting}: {change.before} before, now {change.after}"
            lines += wrap(f"    {log_text(text, 160)}", width, indent=6)
        if len(base.settings) > _SETTINGS:
            lines.append(line(f"    {len(base.settings) - _SETTINGS} more settings differ"))
    budget = report.budget_bytes
    room = "no budget" if budget is None else f"{human_bytes(budget)} of {report.budget_memory}"
    plan = "the plan" if report.fits else "no plan fits; figures are of the smallest feasible plan"
    lines += wrap(
        f"  {plan}: least {report.objective}, {log_text(room)}; predicted", width, indent=4
    )
    return lines
