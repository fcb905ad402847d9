"""From a plan and everything it came from to the published form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal

import msgspec

from npusched import __version__
from npusched.cost.cpu import npu_call_cycles
from npusched.graph.chains import StopKind
from npusched.graph.opgraph import OpGraph, SourcePlacement
from npusched.graph.types import NOT_STORED, Placement, ScheduledOp
from npusched.hardware.target import MemoryKind, Target
from npusched.ir import Model, Subgraph
from npusched.memory import live_bytes, naive_peak
from npusched.ops import source_macs
from npusched.report.types import (
    SCHEMA_VERSION,
    Advice,
    AllocationFacts,
    BoundFacts,
    CandidateFacts,
    FusionLevel,
    Interval,
    ModelFacts,
    OpFacts,
    PlanReport,
    Provenance,
    Reason,
    SegmentFacts,
    SourceOp,
    Totals,
    WeightFacts,
)
from npusched.schedule import Amounts, Buffer, BufferKind, Level, OpRun, Plan, Segment

FLASH = frozenset({MemoryKind.ON_CHIP_FLASH, MemoryKind.OFF_CHIP_FLASH})


class PlanInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report is made of.

    ``unfused[v]`` is what scheduled op v costs alone. ``vela_version`` is None if Vela was not
    asked.
    """

    model: Model
    graph: OpGraph
    target: Target
    plan: Plan
    levels: Sequence[Level]
    unfused: Sequence[Amounts]
    objective: str
    vela_version: str | None
    warnings: Sequence[str]
    has_budget: bool
    candidates: CandidateFacts
    lambda_cycles_per_byte: float
    max_offchip_bytes: int | None = None
    allowed: Sequence[str] = ()
    advice: Sequence[Advice] = ()

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph that was planned."""
        return self.model.subgraphs[self.graph.subgraph]


def build_report(inputs: PlanInputs) -> PlanReport:
    """Return the report of a plan."""
    plan = inputs.plan
    segment_of = {v: k for k, segment in enumerate(plan.segments) for v in segment.ops}
    sources = _sources(inputs.graph, plan.segments)
    return PlanReport(
        schema_version=SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=inputs.vela_version,
        verdict="fits" if inputs.has_budget else "no_budget",
        provenance=Provenance(
            cycles="predicted",
            bytes="predicted",
            energy="predicted",
            weights=weights_provenance(plan),
        ),
        model=model_facts(inputs.model, inputs.graph.subgraph),
        target=inputs.target,
        budget_memory=plan.budget_memory,
        budget_bytes=plan.budget_bytes,
        objective=inputs.objective,
        lambda_cycles_per_byte=inputs.lambda_cycles_per_byte,
        max_offchip_bytes=inputs.max_offchip_bytes,
        allowed=tuple(inputs.allowed),
        totals=totals(inputs.subgraph, inputs.graph, inputs.target, plan),
        fusion_levels=tuple(_level(inputs.target, level) for level in inputs.levels),
        bound=BoundFacts(
            cycles=plan.bound.cycles,
            objective=plan.bound.objective,
            value=plan.objective,
            gap=plan.bound.gap,
            proof=plan.bound.proof.value,
            scope=plan.bound.scope,
        ),
        candidates=inputs.candidates,
        source_ops=_source_ops(inputs),
        segments=tuple(
            _segment(inputs, k, segment, sources[k]) for k, segment in enumerate(plan.segments)
        ),
        ops=tuple(
            _op(inputs, run, segment_of[run.op])
            for segment in plan.segments
            for run in segment.runs
        ),
        allocation=_allocation(inputs),
        live_sram_bytes=_live(inputs),
        advice=tuple(inputs.advice),
        warnings=(*inputs.model.notes, *inputs.warnings, *plan.notes),
    )


def model_facts(model: Model, subgraph: int) -> ModelFacts:
    """What the file says about itself, whatever the target."""
    graph = model.subgraphs[subgraph]
    peak, where = naive_peak(graph)
    counts = Counter(op.custom_code or op.kind.value for op in graph.ops)
    return ModelFacts(
        name=model.name,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        subgraph=subgraph,
        subgraph_name=graph.name,
        op_count=len(graph.ops),
        op_counts=dict(sorted(counts.items())),
        tensor_types=_tensor_types(graph),
        macs=sum(source_macs(graph, op) for op in graph.ops),
        const_bytes=model.const_bytes,
        naive_peak_bytes=peak,
        naive_peak_op=where,
        notes=model.notes,
    )


def _tensor_types(graph: Subgraph) -> dict[str, int]:
    """Graph inputs and results by element type, the most common first."""
    computed = {*graph.inputs, *(t for op in graph.ops for t in op.outputs if t >= 0)}
    counts = Counter(graph.tensors[t].dtype.label for t in computed)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def latency_s(target: Target, graph: OpGraph, amounts: Amounts) -> float:
    """Seconds of one inference: NPU and CPU one after the other, calls and hand-offs included.

    Each NPU call costs the driver's cycles; every byte that changes hands, and the graph's inputs
    and outputs where the NPU touches them, costs cache maintenance.
    """
    npu_s = amounts.npu_cycles / target.clock_hz if target.accelerator is not None else 0.0
    return npu_s + (amounts.cpu_cycles + call_cycles(target, graph)) / target.cpu.clock_hz


def call_cycles(target: Target, graph: OpGraph) -> int:
    """CPU cycles of all NPU calls of one inference."""
    if not graph.npu_invocations:
        return 0
    handed = sum(hand.size_bytes for hand in graph.hand_offs)
    npu_ops = [op for op in graph.ops if op.placement is Placement.NPU]
    touched = {a.tensor for op in npu_ops for a in (*op.reads, *op.writes)}
    edges = {t for t in (*graph.inputs, *graph.outputs) if t in touched}
    handed += sum(graph.feature_maps[t].stored_bytes for t in edges)
    rest = (graph.npu_invocations - 1) * npu_call_cycles(target.cpu, 0)
    return npu_call_cycles(target.cpu, handed) + rest


def totals(subgraph: Subgraph, graph: OpGraph, target: Target, plan: Plan) -> Totals:
    """Sums over a plan of a subgraph that was lowered to ``graph``."""
    amounts = plan.amounts
    moved = dict.fromkeys(MemoryKind, 0)
    for memory in target.memories:
        moved[memory.kind] += amounts.moved(memory.name)
    return Totals(
        cycles=amounts.npu_cycles,
        npu_cycles=amounts.core_cycles,
        cpu_cycles=amounts.cpu_cycles,
        latency_s=latency_s(target, graph, amounts),
        macs=sum(source_macs(subgraph, op) for op in subgraph.ops),
        energy_nj=_interval(amounts),
        sram_peak_bytes=plan.sram_peak_bytes,
        sram_bound_bytes=plan.sram_bound_bytes,
        dram_bytes=moved[MemoryKind.DRAM],
        flash_bytes=sum(moved[kind] for kind in FLASH),
        sram_bytes=moved[MemoryKind.SRAM],
        constant_bytes=plan.constant_bytes,
        dispatches=sum(run.runs for segment in plan.segments for run in segment.runs),
        npu_invocations=graph.npu_invocations,
    )


def _interval(amounts: Amounts) -> Interval:
    low, typical, high = amounts.energy_nj
    return Interval(low=low, typical=typical, high=high)


def _cycles(target: Target, amounts: Amounts) -> int:
    """NPU cycles, with CPU work at the NPU's clock (host-only targets have the CPU's clock)."""
    return amounts.npu_cycles + ceil(amounts.cpu_cycles * target.clock_hz / target.cpu.clock_hz)


def _level(target: Target, level: Level) -> FusionLevel:
    names: dict[str, Literal["as_stored", "L0", "L1", "L2", "L3", "plan"]] = {
        "as_stored": "as_stored",
        "L0": "L0",
        "L1": "L1",
        "L2": "L2",
        "L3": "L3",
        "plan": "plan",
    }
    return FusionLevel(
        level=names[level.level],
        traffic_bytes=level.traffic_bytes,
        dispatches=level.dispatches,
        cycles=_cycles(target, level.amounts),
        energy_nj=_interval(level.amounts),
    )


def weights_provenance(plan: Plan) -> Literal["exact", "estimated", "mixed", "none"]:
    """Whether the sizes of encoded weights that a plan relies on are Vela's or estimated."""
    known = {
        run.weights_exact
        for segment in plan.segments
        for run in segment.runs
        if run.weight_mode is not None
    }
    if not known:
        return "none"
    if known == {True}:
        return "exact"
    return "estimated" if known == {False} else "mixed"


def _source_ops(inputs: PlanInputs) -> tuple[SourceOp, ...]:
    rows = []
    for source in inputs.graph.sources:
        op = inputs.subgraph.ops[source.ref[1]]
        name = inputs.subgraph.tensors[op.outputs[0]].name if op.outputs else ""
        rows.append(
            SourceOp(
                subgraph=source.ref[0],
                index=source.ref[1],
                kind=op.custom_code or op.kind.value,
                name=name,
                placement=source.placement.value,
                cpu_reasons=tuple(
                    Reason(limit=r.limit, value=r.value, text=r.text, fix=r.fix)
                    for r in source.cpu_reasons
                )
                if source.placement is SourcePlacement.CPU
                else (),
                scheduled_ops=source.scheduled_ops,
            )
        )
    return tuple(rows)


def _sources(graph: OpGraph, segments: Sequence[Segment]) -> list[tuple[int, ...]]:
    """For each segment, the earlier ones that write a feature map which it reads."""
    written: dict[int, set[int]] = {}
    found = []
    for index, segment in enumerate(segments):
        read = {a.tensor for v in segment.ops for a in graph.ops[v].reads}
        found.append(tuple(sorted({k for tensor in read for k in written.get(tensor, ())})))
        for v in segment.ops:
            for access in graph.ops[v].writes:
                written.setdefault(access.tensor, set()).add(index)
    return found


def _segment(
    inputs: PlanInputs, index: int, segment: Segment, reads_from: tuple[int, ...]
) -> SegmentFacts:
    target, plan, amounts = inputs.target, inputs.plan, segment.amounts
    moved = {m.name: amounts.moved(m.name) for m in target.memories}
    sources = sorted({ref for v in segment.ops for ref in inputs.graph.ops[v].source_ops})
    alone = [inputs.unfused[v] for v in segment.ops]
    slowest = max(segment.runs, key=lambda run: run.amounts.npu_cycles + run.amounts.cpu_cycles)
    return SegmentFacts(
        index=index,
        placement=segment.placement.value,
        ops=segment.ops,
        source_ops=tuple(sources),
        stripe_rows=segment.stripe_rows,
        stripes=segment.stripes,
        buffers=tuple(k for k, b in enumerate(plan.buffers) if b.first_step <= index < b.end_step),
        weights=tuple(
            WeightFacts(
                op=run.op,
                mode=run.weight_mode.value,
                size_bytes=run.weight_bytes,
                provenance="exact" if run.weights_exact else "estimated",
            )
            for run in segment.runs
            if run.weight_mode is not None
        ),
        cycles=amounts.npu_cycles,
        cpu_cycles=amounts.cpu_cycles,
        dram_bytes=sum(moved[m.name] for m in target.memories if m.kind is MemoryKind.DRAM),
        flash_bytes=sum(moved[m.name] for m in target.memories if m.kind in FLASH),
        energy_nj=_interval(amounts),
        sram_bytes=segment.sram_bytes,
        bound_by=slowest.bound_by,
        unfused_cycles=sum(a.npu_cycles for a in alone),
        unfused_energy_nj=Interval(
            low=sum(a.energy_nj[0] for a in alone),
            typical=sum(a.energy_nj[1] for a in alone),
            high=sum(a.energy_nj[2] for a in alone),
        ),
        stops_because=_stop_text(inputs.graph, segment.ops[-1] + 1),
        reads_from=reads_from,
    )


def _stop_text(graph: OpGraph, after: int) -> str:
    """Why the chain could not go on with op ``after``; empty if the plan chose to stop there."""
    if after >= len(graph.ops):
        return "the network ends"
    stop = graph.stops[after]
    return "" if stop is None or stop.kind is StopKind.FIRST_OP else stop.text


def _op(inputs: PlanInputs, run: OpRun, segment: int) -> OpFacts:
    op = inputs.graph.ops[run.op]
    amounts = run.amounts
    stored = op.writes[0].tensor if op.writes else NOT_STORED
    fm = inputs.graph.feature_maps.get(stored)
    return OpFacts(
        id=run.op,
        source_ops=op.source_ops,
        kind=_kind(inputs, op),
        fused=tuple(sub.kind.value for sub in op.sub_ops),
        name=op.name,
        placement=op.placement.value,
        segment=segment,
        count=op.count,
        ifm_shapes=tuple(access.shape for access in op.ifms),
        ofm_shape=op.final_ofm.shape if op.ofms else (),
        dtype=op.final_ofm.dtype.label if op.ofms else "",
        layout="" if fm is None else fm.layout.value,
        kernel=(op.kernel.h, op.kernel.w),
        stride=(op.kernel.stride_h, op.kernel.stride_w),
        block=run.block,
        macs=amounts.macs,
        cycles=amounts.npu_cycles,
        npu_cycles=amounts.core_cycles,
        cpu_cycles=amounts.cpu_cycles,
        memory_cycles=dict(run.memory_cycles),
        bytes_read=dict(amounts.bytes_read),
        bytes_written=dict(amounts.bytes_written),
        bound_by=run.bound_by,
        fusion_blocker=op.fusion_blocker,
    )


def _kind(inputs: PlanInputs, op: ScheduledOp) -> str:
    if op.placement is Placement.NPU or not op.source_ops:
        return op.kind.value
    source = inputs.subgraph.ops[op.source_ops[0][1]]
    return source.custom_code or source.kind.value


def _allocation(inputs: PlanInputs) -> tuple[AllocationFacts, ...]:
    offsets = _offsets(inputs.plan)
    return tuple(
        AllocationFacts(
            tensor=buffer.name,
            kind=buffer.kind.value,
            memory=buffer.memory,
            rows=buffer.rows,
            offset=offsets[index],
            size_bytes=buffer.size_bytes,
            logical_bytes=_logical(inputs.graph, buffer),
            first_step=buffer.first_step,
            end_step=buffer.end_step,
        )
        for index, buffer in enumerate(inputs.plan.buffers)
    )


def _offsets(plan: Plan) -> Mapping[int, int]:
    """Address of each buffer, by its index in the plan."""
    found: dict[int, int] = {}
    for memory, allocation in plan.allocations:
        indices = [k for k, buffer in enumerate(plan.buffers) if buffer.memory == memory]
        found.update(zip(indices, allocation.offsets, strict=True))
    return found


def _logical(graph: OpGraph, buffer: Buffer) -> int:
    """Bytes of a buffer without channel padding and alignment."""
    if buffer.kind is BufferKind.WEIGHTS:
        return buffer.size_bytes
    fm = graph.feature_maps[buffer.tensor]
    rows = max(fm.shape[0] * fm.shape[1], 1)
    return fm.logical_bytes * min(buffer.rows * fm.shape[0], rows) // rows


def _live(inputs: PlanInputs) -> tuple[int, ...]:
    """Live bytes of the budget memory per segment, shared constants left out."""
    plan = inputs.plan
    ranges = [buffer.live for buffer in plan.in_memory(plan.budget_memory)]
    return tuple(live_bytes(ranges, len(plan.segments))[: len(plan.segments)])
