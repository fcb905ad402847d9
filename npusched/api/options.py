"""What a user asks of the planner, as one value from the command line down to the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from npusched.errors import TargetError

if TYPE_CHECKING:
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.types import AdviceMode, CandidateMode
    from npusched.schedule import OrderedPlanner
    from npusched.schedule.kernels import WeightSizes
    from npusched.schedule.switches import Switch


DEFAULT_MAX_COMPILATIONS = 200
"""Compilations of a sweep for candidates: a minute or less for models of a few hundred kB."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``sram``: a budget ("64KiB", bytes), None for what the target has.

    ``objective`` and ``lambda_cycles_per_byte``: see ``schedule.Objective``.
    ``max_offchip_bytes``: limit like ``sram``, None for no limit. ``allow``: names of
    ``schedule.Switch``. ``signature``: entry point, None for subgraph 0; ``input_shapes``: of
    dynamic inputs. ``use_vela``: ask Vela for exact weight sizes; ``use_cache``: of its results.
    ``candidates``: which schedules of Vela's compete with ours (none; as asked for this budget; all
    that a sweep of at most ``max_compilations`` finds). ``advice``: what a report says of
    changes (none; quick: what a glance at the plan tells; all: every change that helps, planned).
    """

    sram: str | int | None = None
    objective: str = "cycles"
    lambda_cycles_per_byte: float = 0.1
    max_offchip_bytes: str | int | None = None
    allow: tuple[str, ...] = ()
    signature: str | None = None
    input_shapes: Mapping[str, Shape] | None = None
    use_vela: bool = True
    use_cache: bool = True
    candidates: CandidateMode = "asked"
    max_compilations: int = DEFAULT_MAX_COMPILATIONS
    advice: AdviceMode = "quick"

    def budget_bytes(self, target: Target) -> int | None:
        """The budget: what was asked for, else the capacity of the budget memory."""
        return target.sram_budget_bytes if self.sram is None else _bytes_of(self.sram)

    @property
    def limit_bytes(self) -> int | None:
        """Most bytes that one inference may move off the chip; None for no limit."""
        return None if self.max_offchip_bytes is None else _bytes_of(self.max_offchip_bytes)

    @property
    def allowed(self) -> tuple[Switch, ...]:
        """The switches that are on, sorted. Raises TargetError for an unknown name."""
        from npusched.schedule.switches import Switch

        known = {switch.value: switch for switch in Switch}
        for name in self.allow:
            if name not in known:
                raise TargetError(
                    f"nothing is called '{name}'",
                    f"what can be allowed: {', '.join(known)}",
                    "leave it out, or name one of these",
                )
        return tuple(sorted({known[name] for name in self.allow}))

    def planner(
        self, graph: OpGraph, target: Target, sizes: WeightSizes, *, limit_bytes: int | None = None
    ) -> OrderedPlanner:
        """The planner of a graph under these options (``limit_bytes``: see ``Planner.of``)."""
        from npusched.schedule import Goal, Objective, OrderedPlanner

        goal = Objective(
            goal=Goal(self.objective), lambda_cycles_per_byte=self.lambda_cycles_per_byte
        )
        return OrderedPlanner(
            graph,
            target,
            sizes,
            objective=goal,
            limit_bytes=limit_bytes,
            max_offchip_bytes=self.limit_bytes,
            switches=frozenset(self.allowed),
        )


def _bytes_of(size: str | int) -> int:
    """Bytes of a size as users write it. Raises TargetError."""
    from npusched.hardware import parse_size

    return size if isinstance(size, int) else parse_size(size)
