"""Why a segment ends where it does: a barrier, its length, the budget, or the costs.

Each border between two segments of a plan is moved: the segment goes on with the next op, or with
all of the next segment. The search then plans that division of the ops (stripes, weights, homes
and prefetches are free), so what a longer segment would cost is the cost of a real plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from npusched.graph.chains import Stop
from npusched.schedule.assemble import amounts_of
from npusched.schedule.kernels import offchip_memories
from npusched.schedule.plan import Planner
from npusched.schedule.search import Search, Solution
from npusched.schedule.types import Plan

Division = tuple[int, ...]
"""Last op of every segment, in order."""


class EndReason(StrEnum):
    """Why a segment does not go on."""

    NETWORK_ENDS = "network_ends"
    BARRIER = "barrier"
    LENGTH = "length"
    BUDGET = "budget"
    COSTS = "costs"


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a segment, and what the best longer one would change.

    ``grown``: first and last op of that one. Changes are of the whole network, longer minus as
    planned, in the best way within the budget (BUDGET: in the best way of all); ``sram_bytes`` is
    the largest live sum that it then has, ``least_sram_bytes`` the least that it can have.
    """

    segment: int
    reason: EndReason
    stop: Stop | None = None
    grown: tuple[int, int] | None = None
    score_change: float = 0.0
    cycles_change: int = 0
    offchip_change_bytes: int = 0
    sram_bytes: int = 0
    least_sram_bytes: int = 0


def division_of(plan: Plan) -> Division:
    """How a plan divides its ops."""
    return tuple(segment.ops[-1] for segment in plan.segments)


def divided(planner: Planner, division: Sequence[int]) -> Search:
    """The search over all plans with just these segments."""
    end_of = {}
    start = 0
    for end in division:
        end_of[start] = (end,)
        start = end + 1
    return planner.whole().search.restricted(lambda i: end_of[i])


def boundaries_of(planner: Planner, plan: Plan, limit_bytes: int | None) -> list[Boundary]:
    """Every segment's end. ``limit_bytes``: of live sums, constants that share them left out.

    ``planner``: of the plan's op order.
    """
    whole = planner.whole()
    base = divided(whole, division_of(plan)).solve(limit_bytes)
    if base is None:  # it packs, so its live sums fit
        raise ValueError("the plan's own division does not fit its budget")
    return [_boundary(whole, plan, base, k, limit_bytes) for k in range(len(plan.segments))]


def _boundary(
    planner: Planner, plan: Plan, base: Solution, k: int, limit_bytes: int | None
) -> Boundary:
    if k + 1 == len(plan.segments):
        return Boundary(segment=k, reason=EndReason.NETWORK_ENDS)
    first, fusing = plan.segments[k].ops[0], planner.segments.fusing
    following = plan.segments[k + 1].ops
    longer = [
        end for end in dict.fromkeys((following[0], following[-1])) if fusing.first(end) <= first
    ]
    if not longer:
        stop = _stop(planner, first, following[0])
        reason = EndReason.LENGTH if stop is None else EndReason.BARRIER
        return Boundary(segment=k, reason=reason, stop=stop)
    found = [_grown(planner, plan, base, k, end, limit_bytes) for end in longer]
    return min(found, key=lambda b: (b.reason is EndReason.BUDGET, b.score_change))


def _stop(planner: Planner, first: int, end: int) -> Stop | None:
    """What keeps [first..end] from being a segment; None: only its length."""
    fusing = planner.segments.fusing
    own = fusing.striping_stops[end]
    if own is not None:
        return Stop(own, end)
    before = fusing.first(end) - 1
    return fusing.barrier(before, end) if before >= first else None


def _grown(
    planner: Planner, plan: Plan, base: Solution, k: int, end: int, limit_bytes: int | None
) -> Boundary:
    division = [last for last in division_of(plan) if last != plan.segments[k].ops[-1]]
    if end not in division:
        division = sorted([*division, end])
    search = divided(planner, division)
    solution = search.solve(limit_bytes)
    reason = EndReason.COSTS if solution is not None else EndReason.BUDGET
    solution = solution or search.solve(None)
    assert solution is not None
    before, after = (amounts_of(planner.segments, s) for s in (base, solution))
    memories = offchip_memories(planner.segments.target)
    return Boundary(
        segment=k,
        reason=reason,
        grown=(plan.segments[k].ops[0], end),
        score_change=solution.score - base.score,
        cycles_change=after.npu_cycles - before.npu_cycles,
        offchip_change_bytes=sum(after.moved(m) - before.moved(m) for m in memories),
        sram_bytes=solution.peak_bytes,
        least_sram_bytes=search.smallest().peak_bytes,
    )
