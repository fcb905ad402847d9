"""One model on one target within several budgets: lowered once, planned by one planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from npusched.api.planning import best_planned, prepare
from npusched.errors import InfeasibleError

if TYPE_CHECKING:
    from npusched.api.options import PlanOptions
    from npusched.api.planning import Planned
    from npusched.hardware import Target


def plan_budgets(
    content: bytes,
    *,
    name: str,
    target: Target,
    budgets: Sequence[int | None],
    options: PlanOptions,
    limit_bytes: int | None,
) -> Iterator[Planned | InfeasibleError]:
    """Yield the plan of each budget (bytes; None: the target's capacity), or why there is none.

    ``options.sram`` is not looked at. ``limit_bytes``: at least the largest budget, None for no
    limit; what needs more is not looked at. Raises ModelError or TargetError before the first.
    """
    from concurrent.futures import ThreadPoolExecutor

    from npusched.api.candidates import ask_candidates

    shared = prepare(
        content, name=name, target=target, options=replace(options, sram=None, candidates="none")
    )
    mode = options.candidates if shared.options.use_vela else "none"
    own = [replace(shared.options, sram=budget, candidates=mode) for budget in budgets]
    pool = ThreadPoolExecutor(max_workers=1)
    asked = [ask_candidates(shared.model, target, each, pool, is_frontier=False) for each in own]
    pool.shutdown(wait=False)
    planner = shared.options.planner(shared.graph, target, shared.sizes.of, limit_bytes=limit_bytes)
    swept = asked[0].collect(planner, shared.warnings) if mode == "sweep" and asked else None
    for each, candidates in zip(own, asked, strict=True):
        ready = shared._replace(options=each, candidates=candidates, warnings=list(shared.warnings))
        collect = partial(candidates.collect, planner, ready.warnings)
        if swept is not None:
            collect = partial(replace, swept)  # a sweep finds the same whatever the budget
        try:
            yield best_planned(ready, planner, target, collect)
        except InfeasibleError as error:
            yield error
