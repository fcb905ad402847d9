"""Every op on the CPU: the limit that it breaks, what it costs, and who would run it."""

from __future__ import annotations

from npusched.graph.opgraph import SourcePlacement
from npusched.hardware.target import Family
from npusched.ops import place, source_macs
from npusched.ops.constraint import RULES_VERSION
from npusched.report.build import call_cycles
from npusched.report.explain_inputs import Explained
from npusched.report.explain_op import kernels_of
from npusched.report.explain_types import FallbackFacts, FallbackOp, FamilyFallbacks
from npusched.report.types import Reason


def build_fallbacks(about: Explained) -> FallbackFacts:
    """Return what the CPU runs, whether or not there is an NPU."""
    graph, target = about.graph, about.target
    on_npu = {
        family: place(about.model, family, graph.subgraph)
        for family in (Family.U55, Family.U65, Family.U85)
    }
    ops = [
        _fallback(about, source.ref[1], tuple(f for f in on_npu if not on_npu[f][source.ref[1]]))
        for source in graph.sources
        if source.placement is SourcePlacement.CPU
    ]
    amounts = about.plan.amounts
    cpu_s = amounts.cpu_cycles / target.cpu.clock_hz
    calls_s = call_cycles(target, graph) / target.cpu.clock_hz
    placed = {source.ref[1] for source in graph.sources if source.placement is SourcePlacement.CPU}
    macs = {op.index: source_macs(about.subgraph, op) for op in about.subgraph.ops}
    return FallbackFacts(
        rules_of=RULES_VERSION,
        cpu=target.cpu.name,
        ops=tuple(ops),
        npu_ops=sum(source.placement is SourcePlacement.NPU for source in graph.sources),
        npu_invocations=graph.npu_invocations,
        macs=sum(macs.values()),
        npu_macs=sum(count for index, count in macs.items() if index not in placed),
        cpu_s=cpu_s,
        calls_s=calls_s,
        share=cpu_s / about.latency_s if about.latency_s else 0.0,
        families=tuple(
            FamilyFallbacks(
                family=family.value,
                cpu_ops=sum(bool(reasons) for reasons in found.values()),
                indices=tuple(index for index, reasons in found.items() if reasons),
            )
            for family, found in on_npu.items()
        ),
    )


def _fallback(about: Explained, index: int, families: tuple[Family, ...]) -> FallbackOp:
    source = about.graph.sources[index]
    ops = kernels_of(about, index)
    cycles = sum(about.runs[v].amounts.cpu_cycles for v in ops)
    touched = {a.tensor for v in ops for op in (about.graph.ops[v],) for a in op.reads + op.writes}
    handed = sum(each.size_bytes for each in about.graph.hand_offs if each.tensor in touched)
    op = about.subgraph.ops[index]
    cpu = about.target.cpu
    return FallbackOp(
        index=index,
        kind=about.kind_of(source.ref),
        name=about.name_of(source.ref),
        result_shape=about.subgraph.tensors[op.outputs[0]].shape if op.outputs else (),
        reasons=tuple(
            Reason(limit=r.limit, value=r.value, text=r.text, fix=r.fix) for r in source.cpu_reasons
        ),
        cpu_cycles=cycles,
        time_s=about.seconds_of(0, cycles),
        share=about.share_of(0, cycles),
        macs=source_macs(about.subgraph, op),
        handed_bytes=handed,
        hand_off_cycles=round(cpu.cache_maintenance_cycles_per_byte * handed),
        npu_families=tuple(family.value for family in families),
    )
