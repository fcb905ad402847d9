"""From a graph and a budget to a plan with addresses: search, assemble, allocate, repeat.

``plan_graph`` reads top to bottom: state the problem, find the cheapest segments that fit, give
every buffer an address; if the addresses do not fit although the live sums do, ask for the next
cheaper peak. What no plan can do is an ``InfeasibleError`` with the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import inf

import msgspec
from msgspec.structs import replace

from npusched.graph.opgraph import OpGraph
from npusched.hardware import Target
from npusched.memory import ALIGNMENT_BYTES
from npusched.schedule.assemble import assemble, constant_bytes
from npusched.schedule.bound import compulsory_cycles
from npusched.schedule.exact import settled
from npusched.schedule.infeasible import infeasible
from npusched.schedule.kernels import Kernels, WeightSizes
from npusched.schedule.objective import Goal, Objective
from npusched.schedule.offchip_limit import OffchipLimit
from npusched.schedule.offchip_segments import OffchipSegments
from npusched.schedule.search import Search, Solution
from npusched.schedule.segments import SEGMENT_CAP, Scope, Segments
from npusched.schedule.switches import Switch, described
from npusched.schedule.types import Bound, Plan, Proof

ALLOCATION_TRIES = 64
"""Plans tried when addresses fragment, each with a lower live sum than the one before."""


ONE_ORDER = "this op order"
"""How the scope of a plan starts (see ``ordering``)."""

DOUBTFUL = (Switch.OVERLAP, Switch.BLOCK_CHOICE)
"""Switches with which the search may miss plans that it finds without; left out one by one."""


class Planner(msgspec.Struct):
    """The search of one graph on one target, ready for any number of budgets."""

    segments: Segments
    search: Search
    constant_bytes: int
    budget_memory: str
    unlimited: Callable[[], Planner]
    offchip: OffchipLimit | None = None
    plainer: Callable[[], Planner] | None = None

    @classmethod
    def of(
        cls,
        graph: OpGraph,
        target: Target,
        sizes: WeightSizes,
        *,
        objective: Objective | None = None,
        cap: int = SEGMENT_CAP,
        linear: bool = False,
        in_place: bool = True,
        staged: bool = True,
        limit_bytes: int | None = None,
        max_offchip_bytes: int | None = None,
        switches: frozenset[Switch] = frozenset(),
    ) -> Planner:
        """State the problem.

        Every ingredient can be left out, to see what it is worth: ``cap``: most ops in a segment
        (1 = nothing fused); ``linear``: only chains; ``in_place``: results over their inputs;
        ``staged``: weights copied while something else runs. ``limit_bytes``: largest budget that
        will be asked for; what needs more is not looked at. ``max_offchip_bytes``: most that one
        inference may move from and to memories off the chip. ``switches``: what is looked at
        beyond that.
        """
        of = partial(
            cls.of,
            graph,
            target,
            sizes,
            objective=objective,
            cap=cap,
            linear=linear,
            in_place=in_place,
            staged=staged,
            max_offchip_bytes=max_offchip_bytes,
        )
        unlimited = partial(of, switches=switches)
        doubtful = [switch for switch in DOUBTFUL if switch in switches]
        plain = partial(of, switches=switches - {*doubtful[:1]}, limit_bytes=limit_bytes)
        kernels = Kernels(
            graph,
            target,
            sizes,
            objective or Objective(),
            choose_blocks=Switch.BLOCK_CHOICE in switches,
        )
        scope: Scope = {
            "cap": cap,
            "linear": linear,
            "in_place": in_place,
            "staged": staged,
            "switches": switches,
            "limit_bytes": inf if limit_bytes is None else limit_bytes,
        }
        segments = Segments(kernels, **scope)
        memory = target.roles.cache
        return cls(
            segments=segments,
            search=Search(segments.problem(memory)),
            constant_bytes=constant_bytes(kernels, segments),
            budget_memory=memory,
            unlimited=unlimited,
            plainer=cache(plain) if doubtful else None,
            offchip=None
            if max_offchip_bytes is None
            else OffchipLimit(max_offchip_bytes, target, lambda: OffchipSegments(kernels, **scope)),
        )

    def plan(self, budget_bytes: int | None, *, is_capacity: bool = False) -> Plan:
        """Return the best plan within the budget. Raises InfeasibleError if there is none.

        The budget counts the arena with graph inputs and outputs; with constants in the same
        memory (Sram_Only) those too; with a staging memory of its own (Dedicated_Sram) only that.
        ``is_capacity``: the budget is what the target has, not a wish (for the error's hint).
        """
        if (inf if budget_bytes is None else budget_bytes) > self.segments.limit_bytes:
            return self.unlimited().plan(budget_bytes, is_capacity=is_capacity)
        limit = None if budget_bytes is None else budget_bytes - self.shared_bytes
        if self.segments.kernels.objective.goal is Goal.SRAM:
            smallest = self.whole().smallest_peak_bytes()
            limit = smallest if limit is None else min(limit, smallest)
        found, best = self._cheapest(budget_bytes, limit)
        if found is not None:
            return found
        whole = self.whole()
        solution, plan = whole._smallest()
        if budget_bytes is not None and plan.sram_peak_bytes > budget_bytes:
            raise infeasible(
                whole.segments,
                solution,
                plan.sram_peak_bytes,
                budget_bytes,
                self.shared_bytes,
                is_capacity=is_capacity,
            )
        if self.offchip is not None and not self.offchip.holds(plan):
            solution, plan = self._least_offchip(budget_bytes, limit) or (solution, plan)
            if not self.offchip.holds(plan):
                raise self.offchip.infeasible(plan, budget_bytes)
        return self._with_bound(plan, best or solution, solution)

    def _cheapest(
        self, budget_bytes: int | None, limit: int | None, *, is_frontier: bool = False
    ) -> tuple[Plan | None, Solution | None]:
        """(cheapest plan that packs within the budget, cheapest solution by live sums).

        Overlaps tie addresses and may not pack; ops with chosen blocks are shorter and hide fewer
        copies. Then a plan without them may be the better one. What the search cannot prove is
        settled by HiGHS, where it is installed; for the many points of a frontier that takes too
        long.
        """
        found, best = self._packed(budget_bytes, limit, is_frontier=is_frontier)
        if self.plainer is None or (found is not None and self._is_sure(found)):
            return found, best
        other, _ = self.plainer()._cheapest(budget_bytes, limit, is_frontier=is_frontier)
        if other is None or (found is not None and other.objective >= found.objective):
            return found, best
        least = min(other.objective, inf if best is None else best.least or best.score)
        bound = replace(
            other.bound,
            objective=least,
            gap=other.objective / least - 1 if least else 0.0,
            proof=Proof.FEASIBLE,
            scope=self._scope(),
        )
        return replace(other, bound=bound), best

    def _is_sure(self, plan: Plan) -> bool:
        """True if no plan without overlaps and chosen blocks can be better."""
        return plan.bound.gap == 0 and Switch.BLOCK_CHOICE not in self.segments.switches

    def _packed(
        self, budget_bytes: int | None, limit: int | None, *, is_frontier: bool = False
    ) -> tuple[Plan | None, Solution | None]:
        """Like ``_cheapest``, with all that is in the scope or nothing."""
        best: Solution | None = None
        for _ in range(ALLOCATION_TRIES):
            found = self._solve(budget_bytes, limit) if limit is None or limit >= 0 else None
            if found is None:
                break
            solution, plan = found
            if solution.capped and self.offchip is None and best is None and not is_frontier:
                solution = settled(self.search.problem, limit, solution)
                plan = self._assemble(solution, budget_bytes)
            best = best or solution
            if budget_bytes is None or plan.sram_peak_bytes <= budget_bytes:
                return self._with_bound(plan, best, solution), best
            limit = solution.peak_bytes - ALIGNMENT_BYTES
        return None, best

    def _solve(self, budget_bytes: int | None, limit: int | None) -> tuple[Solution, Plan] | None:
        """Cheapest solution by live sums that keeps the off-chip limit, and its plan."""
        solution = self.search.solve(limit)
        if solution is None:
            return None
        plan = self._assemble(solution, budget_bytes)
        if self.offchip is None or self.offchip.holds(plan):
            return solution, plan
        solution = self.offchip.solve(limit)
        return None if solution is None else (solution, self._assemble(solution, budget_bytes))

    def _least_offchip(
        self, budget_bytes: int | None, limit: int | None
    ) -> tuple[Solution, Plan] | None:
        """What moves least off the chip of all that packs within the budget."""
        assert self.offchip is not None
        for _ in range(ALLOCATION_TRIES):
            solution = self.offchip.search.least_offchip(limit)
            if solution is None:
                break
            plan = self._assemble(solution, budget_bytes)
            if budget_bytes is None or plan.sram_peak_bytes <= budget_bytes:
                return solution, plan
            limit = solution.peak_bytes - ALIGNMENT_BYTES
        return None

    def frontier(self, budget_bytes: int | None = None, *, most: int | None = None) -> list[Plan]:
        """Every best plan within the budget and below, from the most SRAM to the least.

        Each is the best one for its own peak; the next is the best below that peak (PLANNER §1).
        ``most``: no more plans than that (at least 2), by leaving out those whose peak is hardly
        smaller than that of the one before; None = all. Raises InfeasibleError if even the first
        does not exist.
        """
        plans = [self.plan(budget_bytes)]
        first_bytes = plans[0].sram_peak_bytes
        while plans[-1].sram_peak_bytes >= ALIGNMENT_BYTES + self.shared_bytes:
            peak_bytes = plans[-1].sram_peak_bytes
            below = peak_bytes - frontier_step_bytes(peak_bytes, first_bytes, most)
            found, best = self._cheapest(below, below - self.shared_bytes, is_frontier=True)
            last = found is None
            if found is None:
                solution, least = self._smallest()
                if least.sram_peak_bytes >= peak_bytes or not self.keeps_limits(least):
                    break
                found = self._with_bound(least, best or solution, solution)
            if found.objective <= plans[-1].objective:
                plans[-1] = found  # as good with less SRAM
            else:
                plans.append(found)
            if last:
                break
        return plans

    def smallest_budget_bytes(self) -> int:
        """A budget that has a plan with addresses, and by live sums no smaller one has."""
        return self.whole()._smallest()[1].sram_peak_bytes

    def smallest_peak_bytes(self) -> int:
        """Least live sum of all solutions; if one keeps the off-chip limit, of those that do."""
        within = None if self.offchip is None else self.offchip.smallest_peak_bytes()
        return self.search.smallest().peak_bytes if within is None else within

    @property
    def shared_bytes(self) -> int:
        """Constants that lie in the budget memory and count against the budget."""
        roles = self.segments.target.roles
        return self.constant_bytes if roles.const == roles.arena == roles.cache else 0

    def keeps_limits(self, plan: Plan) -> bool:
        """True if the plan, ours or another's, moves no more off the chip than is allowed."""
        return self.offchip is None or self.offchip.holds(plan)

    def _smallest(self) -> tuple[Solution, Plan]:
        """The cheapest plan of the least peak, with addresses; ask the unlimited planner."""
        solution = self.search.solve(self.search.smallest().peak_bytes)
        assert solution is not None
        plan = self._assemble(solution, None)
        if self.plainer is not None and plan.sram_peak_bytes > plan.sram_bound_bytes:
            other = self.plainer()._smallest()
            if other[1].sram_peak_bytes < plan.sram_peak_bytes:
                return other
        return solution, plan

    def whole(self) -> Planner:
        """Return the planner of the same problem without a limit: this one if it has none."""
        return self if self.segments.limit_bytes == inf else self.unlimited()

    def _assemble(self, solution: Solution, budget_bytes: int | None) -> Plan:
        return assemble(
            self.segments, solution, budget_bytes, self.constant_bytes, self.shared_bytes
        )

    def _with_bound(self, plan: Plan, best: Solution, solution: Solution) -> Plan:
        """State how far the plan may be from the best one of its scope."""
        least = best.score if best.least is None else best.least
        gap = solution.score / least - 1 if least else 0.0
        notes = plan.notes
        proof = Proof.OPTIMAL if gap == 0 else Proof.BOUNDED
        if best.capped and best.least is None:
            proof = Proof.FEASIBLE
        if solution is not best:
            notes = (*notes, "the cheapest plan did not pack; the next cheaper peak was taken")
        bound = Bound(
            cycles=compulsory_cycles(self.segments),
            objective=least,
            gap=gap,
            proof=proof,
            scope=self._scope(),
        )
        return replace(plan, bound=bound, notes=notes)

    def _scope(self) -> str:
        """The plans that a bound speaks of."""
        scope = (
            f"{ONE_ORDER}, segments of at most {self.segments.cap} ops, every number of "
            "stripes, weights streamed, resident, prefetched or sliced"
        )
        scope += described(self.segments.switches)
        if self.offchip is not None:
            scope += f", at most {self.offchip.max_bytes} bytes off the chip"
        return scope


def frontier_step_bytes(peak_bytes: int, first_bytes: int, most: int | None) -> int:
    """How much less SRAM the next plan of a frontier may use.

    With ``most``: 2 / ``most`` of the peak, from half of the first peak down of that half. That
    makes fewer steps than ``most``.
    """
    if most is None:
        return ALIGNMENT_BYTES
    return max(2 * max(peak_bytes, first_bytes // 2) // max(most, 1), ALIGNMENT_BYTES)
