"""An explanation as text: sentences, then the figures as a table. At most 40 lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from npusched.report.explain_types import ExplainReport, FusionFacts
from npusched.report.layout import Column, Line, Span, flow, line, paint, table, wrap
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    human_frequency,
    human_seconds,
    log_text,
    percent,
    short_name,
)

LINES: Final = 40
_ROWS: Final = 8


def render_explanation_json(report: ExplainReport) -> str:
    """Return the explanation as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_explanation(report: ExplainReport, *, width: int = 100, colour: bool = False) -> str:
    """Return the explanation as text of at most ``width`` cells a line."""
    head = _head(report, width)
    foot = _foot(report, width)
    room = LINES - len(head) - len(foot)
    said: list[Line] = []
    for text in report.sentences:
        said += wrap(f"  {log_text(text, 2000)}", width, indent=4)
    rows = _table(report, width)
    if len(said) > room:
        said = [*said[: room - 1], line(("    ... the rest: --format json", "dim"))]
    left = room - len(said) - 1
    shown = [line(""), *rows[:left]] if rows and left >= 3 else []
    return paint([*head, *said, *shown, *foot], width=width, colour=colour)


def _head(report: ExplainReport, width: int) -> list[Line]:
    target = report.target
    asked = report.subject if report.op is None else f"op {report.op.index}"
    room = "" if report.budget_bytes is None else f"budget {human_bytes(report.budget_bytes)}"
    parts: list[str | Span] = [
        (f"explain {asked}", "bold"),
        log_text(report.model.name, 60),
        f"{log_text(target.name, 40)} @ {human_frequency(target.clock_hz)}",
        log_text(target.memory_mode_name or target.memory_mode.value, 40),
        *([room] if room else []),
    ]
    return [*flow(parts, width), line("")]


def _foot(report: ExplainReport, width: int) -> list[Line]:
    vela = f"Vela {log_text(report.vela_version, 20)}" if report.vela_version else "Vela not asked"
    plan = report.plan
    whose = "this plan" if plan.shown == "npusched" else "Vela's own schedule, the better one"
    parts = [
        f"{whose}: {group_digits(plan.cycles)} NPU cycles, {human_seconds(plan.latency_s)}, "
        f"{human_bytes(plan.sram_peak_bytes)}",
        f"npusched {log_text(report.npusched_version, 30)}",
        vela,
        "all figures predicted",
    ]
    return [line(""), *flow([(part, "dim") for part in parts], width)]


def _table(report: ExplainReport, width: int) -> list[Line]:
    if report.peak is not None:
        return _peak_table(report, width)
    if report.op is not None:
        return _op_table(report, width)
    if report.fusion is not None:
        return _fusion_table(report.fusion, width)
    if report.vela is not None:
        return _vela_table(report, width)
    if report.modes:
        return _mode_table(report, width)
    return []


def _more(rows: Sequence[object], shown: int) -> list[Line]:
    rest = len(rows) - shown
    return [line((f"  ... {rest} more: --format json", "dim"))] if rest > 0 else []


def _peak_table(report: ExplainReport, width: int) -> list[Line]:
    assert report.peak is not None
    columns = [
        Column(title="buffer", least=12),
        Column(title="role"),
        Column(title="shape", rank=2),
        Column(title="type", rank=3),
        Column(title="bytes", right=True),
        Column(title="padding", right=True),
        Column(title="made by", rank=1, least=8),
    ]
    rows = [
        [
            log_text(short_name(part.tensor, 60), 30),
            part.role,
            "x".join(map(str, part.shape)),
            part.dtype,
            group_digits(part.size_bytes),
            group_digits(part.padding_bytes) if part.padding_bytes else "-",
            "-" if part.source_op is None else f"#{part.source_op[1]} {log_text(part.kind, 18)}",
        ]
        for part in report.peak.parts[:_ROWS]
    ]
    return [*table(columns, rows, width=width), *_more(report.peak.parts, _ROWS)]


def _op_table(report: ExplainReport, width: int) -> list[Line]:
    assert report.op is not None
    if not report.op.resources:
        return []
    columns = [
        Column(title="resource"),
        Column(title="busy", right=True),
        Column(title="of the op", right=True, rank=2),
        Column(title="twice as much is", rank=1),
        Column(title="op then", right=True),
        Column(title="freed", right=True),
        Column(title="no time there", right=True),
        Column(title="freed", right=True),
    ]
    rows = [
        [
            log_text(each.name, 20),
            group_digits(each.busy_cycles),
            percent(each.busy_cycles, report.op.cycles),
            each.doubled_as or "-",
            _digits(each.doubled_cycles),
            _digits(each.doubled_frees_cycles),
            _digits(each.unlimited_cycles),
            _digits(each.unlimited_frees_cycles),
        ]
        for each in report.op.resources
    ]
    return table(columns, rows, width=width)


def _digits(value: int | None) -> str:
    return "-" if value is None else group_digits(value)


def _fusion_table(facts: FusionFacts, width: int) -> list[Line]:
    columns = [
        Column(title="ends after"),
        Column(title="before"),
        Column(title="reason"),
        Column(title="cycles if longer", right=True, rank=1),
        Column(title="off chip", right=True, rank=3),
        Column(title="SRAM then", right=True, rank=2),
        Column(title="barrier", least=20),
    ]
    inner = [end for end in facts.ends if end.next_op is not None and end.last_op != end.next_op]
    # What could be otherwise first; a barrier is one.
    inner.sort(key=lambda end: end.reason == "barrier")
    rows = [
        [
            _place(end.last_op, end.last_kind),
            _place(end.next_op, end.next_kind),
            end.reason,
            "-" if end.cycles_change is None else f"{end.cycles_change:+,}".replace(",", " "),
            "-"
            if not end.offchip_change_bytes
            else f"{end.offchip_change_bytes:+,}".replace(",", " "),
            "-" if end.needed_sram_bytes is None else human_bytes(end.needed_sram_bytes),
            log_text(end.why, 80) if end.reason in ("barrier", "length") else "-",
        ]
        for end in inner[: 2 * _ROWS]
    ]
    return [*table(columns, rows, width=width), *_more(inner, 2 * _ROWS)] if rows else []


def _place(ref: tuple[int, int] | None, kind: str) -> str:
    return log_text(kind, 16) if ref is None else f"#{ref[1]} {log_text(kind, 16)}"


def _mode_table(report: ExplainReport, width: int) -> list[Line]:
    columns = [
        Column(title="memory mode", least=10),
        Column(title="SRAM", right=True),
        Column(title="latency", right=True),
        Column(title="NPU cycles", right=True),
        Column(title="energy", right=True, rank=2),
        Column(title="flash", right=True, rank=1),
        Column(title="DRAM", right=True, rank=1),
        Column(title="constants in", rank=3),
    ]
    rows = [
        [
            log_text(mode.memory_mode, 30) + (" *" if mode.is_chosen else ""),
            "-" if mode.sram_peak_bytes is None else human_bytes(mode.sram_peak_bytes),
            "-" if mode.latency_s is None else human_seconds(mode.latency_s),
            _digits(mode.cycles),
            "-" if mode.energy_nj is None else human_energy(mode.energy_nj.typical),
            "-" if mode.flash_bytes is None else human_bytes(mode.flash_bytes),
            "-" if mode.dram_bytes is None else human_bytes(mode.dram_bytes),
            log_text(mode.constants_in, 16),
        ]
        for mode in report.modes
    ]
    return table(columns, rows, width=width)


def _vela_table(report: ExplainReport, width: int) -> list[Line]:
    assert report.vela is not None
    facts = report.vela
    columns = [
        Column(title="Vela asked for", least=9),
        Column(title="limit", right=True),
        Column(title="uses", right=True),
        Column(title="reported", right=True),
        Column(title="striped", right=True, rank=2),
        Column(title="cascades", right=True, rank=1),
        Column(title="ours", right=True),
        Column(title="in", right=True),
        Column(title="", rank=1),
    ]
    rows = [
        [
            log_text(run.options, 30),
            "none" if run.asked_bytes is None else group_digits(run.asked_bytes),
            group_digits(run.used_bytes),
            group_digits(run.reported_cycles),
            _digits(run.striped_cycles),
            str(run.cascades),
            _digits(run.ours_cycles),
            "no plan" if run.ours_sram_bytes is None else human_bytes(run.ours_sram_bytes),
            "over" if run.is_over else "",
        ]
        for run in facts.runs
    ]
    lines = table(columns, rows, width=width)
    for note in facts.notes:
        lines += wrap(f"  - {log_text(note.text, 300)}", width, indent=4)
    return lines
