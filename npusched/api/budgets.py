"""All budgets at once: the best plan for every amount of SRAM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from npusched.api.planning import budget_bytes, content_of, prepare

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.frontier_types import FrontierReport


def frontier(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> FrontierReport:
    """Return every best plan of a model within ``sram`` and below; arguments as for ``plan``.

    Raises ModelError, TargetError, or InfeasibleError if nothing fits ``sram``.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return frontier_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        sram=sram,
        objective=objective,
        lambda_cycles_per_byte=lambda_cycles_per_byte,
        signature=signature,
        input_shapes=input_shapes,
        use_vela=use_vela,
        use_cache=use_cache,
    )


def frontier_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> FrontierReport:
    """Like ``frontier``, for bytes and a resolved target."""
    from npusched.report import build_frontier
    from npusched.schedule import OrderedPlanner, check_plan

    model, graph, sizes, goal, warnings = prepare(
        content,
        name=name,
        target=target,
        objective=objective,
        lambda_cycles_per_byte=lambda_cycles_per_byte,
        signature=signature,
        input_shapes=input_shapes,
        use_vela=use_vela,
        use_cache=use_cache,
    )
    budget = budget_bytes(target, sram)
    planner = OrderedPlanner(graph, target, sizes.of, objective=goal, limit_bytes=budget)
    plans = planner.frontier(budget)
    for plan in plans:
        faults = check_plan(graph, target, plan)
        if faults:
            raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    return build_frontier(
        model=model,
        graph=graph,
        target=target,
        plans=plans,
        budget_bytes=budget,
        objective=objective,
        vela_version=sizes.vela_version,
        warnings=warnings,
    )
