"""Our frontier and Vela's results on one basis, cached as a whole: what ``npusched tune`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, content_of, prepare
from npusched.errors import InfeasibleError, NpuschedError, VelaError
from npusched.tuning.probing import DEFAULT_COMPILATIONS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from npusched.api.candidates import Progress
    from npusched.hardware import Target
    from npusched.ir import Model, Shape
    from npusched.report.tune_build import CurvePoint, Curves
    from npusched.report.tune_types import TuneReport
    from npusched.schedule import OrderedPlanner, Plan
    from npusched.tuning.probing import Probe, Probed
    from npusched.tuning.tflm import FileShape
    from npusched.vela.candidates import Candidate

PLANS_PER_POINT = 4
"""Plans of our frontier per compilation of Vela's: at most 96 by default."""


def tune(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    max_latency_s: float | None = None,
    within_percent: float = 1.0,
    points: int = DEFAULT_COMPILATIONS,
    objective: str = "cycles",
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> TuneReport:
    """Return our frontier and Vela's results, and what to choose; see ``plan`` for the arguments.

    ``sram`` and ``max_latency_s`` limit what is recommended, not the curves. ``within_percent``:
    how much slower than the fastest is near enough. ``points``: compilations by Vela.

    Raises ModelError, TargetError, or InfeasibleError if nothing keeps the limits.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return tune_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
        ),
        max_latency_s=max_latency_s,
        within_percent=within_percent,
        points=points,
        model_path=None if isinstance(model, bytes) else str(model),
    )


def tune_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    max_latency_s: float | None = None,
    within_percent: float = 1.0,
    points: int = DEFAULT_COMPILATIONS,
    model_path: str | None = None,
    progress: Progress | None = None,
) -> TuneReport:
    """Like ``tune``, for bytes and a resolved target; ``model_path``: its name in commands."""
    from npusched.report.tune_build import Limits, build_tune

    options = options or PlanOptions()
    limits = Limits(
        budget_bytes=options.budget_bytes(target),
        max_latency_s=max_latency_s,
        within_percent=within_percent,
    )
    curves = curves_of(
        content, name=name, target=target, options=options, points=points, progress=progress
    )
    report = build_tune(
        curves,
        target,
        limits,
        model_path=command_path(model_path or name),
        objective=options.objective,
    )
    if not any(each.source == "npusched" for each in report.recommended):
        raise _nothing_fits(report, content, name, target, options)
    return report


def command_path(model: str) -> str:
    """What a command calls the model: its path, a demo's file as ``npusched demo`` writes it."""
    if model.startswith("demo:"):
        return model.removeprefix("demo:").replace(":", "-") + ".tflite"
    return model


def _nothing_fits(
    report: TuneReport, content: bytes, name: str, target: Target, options: PlanOptions
) -> NpuschedError:
    """The error for limits that no plan of ours keeps."""
    from npusched.api.planning import plan_report

    ours = [point for point in report.frontier if point.source == "npusched"]
    budget = report.budget_bytes
    fitting = [p for p in ours if budget is None or p.sram_bytes <= budget]
    if not fitting:
        alone = msgspec.structs.replace(options, candidates="none")
        try:
            plan_report(content, name=name, target=target, options=alone)
        except InfeasibleError as error:
            return error
    best = min(fitting or ours, key=lambda point: point.latency_s)
    return InfeasibleError(
        f"no plan of {name} is as fast as that",
        f"the fastest takes {best.latency_s * 1e6:.0f} µs in {best.sram_bytes} bytes; asked for "
        f"{(report.max_latency_s or 0) * 1e6:.0f} µs",
        "raise --max-latency or --sram, or look at a larger NPU with --configs",
        need_s=report.max_latency_s,
        have_s=best.latency_s,
    )


def curves_of(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions,
    points: int,
    progress: Progress | None = None,
) -> Curves:
    """All points of both sources, from the cache if they were made before; errors as for ``plan``.

    The whole curve is made, whatever budget ``options`` have.
    """
    from npusched.report.tune_build import Curves
    from npusched.vela.cache import CURVES, CURVES_LIMIT_BYTES, DiskCache

    options = msgspec.structs.replace(options, sram=None, candidates="none")
    cache = DiskCache(Curves, CURVES, limit_bytes=CURVES_LIMIT_BYTES) if options.use_cache else None
    key = _key(content, name, target, options, points)
    known = None if cache is None else cache.get(key)
    if known is not None:
        return known
    made = _made(content, name, target, options, points, progress)
    is_whole = made.vela_version is not None or target.accelerator is None or not options.use_vela
    if cache is not None and is_whole:
        cache.put(key, made)
    return made


def _key(content: bytes, name: str, target: Target, options: PlanOptions, points: int) -> str:
    """Digest of everything that a curve depends on, this package's files included."""
    import hashlib

    from npusched import __version__
    from npusched.vela.cache import cache_key
    from npusched.vela.runner import vela_version

    try:
        version = vela_version()
    except VelaError:
        version = ""
    asked = msgspec.json.encode((target, options, points, name), order="sorted").decode()
    sha256 = hashlib.sha256(content).hexdigest()
    return cache_key(sha256, asked, version, __version__, _package_stamp())


def _package_stamp() -> str:
    """Size and time of every source file: a changed planner draws another curve."""
    import os

    root = Path(__file__).resolve().parent.parent
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            if file.endswith((".py", ".toml")):
                status = os.stat(os.path.join(folder, file))
                found.append(f"{file} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(found)


def _made(
    content: bytes,
    name: str,
    target: Target,
    options: PlanOptions,
    points: int,
    progress: Progress | None,
) -> Curves:
    """Plan while Vela compiles, then cost Vela's results like ours."""
    from concurrent.futures import ThreadPoolExecutor

    from npusched.report.build import model_facts
    from npusched.report.tune_build import Curves
    from npusched.schedule import check_plan

    ready = prepare(content, name=name, target=target, options=options, is_frontier=True)
    pool = ThreadPoolExecutor(max_workers=1)
    asked = None
    if ready.options.use_vela and not options.input_shapes:
        asked = pool.submit(_probe, ready.model, target, options, points, progress)
    pool.shutdown(wait=False)
    planner = options.planner(
        ready.graph, target, ready.sizes.of, limit_bytes=target.sram_budget_bytes
    )
    infeasible: InfeasibleError | None = None
    plans: list[Plan] = []
    try:
        plans = planner.frontier(target.sram_budget_bytes, most=PLANS_PER_POINT * points)
    except InfeasibleError as error:
        infeasible = error
    for plan in plans:
        faults = check_plan(ready.graph, target, plan)
        if faults:
            raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    found = _found(asked, ready.warnings)
    theirs = _costed(found.probes, ready, target, planner) if found else []
    ours = _ours(plans, [each for each, _ in theirs if each is not None], target, planner)
    if not ours:
        assert infeasible is not None
        raise infeasible
    maker = _Maker(ready, target)
    reference = ours[0][0]
    return Curves(
        model=model_facts(ready.model, ready.graph.subgraph),
        vela_version=ready.sizes.vela_version or (_version() if found else None),
        budget_memory=reference.budget_memory,
        points=(
            *(maker.ours(plan, candidate) for plan, candidate in ours),
            *(
                maker.theirs(probe, candidate, reason, reference)
                for probe, (candidate, reason) in zip(
                    found.probes if found else (), theirs, strict=True
                )
            ),
        ),
        file=_file_shape(ready, found),
        compilations=len(found.probes) + len(found.failures) if found else 0,
        warnings=tuple(ready.warnings),
    )


def _version() -> str:
    from npusched.vela.runner import vela_version

    return vela_version()


def _probe(
    model: Model, target: Target, options: PlanOptions, points: int, progress: Progress | None
) -> Probed:
    from npusched.tuning.probing import probe
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import compile_model

    cache = VelaCache() if options.use_cache else None
    return probe(
        lambda each: compile_model(model.content, target, each, cache=cache),
        target,
        compilations=points,
        progress=progress,
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
