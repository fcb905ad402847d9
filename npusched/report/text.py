"""A plan in at most 40 lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from npusched.report.types import OpFacts, PlanReport, SegmentFacts, SourceOp
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    human_frequency,
    human_seconds,
    percent,
    plain_text,
    short_name,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

SPARKS = "▁▂▃▄▅▆▇█"
DEFAULT_TOP = 6


def render_text(
    report: PlanReport, *, width: int = 100, colour: bool = False, top: int = DEFAULT_TOP
) -> str:
    """Return the plan as text: header, verdict, SRAM over time, ops, chains, fallbacks, advice.

    ``top`` ops, chains and fallbacks are listed; what is left out is counted. At most 40 lines
    for the default ``top``.
    """
    console, buffer = _console(width, colour)
    for part in (
        _header(report),
        _verdict(report),
        _levels(report),
        _top_ops(report, top),
        _chains(report, top),
        _fallbacks(report, top),
        _advice(report),
        _footer(report),
    ):
        for item in part:
            console.print(item)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _console(width: int, colour: bool) -> tuple[Console, StringIO]:
    from rich.console import Console

    buffer = StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=True,
        emoji=False,
        soft_wrap=False,
    )
    return console, buffer


def _safe(text: str, limit: int = 60) -> str:
    """Text from a model file: harmless to the terminal and to rich's markup."""
    return plain_text(text, limit).replace("[", "\\[")


def _header(report: PlanReport) -> list[RenderableType]:
    model, target = report.model, report.target
    const = target.const
    kinds = {t.dtype for t in report.ops if t.placement == "npu"} or {t.dtype for t in report.ops}
    lines: list[RenderableType] = [
        f"[bold]{_safe(model.name, 48)}[/bold]   {model.op_count} ops · "
        f"{human_count(model.macs)} MAC · {'/'.join(sorted(kinds))} · sha256 {model.sha256[:8]}"
    ]
    where = (
        f"{target.memory_mode.value} · constants in {const.name} "
        f"({const.bandwidth_bytes_per_cycle:g} B/cycle) · "
        f"arena in {target.arena.name} ({target.arena.bandwidth_bytes_per_cycle:g} B/cycle)"
    )
    lines.append(f"{target.name} @ {human_frequency(target.clock_hz)} · {where}")
    return lines


def _verdict(report: PlanReport) -> list[RenderableType]:
    totals = report.totals
    energy = totals.energy_nj
    rate = 1 / totals.latency_s if totals.latency_s else 0.0
    lines: list[RenderableType] = [""]
    lines.append(
        f"  latency  {human_seconds(totals.latency_s):>9}  ({human_count(rate)} inf/s)   "
        f"{group_digits(totals.cycles)} NPU cycles"
        + (f" + {group_digits(totals.cpu_cycles)} CPU" if totals.cpu_cycles else "")
        + "   [dim]\\[predicted][/dim]"
    )
    if report.budget_bytes is None:
        lines.append(
            f"  SRAM     {human_bytes(totals.sram_peak_bytes):>9}  no limit given or known"
        )
    else:
        share = totals.sram_peak_bytes / report.budget_bytes if report.budget_bytes else 0.0
        filled = min(20, round(20 * share))
        word = "fits" if report.verdict == "fits" else "capacity"
        lines.append(
            f"  SRAM     {human_bytes(totals.sram_peak_bytes):>9}  of "
            f"{human_bytes(report.budget_bytes)} {'█' * filled}{'░' * (20 - filled)} "
            f"{100 * share:.0f} %  [bold green]{word}[/bold green]"
        )
    lines.append(
        f"  energy   {human_energy(energy.typical):>9}  ({human_energy(energy.low)} … "
        f"{human_energy(energy.high)}, order of magnitude)"
    )
    lines.append(
        f"  traffic  DRAM {human_bytes(totals.dram_bytes)} · flash "
        f"{human_bytes(totals.flash_bytes)} · SRAM {human_bytes(totals.sram_bytes)} per inference; "
        f"constants {human_bytes(totals.constant_bytes)}"
    )
    lines.append(f"  ops      {_placement_line(report)}")
    live = report.live_sram_bytes
    if any(live):
        peak = live.index(max(live))
        lines.append(
            f"  SRAM/t   {_spark(live)}  peak at {_segment_name(report, report.segments[peak])}"
        )
    return lines


def _placement_line(report: PlanReport) -> str:
    count = dict.fromkeys(("npu", "cpu", "view", "folded"), 0)
    for op in report.source_ops:
        count[op.placement] += 1
    text = f"NPU {count['npu']} / CPU {count['cpu']}"
    extra = [f"{count[k]} {k}s" for k in ("view",) if count[k]]
    extra += [f"{count['folded']} folded"] if count["folded"] else []
    calls = report.totals.npu_invocations
    tail = f" ({', '.join(extra)})" if extra else ""
    return (
        f"{text}{tail} · {report.totals.dispatches} kernels · "
        f"{calls} NPU call{'' if calls == 1 else 's'}"
    )


def _spark(values: Sequence[int], width: int = 48) -> str:
    """Largest value of each column as a bar; narrower than ``width`` for few values."""
    columns = min(width, len(values))
    top = max(values)
    bars = []
    for column in range(columns):
        lo = column * len(values) // columns
        hi = max(lo + 1, (column + 1) * len(values) // columns)
        bars.append(SPARKS[min(7, 8 * max(values[lo:hi]) // (top + 1))])
    return "".join(bars)


def _levels(report: PlanReport) -> list[RenderableType]:
    table = _table("fusion", "feature maps", "kernels", "cycles", "energy")
    for level in report.fusion_levels:
        table.add_row(
            _LEVEL_NAMES[level.level],
            human_bytes(level.traffic_bytes),
            str(level.dispatches),
            group_digits(level.cycles),
            human_energy(level.energy_nj.typical),
        )
    return ["", table]


_LEVEL_NAMES = {
    "as_stored": "as stored",
    "L0": "L0 unfused",
    "L1": "L1 converter",
    "L2": "L2 NPU pass",
    "L3": "L3 cascade",
    "plan": "this plan",
}


def _top_ops(report: PlanReport, top: int) -> list[RenderableType]:
    total = report.totals.cycles + report.totals.cpu_cycles
    ranked = sorted(report.ops, key=lambda o: -(o.cycles + o.cpu_cycles))[:top]
    if not ranked:
        return []
    table = _table("op", "out h×w×c", "cycles", "share", "bound by", "name")
    for op in ranked:
        cycles = op.cycles + op.cpu_cycles
        table.add_row(
            f"{_op_label(op)}{' on CPU' if op.placement == 'cpu' else ''}",
            "×".join(str(d) for d in op.ofm_shape[1:]) or "scalar",
            group_digits(cycles),
            percent(cycles, total),
            op.bound_by,
            _safe(short_name(op.name), 28),
        )
    left = len(report.ops) - len(ranked)
    return ["", table, f"  … {left} more kernels (--top N)"] if left else ["", table]


def _op_label(op: OpFacts) -> str:
    index = f"#{op.source_ops[0][1]} " if op.source_ops else ""
    fused = f"+{'+'.join(op.fused)}" if op.fused else ""
    times = f" ×{op.count}" if op.count > 1 else ""
    return f"{index}{op.kind}{fused}{times}"


def _segment_name(report: PlanReport, segment: SegmentFacts) -> str:
    if not segment.source_ops:
        return f"segment {segment.index}"
    first, last = segment.source_ops[0][1], segment.source_ops[-1][1]
    kind = report.ops[segment.ops[0]].kind
    return f"#{first} {kind}" if first == last else f"#{first}-#{last}"


def _chains(report: PlanReport, top: int) -> list[RenderableType]:
    fused = [s for s in report.segments if len(s.ops) > 1]
    if not fused:
        return []
    lines: list[RenderableType] = [""]
    shown = sorted(fused, key=lambda s: s.cycles - s.unfused_cycles)[: min(top, 4)]
    for segment in sorted(shown, key=lambda s: s.index):
        change = segment.cycles - segment.unfused_cycles
        lines.append(
            f"  fused {_segment_name(report, segment)}: {len(segment.ops)} kernels, "
            f"{segment.stripes} stripes of {segment.stripe_rows} rows, "
            f"{human_bytes(segment.sram_bytes)} alive, {change:+,} cycles against unfused"
        )
    if len(fused) > len(shown):
        lines.append(f"  … {len(fused) - len(shown)} more fused chains")
    return lines


def _fallbacks(report: PlanReport, top: int) -> list[RenderableType]:
    groups: dict[tuple[str, str], list[SourceOp]] = {}
    for op in report.source_ops:
        if op.placement == "cpu" and op.cpu_reasons:
            groups.setdefault((op.kind, op.cpu_reasons[0].text), []).append(op)
    if not groups or report.target.accelerator is None:
        return []
    lines: list[RenderableType] = [""]
    for (kind, text), ops in list(groups.items())[: min(top, 4)]:
        places = ", ".join(f"#{op.index}" for op in ops[:3]) + (" …" if len(ops) > 3 else "")
        lines.append(f"  [yellow]CPU[/yellow] {places} {kind}: {_safe(text, 70)}")
    if len(groups) > 4:
        lines.append(f"  … {len(groups) - 4} more reasons (--format json)")
    return lines


def _advice(report: PlanReport) -> list[RenderableType]:
    if not report.advice:
        return []
    lines: list[RenderableType] = [""]
    lines.extend(f"  [cyan]{a.id}[/cyan] {_safe(a.message, 160)}" for a in report.advice[:3])
    return lines


def _footer(report: PlanReport) -> list[RenderableType]:
    bound = report.bound
    weights = report.provenance.weights
    vela = f"vela {report.vela_version}" if report.vela_version else "vela not used"
    proof = {
        "optimal": "best plan",
        "bounded": f"within {100 * bound.gap:.1f} % of the best plan",
        "feasible": "a plan, not proven best,",
    }[bound.proof]
    return [
        "",
        f"[dim]{proof} for {bound.scope}[/dim]",
        f"[dim]npusched {report.npusched_version} · {vela} · weight sizes {weights} · "
        f"cycles, bytes and energy predicted[/dim]",
    ]


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=True, padding=(0, 0, 0, 2), show_edge=False)
    for column in columns:
        right = column in ("feature maps", "kernels", "cycles", "energy", "share")
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=True,
            header_style="dim",
        )
    return table
