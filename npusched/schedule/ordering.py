"""Plans over several op orders: the graph's own, and others where it branches.

The search is exact for one order. Where a graph branches, another order can need less memory
(``orders``) or hide more of the copies of weights, each of which runs under the op before its own.
A few orders that promise either are planned, and the best plan is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypedDict, Unpack

from msgspec.structs import replace

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.errors import InfeasibleError
from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement, ScheduledOp
from npusched.hardware import Target
from npusched.schedule.kernels import WeightSizes
from npusched.schedule.objective import Goal, Objective
from npusched.schedule.orders import (
    STEP_CAP,
    Dependences,
    Order,
    branchy_regions,
    dependences,
    depth_first_orders,
    least_peak_order,
    peak_of,
)
from npusched.schedule.plan import ONE_ORDER, Planner
from npusched.schedule.segments import Segments
from npusched.schedule.staging import copy_cycles
from npusched.schedule.switches import Switch
from npusched.schedule.types import BufferKind, Plan, Proof, WeightMode

LEAST_GAIN = 0.01
"""Share of the cycles of all ops that an order must hide more, to be planned for that."""


class Ingredients(TypedDict, total=False):
    """What ``Planner.of`` takes by name."""

    objective: Objective | None
    cap: int
    linear: bool
    in_place: bool
    staged: bool
    limit_bytes: int | None
    max_offchip_bytes: int | None
    switches: frozenset[Switch]


class OrderedPlanner:
    """Like ``Planner``, for the orders of ``graph`` that are worth a look.

    The plans it returns name their order (``Plan.order``); their scope says what was searched.
    ``order_cap``: see ``least_peak_order``; the other arguments are those of ``Planner.of``.
    """

    def __init__(
        self,
        graph: OpGraph,
        target: Target,
        sizes: WeightSizes,
        order_cap: int = STEP_CAP,
        **ingredients: Unpack[Ingredients],
    ) -> None:
        self.graph, self.target, self.sizes = graph, target, sizes
        self.order_cap = order_cap
        self.ingredients = ingredients
        self.given = Planner.of(graph, target, sizes, **ingredients)
        self._planners: dict[tuple[int, ...], Planner] = {(): self.given}

    def plan(self, budget_bytes: int | None, *, is_capacity: bool = False) -> Plan:
        """Return the best plan within the budget; see ``Planner.plan``."""
        plans: list[Plan] = []
        errors: list[InfeasibleError] = []
        for order in ((), *self._others):
            try:
                plan = self.planner_of(order).plan(budget_bytes, is_capacity=is_capacity)
                plans.append(replace(plan, order=order))
            except InfeasibleError as error:
                errors.append(error)
        if not plans:
            raise _mildest(errors)
        best = min(plans, key=self._rank)
        if any(plan.bound.proof is Proof.FEASIBLE for plan in plans):
            best = replace(best, bound=replace(best.bound, proof=Proof.FEASIBLE))
        bound = min(plan.bound.objective for plan in plans)
        return _scoped(best, bound, self._orders_text)

    def frontier(self, budget_bytes: int | None = None, *, most: int | None = None) -> list[Plan]:
        """Every best plan within the budget and below, of all orders; see ``Planner.frontier``.

        ``most`` is per order.
        """
        found: list[Plan] = []
        errors: list[InfeasibleError] = []
        for order in ((), *self._others):
            try:
                plans = self.planner_of(order).frontier(budget_bytes, most=most)
                found += [replace(plan, order=order) for plan in plans]
            except InfeasibleError as error:
                errors.append(error)
        if not found:
            raise _mildest(errors)
        front = _front(found) if self._others else found
        return [_scoped(plan, plan.bound.objective, self._orders_text) for plan in front]

    def smallest_budget_bytes(self) -> int:
        """The least budget that has a plan in one of the orders."""
        orders = ((), *self._others)
        return min(self.planner_of(order).smallest_budget_bytes() for order in orders)

    def planner_of(self, order: tuple[int, ...]) -> Planner:
        """The planner of one order, made when it is first asked for."""
        known = self._planners.get(order)
        if known is None:
            graph = reordered(self.graph, order)
            sizes = _sizes_of(self.graph, order, self.sizes)
            known = Planner.of(graph, self.target, sizes, **self.ingredients)
            self._planners[order] = known
        return known

    def segments_of(self, plan: Plan) -> Segments:
        """The segments that a plan of this planner was built from."""
        return self.planner_of(plan.order).segments

    @cached_property
    def leanest(self) -> Order:
        """The order of least peak, as far as it was searched, or one depth first if that is less.

        Of equals the one that hides the most copies.
        """
        found = least_peak_order(self.graph, self.target, cap=self.order_cap)
        own = tuple(range(len(self.graph.ops)))
        figures = {
            order: (self._peak_of(order), exposed)
            for order, exposed in {**self._exposed, found.ops: self._exposed_in(found.ops)}.items()
        }
        best = min(figures, key=lambda order: figures[order])
        if figures[best][0] == figures[own][0]:
            best = own
        return replace(found, ops=best, peak_bytes=figures[best][0])

    @cached_property
    def is_branchy(self) -> bool:
        """True if the ops have more than one order."""
        return bool(branchy_regions(self._needs.before))

    @cached_property
    def _needs(self) -> Dependences:
        return dependences(self.graph)

    def _peak_of(self, order: Sequence[int]) -> int:
        return peak_of(self.given.segments.lives, self._needs, order, self.target.roles.cache)

    @cached_property
    def _exposed(self) -> dict[tuple[int, ...], float]:
        """The given order and those depth first, with the copies that each cannot hide."""
        own = tuple(range(len(self.graph.ops)))
        return {order: self._exposed_in(order) for order in (own, *depth_first_orders(self.graph))}

    def _exposed_in(self, order: Sequence[int]) -> float:
        return exposed_cycles(self.given.segments, order)

    @cached_property
    def _others(self) -> tuple[tuple[int, ...], ...]:
        """Orders to plan besides the given one: of least memory, and of the most hidden copies.

        They are the same for every budget, so that a larger one never has a worse plan.
        """
        if not self.is_branchy:
            return ()
        own = tuple(range(len(self.graph.ops)))
        found = {}
        if self.leanest.ops != own:
            found[self.leanest.ops] = True
        quick = min(self._exposed, key=lambda order: self._exposed[order])
        total = sum(_cycles(self.given.segments, v) for v in own)
        if self._exposed[own] - self._exposed[quick] > LEAST_GAIN * total:
            found[quick] = True
        return tuple(found)

    def _rank(self, plan: Plan) -> tuple[float, float]:
        if self.given.segments.kernels.objective.goal is Goal.SRAM:
            return plan.sram_peak_bytes, plan.objective
        return plan.objective, plan.sram_peak_bytes

    @property
    def _orders_text(self) -> str:
        """Which orders a bound speaks of."""
        if not self.is_branchy:
            return "the only op order"
        what = f"{1 + len(self._others)} op orders" if self._others else ONE_ORDER
        if self.leanest.capped:
            return f"{what} (too many to find the one of least memory)"
        return f"{what} ({'no further' if self._others else 'no'} order needs less memory)"


def _scoped(plan: Plan, bound: float, orders: str) -> Plan:
    """The plan with a bound for all orders that were planned: the least of theirs."""
    bound = min(bound, plan.bound.objective)
    gap = max(plan.objective / bound - 1 if bound else 0.0, plan.bound.gap)
    proof = plan.bound.proof
    if gap > plan.bound.gap and proof is Proof.OPTIMAL:
        proof = Proof.BOUNDED
    scope = orders + plan.bound.scope.removeprefix(ONE_ORDER)
    return replace(
        plan, bound=replace(plan.bound, objective=bound, gap=gap, scope=scope, proof=proof)
    )


def with_given_ids(plan: Plan) -> Plan:
    """The plan with the ids that its ops have in the graph's own order; they run as listed."""
    if not plan.order:
        return plan
    order = plan.order
    return replace(
        plan,
        order=(),
        segments=tuple(
            replace(
                segment,
                ops=tuple(order[v] for v in segment.ops),
                runs=tuple(replace(run, op=order[run.op]) for run in segment.runs),
            )
            for segment in plan.segments
        ),
        buffers=tuple(
            replace(buffer, tensor=order[buffer.tensor])
            if buffer.kind is BufferKind.WEIGHTS
            else buffer
            for buffer in plan.buffers
        ),
    )


def exposed_cycles(segments: Segments, order: Sequence[int]) -> float:
    """Cycles that copies of weights take beyond the op before, if each op runs whole.

    ``segments``: of the graph in its own order. What decides between orders, not a cost.
    """
    total = 0.0
    for before, v in pairwise(order):
        if len(segments.modes(v)) > 1:
            places = segments.places_of(v, v, v, {})
            size = segments.kernels.weights(v, segments.windows[v].ofm_rows, places).total
            hidden = _cycles(segments, before)
            total += max(copy_cycles(segments.kernels, size) - hidden, 0.0)
    return total


def _cycles(segments: Segments, v: int) -> float:
    if segments.graph.ops[v].placement is Placement.CPU:
        return 0.0
    places = segments.places_of(v, v, v, {})
    return float(segments.kernels.whole(v, places, WeightMode.STREAMED).cycles)


def _sizes_of(graph: OpGraph, order: Sequence[int], sizes: WeightSizes) -> WeightSizes:
    """Weight sizes for the reordered graph, asked for by the ops of the given one."""

    def of(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
        return sizes(graph.ops[order[op.id]], block)

    return of


def _front(plans: Sequence[Plan]) -> list[Plan]:
    """The plans that no other beats, from the most SRAM to the least."""
    front: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.sram_peak_bytes, plan.objective)):
        if not front or plan.objective < front[-1].objective:
            front.append(plan)
    return front[::-1]


def _mildest(errors: Sequence[InfeasibleError]) -> InfeasibleError:
    """Of the orders' errors the one that needs least; one about off-chip bytes if there is any.

    (Then the budget suffices in that order.)
    """
    offchip = [error for error in errors if "smallest_feasible_offchip_bytes" in error.values]
    return min(offchip or errors, key=_needed)


def _needed(error: InfeasibleError) -> int:
    """Least budget, or least off-chip bytes where that limit is the one that no plan keeps."""
    found = error.values.get("smallest_feasible_bytes")
    if found is None:
        found = error.values["smallest_feasible_offchip_bytes"]
    assert isinstance(found, int)
    return found
