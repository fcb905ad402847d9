"""What explanations are made of: a plan and everything that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.hardware.target import Target
from npusched.ir import Model, Subgraph
from npusched.report.build import latency_s
from npusched.schedule import OpRun, OrderedPlanner, Plan, Planner


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A plan and where it comes from. ``given``: the graph in the order of the file.

    ``shown``: whose schedule it is; a schedule of Vela's is no plan that the planner made.
    """

    model: Model
    given: OpGraph
    target: Target
    planner: OrderedPlanner
    plan: Plan
    shown: Literal["npusched", "vela"] = "npusched"

    @cached_property
    def graph(self) -> OpGraph:
        """The graph in the plan's order, with the ids that the plan uses."""
        return reordered(self.given, self.plan.order)

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph that was planned."""
        return self.model.subgraphs[self.given.subgraph]

    @property
    def own(self) -> Planner:
        """The planner of the plan's op order."""
        return self.planner.planner_of(self.plan.order)

    @property
    def limit_bytes(self) -> int | None:
        """The budget of live sums: without constants that share it."""
        budget = self.plan.budget_bytes
        return None if budget is None else budget - self.own.shared_bytes

    @cached_property
    def runs(self) -> dict[int, OpRun]:
        """How each op runs, by id."""
        return {run.op: run for segment in self.plan.segments for run in segment.runs}

    @cached_property
    def latency_s(self) -> float:
        """Seconds of one inference."""
        return latency_s(self.target, self.graph, self.plan.amounts)

    def kind_of(self, ref: tuple[int, int]) -> str:
        """Kind of an op of the file."""
        op = self.subgraph.ops[ref[1]]
        return op.custom_code or op.kind.value

    def name_of(self, ref: tuple[int, int]) -> str:
        """Name of an op of the file: that of its first result."""
        op = self.subgraph.ops[ref[1]]
        return self.subgraph.tensors[op.outputs[0]].name if op.outputs else ""

    def seconds_of(self, npu_cycles: int, cpu_cycles: int) -> float:
        """Time of NPU and CPU cycles, one after the other."""
        npu_s = npu_cycles / self.target.clock_hz if self.target.accelerator is not None else 0.0
        return npu_s + cpu_cycles / self.target.cpu.clock_hz

    def share_of(self, npu_cycles: int, cpu_cycles: int) -> float:
        """Their share of the network's time."""
        return self.seconds_of(npu_cycles, cpu_cycles) / self.latency_s if self.latency_s else 0.0
