"""What ops of a plan would cost with more of one resource: the same runs, costed again.

Everything else stays as planned: stripes, weights in the same mode, homes, and the cycles of the
segment before that hide a prefetch. Costs come from the cost functions for a target that differs
in one resource, so that rounding, latencies and block choice count. With the plan's own target
they are the plan's.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from npusched.hardware.target import Accelerator, Target
from npusched.schedule.assemble import run_of
from npusched.schedule.boundaries import divided, division_of
from npusched.schedule.plan import Planner
from npusched.schedule.search import Solution
from npusched.schedule.segments import Segments
from npusched.schedule.types import OpRun, Plan

NPU = "npu"
"""Name of the resource that is not a memory."""

_UNLIMITED = 1 << 20


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of some ops. ``name``: a memory's, or ``NPU``.

    ``busy_cycles``: how long they keep it busy (the NPU: visible copies included). The other two
    are the ops' cycles with twice as much of it, and as if it took no time; None = there is no such
    target. For the NPU: the next larger accelerator, and what the memories alone need.
    """

    name: str
    busy_cycles: int
    doubled_cycles: int | None
    unlimited_cycles: int | None
    doubled_as: str


class Costing(msgspec.Struct, frozen=True):
    """A plan of ours, ready to be costed again: its planner and the choices it is made of."""

    planner: Planner
    solution: Solution

    @classmethod
    def of(cls, planner: Planner, plan: Plan, limit_bytes: int | None) -> Costing:
        """``planner``: of the plan's op order; ``limit_bytes``: of its live sums."""
        solution = divided(planner, division_of(plan)).solve(limit_bytes)
        if solution is None:
            raise ValueError("the plan's own division does not fit its budget")
        return cls(planner.whole(), solution)

    def runs(self, ops: Collection[int], target: Target | None = None) -> list[OpRun]:
        """How some ops run, costed for another target (None: for the plan's own)."""
        segments = self.planner.segments
        if target is not None:
            segments = Segments(
                segments.kernels.on(target),
                cap=segments.cap,
                linear=segments.fusing.linear,
                staged=segments.staged is not None,
                switches=segments.switches,
            )
        homes = {self.planner.segments.tensors[t]: m for t, m in self.solution.homes.items()}
        found = []
        slack = 0.0
        for step in self.solution.steps:
            found += [
                run_of(segments, step, v, homes, slack)
                for v in range(step.start, step.end + 1)
                if v in ops
            ]
            slack = step.option.cycles
        return found

    def resources(self, ops: Collection[int], larger: Accelerator | None) -> list[Resource]:
        """Every resource that the ops use. ``larger``: the next accelerator of the family."""
        target = self.planner.segments.target
        own = self.runs(ops)
        busy: dict[str, int] = {}
        for run in own:
            for name, cycles in run.memory_cycles:
                busy[name] = busy.get(name, 0) + cycles
        found = [self._npu(own, ops, larger)] if target.accelerator is not None else []
        for memory in target.memories:
            if busy.get(memory.name):
                twice = f"{2 * memory.bandwidth_bytes_per_cycle:.3g} B/cycle"
                found.append(
                    Resource(
                        name=memory.name,
                        busy_cycles=busy[memory.name],
                        doubled_cycles=self._cycles(ops, faster(target, memory.name, 2)),
                        unlimited_cycles=self._cycles(ops, faster(target, memory.name, _UNLIMITED)),
                        doubled_as=twice,
                    )
                )
        return found

    def _npu(self, own: list[OpRun], ops: Collection[int], larger: Accelerator | None) -> Resource:
        target = self.planner.segments.target
        doubled = None
        if larger is not None:
            other = replace(target, accelerator=larger, name=f"{target.name} as {larger.name}")
            doubled = self._cycles(ops, other)
        return Resource(
            name=NPU,
            busy_cycles=sum(run.amounts.core_cycles for run in own),
            doubled_cycles=doubled,
            unlimited_cycles=sum(
                max((cycles for _, cycles in run.memory_cycles), default=0) for run in own
            ),
            doubled_as="" if larger is None else larger.name,
        )

    def _cycles(self, ops: Collection[int], target: Target) -> int:
        return sum(run.amounts.npu_cycles for run in self.runs(ops, target))


def faster(target: Target, memory: str, factor: int) -> Target:
    """The target with ``factor`` times the bandwidth of one memory (a huge one: no latency)."""
    no_latency = factor >= _UNLIMITED
    memories = tuple(
        each
        if each.name != memory
        else replace(
            each,
            bandwidth_bytes_per_cycle=each.bandwidth_bytes_per_cycle * factor,
            vela_bandwidth_bytes_per_cycle=each.vela_bandwidth_bytes_per_cycle * factor,
            read_latency_cycles=1 if no_latency else each.read_latency_cycles,
            write_latency_cycles=1 if no_latency else each.write_latency_cycles,
        )
        for each in target.memories
    )
    return replace(target, memories=memories, name=f"{target.name} with {factor}x {memory}")
