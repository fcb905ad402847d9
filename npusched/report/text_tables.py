"""The lists of the text form: fusion levels, the ops that take longest, chains, CPU fallbacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from npusched.report.layout import Column, Line, fit, line, table, wrap
from npusched.report.types import OpFacts, PlanReport, Reason, SegmentFacts, SourceOp
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    percent,
    plain_text,
    plural,
    short_name,
    signed,
)

LEVEL_NAMES: Final = {
    "as_stored": "as stored",
    "L0": "L0 unfused",
    "L1": "L1 converter",
    "L2": "L2 NPU pass",
    "L3": "L3 cascade",
    "plan": "this plan",
}


def level_lines(report: PlanReport, width: int) -> list[Line]:
    """One row per fusion level. Cycles have CPU work at the NPU's clock."""
    mixed = report.target.accelerator is not None and report.totals.cpu_cycles > 0
    columns = [
        Column(title="fusion"),
        Column(title="feature maps", right=True, rank=1),
        Column(title="kernel calls", right=True, rank=2),
        Column(title="NPU-clock cycles" if mixed else "cycles", right=True),
        Column(title="energy", right=True),
    ]
    return table(columns, level_rows(report), width=width)


def level_rows(report: PlanReport) -> list[Sequence[str]]:
    """Cells of the fusion levels: name, bytes of feature maps, kernel calls, cycles, energy."""
    return [
        (
            LEVEL_NAMES[level.level],
            human_bytes(level.traffic_bytes),
            group_digits(level.dispatches),
            group_digits(level.cycles),
            human_energy(level.energy_nj.typical),
        )
        for level in report.fusion_levels
    ]


class _Work(msgspec.Struct, frozen=True):
    """All kernels of one source op: their time, and the one that takes longest."""

    ops: tuple[OpFacts, ...]
    seconds: float

    @property
    def slowest(self) -> OpFacts:
        return max(self.ops, key=lambda op: op.cycles + op.cpu_cycles)


def op_seconds(report: PlanReport, op: OpFacts) -> float:
    """Seconds of one kernel, at the clock of the processor that runs it."""
    return op.cycles / report.target.clock_hz + op.cpu_cycles / report.target.cpu.clock_hz


def op_lines(report: PlanReport, width: int, top: int) -> list[Line]:
    """The source ops that take longest, with what binds them."""
    rows = op_rows(report, top)
    if not rows:
        return []
    columns = [
        Column(title="op", least=16),
        Column(title="out h×w×c", rank=3),
        Column(title="cycles", right=True),
        Column(title="of time", right=True, rank=1),
        Column(title="MACs busy", right=True, rank=4),
        Column(title="bound by", rank=2),
        Column(title="name", least=8, rank=5),
    ]
    lines = table(columns, rows, width=width)
    work, total = _slowest_first(report)
    if len(work) > top:
        rest = sum(item.seconds for item in work[top:])
        lines.append(
            line(
                f"  … {plural(len(work) - top, 'more op')}, {percent(rest, total)} "
                "of the time (--top N)"
            )
        )
    return lines


def op_rows(report: PlanReport, top: int) -> list[Sequence[str]]:
    """Cells of the source ops that take longest: op, result, cycles, share, MACs, bound, name."""
    work, total = _slowest_first(report)
    return [_op_row(report, item, total) for item in work[:top]]


def _slowest_first(report: PlanReport) -> tuple[list[_Work], float]:
    """The work for each source op, and the seconds of all."""
    groups: dict[tuple[int, int], list[OpFacts]] = {}
    for op in report.ops:
        groups.setdefault(op.source_ops[0] if op.source_ops else (-1, op.id), []).append(op)
    work = [_Work(tuple(ops), sum(op_seconds(report, op) for op in ops)) for ops in groups.values()]
    total = sum(item.seconds for item in work)
    return sorted(work, key=lambda item: -item.seconds), total


def _op_row(report: PlanReport, item: _Work, total: float) -> Sequence[str]:
    ops, last = item.ops, item.ops[-1]
    kernels = sum(op.count for op in ops)
    label = kernel_label(last) if len(ops) == 1 else _source_kind(report, last)
    number = f"#{last.source_ops[0][1]} " if last.source_ops else ""
    many = f" ×{group_digits(kernels)}" if kernels > 1 else ""
    cycles = sum(op.cycles + op.cpu_cycles for op in ops)
    accelerator = report.target.accelerator
    busy = "-"
    if accelerator is not None and last.placement == "npu":
        busy = percent(sum(op.macs for op in ops), cycles * accelerator.macs_per_cycle)
    on_cpu = last.placement == "cpu" and accelerator is not None
    return (
        f"{number}{label}{many}{' on CPU' if on_cpu else ''}",
        "×".join(str(size) for size in last.ofm_shape[1:]) or "scalar",
        group_digits(cycles),
        percent(item.seconds, total),
        busy,
        plain_text(item.slowest.bound_by, 12),
        short_name(last.name),
    )


def kernel_label(op: OpFacts) -> str:
    """Kind of a kernel with what is fused into it (CPU ops have their kind in the file)."""
    return "+".join(plain_text(part, 32) for part in (op.kind, *op.fused))


def _source_kind(report: PlanReport, op: OpFacts) -> str:
    """Kind in the file of the source op that a kernel works for."""
    if op.source_ops:
        for source in report.source_ops:
            if (source.subgraph, source.index) == op.source_ops[0]:
                return plain_text(source.kind, 32)
    return plain_text(op.kind, 32)


def chain_lines(report: PlanReport, width: int, count: int) -> list[Line]:
    """The fused chains that save most, against the same ops one by one."""
    chains = chain_rows(report)
    if not chains:
        return []
    fused = [segment for segment, _ in chains]
    shown = sorted(fused, key=lambda s: s.cycles - s.unfused_cycles)[:count]
    columns = [
        Column(title="fused chain", least=14),
        Column(title="stripes", rank=2),
        Column(title="alive", right=True, rank=3),
        Column(title="cycles", right=True, rank=4),
        Column(title=f"vs op by op in {plain_text(report.target.roles.arena, 16)}", right=True),
        Column(title="and in energy", right=True, rank=1),
    ]
    rows = [row for segment, row in chains if segment in shown]
    lines = table(columns, rows, width=width)
    left = [segment for segment in fused if segment not in shown]
    notes = [plural(len(left), "more chain")] if left else []
    if any(segment.cycles > segment.unfused_cycles for segment in fused):
        notes.append("chains that cost cycles are there to fit the budget")
    if notes:
        lines.append(line(("  … " if left else "  ") + ", ".join(notes)))
    return lines


def chain_rows(report: PlanReport) -> list[tuple[SegmentFacts, Sequence[str]]]:
    """Fused chains in their order, with cells: ops, stripes, alive, cycles, and two changes."""
    return [
        (segment, _chain_row(report, segment))
        for segment in report.segments
        if len(segment.ops) > 1
    ]


def _chain_row(report: PlanReport, segment: SegmentFacts) -> Sequence[str]:
    refs = segment.source_ops
    ends = f"#{refs[0][1]}-#{refs[-1][1]}" if refs and refs[0] != refs[-1] else ""
    ends = ends or (f"#{refs[0][1]}" if refs else "")
    kinds = "→".join(brief_kind(report.ops[op].kind) for op in segment.ops)
    cycles = segment.cycles - segment.unfused_cycles
    energy = segment.energy_nj.typical - segment.unfused_energy_nj.typical
    return (
        f"{ends} {kinds}",
        f"{segment.stripes} × {plural(segment.stripe_rows, 'row')}",
        human_bytes(segment.sram_bytes),
        group_digits(segment.cycles),
        f"{signed(group_digits(cycles))} ({_change(cycles, segment.unfused_cycles)})",
        f"{signed(human_energy(energy))} ({_change(energy, segment.unfused_energy_nj.typical)})",
    )


def _change(delta: float, whole: float) -> str:
    return signed(f"{100 * delta / whole:.0f} %") if whole else "-"


def brief_kind(kind: str) -> str:
    """The kind of a kernel, short enough for a chain of them."""
    return {"DepthwiseConv2D": "DwConv", "Conv2D": "Conv", "FullyConnected": "FC"}.get(kind, kind)


class Fallback(msgspec.Struct, frozen=True):
    """CPU ops that break the same limit in the same way; ``share`` of the plan's time, 0 to 1."""

    ops: tuple[SourceOp, ...]
    share: float

    @property
    def reason(self) -> Reason:
        """The limit, as the first op breaks it."""
        return self.ops[0].cpu_reasons[0]

    @property
    def why(self) -> str:
        """The reason in a sentence, without the tensor's name if there are several ops."""
        text = _why(self.reason, self.ops[0].kind)
        return text if len(self.ops) == 1 else _unnamed(text)

    @property
    def which(self) -> str:
        """The ops by kind and number: CAST #0, #91; of several kinds how many of each."""
        return _which(self.ops)


def fallbacks(report: PlanReport) -> list[Fallback]:
    """CPU ops grouped by the limit that they break, the costliest group first."""
    if report.target.accelerator is None:
        return []
    groups: dict[tuple[str, str], list[SourceOp]] = {}
    for op in report.source_ops:
        if op.placement == "cpu" and op.cpu_reasons:
            reason = op.cpu_reasons[0]
            key = (_unnamed(_why(reason, op.kind)), reason.fix)
            groups.setdefault(key, []).append(op)
    seconds = _seconds_by_source(report)
    total = sum(op_seconds(report, op) for op in report.ops)

    def cost(ops: Sequence[SourceOp]) -> float:
        return sum(seconds.get((op.subgraph, op.index), 0.0) for op in ops)

    ranked = sorted(groups.values(), key=cost, reverse=True)
    return [Fallback(tuple(ops), cost(ops) / total if total else 0.0) for ops in ranked]


def fallback_lines(report: PlanReport, width: int, count: int) -> list[Line]:
    """CPU ops grouped by the limit that they break, the costliest group first, with the fix."""
    ranked = fallbacks(report)
    if not ranked:
        return []
    everything = sum(len(group.ops) for group in ranked)
    lines = [
        line(
            "  ",
            ("on the CPU", "warn"),
            f": {everything} of {plural(len(report.source_ops), 'op')}, "
            f"{percent(sum(group.share for group in ranked), 1)} of the time",
        )
    ]
    for group in ranked[:count]:
        lines += _fallback(group, width)
    if len(ranked) > count:
        left = sum(len(group.ops) for group in ranked[count:])
        lines.append(
            line(
                f"  … {plural(len(ranked) - count, 'more reason')} for {plural(left, 'op')}"
                " (--format json has all)"
            )
        )
    return lines


def _fallback(group: Fallback, width: int) -> list[Line]:
    """Which ops and why (up to two lines), and what to do."""
    share = percent(group.share, 1)
    text = f"{group.which}: {plain_text(group.why, 300)}"
    fix = line(("           fix: " + plain_text(group.reason.fix, 160), "dim"))
    rows = wrap(text, width - 11)
    if len(rows) > 2:
        rows = [
            rows[0],
            line(fit(" ".join(part for row in rows[1:] for part, _ in row), width - 11)),
        ]
    return [line(f"  {share:>7}  ", *rows[0]), *(line(" " * 11, *row) for row in rows[1:]), fix]


def _which(ops: Sequence[SourceOp]) -> str:
    """Name the ops: CAST #0, #91; of several kinds how many: 6 READ_VARIABLE, 1 CALL_ONCE."""
    kinds = Counter(plain_text(op.kind, 32) for op in ops)
    if len(kinds) == 1:
        places = ", ".join(f"#{op.index}" for op in ops[:3]) + (", …" if len(ops) > 3 else "")
        return f"{next(iter(kinds))} {places}"
    shown = [f"{count} {kind}" for kind, count in kinds.most_common(4)]
    return ", ".join(shown + (["…"] if len(kinds) > 4 else []))


def _why(reason: Reason, kind: str) -> str:
    """The reason's text without what the list says anyway: the op's kind and the rules' release."""
    text = re.sub(r" \(as Vela [\d.]+\)$", "", reason.text)
    return text.removeprefix(f"{kind}: ").removeprefix(f"{kind} ")


_ROLES = "ifm|weights|scales|params|ofm"
"""Roles of tensors, as ``ops.roles`` spells them."""


def _unnamed(text: str) -> str:
    """``text`` without the tensor that ``ops.constraint.named`` puts in."""
    return re.sub(rf" \((?:{_ROLES})(?: '.*')?\)", "", text, flags=re.DOTALL)


def _seconds_by_source(report: PlanReport) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for op in report.ops:
        if op.source_ops:
            found[op.source_ops[0]] = found.get(op.source_ops[0], 0.0) + op_seconds(report, op)
    return found
