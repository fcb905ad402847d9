"""Explanations in words: one sentence each, with figures; names from the file are made inert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from npusched.report.explain_types import (
    ExplainReport,
    FallbackFacts,
    FallbackOp,
    FusionFacts,
    ModeFacts,
    NormFacts,
    OpExplanation,
    PeakFacts,
    PeakLever,
    ResourceFacts,
)
from npusched.report.explain_words import op_label, ops_label
from npusched.report.explain_words_vela import vela_sentences
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_seconds,
    log_text,
    percent,
    percent_change,
    plural,
)

_TEXT: Final = 240
_CHAINS: Final = 8
_ROLES: Final = {
    "input": "graph inputs, which the host writes",
    "output": "graph outputs, which the host reads",
    "activation": "results of ops of the file",
    "variable": "variables, which outlive an inference",
    "temporary": "temporaries of decomposed ops, which are no tensors of the file",
    "rolling": "rolling buffers of chains",
    "copy": "copies of maps that lie elsewhere",
    "weights": "weights that are copied to be read faster",
    "constants": "constants, which share this memory",
}


def sentences_of(report: ExplainReport) -> list[str]:
    """Return what the facts of the report's subject say."""
    if report.peak is not None:
        return _peak(report, report.peak)
    if report.op is not None:
        return _op(report.op)
    if report.fallbacks is not None:
        return _fallbacks(report, report.fallbacks)
    if report.fusion is not None:
        return _fusion(report.fusion)
    if report.vela is not None:
        return vela_sentences(report.vela)
    return _modes(report.modes)


def _peak(report: ExplainReport, peak: PeakFacts) -> list[str]:
    if not peak.parts:
        return [f"Nothing lies in {log_text(report.budget_memory, 20)}."]
    where = ops_label(peak.source_ops, peak.kinds)
    how = f"in {peak.stripes} stripes" if peak.stripes > 1 else "whole"
    found = [
        f"{human_bytes(peak.sram_peak_bytes)} ({group_digits(peak.sram_peak_bytes)} bytes) of "
        f"{log_text(report.budget_memory, 20)} are taken while {where} "
        f"{'runs' if len(peak.source_ops) < 2 else 'run'} {how}: "
        f"{plural(len(peak.parts), 'buffer')}."
    ]
    found += [
        f"{human_bytes(share.size_bytes)} ({percent(share.size_bytes, peak.sram_peak_bytes)}) are "
        f"{_ROLES[share.role]}."
        for share in peak.shares
    ]
    if peak.padding_bytes and peak.padded_channels and peak.stored_channels:
        below = peak.stored_channels - 16
        fewer = f", {below} would save them" if below else ""
        found.append(
            f"{group_digits(peak.padding_bytes)} bytes of that are padding: "
            f"{plural(peak.padded_channels, 'channel')} "
            f"{'is' if peak.padded_channels == 1 else 'are'} stored as {peak.stored_channels}, in "
            f"bricks of 16; {peak.stored_channels} would take no more{fewer}."
        )
    wide = [part for part in peak.parts if part.role == "temporary" and part.widened > 1]
    if wide and wide[0].source_op is not None:
        found.append(
            f"{op_label(wide[0].source_op, wide[0].kind)} is decomposed and keeps results of "
            f"{wide[0].widened:g} times the width of the tensor in the file (explain op "
            f"{wide[0].source_op[1]})."
        )
    if peak.gap_bytes > 0:
        found.append(f"{group_digits(peak.gap_bytes)} bytes are lost between addresses.")
    naive_at = "" if peak.naive_peak_op is None else f" (at #{peak.naive_peak_op})"
    found.append(
        f"The file's own tensors, unpadded and op by op, need {human_bytes(peak.naive_peak_bytes)}"
        f"{naive_at}: this is {_times(peak.sram_peak_bytes, peak.naive_peak_bytes)} that."
    )
    found += [_lever(report, lever) for lever in peak.levers]
    if not peak.levers:
        found.append("No plan for this target and memory mode needs less.")
    return found


def _times(value: float, base: float) -> str:
    return f"{value / base:.2f} times" if base else "more than"


def _lever(report: ExplainReport, lever: PeakLever) -> str:
    change = percent_change(lever.cycles, report.plan.cycles)
    size = f"{human_bytes(lever.sram_peak_bytes)} ({lever.how})"
    if lever.id == "floor":
        return f"{size} are the least that any plan needs: {change} cycles, planned."
    share = {"within_1_percent": "1 %", "within_10_percent": "10 %"}[lever.id]
    return f"{size} are enough to stay within {share}: {change} cycles, planned."


def _op(op: OpExplanation) -> list[str]:
    label = op_label((op.subgraph, op.index), op.kind)
    if op.placement in ("view", "folded") and not op.cycles:
        what = (
            "its result is another tensor's storage"
            if op.placement == "view"
            else "kernels of its neighbours do its work, or nothing needs it"
        )
        return [f"{label} runs no kernel of its own: {what}."]
    if op.placement == "cpu":
        return [
            f"{label} runs on the CPU: {group_digits(op.cpu_cycles)} cycles of it, "
            f"{percent(op.share, 1)} of the time.",
            *(_reason(r.text, r.fix) for r in op.cpu_reasons),
        ]
    found = [f"{label} takes {group_digits(op.cycles)} cycles, {percent(op.share, 1)} of the time."]
    if op.kernels > 1:
        kinds = ", ".join(
            f"{each.kernels} {log_text(each.kind, 20)}" for each in op.kernel_kinds[:5]
        )
        more = ", ..." if len(op.kernel_kinds) > 5 else ""
        fused = f" (and {op.fused_operations} fused into them)" if op.fused_operations else ""
        found.append(
            f"One op of the file, {group_digits(op.kernels)} kernels{fused}: {kinds}{more}."
        )
    if op.temporary_bytes:
        found.append(
            f"Its temporaries take up to {human_bytes(op.temporary_bytes)}; its result is "
            f"{human_bytes(op.result_bytes)} in the file."
        )
    if op.source_macs and op.ideal_cycles:
        found.append(
            f"Its {group_digits(op.macs)} MACs would keep every MAC unit busy for "
            f"{group_digits(op.ideal_cycles)} cycles: {percent(op.mac_utilisation, 1)} of what it "
            "takes."
        )
    found += _resources(op)
    found += _weights(op)
    if op.not_costed_again:
        found.append(f"More of a resource is not looked at: {op.not_costed_again}.")
    return found


def _resources(op: OpExplanation) -> list[str]:
    """What binds it, and what more of that, or of what helps most, would free."""
    found = []
    for each in op.resources:
        if not each.binds and not each.helps_most:
            continue
        name = each.holds if each.name == "npu" else f"{each.name} ({each.holds})"
        said = f"More of {log_text(name, 60)} helps most"
        if each.binds:
            part = percent(each.bound_cycles, op.cycles)
            said = f"{log_text(name, 60)} sets the pace for {part} of that"
        found.append(f"{said}: {'; '.join(_gains(each))}.")
    return found


def _gains(each: ResourceFacts) -> list[str]:
    parts = []
    if each.doubled_frees_cycles is not None:
        parts.append(f"{each.doubled_as} would free {_freed(each.doubled_frees_cycles)}")
    elif each.name == "npu":
        parts.append("there is no larger accelerator of this family")
    if each.unlimited_frees_cycles is not None:
        parts.append(f"if it took no time, {_freed(each.unlimited_frees_cycles)} were free")
    return parts


def _freed(cycles: int) -> str:
    return f"{group_digits(cycles)} cycles" if cycles >= 0 else f"none (costs {-cycles} more)"


def _weights(op: OpExplanation) -> list[str]:
    use = op.weights
    if use is None or not use.stored_bytes:
        return []
    if not use.read_bytes:
        return [f"Its weights, {human_bytes(use.stored_bytes)}, lie in the arena's memory."]
    text = (
        f"Its weights, {human_bytes(use.stored_bytes)} in {log_text(use.memory, 20)}, are read "
        f"{use.reads:.1f} times per inference ({human_bytes(use.read_bytes)}, "
        f"{plural(use.uses, 'kernel run')})."
    )
    bound = any(each.binds and each.name == use.memory for each in op.resources)
    if bound:
        text += (
            " They set the pace: constants in SRAM (Sram_Only) or fewer reads would help "
            "(explain mode)."
        )
    return [text]


def _reason(text: str, fix: str) -> str:
    return log_text(text, _TEXT) + "." + (f" Fix: {log_text(fix, _TEXT)}." if fix else "")


def _fallbacks(report: ExplainReport, facts: FallbackFacts) -> list[str]:
    count = report.model.op_count
    rules = f"limits of Vela {facts.rules_of}"
    others = [
        f"{each.family}: {each.cpu_ops}"
        for each in facts.families
        if each.cpu_ops != len(facts.ops)
    ]
    elsewhere = f" Other accelerators leave to the CPU: {', '.join(others)}." if others else ""
    if not facts.ops:
        return [f"No op of {count} falls to the CPU ({rules}).{elsewhere}"]
    found = [
        f"{len(facts.ops)} of {plural(count, 'op')} {'runs' if len(facts.ops) == 1 else 'run'} on "
        f"the CPU ({log_text(facts.cpu, 30)}): {human_seconds(facts.cpu_s)}, "
        f"{percent(facts.share, 1)} of the time; the NPU is called "
        f"{plural(facts.npu_invocations, 'time')} ({rules}).{elsewhere}"
    ]
    if facts.npu_macs != facts.macs:
        found.append(
            f"{group_digits(facts.macs - facts.npu_macs)} of {group_digits(facts.macs)} MACs are "
            f"theirs; Vela's figure leaves them out."
        )
    found += [_fallback(each) for each in facts.ops[:8]]
    if len(facts.ops) > 8:
        found.append(f"{len(facts.ops) - 8} more: --format json.")
    return found


def _fallback(op: FallbackOp) -> str:
    label = op_label((0, op.index), op.kind)
    reasons = " ".join(_reason(each.text, each.fix) for each in op.reasons)
    runs = f" {', '.join(op.npu_families)} would run it." if op.npu_families else ""
    handed = f", {human_bytes(op.handed_bytes)} change hands" if op.handed_bytes else ""
    return f"{label} ({human_seconds(op.time_s)}{handed}): {reasons}{runs}"


def _modes(modes: Sequence[ModeFacts]) -> list[str]:
    fitting = [mode for mode in modes if mode.latency_s is not None]
    own = next((mode for mode in fitting if mode.is_chosen), None)
    found = [
        f"{log_text(mode.memory_mode, 40)}: {log_text(mode.why_not, _TEXT)}."
        for mode in modes
        if mode.why_not
    ]
    for mode in fitting:
        pace = ", ".join(
            f"{log_text(share.bound_by, 16)} {percent(share.share, 1)}"
            for share in mode.bound_by[:3]
        )
        text = (
            f"{log_text(mode.memory_mode, 40)}: {group_digits(mode.cycles or 0)} cycles in "
            f"{human_bytes(mode.sram_peak_bytes or 0)} of {mode.counts}"
        )
        if own is not None and mode is not own and own.cycles and mode.cycles:
            text += f" ({_speed(own.cycles, mode.cycles)})"
        if pace:
            text += f"; what sets the pace: {pace}"
        if mode.weight_reads:
            text += f"; constants are read {mode.weight_reads:.1f} times"
        found.append(text + ".")
    if len(fitting) > 1:
        best = min(fitting, key=lambda mode: (mode.latency_s or 0.0, mode.sram_peak_bytes or 0))
        found.append(f"Fastest: {log_text(best.memory_mode, 40)}.")
    elif len(modes) == 1:
        found.append("There is no other memory mode to compare with.")
    return found


def _speed(before: int, after: int) -> str:
    ratio = before / after
    return f"{ratio:.1f} times as fast" if ratio >= 1.05 else percent_change(after, before)


def _fusion(facts: FusionFacts) -> list[str]:
    chained = sum(chain.ops for chain in facts.chains)
    found = [
        f"{plural(facts.segments, 'segment')}: {plural(len(facts.chains), 'chain')} of "
        f"{plural(chained, 'kernel')}, every other kernel runs whole."
    ]
    across = [chain for chain in facts.chains if len(chain.source_ops) > 1]
    for chain in across[:_CHAINS]:
        change = percent_change(chain.cycles, chain.unfused_cycles)
        found.append(
            f"{ops_label(chain.source_ops, ())} run in {plural(chain.stripes, 'stripe')} of "
            f"{plural(chain.stripe_rows, 'row')}: {human_bytes(chain.rolling_bytes)} of rolling "
            f"buffers for {human_bytes(chain.kept_bytes)} of maps, {change} cycles against one by "
            "one."
        )
    if len(facts.chains) > len(across[:_CHAINS]):
        rest = len(facts.chains) - len(across[:_CHAINS])
        found.append(f"{plural(rest, 'more chain')}, or inside one op of the file: --format json.")
    reasons: dict[str, int] = {}
    for end in facts.ends:
        reasons[end.reason] = reasons.get(end.reason, 0) + 1
    words: dict[str, Callable[[int], str]] = {
        "barrier": lambda n: f"{n} at a barrier that no chain crosses",
        "costs": lambda n: f"{n} because a longer chain fits and is worse",
        "budget": lambda n: f"{n} because a longer chain does not fit the budget",
        "length": lambda n: f"{n} at the greatest length that is looked at",
    }
    said = [say(reasons[reason]) for reason, say in words.items() if reason in reasons]
    if said:
        found.append(f"Segments end: {'; '.join(said)}.")
    return found + [_norm(norm) for norm in facts.batch_norms[:4]]


def _norm(norm: NormFacts) -> str:
    what = ops_label([(0, op) for op in norm.source_ops], ())
    text = f"{what} are a batch norm left as ops of their own ({group_digits(norm.cycles)} cycles)"
    if norm.where == "before":
        return f"{text}: 'npusched fold' puts it into the weights of #{norm.into}."
    if norm.where == "behind":
        return f"{text}: the weights of #{norm.into} behind it could take it, before conversion."
    return f"{text}: {log_text(norm.blocker, 160)}."
