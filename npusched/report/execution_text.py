"""Runs, proofs and inspections as text, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from npusched.report.execution_types import (
    ExecutedFacts,
    HazardFacts,
    InspectReport,
    MemoryUse,
    OutputFacts,
    ProveReport,
    RunReport,
    TimingFacts,
)
from npusched.report.layout import Column, Line, flow, line, paint, table, wrap
from npusched.report.types import Published
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_frequency,
    human_seconds,
    percent,
    plain_text,
    plural,
    short_name,
)
from npusched.sim.proof import Verdict

_LABEL = 10
_SHOWN = 4
"""Findings, names and memories that the text form lists; JSON has all."""


def render_execution_json(report: Published) -> str:
    """Return the report as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_run_text(report: RunReport, *, width: int, colour: bool) -> str:
    """Return a run's outputs as a table."""
    origin = "given" if report.seed is None else f"random, seed {report.seed}"
    lines = [
        *flow(
            [
                (plain_text(report.name), "bold"),
                report.accelerator,
                plural(report.npu_operators, "NPU operator"),
                plural(report.npu_ops, "kernel"),
                plural(report.host_ops, "host op"),
                f"{plural(report.inputs, 'input')} ({origin})",
            ],
            width,
        )
    ]
    rows = [
        [
            plain_text(output.name),
            output.dtype,
            "x".join(map(str, output.shape)),
            f"{output.lowest:g}",
            f"{output.highest:g}",
            " ".join(f"{value:g}" for value in output.first),
        ]
        for output in report.outputs
    ]
    columns = [
        Column(title="output", least=8),
        Column(title="type"),
        Column(title="shape"),
        Column(title="lowest", right=True, rank=1),
        Column(title="highest", right=True, rank=1),
        Column(title="first values", least=8, rank=2),
    ]
    return paint([*lines, *table(columns, rows, width=width)], width=width, colour=colour)


def render_prove_text(report: ProveReport, *, width: int, colour: bool) -> str:
    """Return verdict, first difference, coverage, executed figures and findings."""
    inside = report.intermediates
    good = report.verdict is Verdict.EQUAL
    lines = [
        *flow(
            [(plain_text(report.name), "bold"), report.accelerator, plain_text(report.compiler)],
            width,
        ),
        labelled(
            "verdict",
            (report.verdict, "good" if good else "bad"),
            f" on {plural(report.inputs, 'input')} (seed {report.seed}), {report.mode} mode",
        ),
    ]
    lines += outputs_lines(report.outputs)
    lines.append(
        labelled(
            "inside",
            f"{inside.covered} of {plural(inside.tensors, 'tensor')} found whole "
            f"({percent(inside.covered, inside.tensors)}); {inside.equal} of "
            f"{plural(inside.compared, 'kernel')}, {len(inside.temporaries)} without counterpart",
        )
    )
    if inside.skipped:
        lines.append(labelled("", f"{plural(inside.skipped, 'kernel')} not looked for"))
    lines += names("missing", inside.missing, width)
    for reason, count in inside.reasons.items():
        lines.append(labelled("absorbed", f"{plural(count, 'tensor')}: {reason}"))
    lines += names("different", inside.different, width)
    if report.difference is not None:
        it = report.difference
        text = (
            f"{it.kernel} of operator {it.operator} (byte {it.offset_bytes}) differs from "
            f"{short_name(it.tensor)} (op {it.op} {it.kind}) at row {it.row}, column {it.column}, "
            f"channel {it.channel}: {it.got} instead of {it.expected}; "
            f"{it.differing} of {it.total} values"
        )
        lines += prose("first", text, width, style="bad")
    if report.single_rounding:
        text = f"{plural(report.single_rounding, 'kernel')} as the reference, once (proof mode)"
        lines.append(labelled("rounding", text))
    for text in report.exceptions:
        lines += prose("known", text, width, style="warn")
    lines += _executed(report.executed, report.memory_map, width)
    lines += _hazards(report.hazards, width)
    return paint(lines, width=width, colour=colour)


def render_inspect_text(report: InspectReport, *, width: int, colour: bool, top: int = 8) -> str:
    """Return what is inside a compiled file, its largest ops and the findings."""
    lines = [
        *flow(
            [
                (plain_text(report.name), "bold"),
                f"made for {report.accelerator}",
                plural(report.totals.npu_operators, "NPU operator"),
                plural(sum(report.host_ops.values()), "host op"),
            ],
            width,
        )
    ]
    if report.fit is not None:
        fit = report.fit
        shown = ("fits", "good") if fit.fits else ("does not fit", "bad")
        lines.append(labelled("target", f"{plain_text(fit.target)}: ", shown))
        for reason in fit.reasons:
            lines += prose("", reason, width)
    if report.timing is not None:
        lines += _timing(report.timing, width)
    elif report.untimed:
        lines += prose("no time", report.untimed, width)
    if report.host_ops:
        text = ", ".join(f"{count} {kind}" for kind, count in report.host_ops.items())
        lines += prose("host", text, width)
    lines += _executed(report.totals, report.memory_map, width)
    lines += _hazards(report.hazards, width)
    largest = sorted(report.ops, key=lambda op: (-op.macs, -op.dma_bytes, op.offset_bytes))[:top]
    rows = [
        [
            str(op.offset_bytes),
            op.kind,
            op.dtype,
            "x".join(map(str, op.ifm)) if op.macs or not op.dma_bytes else "-",
            "x".join(map(str, op.ofm)) if op.macs or not op.dma_bytes else "-",
            human_count(op.macs),
            human_bytes(op.weight_bytes + op.scale_bytes),
            human_bytes(op.dma_bytes),
        ]
        for op in largest
    ]
    if rows:
        columns = [
            Column(title="byte", right=True),
            Column(title="op"),
            Column(title="type", rank=2),
            Column(title="ifm", right=True, rank=1),
            Column(title="ofm", right=True),
            Column(title="MACs", right=True),
            Column(title="weights", right=True),
            Column(title="DMA", right=True, rank=1),
        ]
        lines.append(line((f"largest of {plural(len(report.ops), 'op')}", "dim")))
        lines += table(columns, rows, width=width)
    return paint(lines, width=width, colour=colour)


def _timing(timing: TimingFacts, width: int) -> list[Line]:
    """Return the predicted time and what it covers."""
    text = (
        f"{human_seconds(timing.latency_s)}, {group_digits(timing.cycles)} cycles at "
        f"{human_frequency(timing.clock_hz)} ({plain_text(timing.system_config)}, "
        f"{plain_text(timing.memory_mode)}); no kernel runs in {group_digits(timing.idle_cycles)}; "
        f"calls {human_seconds(timing.call_s)} more (estimate)"
    )
    return [*prose("predicted", text, width), *prose("covers", timing.covers, width)]


def _executed(totals: ExecutedFacts, memories: Sequence[MemoryUse], width: int) -> list[Line]:
    """Return kernels, transfers, memories and traffic."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in totals.kernels.items())
    lines = prose("kernels", f"{totals.npu_ops}: {kinds}" if kinds else "none", width)
    lines.append(
        labelled(
            "executed",
            f"{human_count(totals.macs)} MACs, {plural(totals.dmas, 'DMA')} of "
            f"{human_bytes(totals.dma_bytes)}, {plural(totals.waits, 'wait')}",
        )
    )
    lines.append(
        labelled(
            "bytes",
            f"SRAM peak {human_bytes(totals.sram_peak_bytes)}, constants "
            f"{human_bytes(totals.constant_bytes)}, commands {human_bytes(totals.stream_bytes)}",
        )
    )
    reach: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    peaks: Counter[str] = Counter()
    for use in memories:
        reach[use.memory] = max(reach[use.memory], use.high_water_bytes)
        sizes[use.memory] = max(sizes[use.memory], use.size_bytes)
        peaks[use.memory] = max(peaks[use.memory], use.peak_bytes)
    text = ", ".join(
        f"{name} {human_bytes(high)} of {human_bytes(sizes[name])}" for name, high in reach.items()
    )
    alive = ", ".join(
        f"{name} {human_bytes(peak)}" for name, peak in peaks.items() if name != "read_only"
    )
    text += f"; alive at a time: {alive}" if alive else ""
    lines += prose("reach", text, width)
    rows = [
        [
            each.memory,
            each.purpose.replace("_", " "),
            human_bytes(each.read_bytes),
            human_bytes(each.fetched_bytes),
            human_bytes(each.written_bytes),
        ]
        for each in totals.traffic
    ]
    columns = [
        Column(title="memory"),
        Column(title="for"),
        Column(title="read", right=True),
        Column(title="fetched", right=True, rank=1),
        Column(title="written", right=True),
    ]
    return [*lines, *(table(columns, rows, width=width) if rows else ())]


def _hazards(hazards: Sequence[HazardFacts], width: int) -> list[Line]:
    """Return the findings, the first ones in full."""
    if not hazards:
        return [labelled("hazards", ("none", "good"))]
    kinds = Counter(hazard.kind.replace("_", " ") for hazard in hazards)
    lines = [labelled("hazards", (", ".join(f"{n} {kind}" for kind, n in kinds.items()), "bad"))]
    for hazard in hazards[:_SHOWN]:
        text = f"{hazard.where} (byte {hazard.offset_bytes}): {hazard.why}"
        lines += prose("", text, width)
    return lines


def outputs_lines(outputs: Sequence[OutputFacts]) -> list[Line]:
    """How many outputs are equal, and the first ones that are not."""
    equal = sum(output.differing == 0 for output in outputs)
    lines = [labelled("outputs", f"{equal} of {len(outputs)} equal")]
    for output in [each for each in outputs if each.differing][:_SHOWN]:
        text = (
            f"{short_name(output.name)}: {output.differing} of {output.values} values differ, "
            f"by {output.largest:g} at most"
        )
        lines.append(labelled("", (text, "bad")))
    return lines


def names(label: str, found: Sequence[str], width: int) -> list[Line]:
    """The first of some names, and how many more there are; nothing without names."""
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return prose(label, ", ".join(short_name(name) for name in found[:_SHOWN]) + more, width)


def labelled(label: str, *parts: str | tuple[str, str]) -> Line:
    """A line behind a label."""
    return line((label.ljust(_LABEL), "dim"), *parts)


def prose(label: str, text: str, width: int, *, style: str = "") -> list[Line]:
    """A text behind a label, wrapped beside it."""
    rows: Iterable[Line] = wrap(text, max(width - _LABEL, 20), style=style)
    return [
        line((("" if number else label).ljust(_LABEL), "dim"), *row)
        for number, row in enumerate(rows)
    ]
