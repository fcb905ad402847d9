"""The points of ``npusched tune``: plan while Vela compiles, then cost its results like ours."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING

import msgspec

from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.errors import InfeasibleError, VelaError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from npusched.api.candidates import Progress
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Model
    from npusched.report.tune_build import CurvePoint, Curves
    from npusched.schedule import OrderedPlanner, Plan
    from npusched.tuning.probing import Probe, Probed
    from npusched.tuning.tflm import FileShape
    from npusched.vela.candidates import Candidate
    from npusched.vela.options import VelaOptions
    from npusched.vela.result import VelaResult

PLANS_PER_POINT = 4
"""Plans of our frontier per compilation of Vela's: at most 96 by default."""

MOST_OPS = 20_000
"""Ops of all plans together: graphs of hundreds of ops (unrolled LSTMs) get fewer plans."""

LEAST_PLANS = 8


def make_curves(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions,
    points: int,
    progress: Progress | None = None,
) -> Curves:
    """All points of a model on a target, from nothing but its bytes; errors as for ``plan``."""
    ready = prepare(content, name=name, target=target, options=options, is_frontier=True)
    planner = options.planner(
        ready.graph, target, ready.sizes.of, limit_bytes=target.sram_budget_bytes
    )
    stop = Event()
    asked = _asked(ready, target, points, stop, progress)
    try:
        plans, infeasible = _planned(ready, target, planner, most_plans(points, ready.graph))
    except BaseException:
        stop.set()
        raise
    found = _found(asked, ready.warnings)
    theirs = _costed(found.probes, ready, target, planner) if found else []
    ours = _ours(plans, [each for each, _ in theirs if each is not None], target, planner)
    if not ours:
        assert infeasible is not None
        raise infeasible
    return _curves(ready, target, ours, found, theirs)


def most_plans(points: int, graph: OpGraph) -> int:
    """How many plans our frontier may have."""
    share = MOST_OPS // max(len(graph.ops), 1)
    return max(LEAST_PLANS, min(PLANS_PER_POINT * points, share))


def _asked(
    ready: Prepared, target: Target, points: int, stop: Event, progress: Progress | None
) -> Future[Probed] | None:
    """Vela's results, being made by a thread that ends early when it is told to stop."""
    from concurrent.futures import ThreadPoolExecutor

    if not ready.options.use_vela or ready.options.input_shapes:
        return None
    pool = ThreadPoolExecutor(max_workers=1)
    asked = pool.submit(_probe, ready.model, target, ready.options, points, stop, progress)
    pool.shutdown(wait=False)
    return asked


def _probe(
    model: Model,
    target: Target,
    options: PlanOptions,
    points: int,
    stop: Event,
    progress: Progress | None,
) -> Probed:
    from npusched.api.weights import VELA_LIMIT_S
    from npusched.tuning.probing import probe
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import compile_model

    cache = VelaCache() if options.use_cache else None

    def compile_(each: VelaOptions) -> VelaResult:
        if stop.is_set():
            raise VelaError(
                "Vela was not asked", "nobody waits for the result", "run the command again"
            )
        return compile_model(model.content, target, each, cache=cache, limit_s=VELA_LIMIT_S)

    return probe(compile_, target, compilations=points, progress=progress)


def _planned(
    ready: Prepared, target: Target, planner: OrderedPlanner, most: int
) -> tuple[list[Plan], InfeasibleError | None]:
    """Our checked plans, or why there are none within the target's capacity."""
    from npusched.schedule import check_plan

    try:
        plans = planner.frontier(target.sram_budget_bytes, most=most)
    except InfeasibleError as error:
        return [], error
    for plan in plans:
        faults = check_plan(ready.graph, target, plan)
        if faults:
            raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    return plans, None


def _curves(
    ready: Prepared,
    target: Target,
    ours: Sequence[tuple[Plan, Candidate | None]],
    found: Probed | None,
    theirs: Sequence[tuple[Candidate | None, str]],
) -> Curves:
    from npusched.report.build import model_facts
    from npusched.report.tune_build import Curves
    from npusched.vela.runner import vela_version

    maker = _Maker(ready, target)
    reference = ours[0][0]
    points = [maker.ours(plan, candidate) for plan, candidate in ours]
    version = ready.sizes.vela_version
    if found is not None:
        version = version or vela_version()
        points += [
            maker.theirs(probe, candidate, reason, reference)
            for probe, (candidate, reason) in zip(found.probes, theirs, strict=True)
        ]
    return Curves(
        model=model_facts(ready.model, ready.graph.subgraph),
        vela_version=version,
        budget_memory=reference.budget_memory,
        points=tuple(points),
        file=_file_shape(ready, found),
        compilations=0 if found is None else len(found.probes) + len(found.failures),
        warnings=tuple(ready.warnings),
    )


def _found(asked: Future[Probed] | None, warnings: list[str]) -> Probed | None:
    """What Vela gave; if nothing, a warning says why."""
    if asked is None:
        return None
    try:
        found = asked.result()
    except VelaError as error:
        why = f" ({error.why})" if error.why else ""
        warnings.append(f"Vela's curve is missing: {error.what}{why}")
        return None
    if not any(each.result.report.npu_ops for each in found.probes):
        warnings.append("Vela leaves every op on the CPU: it has no curve")
        return None
    if found.is_cut:
        warnings.append(
            f"Vela's curve rests on {len(found.probes)} compilations only: they take long"
        )
    if found.failures:
        first = found.failures[0]
        warnings.append(
            f"Vela gave no result for {len(found.failures)} of its limits: {first.message}"
        )
    return found


def _costed(
    probes: Sequence[Probe], ready: Prepared, target: Target, planner: OrderedPlanner
) -> list[tuple[Candidate | None, str]]:
    """For each result its plan over our ops, costed like ours, or why there is none."""
    from npusched.vela.candidates import candidates_of

    segments = planner.given.segments
    known: dict[str, tuple[Candidate | None, str]] = {}
    for each in probes:
        if each.point.key not in known:
            read = candidates_of(
                [each.result], ready.model, segments.graph, target, segments.kernels.objective
            )
            candidate = read.found[0] if read.found else None
            known[each.point.key] = candidate, "; ".join(read.reasons)
    return [known[each.point.key] for each in probes]


def _ours(
    plans: list[Plan],
    candidates: Sequence[Candidate],
    target: Target,
    planner: OrderedPlanner,
) -> list[tuple[Plan, Candidate | None]]:
    """Our frontier with Vela's plans in it where they win.

    Where one wins, we plan for just its SRAM, too: our frontier may have left that budget out.
    """
    from npusched.api.candidates import merged
    from npusched.vela.candidates import Candidates

    keeping = [each for each in candidates if planner.given.keeps_limits(each.plan)]
    all_of_them = Candidates(found=tuple({id(each): each for each in keeping}.values()))
    capacity = target.sram_budget_bytes
    more = list(plans)
    for _, theirs in merged(plans, all_of_them, capacity):
        if theirs is not None:
            try:
                more.append(planner.plan(theirs.plan.sram_peak_bytes))
            except InfeasibleError:
                continue
    return merged(more, all_of_them, capacity)


class _Maker:
    """Makes points of plans and results of one model on one target."""

    def __init__(self, ready: Prepared, target: Target) -> None:
        self.ready, self.target = ready, target
        self.subgraph = ready.model.subgraphs[ready.graph.subgraph]

    def ours(self, plan: Plan, candidate: Candidate | None) -> CurvePoint:
        """A point of our frontier."""
        from npusched.report.build import totals
        from npusched.report.tune_build import CurvePoint

        return CurvePoint(
            source="npusched",
            totals=totals(self.subgraph, self.ready.graph, self.target, plan),
            objective=plan.objective,
            sram_bytes=plan.sram_peak_bytes,
            arena_bytes=self._arena(plan),
            constant_bytes=plan.constant_bytes,
            options=None if candidate is None else candidate.options,
        )

    def theirs(
        self, probe: Probe, candidate: Candidate | None, reason: str, reference: Plan
    ) -> CurvePoint:
        """A result of Vela's; CPU work as in ``reference`` where it has no plan."""
        from npusched.report.build import latency_s, totals
        from npusched.report.tune_build import CurvePoint
        from npusched.vela.totals import vela_sram_peak

        report, target, graph = probe.result.report, self.target, self.ready.graph
        plan = None if candidate is None else candidate.plan
        used = vela_sram_peak(target, report)
        amounts = msgspec.structs.replace(
            (plan or reference).amounts, npu_cycles=report.total_cycles
        )
        return CurvePoint(
            source="vela",
            totals=None if plan is None else totals(self.subgraph, graph, target, plan),
            objective=None if plan is None else plan.objective,
            sram_bytes=used if plan is None else max(used, plan.sram_peak_bytes),
            arena_bytes=self._reported_arena(probe) if plan is None else self._arena(plan),
            constant_bytes=report.read_only_peak_bytes,
            options=probe.point.options,
            reported_cycles=report.total_cycles,
            reported_sram_bytes=used,
            reported_offchip_bytes=probe.point.off_chip_bytes,
            reported_s=latency_s(target, graph, amounts),
            reason=reason,
        )

    def _arena(self, plan: Plan) -> int:
        """High-water mark of the feature maps in the arena's memory."""
        found = dict(plan.allocations).get(self.target.roles.arena)
        return 0 if found is None else found.peak_bytes

    def _reported_arena(self, probe: Probe) -> int:
        report, roles = probe.result.report, self.target.roles
        use = report.memories.get(self.target.arena.vela_name)
        constants = report.read_only_peak_bytes if roles.const == roles.arena else 0
        return max(0, (0 if use is None else use.peak_bytes) - constants)


def _file_shape(ready: Prepared, found: Probed | None) -> FileShape:
    """Tensors and ops of the file that Vela writes, or of the source file without one."""
    from npusched.ir import OpKind
    from npusched.tuning.tflm import FileShape
    from npusched.vela.compiled import NPU_OP, read_compiled_model

    compiled = (
        next((each.result for each in found.probes if each.result.compiled), None)
        if (found)
        else None
    )
    model = ready.model if compiled is None else read_compiled_model(compiled)
    ops = [(graph, op) for graph in model.subgraphs for op in graph.ops]
    on_npu = [op for _, op in ops if op.custom_code == NPU_OP]
    convolutions = (OpKind.CONV_2D, OpKind.DEPTHWISE_CONV_2D, OpKind.TRANSPOSE_CONV)
    return FileShape(
        tensors=sum(len(graph.tensors) for graph in model.subgraphs),
        cpu_ops=len(ops) - len(on_npu),
        npu_operands=tuple(len(op.inputs) + len(op.outputs) for op in on_npu),
        cpu_channels=sum(
            graph.tensors[op.outputs[0]].shape[-1] for graph, op in ops if op.kind in convolutions
        ),
        variable_bytes=sum(
            tensor.size_bytes
            for graph in model.subgraphs
            for tensor in graph.tensors
            if tensor.is_variable
        ),
    )
