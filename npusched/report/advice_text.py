"""Advice as text (at most 40 lines), Markdown and JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from npusched.report.advice_types import AdviceReport
from npusched.report.layout import Line, flow, line, paint, wrap
from npusched.report.markdown import markdown_table, markdown_text
from npusched.report.types import Advice
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    human_frequency,
    human_seconds,
    log_text,
    plain_text,
    plural,
)

MAX_LINES: Final = 40
_MESSAGE: Final = 600
"""Most characters of a message."""

_GOALS: Final = {
    "cycles": "time",
    "energy": "energy",
    "offchip": "off-chip bytes",
    "sram": "SRAM",
}


def goal_text(report: AdviceReport) -> str:
    """What advice is to lower."""
    return _GOALS.get(report.objective, report.objective)


def before_parts(report: AdviceReport) -> list[str]:
    """The figures of the plan as it is."""
    before = report.before
    parts = [
        human_seconds(before.latency_s),
        f"{group_digits(before.cycles)} NPU cycles",
        f"{human_bytes(before.sram_bytes)} of {log_text(report.budget_memory, 20)}",
        human_energy(before.energy_nj),
        f"{human_bytes(before.constant_bytes)} constants",
    ]
    if before.cpu_ops:
        parts.append(f"{plural(before.cpu_ops, 'op')} on the CPU")
    return parts


def summary(report: AdviceReport) -> str:
    """How much there is to say, of how much that was looked at."""
    looked = f"{plural(report.planned_changes, 'change')} planned by {len(report.rules)} rules"
    if not report.advice:
        return f"nothing to change for {goal_text(report)} ({looked})"
    return f"{len(report.advice)} worth making for {goal_text(report)} ({looked})"


def render_advice_text(report: AdviceReport, *, width: int = 100, colour: bool = False) -> str:
    """Return what to change, the largest gain first, in at most ``MAX_LINES`` lines."""
    width = max(width, 40)
    first, *rest = before_parts(report)
    lines: list[Line] = [
        *flow(
            [
                (log_text(report.model, 48), "bold"),
                f"{log_text(report.target, 40)} @ {human_frequency(report.clock_hz)}",
                log_text(report.memory_mode, 40),
                f"minimise {goal_text(report)}",
            ],
            width,
        ),
        *flow([f"as it is: {first}", *rest], width),
        *_fit(report, width),
        line(""),
    ]
    tail = [line(""), *wrap(_footer(report), width, indent=0)]
    room, shown = MAX_LINES - len(lines) - len(tail) - 1, 0
    for number, item in enumerate(report.advice, 1):
        rows = _item(number, item, width)
        if len(rows) > room:
            break
        lines += rows
        room -= len(rows)
        shown += 1
    if shown < len(report.advice):
        left = len(report.advice) - shown
        lines.append(line(f"  ... {left} more: --format json or md shows all"))
    return paint([*lines, *tail], width=width, colour=colour)


def _fit(report: AdviceReport, width: int) -> list[Line]:
    if report.fits:
        return []
    limit = "the limit on off-chip bytes" if report.objective == "offchip" else "the budget"
    if report.objective != "offchip" and report.budget_bytes is not None:
        limit += f" of {human_bytes(report.budget_bytes)}"
    text = f"no plan keeps {limit}: advice is about the {goal_text(report)} that it lacks"
    return wrap(text, width, style="bad")


def _item(number: int, item: Advice, width: int) -> list[Line]:
    head = f"{number:>2} {item.id}  "
    style = "mark" if item.severity == "info" else "bad"
    rows = wrap(plain_text(item.message, _MESSAGE), width - len(head))
    sure = f"(sure: {item.confidence}, +-{item.band:.0%} of the change)".replace("%", " %")
    rows += wrap(sure, width - len(head), style="dim")
    return [
        line((head, style), *row) if index == 0 else line(" " * len(head), *row)
        for index, row in enumerate(rows)
    ]


def _footer(report: AdviceReport) -> str:
    return f"{summary(report)}; all figures are predicted, each by a plan of the change"


def render_advice_md(report: AdviceReport) -> str:
    """Return all advice as a Markdown page."""
    target = f"{report.target} at {human_frequency(report.clock_hz)}, {report.memory_mode}"
    parts = [
        f"# {markdown_text(report.model)}: what to change",
        markdown_text(f"{target}; minimise {goal_text(report)}"),
        f"As it is: {markdown_text(', '.join(before_parts(report)))}.",
    ]
    if not report.fits:
        parts.append(f"No plan keeps the limit: advice is about the {goal_text(report)} it lacks.")
    if report.advice:
        rows = [
            (
                str(number),
                item.id,
                plain_text(item.message, _MESSAGE),
                _change(item.delta.latency_s, report.before.latency_s),
                _change(item.delta.sram_bytes, report.before.sram_bytes),
                _change(item.delta.energy_nj, report.before.energy_nj),
                f"{item.confidence}, ±{item.band:.0%}",
            )
            for number, item in enumerate(report.advice, 1)
        ]
        head = ("", "rule", "what to change", "time", "SRAM", "energy", "sure")
        parts.append(markdown_table(head, rows))
    parts.append(f"{markdown_text(summary(report))}. npusched {report.npusched_version}.")
    return "\n\n".join(parts) + "\n"


def _change(change: float | None, before: float) -> str:
    if change is None:
        return "-"
    return f"{change / before:+.1%}" if before else f"{change:+,}"


def render_advice_json(report: AdviceReport) -> str:
    """Return it as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
