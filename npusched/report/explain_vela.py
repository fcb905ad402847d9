"""What a limit does with Vela, and what it does with the ops of our chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from npusched.report.explain_inputs import Explained
from npusched.report.explain_vela_types import VelaChain, VelaExplanation, VelaRun
from npusched.schedule import OrderedPlanner, Plan, with_given_ids
from npusched.schedule.kernels import KernelCost
from npusched.vela.candidates import describe_options
from npusched.vela.notes import Note, result_notes, schedule_notes
from npusched.vela.options import VelaOptions, address_space_bytes
from npusched.vela.recost import compatible_costs, recost_rows
from npusched.vela.result import VelaResult
from npusched.vela.row_fields import memory_names
from npusched.vela.schedule import Unmatched, VelaSchedule, from_vela, read_schedule
from npusched.vela.totals import of_report, vela_sram_peak


@dataclass(frozen=True, slots=True)
class _Read:
    """A schedule of Vela's, read; results that are alike share one."""

    schedule: VelaSchedule
    plan: Plan | Unmatched
    recosted: dict[int, KernelCost]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A result of Vela's. ``asked_bytes`` None: no limit."""

    options: VelaOptions
    result: VelaResult
    asked_bytes: int | None
    read: _Read


class _OurPlans:
    """Our best plan for a limit, made once per limit; None below the least that any plan needs."""

    def __init__(self, planner: OrderedPlanner, least_bytes: int) -> None:
        self._planner, self._least_bytes = planner, least_bytes
        self._known: dict[int | None, Plan] = {}

    def within(self, limit_bytes: int | None) -> Plan | None:
        """The best plan within a limit."""
        if limit_bytes is not None and limit_bytes < self._least_bytes:
            return None
        if limit_bytes not in self._known:
            self._known[limit_bytes] = self._planner.plan(limit_bytes)
        return self._known[limit_bytes]


def build_vela(
    about: Explained, results: Sequence[tuple[VelaOptions, VelaResult]]
) -> VelaExplanation:
    """Explain Vela's results. The first one is as asked for; options as they were given to it."""
    known: dict[bytes, _Read] = {}
    tried = [
        _Tried(options, result, _asked_bytes(result), _read(about, result, known))
        for options, result in results
    ]
    least_bytes = about.planner.smallest_budget_bytes()
    plans = _OurPlans(about.planner, least_bytes)
    runs = [_run(about, k, each, plans) for k, each in enumerate(tried)]
    asked = tried[0]
    return VelaExplanation(
        version=asked.result.vela_version,
        asked=0,
        runs=tuple(replace(run, worse_than=_worse_than(run, runs)) for run in runs),
        smallest_feasible_bytes=least_bytes,
        chains=_chains(about, asked, runs[0]),
        unmatched="" if isinstance(asked.read.plan, Plan) else _unmatched(asked.read.plan),
        notes=tuple(_notes(about, asked)),
        messages=asked.result.messages,
    )


def _asked_bytes(result: VelaResult) -> int | None:
    limit = result.arena_limit_bytes
    return limit if limit < address_space_bytes(result.config.architecture) else None


def _read(about: Explained, result: VelaResult, known: dict[bytes, _Read]) -> _Read:
    """Read a result, or return what was read of an equal one."""
    found = known.get(result.compiled)
    if found is None:
        schedule = read_schedule(result, about.model, about.given, about.target)
        found = known[result.compiled] = _Read(
            schedule,
            from_vela(schedule, about.own.segments.kernels.objective),
            recost_rows(about.target, schedule.in_order, schedule.slices),
        )
    return found


def _run(about: Explained, index: int, tried: _Tried, plans: _OurPlans) -> VelaRun:
    report = tried.result.report
    sums = of_report(about.target, report, vela_sram_peak(about.target, report))
    used = sums.sram_peak_bytes or 0
    ours = plans.within(tried.asked_bytes)
    theirs = tried.read.plan
    names = memory_names(about.target)
    asked = tried.asked_bytes
    return VelaRun(
        index=index,
        options=describe_options(tried.options),
        asked_bytes=asked,
        used_bytes=used,
        is_over=asked is not None and used > asked,
        reported_cycles=report.total_cycles,
        npu_cycles=report.npu_cycles,
        memory_cycles={
            names[name]: use.access_cycles
            for name, use in report.memories.items()
            if name in names and use.access_cycles
        },
        striped_cycles=theirs.amounts.npu_cycles if isinstance(theirs, Plan) else None,
        cascades=report.cascades,
        cascaded_ops=report.cascaded_ops,
        kernels=report.npu_ops,
        operations=sum(1 + len(op.followers) for op in tried.read.schedule.ops if not op.is_cpu),
        cpu_ops=report.cpu_ops,
        macs=report.mac_count,
        flash_bytes=sums.flash_bytes or 0,
        constant_bytes=report.read_only_peak_bytes,
        worse_than=None,
        ours_sram_bytes=None if ours is None else ours.sram_peak_bytes,
        ours_cycles=None if ours is None else ours.amounts.npu_cycles,
    )


def _worse_than(run: VelaRun, runs: Sequence[VelaRun]) -> int | None:
    """A run that betters this one in SRAM and reported cycles; the fastest of them."""
    mine = (run.used_bytes, run.reported_cycles)
    better = [
        other
        for other in runs
        for his in ((other.used_bytes, other.reported_cycles),)
        if his != mine and his[0] <= mine[0] and his[1] <= mine[1]
    ]
    return min(better, key=lambda other: other.reported_cycles).index if better else None


def _unmatched(found: Unmatched) -> str:
    named = [f"{stray.kind}: {stray.reason}" for stray in found.ops[:2]]
    return "; ".join((*found.reasons[:2], *named)) or "its ops are not ours"


def _notes(about: Explained, tried: _Tried) -> list[Note]:
    schedule, report = tried.read.schedule, tried.result.report
    compatible = compatible_costs(about.target, schedule.in_order, schedule.slices)
    rows = sum(op.op_cycles for op in schedule.ops) if schedule.ops else None
    cpu = about.plan.amounts.cpu_cycles
    peak = vela_sram_peak(about.target, report)
    return [
        *schedule_notes(schedule, compatible, tried.read.recosted, cpu),
        *result_notes(about.target, report, tried.result.options, rows, peak),
    ]


def _chains(about: Explained, asked: _Tried, run: VelaRun) -> tuple[VelaChain, ...]:
    """Our segments of several ops beside the segments that Vela makes of them."""
    theirs = asked.read.plan
    if not isinstance(theirs, Plan) or about.shown == "vela":
        return ()
    ours = with_given_ids(about.plan)
    group_of = {v: k for k, segment in enumerate(theirs.segments) for v in segment.ops}
    found = []
    for k, segment in enumerate(ours.segments):
        if len(segment.ops) < 2:
            continue
        groups = list(dict.fromkeys(group_of[v] for v in segment.ops))
        runs = {run.op: run for g in groups for run in theirs.segments[g].runs}
        found.append(
            VelaChain(
                segment=k,
                source_ops=tuple(
                    sorted({r for v in segment.ops for r in about.given.ops[v].source_ops})
                ),
                ops=len(segment.ops),
                cycles=segment.amounts.npu_cycles,
                sram_bytes=segment.sram_bytes,
                vela_groups=tuple(len(theirs.segments[g].ops) for g in groups),
                vela_cycles=sum(runs[v].amounts.npu_cycles for v in segment.ops),
                vela_sram_bytes=max(theirs.segments[g].sram_bytes for g in groups),
                why=_why(about, segment.ops, groups, theirs, run),
            )
        )
    return tuple(found)


def _why(
    about: Explained, ops: Sequence[int], groups: Sequence[int], theirs: Plan, run: VelaRun
) -> str:
    """Why Vela divides a chain of ours as it does (its rules: VELA_SPEC §4)."""
    if len(groups) == 1:
        rows = theirs.segments[groups[0]].stripe_rows
        return f"Vela cascades them, too, in stripes of {rows} row{'' if rows == 1 else 's'}"
    for v in ops[1:]:
        stop = about.given.stops[v]
        if stop is not None:
            refs = about.given.ops[stop.op].source_ops
            where = f"#{refs[0][1]} {about.kind_of(refs[0])}: " if refs else ""
            return f"Vela's cascades end there: {where}{stop.text}"
    if not run.cascades and not run.is_over:
        limit = "no limit" if run.asked_bytes is None else f"a limit of {run.asked_bytes} bytes"
        return (
            f"Vela cascades only to get under the limit, and without cascades it uses "
            f"{run.used_bytes} bytes of {limit}; cycles are not compared"
        )
    return (
        "Vela could cascade them; its one pass over the ops keeps the first cascades that shrink "
        "the peak, and does not compare cycles"
    )
