"""A comparison in at most 40 lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.compare_types import (
    CompareReport,
    ExecutedStreams,
    MeasuredFacts,
    PurposeName,
)
from npusched.report.layout import Column, Line, Span, flow, line, paint, table, wrap
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_frequency,
    human_seconds,
    plain_text,
    plural,
    short_name,
    signed,
)
from npusched.vela.join import JoinedOp, Side
from npusched.vela.totals import SideTotals

MAX_LINES: Final = 40
DEFAULT_TOP: Final = 8

TITLES: Final = {
    "npusched": "npusched plan",
    "vela": "Vela as reported",
    "vela_compatible": "  our cost, Vela's way",
    "vela_recosted": "  our cost, striped",
}
"""Rows of the table of totals, in order."""


def render_compare_text(
    report: CompareReport, *, width: int = 100, colour: bool = False, top: int = DEFAULT_TOP
) -> str:
    """Return the comparison as text: totals, the ops that differ most, notes, measurements.

    At most ``MAX_LINES`` lines for the default ``top``: lists shrink until that holds.
    """
    width = max(width, 40)
    notes, measured, ops = 8, 4, top
    lines = _lines(report, width, ops, notes, measured)
    while len(lines) > MAX_LINES and top <= DEFAULT_TOP and (ops, notes, measured) != (1, 2, 1):
        if notes > 4:
            notes -= 1
        elif ops > 3:
            ops -= 1
        else:
            ops, notes, measured = max(ops - 1, 1), max(notes - 1, 2), max(measured - 1, 1)
        lines = _lines(report, width, ops, notes, measured)
    return paint(lines, width=width, colour=colour)


def _lines(report: CompareReport, width: int, ops: int, notes: int, measured: int) -> list[Line]:
    sections = [
        _header(report, width),
        _totals(report, width),
        _verdict(report, width),
        _executed(report, width),
        _ops(report, width, ops),
        _strays(report, width),
        _notes(report, width, notes),
        _measured(report, width, measured),
        _footer(report, width),
    ]
    lines: list[Line] = []
    for section in sections:
        if section:
            lines += [*([line("")] if lines else []), *section]
    return lines


def _header(report: CompareReport, width: int) -> list[Line]:
    target, vela = report.target, report.vela
    name = f"Vela {vela.version}" if vela.source == "run" else "Vela's files"
    mode = target.memory_mode_name or target.memory_mode.value
    second = [
        f"{plain_text(target.name, 40)} @ {human_frequency(target.clock_hz)}",
        plain_text(target.system_config, 40),
        plain_text(mode, 40),
    ]
    first: list[str | Span] = [
        (plain_text(report.model.name, 48), "bold"),
        plural(report.model.op_count, "op"),
        f"{name} ({vela.core})",
        *_asked(report),
    ]
    return [*flow(first, width), *flow(second, width)]


def _asked(report: CompareReport) -> list[str]:
    """Options that were given to Vela, if any."""
    options = report.vela.options
    if options is None:
        return []
    parts = [f"optimised for {options.optimise.value}"]
    if options.arena_cache_size_bytes is not None and options.arena_cache_size_bytes < 1 << 32:
        parts.append(f"arena {human_bytes(options.arena_cache_size_bytes)}")
    if options.disable:
        parts.append(f"without {', '.join(options.disable)}")
    return parts


def total_rows(report: CompareReport) -> list[tuple[str, SideTotals]]:
    """The totals that are known, with their titles."""
    named = [(title, getattr(report.totals, name)) for name, title in TITLES.items()]
    return [(title, total) for title, total in named if total is not None]


def _totals(report: CompareReport, width: int) -> list[Line]:
    columns = [
        Column(title="total", least=16),
        Column(title="cycles", right=True),
        Column(title="NPU only", right=True, rank=4),
        Column(title="NPU time", right=True, rank=1),
        Column(title="CPU time", right=True, rank=2),
        Column(title="SRAM peak", right=True),
        Column(title="DRAM", right=True, rank=3),
        Column(title="flash", right=True, rank=3),
    ]
    rows = [(title, *total_cells(total)) for title, total in total_rows(report)]
    return table(columns, rows, width=width)


def total_cells(total: SideTotals) -> Sequence[str]:
    """Cells of one total, "-" where a figure is not known."""
    return (
        _count(total.cycles),
        _count(total.npu_cycles),
        "-" if total.npu_s is None else human_seconds(total.npu_s),
        human_seconds(total.cpu_s) if total.cpu_s else "0",
        _size(total.sram_peak_bytes),
        _size(total.dram_bytes),
        _size(total.flash_bytes),
    )


def _count(count: int | None) -> str:
    return "-" if count is None else group_digits(count)


def _size(count: int | None) -> str:
    return "-" if count is None else human_bytes(count)


def _verdict(report: CompareReport, width: int) -> list[Line]:
    text = verdict_text(report)
    return wrap(f"  {text}", width) if text else []


def verdict_text(report: CompareReport) -> str:
    """Our plan against Vela's schedule on one basis, in a sentence; "" where there is none."""
    ours, theirs = report.totals.npusched, report.totals.vela_recosted
    if theirs is None or not theirs.cycles or ours.cycles is None:
        return ""
    parts = [f"{_change(ours.cycles, theirs.cycles)} cycles"]
    if theirs.sram_peak_bytes and ours.sram_peak_bytes is not None:
        parts.append(f"{_change(ours.sram_peak_bytes, theirs.sram_peak_bytes)} SRAM")
    off_chip = [
        (mine or 0) + (flash or 0)
        for mine, flash in (
            (ours.dram_bytes, ours.flash_bytes),
            (theirs.dram_bytes, theirs.flash_bytes),
        )
    ]
    if off_chip[1]:
        parts.append(f"{_change(off_chip[0], off_chip[1])} bytes of DRAM and flash")
    return f"on one basis (striped), npusched against Vela: {', '.join(parts)}"


EXECUTED_TITLES: Final = ("executed by Vela's stream", "executed", "predicted", "Vela's estimate")


def _executed(report: CompareReport, width: int) -> list[Line]:
    """What Vela's streams really move, each figure with our prediction and Vela's estimate."""
    if report.executed is None:
        text = f"  executed: not counted ({plain_text(report.not_executed, 200)})"
        return wrap(text, width, indent=4)[:2]
    first, *others = EXECUTED_TITLES
    columns = [Column(title=first, least=24), *(Column(title=t, right=True) for t in others)]
    return table(columns, executed_rows(report), width=width)


def executed_rows(report: CompareReport) -> list[Sequence[str]]:
    """Cells of what is executed; empty if it was not counted."""
    found = report.executed
    if found is None:
        return []
    vela = report.totals.vela
    ours = report.totals.vela_recosted or vela
    dmas, again = plural(found.dmas, "DMA"), human_bytes(found.reread_bytes)
    rows = [
        ("feature maps read", _moved(found, "feature_map", "read")),
        ("feature maps written", _moved(found, "feature_map", "written")),
        (f"weights read, {again} again", _moved(found, "weights", "read")),
        (
            f"weights staged ({dmas} in all)",
            (found.staged_bytes, found.predicted_staged_bytes, found.vela_staged_bytes),
        ),
        ("SRAM peak", (found.sram_peak_bytes, ours.sram_peak_bytes, vela.sram_peak_bytes)),
    ]
    return [(title, *(_size(count) for count in counts)) for title, counts in rows]


def _moved(found: ExecutedStreams, purpose: PurposeName, verb: str) -> tuple[int, ...]:
    """Bytes of all memories: executed, predicted, Vela's."""
    return tuple(
        sum(getattr(row, f"{side}{verb}_bytes") for row in found.rows if row.purpose == purpose)
        for side in ("", "predicted_", "vela_")
    )


def _change(new: int, old: int) -> str:
    return signed(f"{100 * (new - old) / old:.1f} %")


def _difference(op: JoinedOp) -> int:
    """Cycles by which the sides part, on one basis where there is one."""
    theirs = op.vela_recosted or op.vela
    mine = 0 if op.npusched is None else op.npusched.cycles
    return mine - (0 if theirs is None else theirs.cycles)


def ranked_ops(report: CompareReport) -> list[JoinedOp]:
    """Ops with kernels on some side, the largest difference first."""
    busy = [op for op in report.ops if op.npusched is not None or op.vela is not None]
    return sorted(busy, key=lambda op: (-abs(_difference(op)), op.index))


def _ops(report: CompareReport, width: int, top: int) -> list[Line]:
    ranked = ranked_ops(report)
    if not ranked or not top:
        return []
    columns = [
        Column(title="op", least=20),
        Column(title="npusched", right=True),
        Column(title="striped", right=True),
        Column(title="reported", right=True, rank=1),
        Column(title="differ by", right=True),
        Column(title="npusched runs", least=18, rank=2),
        Column(title="Vela runs", least=18, rank=2),
        Column(title="name", least=12, rank=3),
    ]
    lines = table(columns, [op_cells(op) for op in ranked[:top]], width=width)
    if len(ranked) > top:
        lines.append(line(f"  … {plural(len(ranked) - top, 'more op')} (--top N, --format json)"))
    return lines


def op_cells(op: JoinedOp) -> Sequence[str]:
    """Cells of one op."""
    return (
        f"#{op.index} {plain_text(op.kind, 32)}",
        _side_cycles(op.npusched),
        _side_cycles(op.vela_recosted),
        _side_cycles(op.vela),
        signed(group_digits(_difference(op))),
        how(op.npusched),
        how(op.vela),
        short_name(op.name),
    )


def _side_cycles(side: Side | None) -> str:
    if side is None:
        return "-"
    return "CPU" if side.placement == "cpu" else group_digits(side.cycles)


def how(side: Side | None) -> str:
    """How a side runs an op: its stripes, what becomes of its weights, its kernels."""
    if side is None:
        return "-"
    if side.placement == "cpu":
        return "on the CPU"
    parts = []
    if side.cascades:
        parts.append(f"{side.stripes}×{side.stripe_rows} rows")
    if side.weights and side.weights != "streamed":
        parts.append(side.weights)
    if side.kernels > 1:
        parts.append(plural(side.kernels, "kernel"))
    return ", ".join(parts) or "whole"


def _strays(report: CompareReport, width: int) -> list[Line]:
    lines: list[Line] = []
    for title, strays in (("only npusched", report.only_npusched), ("only Vela", report.only_vela)):
        if strays:
            first = strays[0]
            more = f" (and {len(strays) - 1} more)" if len(strays) > 1 else ""
            where = "" if first.source_op is None else f" of #{first.source_op[1]}"
            text = f"{title}: {first.kind}{where}: {first.reason}{more}"
            lines += wrap(f"  {plain_text(text, 300)}", width, indent=4)[:2]
    return lines


def _notes(report: CompareReport, width: int, count: int) -> list[Line]:
    lines: list[Line] = []
    for text in (*report.vela.mismatches[:2], *(note.text for note in report.notes[:count])):
        lines += wrap(f"  · {plain_text(text, 400)}", width, indent=4)
    if len(report.notes) > count:
        lines.append(line(f"  … {plural(len(report.notes) - count, 'more note')} (--format json)"))
    return lines


def _measured(report: CompareReport, width: int, count: int) -> list[Line]:
    if not report.measured:
        return []
    columns = [
        Column(title="measured", least=12),
        Column(title="value", right=True),
        Column(title="npusched/measured", right=True),
        Column(title="Vela/measured", right=True),
        Column(title="striped/measured", right=True, rank=1),
    ]
    lines = table(
        columns, [measured_cells(entry) for entry in report.measured[:count]], width=width
    )
    if len(report.measured) > count:
        lines.append(line(f"  … {plural(len(report.measured) - count, 'more measurement')}"))
    return lines


def measured_cells(entry: MeasuredFacts) -> Sequence[str]:
    """Cells of one measurement."""
    value = "-"
    if entry.cycles is not None:
        value = f"{group_digits(round(entry.cycles))} cycles"
    elif entry.latency_s is not None:
        value = human_seconds(entry.latency_s)
    ratios = (entry.npusched_ratio, entry.vela_ratio, entry.vela_recosted_ratio)
    return (
        "network" if entry.source_op is None else f"#{entry.source_op[1]}",
        value,
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    )


def _footer(report: CompareReport, width: int) -> list[Line]:
    parts = [
        f"npusched {report.npusched_version}",
        "npusched's figures predicted",
        "Vela's estimated",
    ]
    parts.append("measured ones given" if report.measured else "none measured")
    return flow([(part, "dim") for part in parts], width)
