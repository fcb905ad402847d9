"""What does an op's work, what it costs, and what more of each resource would free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from npusched.graph.opgraph import SourcePlacement
from npusched.graph.types import Placement
from npusched.hardware.target import Accelerator
from npusched.memory import live_bytes
from npusched.ops import source_macs
from npusched.report.explain_inputs import Explained
from npusched.report.explain_types import KernelCount, OpExplanation, ResourceFacts, WeightUse
from npusched.report.types import Reason
from npusched.schedule import BufferKind, OpRun
from npusched.schedule.check_sharing import live_ranges
from npusched.schedule.what_if import NPU, Costing, Resource


def build_op(about: Explained, index: int, larger: Accelerator | None) -> OpExplanation:
    """Explain op ``index`` of the file. ``larger``: the next accelerator of the family."""
    source = about.graph.sources[index]
    ref = source.ref
    ops = kernels_of(about, index)
    runs = [about.runs[v] for v in ops]
    cycles = sum(run.amounts.npu_cycles for run in runs)
    cpu_cycles = sum(run.amounts.cpu_cycles for run in runs)
    macs = sum(run.amounts.macs for run in runs)
    target = about.target
    peak = 0 if target.accelerator is None else target.accelerator.macs_per_cycle
    ideal = -(-macs // peak) if peak else 0
    on_npu = source.placement is SourcePlacement.NPU and bool(runs) and peak > 0
    resources: tuple[ResourceFacts, ...] = ()
    why_not = ""
    if on_npu and about.shown == "vela":
        why_not = "the plan is Vela's own schedule, which is not costed again"
    elif on_npu:
        resources = _resources(about, ops, larger, cycles)
    outputs = about.subgraph.ops[index].outputs
    steps = [k for k, s in enumerate(about.plan.segments) if set(s.ops) & set(ops)]
    return OpExplanation(
        subgraph=ref[0],
        index=index,
        kind=about.kind_of(ref),
        name=about.name_of(ref),
        placement=source.placement.value,
        cpu_reasons=tuple(
            Reason(limit=r.limit, value=r.value, text=r.text, fix=r.fix)
            for r in source.cpu_reasons
            if source.placement is SourcePlacement.CPU
        ),
        kernels=sum(about.graph.ops[v].count for v in ops),
        fused_operations=sum(len(about.graph.ops[v].sub_ops) for v in ops),
        kernel_kinds=_kinds(about, runs),
        cycles=cycles,
        cpu_cycles=cpu_cycles,
        share=about.share_of(cycles, cpu_cycles),
        macs=macs,
        source_macs=source_macs(about.subgraph, about.subgraph.ops[index]),
        ideal_cycles=ideal if on_npu else 0,
        mac_utilisation=ideal / cycles if cycles and on_npu else 0.0,
        bound_by=bound_by(runs),
        resources=resources,
        not_costed_again=why_not,
        weights=_weights(about, runs),
        temporary_bytes=_temporary_bytes(about, ops),
        result_bytes=sum((about.subgraph.tensors[t].size_bytes or 0) for t in outputs if t >= 0),
        segments=tuple(steps),
        stripes=max((about.plan.segments[k].stripes for k in steps), default=0),
        stripe_rows=runs[-1].stripe_rows if runs else 0,
    )


def kernels_of(about: Explained, index: int) -> list[int]:
    """Scheduled ops that do an op's work: its own, else those that took it over."""
    source = about.graph.sources[index]
    own = [op.id for op in about.graph.ops if op.source_ops[:1] == (source.ref,)]
    return own or list(source.scheduled_ops)


def bound_by(runs: Sequence[OpRun]) -> str:
    """What sets the pace for most of the time; empty without a kernel."""
    cycles: Counter[str] = Counter()
    for run in runs:
        cycles[run.bound_by] += run.amounts.npu_cycles + run.amounts.cpu_cycles
    return max(cycles, key=lambda name: cycles[name]) if cycles else ""


def _kinds(about: Explained, runs: Sequence[OpRun]) -> tuple[KernelCount, ...]:
    count: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    for run in runs:
        op = about.graph.ops[run.op]
        on_cpu = op.placement is Placement.CPU
        kind = about.kind_of(op.source_ops[0]) if on_cpu and op.source_ops else op.kind.value
        count[kind] += op.count
        cycles[kind] += run.amounts.npu_cycles + run.amounts.cpu_cycles
    return tuple(
        KernelCount(kind=kind, kernels=number, cycles=cycles[kind])
        for kind, number in count.most_common()
    )


def _resources(
    about: Explained, ops: Collection[int], larger: Accelerator | None, cycles: int
) -> tuple[ResourceFacts, ...]:
    costing = Costing.of(about.own, about.plan, about.limit_bytes)
    found = costing.resources(set(ops), larger)
    bound = _bound_cycles(about, ops)
    most = max(found, key=lambda each: bound[each.name], default=None)
    freed = {each.name: cycles - each.doubled_cycles for each in found if each.doubled_cycles}
    helps = max(freed, key=lambda name: freed[name], default="")
    return tuple(
        ResourceFacts(
            name=each.name,
            holds=_holds(about, each),
            busy_cycles=each.busy_cycles,
            bound_cycles=bound[each.name],
            binds=each is most,
            helps_most=each.name == helps and freed[helps] > 0,
            doubled_as=each.doubled_as,
            doubled_cycles=each.doubled_cycles,
            doubled_frees_cycles=_freed(cycles, each.doubled_cycles),
            unlimited_cycles=each.unlimited_cycles,
            unlimited_frees_cycles=_freed(cycles, each.unlimited_cycles),
        )
        for each in sorted(found, key=lambda each: -each.busy_cycles)
    )


def _bound_cycles(about: Explained, ops: Collection[int]) -> Counter[str]:
    """Cycles of the kernels that each resource binds."""
    memories = {memory.name for memory in about.target.memories}
    names = {"weights": about.target.roles.const, **{name: name for name in memories}}
    cycles: Counter[str] = Counter()
    for v in ops:
        run = about.runs[v]
        cycles[names.get(run.bound_by, NPU)] += run.amounts.npu_cycles
    return cycles


def _freed(cycles: int, other: int | None) -> int | None:
    return None if other is None else cycles - other


def _holds(about: Explained, resource: Resource) -> str:
    """What the resource is to this target."""
    if resource.name == NPU:
        assert about.target.accelerator is not None
        return about.target.accelerator.name
    roles = about.target.roles
    uses = {"constants": roles.const, "arena": roles.arena, "cache": roles.cache}
    if roles.cache == roles.arena:
        del uses["cache"]
    return ", ".join(use for use, memory in uses.items() if memory == resource.name)


def _weights(about: Explained, runs: Sequence[OpRun]) -> WeightUse | None:
    used = [run for run in runs if run.weight_mode is not None]
    if not used:
        return None
    stored: dict[str, int] = {}
    encoded: dict[str, int] = {}
    raw: dict[str, int] = {}
    for run in used:
        weights = about.graph.ops[run.op].weights
        assert weights is not None
        stored[weights.key] = max(stored.get(weights.key, 0), run.weight_bytes)
        encoded[weights.key] = run.weight_bytes - _scale_bytes(about, run)
        raw[weights.key] = (weights.elements * weights.dtype.bits + 7) // 8
    memory = about.target.roles.const
    apart = memory not in (about.target.roles.arena, about.target.roles.cache)
    read = sum(run.amounts.read_from(memory) for run in used) if apart else 0
    size = sum(stored.values())
    return WeightUse(
        raw_bytes=sum(raw.values()),
        encoded_bytes=sum(encoded.values()),
        stored_bytes=size,
        read_bytes=read,
        reads=read / size if size else 0.0,
        memory=memory,
        modes=tuple(sorted({run.weight_mode.value for run in used if run.weight_mode})),
        uses=sum(run.runs for run in used),
    )


def _scale_bytes(about: Explained, run: OpRun) -> int:
    """Bytes of biases and scales among the weights of an op."""
    segments = about.own.segments
    places = segments.places_of(run.op, run.op, run.op, {})
    return segments.kernels.weights(run.op, run.stripe_rows, places).scales


def _temporary_bytes(about: Explained, ops: Collection[int]) -> int:
    """Largest sum of the op's temporaries alive at once in all memories."""
    wanted = set(ops)
    graph = about.graph
    buffers = [
        buffer
        for buffer in about.plan.buffers
        if buffer.kind is not BufferKind.WEIGHTS
        and graph.feature_maps[buffer.tensor].source is None
        and wanted & set(graph.writers[buffer.tensor])
    ]
    ranges = [live for live in live_ranges(buffers) if live.end_step > live.first_step]
    return max(live_bytes(ranges), default=0)
