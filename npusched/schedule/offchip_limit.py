"""A limit on the off-chip bytes of a planner's plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from npusched.errors import InfeasibleError
from npusched.hardware import Target
from npusched.memory import ALIGNMENT_BYTES
from npusched.schedule.kernels import offchip_memories
from npusched.schedule.offchip import OffchipSearch
from npusched.schedule.offchip_segments import OffchipSegments
from npusched.schedule.search import Solution
from npusched.schedule.types import Plan


def offchip_bytes(target: Target, plan: Plan) -> int:
    """Bytes that one inference moves from and to memories off the chip."""
    return sum(plan.amounts.moved(memory) for memory in offchip_memories(target))


class OffchipLimit:
    """At most ``max_bytes`` off the chip per inference; the search for it is made when needed."""

    def __init__(self, max_bytes: int, target: Target, make: Callable[[], OffchipSegments]) -> None:
        self.max_bytes, self.target, self._make = max_bytes, target, make

    def holds(self, plan: Plan) -> bool:
        """True if the plan keeps the limit."""
        return offchip_bytes(self.target, plan) <= self.max_bytes

    @cached_property
    def search(self) -> OffchipSearch:
        """The search under both limits."""
        return OffchipSearch(self._make().problem(self.target.roles.cache))

    def solve(self, budget_bytes: int | None) -> Solution | None:
        """Cheapest solution within the budget and the limit; None if there is none."""
        return self.search.solve_within(budget_bytes, self.max_bytes)

    def smallest_peak_bytes(self) -> int | None:
        """Least live sum of all solutions that keep the limit; None if none does."""
        roomy = self.search.least_offchip(None)
        if roomy is None or roomy.offchip_bytes > self.max_bytes:
            return None
        low = self.search.smallest().peak_bytes // ALIGNMENT_BYTES
        high = -(-roomy.peak_bytes // ALIGNMENT_BYTES)
        while low < high:  # more room never costs off-chip bytes
            middle = (low + high) // 2
            found = self.search.least_offchip(middle * ALIGNMENT_BYTES)
            if found is not None and found.offchip_bytes <= self.max_bytes:
                high = middle
            else:
                low = middle + 1
        return high * ALIGNMENT_BYTES

    def infeasible(self, least: Plan, budget_bytes: int | None) -> InfeasibleError:
        """The error for a limit that no plan keeps; ``least``: what moves least in the budget."""
        need, have = offchip_bytes(self.target, least), self.max_bytes
        room = "" if budget_bytes is None else f" within {budget_bytes} bytes of SRAM"
        return InfeasibleError(
            f"no plan moves at most {have} bytes off the chip per inference",
            f"the smallest feasible limit{room} is {need} bytes, {need - have} more",
            f"give --max-offchip-bytes {need} or more, or more SRAM",
            need_offchip_bytes=need,
            have_offchip_bytes=have,
            excess_offchip_bytes=need - have,
            smallest_feasible_offchip_bytes=need,
            budget_bytes=budget_bytes,
        )
