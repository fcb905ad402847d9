"""All budgets at once: the best plan for every amount of SRAM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from npusched.api.options import DEFAULT_MAX_COMPILATIONS, PlanOptions
from npusched.api.planning import content_of, prepare

if TYPE_CHECKING:
    from npusched.api.candidates import Progress
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.frontier_types import FrontierReport
    from npusched.report.types import CandidateMode


def frontier(
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
) -> FrontierReport:
    """Return every best plan of a model within ``sram`` and below; arguments as for ``plan``.

    ``candidates``: "asked" lets Vela's results for both of its strategies compete.

    Raises ModelError, TargetError, or InfeasibleError if nothing fits ``sram``.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return frontier_report(
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
        ),
    )


def frontier_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    progress: Progress | None = None,
) -> FrontierReport:
    """Like ``frontier``, for bytes and a resolved target.

    ``progress`` is called after each compilation of a sweep for candidates.
    """
    from npusched.api.candidates import merged
    from npusched.errors import InfeasibleError
    from npusched.report import build_frontier
    from npusched.schedule import check_plan

    options = options or PlanOptions()
    prepared = prepare(content, name=name, target=target, options=options, is_frontier=True)
    model, graph, sizes, warnings, _, asked = prepared
    budget = options.budget_bytes(target)
    planner = options.planner(graph, target, sizes.of, limit_bytes=budget)
    plans, infeasible = [], None
    try:
        plans = planner.frontier(budget)
    except InfeasibleError as error:
        infeasible = error
    for plan in plans:
        faults = check_plan(graph, target, plan)
        if faults:
            raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    candidates = asked.collect(planner, warnings, progress)
    points = merged(plans, candidates, budget)
    if not points:
        assert infeasible is not None
        raise infeasible
    return build_frontier(
        model=model,
        graph=graph,
        target=target,
        points=points,
        own=plans,
        candidates=candidates,
        candidates_mode=asked.options.candidates,
        budget_bytes=budget,
        objective=options.objective,
        max_offchip_bytes=options.limit_bytes,
        allowed=options.allowed,
        vela_version=sizes.vela_version,
        warnings=warnings,
    )
