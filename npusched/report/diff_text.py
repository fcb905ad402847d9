"""A difference of two plans as text in at most 40 lines, and as JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from npusched.report.diff_types import DiffReport, DiffSide, OpChange, OpSide, TotalChange
from npusched.report.figures import FIGURES, rounded
from npusched.report.layout import Column, Line, flow, line, paint, table
from npusched.report.units import human_seconds, log_text, plural, short_name, signed

MAX_LINES: Final = 40
DEFAULT_TOP: Final = 8
_SETTINGS: Final = 8
"""Most settings of the text form."""

_TOTALS: Final = (
    Column(title="total"),
    Column(title="before", right=True),
    Column(title="after", right=True),
    Column(title="change", right=True, rank=1),
    Column(title="relative", right=True),
)
_OPS: Final = (
    Column(title="op"),
    Column(title="before", right=True),
    Column(title="after", right=True),
    Column(title="change", right=True),
    Column(title="what changed", least=12, rank=1),
    Column(title="name", least=8, rank=2),
)


def render_diff_json(report: DiffReport) -> str:
    """Return the difference as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_diff_text(
    report: DiffReport, *, width: int = 100, colour: bool = False, top: int = DEFAULT_TOP
) -> str:
    """Return both plans, totals, settings that differ, and the ops whose time changed most.

    At most ``MAX_LINES`` lines at ``width`` 80 and above for the default ``top``.
    """
    width = max(width, 40)
    totals = shown_totals(report)
    lines: list[Line] = [*_sides(report, width)]
    lines += [line(""), *table(_TOTALS, [total_cells(each) for each in totals], width=width)]
    ops = _ops(report, width, top)
    room = MAX_LINES - len(lines) - len(_ops(report, width, min(top, DEFAULT_TOP)))
    lines += [*_settings(report, width, room), *ops]
    return paint(lines, width=width, colour=colour)


def _settings(report: DiffReport, width: int, room: int) -> list[Line]:
    """Settings that differ in at most ``room`` lines, but at least two of them."""
    if not report.settings:
        return []
    count = max(2, min(_SETTINGS, room - 3))
    rows = [
        (log_text(s.setting, 40), log_text(s.before, 40), log_text(s.after, 40))
        for s in report.settings[:count]
    ]
    columns = [
        Column(title="setting", least=12),
        Column(title="before", least=8),
        Column(title="after", least=8),
    ]
    lines = [line(""), *table(columns, rows, width=width)]
    if len(report.settings) > count:
        lines.append(line(f"  … {len(report.settings) - count} more settings differ"))
    return lines


def _ops(report: DiffReport, width: int, top: int) -> list[Line]:
    """The ``top`` ops whose time changed most."""
    lines = [line(""), *flow([f"  {count_text(report)}"], width)]
    shown = report.ops[:top]
    if shown:
        lines += table(_OPS, [op_cells(change) for change in shown], width=width)
    if len(report.ops) > len(shown):
        left = plural(len(report.ops) - len(shown), "more op")
        lines.append(line((f"  … {left} (--top N, --format json)", "dim")))
    return lines


def _sides(report: DiffReport, width: int) -> list[Line]:
    return [
        row
        for title, side in (("before", report.before), ("after", report.after))
        for row in flow([f"{title:<6} ", *side_parts(side)], width, separator=" ")
    ]


def side_parts(side: DiffSide) -> list[str]:
    """A plan in words: file, model, target, versions."""
    vela = f", Vela {log_text(side.vela_version, 20)}" if side.vela_version else ""
    return [
        f"{log_text(side.file, 60)}:" if side.file else "a plan:",
        f"{log_text(side.model, 48)} (sha256 {log_text(side.sha256[:8], 8)})",
        f"on {log_text(side.target, 40)},",
        f"npusched {log_text(side.npusched_version, 20)}{vela}",
    ]


def shown_totals(report: DiffReport) -> list[TotalChange]:
    """Totals that are not 0 in both plans."""
    return [each for each in report.totals if each.before or each.after]


def total_cells(total: TotalChange) -> list[str]:
    """Title, before, after, change, relative change."""
    change = signed(rounded(total.change, total.unit)) if total.change else "="
    return [
        FIGURES[total.metric].title,
        rounded(total.before, total.unit),
        rounded(total.after, total.unit),
        change,
        "new" if total.relative is None else f"{100 * total.relative:+.1f} %" * bool(total.change),
    ]


def count_text(report: DiffReport) -> str:
    """How many ops were added, removed, changed, and how they were matched."""
    counts = dict.fromkeys(("changed", "added", "removed"), 0)
    for change in report.ops:
        counts[change.state] += 1
    how = "the same model" if report.same_model else "two models, ops matched by name and order"
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    parts.append(f"{report.unchanged_ops} the same")
    return f"ops: {', '.join(parts)} ({how})"


def op_cells(change: OpChange) -> list[str]:
    """Op, time before and after, change, what changed, name."""
    side = change.after or change.before
    label = "" if side is None else f"#{side.index} {log_text(side.kind, 24)}"
    return [
        label,
        _time(change.before),
        _time(change.after),
        signed(human_seconds(change.change_s)) if change.change_s else "=",
        ", ".join(change_words(change)),
        log_text(short_name(change.name, 40)),
    ]


def _time(side: OpSide | None) -> str:
    return "-" if side is None else human_seconds(side.time_s)


def change_words(change: OpChange) -> list[str]:
    """What changed of an op, in words."""
    a, b = change.before, change.after
    if a is None or b is None:
        return [change.state]
    words = []
    if "kind" in change.changed:
        words.append(f"was {log_text(a.kind, 24)}")
    if a.index != b.index:
        words.append(f"was op {a.index}")
    if "placement" in change.changed:
        words.append(f"{a.placement} → {b.placement}")
    if "chain" in change.changed:
        words.append(f"{_chain(a)} → {_chain(b, a.chain_ops > 1)}")
    if "stripes" in change.changed:
        words.append(f"{_stripes(a)} → {_stripes(b)}")
    return words or ["time"]


def _chain(side: OpSide, after_chain: bool = False) -> str:
    if side.chain_ops <= 1:
        return "alone"
    return f"{side.chain_ops}" if after_chain else f"chain of {side.chain_ops}"


def _stripes(side: OpSide) -> str:
    return "whole" if side.stripes <= 1 else f"{side.stripes} × {plural(side.stripe_rows, 'row')}"
