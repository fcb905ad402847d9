"""What a user asks of the planner, as one value from the command line down to the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.types import CandidateMode
    from npusched.schedule import Planner
    from npusched.schedule.kernels import WeightSizes


DEFAULT_MAX_COMPILATIONS = 200
"""Compilations of a sweep for candidates: a minute or less for models of a few hundred kB."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``sram``: a budget ("64KiB", bytes), None for what the target has.

    ``objective`` and ``lambda_cycles_per_byte``: see ``schedule.Objective``. ``signature``: entry
    point, None for subgraph 0; ``input_shapes``: of dynamic inputs. ``use_vela``: ask Vela for
    exact weight sizes; ``use_cache``: of its results. ``candidates``: which schedules of Vela's
    compete with ours (none; as asked for this budget; all that a sweep of at most
    ``max_compilations`` finds).
    """

    sram: str | int | None = None
    objective: str = "cycles"
    lambda_cycles_per_byte: float = 0.1
    signature: str | None = None
    input_shapes: Mapping[str, Shape] | None = None
    use_vela: bool = True
    use_cache: bool = True
    candidates: CandidateMode = "asked"
    max_compilations: int = DEFAULT_MAX_COMPILATIONS

    def budget_bytes(self, target: Target) -> int | None:
        """The budget: what was asked for, else the capacity of the budget memory."""
        from npusched.hardware import parse_size

        if self.sram is None:
            return target.sram_budget_bytes
        return self.sram if isinstance(self.sram, int) else parse_size(self.sram)

    def planner(
        self, graph: OpGraph, target: Target, sizes: WeightSizes, *, limit_bytes: int | None = None
    ) -> Planner:
        """The planner of a graph under these options (``limit_bytes``: see ``Planner.of``)."""
        from npusched.schedule import Goal, Objective, Planner

        goal = Objective(
            goal=Goal(self.objective), lambda_cycles_per_byte=self.lambda_cycles_per_byte
        )
        return Planner.of(graph, target, sizes, objective=goal, limit_bytes=limit_bytes)
