"""The order of the stages, written once: bytes -> model -> graph -> plan -> report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from npusched.api.options import DEFAULT_MAX_COMPILATIONS, PlanOptions
from npusched.errors import ModelError

if TYPE_CHECKING:
    from npusched.advise.engine import Progress as AdviceProgress
    from npusched.api.candidates import AskedCandidates, Progress
    from npusched.api.weights import WeightTable
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Model, Shape
    from npusched.report import PlanReport
    from npusched.report.types import Advice, AdviceMode, CandidateFacts, CandidateMode
    from npusched.schedule import OrderedPlanner, Plan
    from npusched.vela.candidates import Candidates


def plan(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
    max_compilations: int = DEFAULT_MAX_COMPILATIONS,
    advice: AdviceMode = "quick",
) -> PlanReport:
    """Plan a model on a target and return the report.

    ``model``: a path, ``demo:NAME``, or the bytes of a .tflite file. ``target``: a name of
    ``npusched configs``, a .toml file, or a ``Target``. ``sram``: a budget ("64KiB", bytes), or
    None for what the target has. ``max_offchip_bytes``: most that one inference may move off the
    chip. ``allow``: names of ``schedule.Switch``. ``candidates``: Vela's own schedules that compete
    with ours, the better one is the answer ("none"; "asked": as Vela is run for this budget;
    "sweep": all that at most ``max_compilations`` find). ``advice``: what the report says of
    changes ("none"; "quick": what a glance at the plan tells; "all": as ``advice`` does).

    Raises ModelError, TargetError or InfeasibleError.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return plan_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            max_offchip_bytes=max_offchip_bytes,
            allow=tuple(allow),
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
            candidates=candidates,
            max_compilations=max_compilations,
            advice=advice,
        ),
    )


def plan_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    progress: Progress | None = None,
    advice_progress: AdviceProgress | None = None,
) -> PlanReport:
    """Like ``plan``, for bytes and a resolved target.

    ``progress`` is called after each compilation of a sweep for candidates, ``advice_progress``
    before each change is planned (with ``options.advice`` "all").
    """
    options = options or PlanOptions()
    planned = make_plan(content, name=name, target=target, options=options, progress=progress)
    return report_of(planned, target, advice_progress)


class Planned(NamedTuple):
    """A plan, what it was made from, the planner that made it, and Vela's plans beside it."""

    ready: Prepared
    planner: OrderedPlanner
    plan: Plan
    candidates: CandidateFacts


def make_plan(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    progress: Progress | None = None,
) -> Planned:
    """Plan a model, and let the independent checker look at the plan; errors as for ``plan``."""
    ready = prepare(content, name=name, target=target, options=options)
    options = ready.options
    limit = options.budget_bytes(target)
    planner = options.planner(ready.graph, target, ready.sizes.of, limit_bytes=limit)
    collect = partial(ready.candidates.collect, planner, ready.warnings, progress)
    return best_planned(ready, planner, target, collect)


def best_planned(
    ready: Prepared, planner: OrderedPlanner, target: Target, collect: Callable[[], Candidates]
) -> Planned:
    """The best of our plan and Vela's (``collect`` waits for those), looked at by the checker.

    Raises InfeasibleError if none of them fits the budget.
    """
    from npusched.schedule import check_plan

    found, candidates = _best(ready, planner, target, collect)
    faults = check_plan(ready.graph, target, found)
    if faults:
        raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    return Planned(ready, planner, found, candidates)


def report_of(
    planned: Planned, target: Target, advice_progress: AdviceProgress | None = None
) -> PlanReport:
    """The report of a plan: with fusion levels, advice, and what its ops cost alone."""
    from npusched.graph.reorder import reordered
    from npusched.report import PlanInputs, build_report
    from npusched.schedule import fusion_levels, whole_cost

    ready, planner, found, candidates = planned
    model, graph, sizes, warnings, options = ready[:5]
    segments, graph = planner.segments_of(found), reordered(graph, found.order)
    folded = _folded_planner(model, graph, target, sizes, options)
    subgraph = model.subgraphs[graph.subgraph]
    return build_report(
        PlanInputs(
            model=model,
            graph=graph,
            target=target,
            plan=found,
            levels=fusion_levels(
                subgraph, segments, segments if folded is None else folded[0].given.segments, found
            ),
            unfused=[whole_cost(segments, v) for v in range(len(graph.ops))],
            objective=options.objective,
            vela_version=sizes.vela_version,
            warnings=warnings,
            has_budget=options.sram is not None,
            lambda_cycles_per_byte=options.lambda_cycles_per_byte,
            max_offchip_bytes=options.limit_bytes,
            allowed=options.allowed,
            advice=_advice(planned, graph, target, folded, advice_progress),
            candidates=candidates,
        )
    )


def _advice(
    planned: Planned,
    graph: OpGraph,
    target: Target,
    folded: tuple[OrderedPlanner, int] | None,
    progress: AdviceProgress | None,
) -> list[Advice]:
    """What the report says of changes, as ``PlanOptions.advice`` asks. ``graph`` is in plan order.

    ``folded``: planner of the model with its batch norms folded, and how many there are.
    """
    from npusched.report.advice_build import published, published_found

    mode, plan = planned.ready.options.advice, planned.plan
    if mode == "none":
        return []
    if mode == "all":
        from npusched.api.advising import found_for

        return [published_found(each) for each in found_for(planned, target, progress)]
    from npusched.advise import Situation, advise

    situation = Situation(
        subgraph=planned.ready.model.subgraphs[graph.subgraph],
        graph=graph,
        target=target,
        plan=plan,
        foldable=0 if folded is None else folded[1],
        folded=None if folded is None else lambda: folded[0].plan(plan.budget_bytes),
    )
    return [published(each) for each in advise(situation)]


def _best(
    prepared: Prepared, planner: OrderedPlanner, target: Target, collect: Callable[[], Candidates]
) -> tuple[Plan, CandidateFacts]:
    """The best of our plan and Vela's own ones, and how they compare.

    Raises InfeasibleError if none of them fits the budget.
    """
    from npusched.api.candidates import best_of, facts_of
    from npusched.errors import InfeasibleError

    options = prepared.options
    budget = options.budget_bytes(target)
    infeasible = ours = None
    try:
        ours = planner.plan(budget, is_capacity=options.sram is None)
    except InfeasibleError as error:
        infeasible = error
    candidates = collect()
    theirs, found = best_of(ours, candidates, budget, planner)
    if found is None:
        assert infeasible is not None
        raise infeasible
    is_ours = found is ours
    return found, facts_of(candidates, options.candidates, ours, theirs, is_ours=is_ours)


class Prepared(NamedTuple):
    """A model on a target, ready to be planned; ``candidates``: Vela's plans, being compiled."""

    model: Model
    graph: OpGraph
    sizes: WeightTable
    warnings: list[str]
    options: PlanOptions
    candidates: AskedCandidates


def prepare(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    is_frontier: bool = False,
) -> Prepared:
    """Read and lower a model and find its weights' encoded sizes. Raises ModelError.

    Vela's candidates for one budget, or for a frontier, are compiled while the caller plans.
    """
    from concurrent.futures import ThreadPoolExecutor

    from npusched.api.candidates import ask_candidates
    from npusched.api.weights import ask_vela, weight_table

    options = options or PlanOptions()
    if target.accelerator is None or not options.use_vela:
        options = msgspec.structs.replace(options, use_vela=False, candidates="none")
    model = read(content, name, options.input_shapes)
    pool = ThreadPoolExecutor(max_workers=1)
    asked = ask_vela(model, target, pool, use_cache=options.use_cache) if options.use_vela else None
    candidates = ask_candidates(model, target, options, pool, is_frontier=is_frontier)
    pool.shutdown(wait=False)
    graph = graph_of(model, target, options.signature)
    warnings: list[str] = []
    sizes = weight_table(graph, target, asked, warnings)
    return Prepared(model, graph, sizes, warnings, options, candidates)


def _folded_planner(
    model: Model,
    graph: OpGraph,
    target: Target,
    sizes: WeightTable,
    options: PlanOptions,
) -> tuple[OrderedPlanner, int] | None:
    """(planner of the model with batch norms folded, how many); None if there is none to fold.

    Fusion level L3 and the advice to fold are about that model.
    """
    from npusched.graph.fold import fold_batch_norms

    folded, _ = fold_batch_norms(model.subgraphs[graph.subgraph])
    if not folded:
        return None
    from npusched.api.folding import folded_model

    after = folded_model(model, options.input_shapes)
    if after is None:
        return None
    removed = sorted(op for item in folded for op in item.removed)
    lowered = _lower(after, target, graph.subgraph)
    table = sizes.renumbered(lowered, removed)
    return options.planner(lowered, target, table.of), len(folded)


def read(content: bytes, name: str, input_shapes: Mapping[str, Shape] | None = None) -> Model:
    """Read a model and refuse what cannot be planned. Raises ModelError."""
    from npusched.tflite import is_vela_compiled, read_model

    model = read_model(content, name, input_shapes=input_shapes)
    if is_vela_compiled(model):
        raise ModelError(
            f"{name} was already compiled by Vela",
            "it holds the custom op 'ethos-u', whose command stream hides the original ops",
            "pass the .tflite file that was given to Vela",
            compiled=True,
        )
    return model


def graph_of(model: Model, target: Target, signature: str | None = None) -> OpGraph:
    """Lower the subgraph of a signature (default: subgraph 0). Raises ModelError."""
    return _lower(model, target, subgraph_of(model, signature))


def _lower(model: Model, target: Target, subgraph: int) -> OpGraph:
    from npusched.cost.pieces import block_finder
    from npusched.graph.build import build_graph

    if target.accelerator is None:
        return build_graph(model, None, subgraph=subgraph)
    blocks = block_finder(target.accelerator)
    return build_graph(model, target.accelerator.family, subgraph=subgraph, block_of=blocks)


def subgraph_of(model: Model, signature: str | None) -> int:
    """Index of the subgraph that a signature runs. Raises ModelError for an unknown one."""
    if signature is None:
        return 0
    for known in model.signatures:
        if known.key == signature:
            return known.subgraph
    import difflib

    keys = [known.key for known in model.signatures]
    close = difflib.get_close_matches(signature, keys, 1)
    raise ModelError(
        f"the model has no signature '{signature}'",
        f"it has: {', '.join(keys) or 'none'}",
        f"did you mean '{close[0]}'?" if close else "leave --signature out for subgraph 0",
    )


def content_of(model: str | Path | bytes) -> tuple[bytes, str]:
    """Bytes and name of a model given as a path, ``demo:NAME`` or bytes. Raises ModelError."""
    if isinstance(model, bytes):
        return model, "model"
    text = str(model)
    if text.startswith("demo:"):
        from npusched.demos import demo

        return demo(text.removeprefix("demo:")), text
    from npusched.tflite.container import read_file

    return read_file(Path(model)), Path(model).name
