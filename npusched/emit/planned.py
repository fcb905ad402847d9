"""A plan of ours as events: cascades, slices, resident and prefetched weights, staged inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from npusched.emit.build import finish
from npusched.emit.constants import RebuiltConstants
from npusched.emit.events import (
    ARENA,
    FAST,
    CopyTensor,
    CopyWeights,
    Event,
    Issue,
    Run,
    Touch,
)
from npusched.emit.matching import KernelMatch, match_kernels
from npusched.emit.parts import Emitted
from npusched.emit.plan_places import PlanPlaces, has_fast, refuse
from npusched.emit.template import HostStep, Template, TemplateKernel
from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement
from npusched.hardware.target import Block, MemoryMode
from npusched.ir import Model
from npusched.schedule.issue import stripes_of
from npusched.schedule.types import BufferKind, OpRun, Plan, Segment, WeightMode


def emit_plan(
    template: Template,
    model: Model,
    graph: OpGraph,
    plan: Plan,
    *,
    match: KernelMatch | None = None,
) -> Emitted:
    """Return streams and addresses of a plan.

    ``graph``: the one that was planned, in its own order (not that of the plan). ``match``: as
    found before for this template and graph. Raises EmitError for what cannot be emitted, SimError
    for damaged weights.
    """
    match = match or match_kernels(template, model, graph)
    constants = RebuiltConstants(template)
    issue = plan_issue(template, model, graph, plan, match, constants)
    ordered = reordered(graph, plan.order)
    names = {v: tuple(index for _, index in op.source_ops) for v, op in enumerate(ordered.ops)}
    budget = FAST if has_fast(template) else ARENA
    limit = plan.sram_peak_bytes
    if template.target.memory_mode is MemoryMode.SRAM_ONLY:
        limit -= plan.constant_bytes
    return finish(template, issue, constants, limits={budget: limit}, source_ops=names)


def plan_issue(
    template: Template,
    model: Model,
    graph: OpGraph,
    plan: Plan,
    match: KernelMatch,
    constants: RebuiltConstants,
) -> Issue:
    """Return the events of a plan. Raises EmitError."""
    if match.strays:
        kernel = match.strays[0]
        raise refuse(f"{kernel.state.label} belongs to no op of ours", "Vela made it up")
    ordered = reordered(graph, plan.order)
    own = {
        v: match.kernels[old]
        for v, old in enumerate(plan.order or range(len(graph.ops)))
        if old in match.kernels
    }
    return _Planner(template, model, ordered, plan, own, constants).issue()


@dataclass(slots=True)
class _Pending:
    """Weights of the next op that are copied while this segment runs."""

    copies: list[CopyWeights] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class _Planner:
    """Walks the segments of a plan and collects events and places."""

    def __init__(
        self,
        template: Template,
        model: Model,
        graph: OpGraph,
        plan: Plan,
        kernels: Mapping[int, tuple[TemplateKernel, ...]],
        constants: RebuiltConstants,
    ) -> None:
        self.template, self.graph, self.plan, self.kernels = template, graph, plan, kernels
        self.places = PlanPlaces(template, model, graph, plan, kernels, constants)
        self.homes = self.places.homes
        self.events: list[tuple[int, Event]] = []

    # --- all segments -----------------------------------------------------------------------

    def issue(self) -> Issue:
        """Return all events."""
        for tensor in self.template.inputs:
            self.places.place(tensor, None, 0, writes=True)
        for step, segment in enumerate(self.plan.segments):
            if segment.placement is Placement.NPU:
                self._segment(step, segment)
        boundary = {
            index: self.places.place(tensor, None, 0, writes=True)
            for index, tensor in self.template.boundary.items()
        }
        return self.places.placing.issue(self._in_order(boundary), boundary)

    def _in_order(self, boundary: Mapping[int, int]) -> list[tuple[int, Event]]:
        """Events of one NPU operator after the other, with what the host does between them."""
        found: list[tuple[int, Event]] = []
        for step in self.template.steps:
            if isinstance(step, HostStep):
                found += [
                    (-1, Touch(places=tuple(boundary[i] for i in planned)))
                    for planned in step.touched
                ]
            else:
                found += [item for item in self.events if item[0] == step]
        return found

    def _segment(self, step: int, segment: Segment) -> None:
        partition = self._partition(segment)
        late = self._prefetched(step + 1, partition)
        self._add(partition, Touch(places=tuple(late.places)))
        for copy in segment.copies:
            source, target = self.places.copy_of(copy.tensor, step)
            self._add(partition, CopyTensor(source=source, destination=target))
        runs = {run.op: run for run in segment.runs}
        if len(segment.ops) == 1 and runs[segment.ops[0]].buffering is not None:
            self._sliced(step, partition, runs[segment.ops[0]], late)
            return
        rolling = {
            buffer.tensor
            for buffer in self.plan.buffers
            if buffer.kind is BufferKind.ROLLING and buffer.first_step <= step < buffer.end_step
        }
        stripes = list(stripes_of(self.graph, segment, rolling))
        copies = {v: copy for v in segment.ops for copy in self._resident(step, runs[v])}
        first = copies.get(stripes[0][0])
        if first is not None:
            self._add(partition, first)
        rest = [copy for copy in copies.values() if copy is not first]
        self._add(partition, Touch(places=tuple(copy.place for copy in rest)))
        rest += late.copies
        for v, start, end in stripes:
            for kernel in self.kernels[v]:
                rows = self._rows(v, kernel, start, end)
                place = copies[v].place if v in copies and kernel.weights else None
                self._run(step, partition, runs[v], kernel, rows, place)
                while rest:
                    self._add(partition, rest.pop(0))

    def _add(self, partition: int, event: Event) -> None:
        if not isinstance(event, Touch) or event.places:
            self.events.append((partition, event))

    def _partition(self, segment: Segment) -> int:
        found = {kernel.partition for v in segment.ops for kernel in self.kernels[v]}
        if len(found) != 1:
            raise refuse(
                "a segment spans several NPU operators", f"ops {segment.ops}, operators {found}"
            )
        return found.pop()

    # --- kernels ----------------------------------------------------------------------------

    def _rows(self, v: int, kernel: TemplateKernel, start: int, end: int) -> tuple[int, int]:
        """Rows of a kernel for rows of its op: all of several kernels, or of one."""
        op = self.graph.ops[v]
        if (start, end) == (0, op.ofm.shape[1]):
            return 0, kernel.rows
        if len(self.kernels[v]) > 1 or kernel.rows != op.ofm.shape[1]:
            raise refuse(
                f"op {v} ({op.kind.value} {op.name!r}) runs in stripes",
                f"Vela makes {len(self.kernels[v])} kernels of {kernel.rows} rows of it",
            )
        return start, end

    def _run(
        self,
        step: int,
        partition: int,
        run: OpRun,
        kernel: TemplateKernel,
        rows: tuple[int, int],
        weights: int | None,
        channels: tuple[int, int] | None = None,
    ) -> None:
        places = tuple(
            (role, self.places.place(use.tensor, kernel, step, writes=role == "ofm"))
            for role, use in kernel.uses
        )
        self._add(
            partition,
            Run(
                kernel=kernel.index,
                rows=rows,
                channels=channels or (0, kernel.channels),
                block=self._block(run, kernel),
                places=places,
                weights=weights,
                op=run.op,
            ),
        )

    def _block(self, run: OpRun, kernel: TemplateKernel) -> Block:
        """The plan's block where the op is one kernel."""
        if run.block is None or len(self.kernels[run.op]) > 1:
            return kernel.state.block
        return Block(*run.block)

    # --- weights ----------------------------------------------------------------------------

    def _resident(self, step: int, run: OpRun) -> list[CopyWeights]:
        """The copy of an op's resident weights, none for others."""
        if run.weight_mode is not WeightMode.RESIDENT:
            return []
        numbers = self.homes.weights(run.op, step)
        kernels = [kernel for kernel in self.kernels[run.op] if kernel.weights]
        if len(kernels) > 1 and len({(k.weights, k.scales) for k in kernels}) > 1:
            raise refuse(f"op {run.op} has weights of {len(kernels)} kernels", "kept in SRAM")
        kernel = kernels[0]
        channels = (0, kernel.channels)
        depth = self._block(run, kernel).c
        place = self.places.weights(numbers[0], kernel, depth, [channels])
        return [self._copy(run, kernel, channels, place)]

    def _copy(
        self, run: OpRun, kernel: TemplateKernel, channels: tuple[int, int], place: int
    ) -> CopyWeights:
        depth = self._block(run, kernel).c
        return CopyWeights(kernel=kernel.index, block_depth=depth, channels=channels, place=place)

    def _slices(self, step: int, run: OpRun) -> list[tuple[CopyWeights, tuple[int, int]]]:
        """Copy and channels of each depth slice of an op with staged weights."""
        assert run.buffering is not None
        numbers = self.homes.weights(run.op, step)
        own = self.kernels[run.op]
        if len(own) != 1:
            raise refuse(f"op {run.op} is {len(own)} kernels", "its weights come in slices")
        (kernel,) = own
        borders = [*run.buffering.borders[:-1], kernel.channels]
        channels = list(pairwise(borders))
        buffers = max(1, min(run.buffering.buffers, len(numbers)))
        depth = self._block(run, kernel).c
        found = []
        for index, part in enumerate(channels):
            turn = index % buffers
            place = self.places.weights(numbers[turn], kernel, depth, channels[turn::buffers])
            found.append((self._copy(run, kernel, part, place), part))
        return found

    def _prefetched(self, step: int, partition: int) -> _Pending:
        """What the next segment wants copied while this one runs."""
        pending = _Pending()
        if step >= len(self.plan.segments):
            return pending
        segment = self.plan.segments[step]
        for run in segment.runs:
            if run.buffering is None or not run.buffering.prefetched:
                continue
            if self._partition(segment) == partition:
                copy, _ = self._slices(step, run)[0]
                pending.copies.append(copy)
                first = self.plan.buffers[self.homes.weights(run.op, step)[0]]
                if not first.late_start:
                    pending.places.append(copy.place)
        return pending

    def _sliced(self, step: int, partition: int, run: OpRun, late: _Pending) -> None:
        """An op whose weights come in slices: the next one is copied while one is used."""
        assert run.buffering is not None
        slices = self._slices(step, run)
        (kernel,) = self.kernels[run.op]
        if not run.buffering.prefetched or not self._was_prefetched(step, partition):
            self._add(partition, slices[0][0])
        for index, (copy, channels) in enumerate(slices):
            following = slices[index + 1][0] if index + 1 < len(slices) else None
            if following is not None and following.place != copy.place:
                self._add(partition, Touch(places=(following.place,)))
            whole = (0, kernel.rows)
            self._run(step, partition, run, kernel, whole, copy.place, channels)
            if following is not None:
                self._add(partition, following)
        for copy in late.copies:
            self._add(partition, copy)

    def _was_prefetched(self, step: int, partition: int) -> bool:
        """True if the segment before has copied the first slice."""
        before = self.plan.segments[step - 1] if step else None
        is_npu = before is not None and before.placement is Placement.NPU
        return before is not None and is_npu and self._partition(before) == partition
