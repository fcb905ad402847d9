"""From both sides of a comparison to its published form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npusched import __version__
from npusched.cost.types import OpCost
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, SourceRef
from npusched.hardware.target import Target
from npusched.ir import Model
from npusched.report.build import model_facts
from npusched.report.compare_types import (
    COMPARE_SCHEMA_VERSION,
    CompareProvenance,
    CompareReport,
    CompareTotals,
    ExecutedStreams,
    MeasuredFacts,
    VelaFacts,
)
from npusched.schedule import Amounts, Plan
from npusched.schedule.kernels import KernelCost
from npusched.schedule.types import add_amounts
from npusched.vela.compiled import VelaPlacement
from npusched.vela.files import VelaOutput
from npusched.vela.files_join import join_layers
from npusched.vela.from_files import report_of, sram_peak_of
from npusched.vela.join import Joined, JoinedOp, Side, join
from npusched.vela.measured import Measurement
from npusched.vela.notes import Note, result_notes, schedule_notes
from npusched.vela.result import VelaResult
from npusched.vela.schedule import Unmatched, VelaSchedule
from npusched.vela.totals import (
    SideTotals,
    of_costs,
    of_plan,
    of_recosted,
    of_report,
    vela_sram_peak,
)

STRAYS_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Our side: the model, its graph, and our plan."""

    model: Model
    graph: OpGraph
    target: Target
    plan: Plan
    objective: str
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """Vela's side, with a schedule. ``recosted`` by row id; ``plan``: the schedule as ours.

    ``executed``: what its streams do, or why that is not known.
    """

    result: VelaResult
    schedule: VelaSchedule
    plan: Plan | Unmatched
    compatible: Mapping[int, OpCost]
    recosted: Mapping[int, KernelCost]
    placement: Mapping[SourceRef, VelaPlacement]
    is_run: bool
    executed: ExecutedStreams | str
    sram_peak_bytes: int | None = None


def build_comparison(ours: Ours, theirs: Theirs, measured: Sequence[Measurement]) -> CompareReport:
    """Return the comparison of our plan with a schedule of Vela's."""
    target, report = ours.target, theirs.result.report
    plan = theirs.plan if isinstance(theirs.plan, Plan) else None
    cpu = add_amounts(_cpu_amounts(ours))
    peak = theirs.sram_peak_bytes
    if peak is None:
        peak = vela_sram_peak(target, report)
    joined = join(
        theirs.schedule,
        ours.plan,
        theirs=plan,
        compatible=theirs.compatible,
        recosted=theirs.recosted,
        placement=theirs.placement,
        names=_names(ours),
    )
    reported = of_report(target, report, peak)
    recosted = (
        of_plan(target, plan)
        if plan is not None
        else of_recosted(target, theirs.recosted, cpu, peak)
    )
    covered = bool(theirs.schedule.matching.rows) or not ours.graph.ops
    totals = CompareTotals(
        npusched=of_plan(target, ours.plan),
        vela=reported,
        vela_compatible=of_costs(target, theirs.compatible, cpu.cpu_cycles, peak)
        if covered
        else None,
        vela_recosted=recosted if covered else None,
    )
    rows = theirs.schedule.ops
    rows_cycles = sum(op.op_cycles for op in rows) if rows else None
    notes = [
        *schedule_notes(theirs.schedule, theirs.compatible, theirs.recosted, cpu.cpu_cycles),
        *result_notes(target, report, theirs.result.options, rows_cycles, peak),
    ]
    facts = VelaFacts(
        version=theirs.result.vela_version,
        core=theirs.result.core,
        source="run" if theirs.is_run else "files",
        options=theirs.result.options if theirs.is_run else None,
        arena_limit_bytes=theirs.result.arena_limit_bytes or None,
        cascades=report.cascades,
        cascaded_ops=report.cascaded_ops,
        is_plan=plan is not None,
        mismatches=_mismatches(theirs.plan),
        messages=theirs.result.messages,
    )
    warnings = list(plan.notes) if plan is not None else []
    return _assemble(ours, facts, totals, joined, notes, measured, warnings, theirs.executed)


def build_from_layers(
    ours: Ours, output: VelaOutput, measured: Sequence[Measurement]
) -> CompareReport:
    """Return the comparison with CSV files alone: reported totals and rows, nothing to cost."""
    target, summary = ours.target, output.summary
    joined, layer_cycles, layer_npu = join_layers(
        ours.graph, target, ours.plan, output.layers, _names(ours)
    )
    if summary is not None:
        reported = of_report(target, report_of(summary), sram_peak_of(target, summary))
    else:
        reported = SideTotals(
            cycles=layer_cycles,
            npu_cycles=layer_npu,
            cpu_cycles=0,
            npu_s=layer_cycles / target.clock_hz,
            cpu_s=0.0,
            sram_peak_bytes=max((layer.staging_usage_bytes for layer in output.layers), default=0),
            dram_bytes=None,
            flash_bytes=None,
        )
    facts = VelaFacts(
        version="unknown",
        core=output.core,
        source="files",
        options=None,
        arena_limit_bytes=None if summary is None else summary.arena_cache_size_bytes,
        cascades=0,
        cascaded_ops=0,
        is_plan=False,
        mismatches=(
            "the folder has no debug database of the C++ core (vela --enable-debug-db): there is "
            "no schedule to match and cost",
        ),
        messages=(),
    )
    totals = CompareTotals(
        npusched=of_plan(target, ours.plan),
        vela=reported,
        vela_compatible=None,
        vela_recosted=None,
    )
    executed = "there is no schedule to hold the streams against"
    return _assemble(ours, facts, totals, joined, [], measured, [], executed)


def _assemble(
    ours: Ours,
    facts: VelaFacts,
    totals: CompareTotals,
    joined: Joined,
    notes: Sequence[Note],
    measured: Sequence[Measurement],
    warnings: Sequence[str],
    executed: ExecutedStreams | str,
) -> CompareReport:
    by_ref = {(op.subgraph, op.index): op for op in joined.ops}
    return CompareReport(
        schema_version=COMPARE_SCHEMA_VERSION,
        npusched_version=__version__,
        provenance=CompareProvenance(),
        model=model_facts(ours.model, ours.graph.subgraph),
        target=ours.target,
        budget_memory=ours.plan.budget_memory,
        budget_bytes=ours.plan.budget_bytes,
        objective=ours.objective,
        vela=facts,
        totals=totals,
        executed=None if isinstance(executed, str) else executed,
        not_executed=executed if isinstance(executed, str) else "",
        ops=joined.ops,
        only_npusched=joined.only_npusched,
        only_vela=joined.only_vela,
        notes=tuple(notes),
        measured=tuple(_measured(ours.target, entry, totals, by_ref) for entry in measured),
        warnings=(*ours.model.notes, *ours.warnings, *warnings),
    )


def _names(ours: Ours) -> list[str]:
    subgraph = ours.model.subgraphs[ours.graph.subgraph]
    names = []
    for source in ours.graph.sources:
        op = subgraph.ops[source.ref[1]]
        names.append(subgraph.tensors[op.outputs[0]].name if op.outputs else "")
    return names


def _cpu_amounts(ours: Ours) -> list[Amounts]:
    return [
        run.amounts
        for segment in ours.plan.segments
        for run in segment.runs
        if run.placement is Placement.CPU
    ]


def _mismatches(plan: Plan | Unmatched) -> tuple[str, ...]:
    if isinstance(plan, Plan):
        return ()
    named = [f"{stray.kind}: {stray.reason}" for stray in plan.ops]
    texts = list(dict.fromkeys((*plan.reasons, *named)))
    if len(texts) > STRAYS_NAMED:
        texts = [*texts[:STRAYS_NAMED], f"{len(texts) - STRAYS_NAMED} more reasons"]
    return tuple(texts)


def _measured(
    target: Target,
    entry: Measurement,
    totals: CompareTotals,
    ops: Mapping[tuple[int, int], JoinedOp],
) -> MeasuredFacts:
    """A measurement with predicted / measured of the quantity that it has (cycles first)."""
    if entry.source_op is None:
        sides: list[SideTotals | Side | None] = [
            totals.npusched,
            totals.vela,
            totals.vela_recosted,
        ]
    else:
        row = ops.get(entry.source_op)
        sides = [None] * 3 if row is None else [row.npusched, row.vela, row.vela_recosted]
    mine, vela, again = (_ratio(target, entry, side) for side in sides)
    return MeasuredFacts(
        source_op=entry.source_op,
        cycles=entry.cycles,
        latency_s=entry.latency_s,
        counters=entry.counters,
        npusched_ratio=mine,
        vela_ratio=vela,
        vela_recosted_ratio=again,
    )


def _ratio(target: Target, entry: Measurement, side: SideTotals | Side | None) -> float | None:
    if side is None or side.cycles is None:
        return None
    if entry.cycles:
        return side.cycles / entry.cycles
    if entry.latency_s:
        seconds = side.cycles / target.clock_hz + side.cpu_cycles / target.cpu.clock_hz
        return seconds / entry.latency_s
    return None
