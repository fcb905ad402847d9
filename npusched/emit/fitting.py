"""Plans until the file fits: real sizes of weights and buffers can be larger than planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from npusched.emit.gate import used_bytes
from npusched.emit.parts import Emitted
from npusched.errors import InfeasibleError
from npusched.hardware.target import Target
from npusched.schedule.types import Plan

MAX_ATTEMPTS = 6
"""Plans that are made, each with less SRAM, until the file keeps the budget."""


class Fitted(NamedTuple):
    """What was emitted, from which plan, after how many, and with what budget for the last."""

    emitted: Emitted
    plan: Plan
    attempts: int
    limit_bytes: int | None


def fit(
    make: Callable[[int | None], Plan],
    build: Callable[[Plan], Emitted],
    target: Target,
    budget_bytes: int | None,
    *,
    may_plan_again: bool = True,
) -> Fitted:
    """Plan (``make``, for a budget) and emit (``build``) until the file keeps ``budget_bytes``.

    Each time by as much less as the file was too large; the smallest feasible plan is the last
    resort. Raises InfeasibleError if no plan keeps the budget, or no file does.
    """
    limit, least = budget_bytes, 0
    tried: list[int | None] = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            plan = make(limit)
        except InfeasibleError as error:
            smallest = error.values.get("smallest_feasible_bytes")
            if attempt == 1:
                raise
            if not isinstance(smallest, int) or smallest in tried:
                break
            limit = smallest
            continue
        tried.append(limit)
        emitted = build(plan)
        used = used_bytes(emitted, target)
        if budget_bytes is None or limit is None or used <= budget_bytes:
            return Fitted(emitted, plan, attempt, limit)
        least = min(least or used, used)
        if not may_plan_again:
            break
        limit = min(limit, plan.sram_peak_bytes) - (used - budget_bytes)
    raise InfeasibleError(
        f"no file keeps the budget of {budget_bytes} bytes",
        f"with the real sizes of weights and buffers the smallest that was made uses {least} bytes",
        f"give --sram {least} or more",
        need_bytes=least,
        have_bytes=budget_bytes,
        excess_bytes=least - (budget_bytes or 0),
        smallest_feasible_bytes=least,
    )
