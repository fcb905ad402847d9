"""A plan of ours as events: cascades, slices, resident and prefetched weights, staged inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from npusched.emit.build import Placing, finish
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
from npusched.emit.homes import Homes, maps_of
from npusched.emit.matching import KernelMatch, match_kernels
from npusched.emit.parts import Emitted, align_up
from npusched.emit.template import HostStep, Template, TemplateKernel
from npusched.errors import EmitError
from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement
from npusched.hardware.target import Block, MemoryMode
from npusched.ir import Model
from npusched.schedule.issue import stripes_of
from npusched.schedule.types import BufferKind, OpRun, Plan, Segment, WeightMode


def emit_plan(
    template: Template, model: Model, graph: OpGraph, plan: Plan, *, match: KernelMatch | None = None
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


def has_fast(template: Template) -> bool:
    """True if the staging memory is apart from the arena."""
    return template.target.memory_mode is MemoryMode.DEDICATED_SRAM


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
        raise _refuse(f"{kernel.state.label} belongs to no op of ours", "Vela made it up")
    ordered = reordered(graph, plan.order)
    own = {
        v: match.kernels[old]
        for v, old in enumerate(plan.order or range(len(graph.ops)))
        if old in match.kernels
    }
    return _Planner(template, model, ordered, plan, own, constants).issue()


def _refuse(what: str, why: str) -> EmitError:
    return EmitError(
        f"cannot emit the plan: {what}",
        why,
        "plan with more SRAM or without --allow; docs/emit.md lists what can be emitted",
    )


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
        self.template, self.graph, self.plan = template, graph, plan
        self.kernels, self.constants = kernels, constants
        self.homes = Homes(graph, plan)
        self.maps = maps_of(template, model, graph, kernels)
        self.placing = Placing(template)
        self.places: dict[tuple[int, int | None], int] = {}
        self.weight_places: dict[tuple[int, int], int] = {}
        self.events: list[tuple[int, Event]] = []
        self.has_fast = has_fast(template)
        self.step_of = {
            step: at for at, step in enumerate(template.steps) if not isinstance(step, HostStep)
        }

    # --- all segments -----------------------------------------------------------------------

    def issue(self) -> Issue:
        """Return all events."""
        for tensor in self.template.inputs:
            self.place(tensor, None, 0, writes=True)
        for step, segment in enumerate(self.plan.segments):
            if segment.placement is Placement.NPU:
                self._segment(step, segment)
        boundary = {
            index: self.place(tensor, None, 0, writes=True)
            for index, tensor in self.template.boundary.items()
        }
        return self.placing.issue(self._in_order(boundary), boundary)

    def _in_order(self, boundary: Mapping[int, int]) -> list[tuple[int, Event]]:
        """Events of one NPU operator after the other, with what the host does between them."""
        found: list[tuple[int, Event]] = []
        for step in self.template.steps:
            if isinstance(step, HostStep):
                for planned in step.touched:
                    found.append((-1, Touch(places=tuple(boundary[i] for i in planned))))
            else:
                found += [item for item in self.events if item[0] == step]
        return found

    def _segment(self, step: int, segment: Segment) -> None:
        partition = self._partition(segment)
        late = self._prefetched(step + 1, partition)
        self._add(partition, Touch(places=tuple(late.places)))
        for copy in segment.copies:
            self._stage(partition, copy.tensor, step)
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

    def _stage(self, partition: int, fm: int, step: int) -> None:
        """Copy a graph input to the staging memory."""
        found = [tensor for tensor, known in self.maps.items() if known == fm]
        if len(found) != 1:
            raise _refuse(f"map {fm} is copied", f"it is {len(found)} tensors of the template")
        copy = self.homes.find(fm, step, writes=False)
        source = self.place(found[0], None, step, writes=True)
        target = self.places.setdefault(
            (found[0], copy), self._new_place(found[0], fm, copy)
        )
        self._add(partition, CopyTensor(source=source, destination=target))

    def _add(self, partition: int, event: Event) -> None:
        if not isinstance(event, Touch) or event.places:
            self.events.append((partition, event))

    def _partition(self, segment: Segment) -> int:
        found = {kernel.partition for v in segment.ops for kernel in self.kernels[v]}
        if len(found) != 1:
            raise _refuse(
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
            raise _refuse(
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
            (role, self.place(use.tensor, kernel, step, writes=role == "ofm"))
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
            raise _refuse(f"op {run.op} has weights of {len(kernels)} kernels", "kept in SRAM")
        kernel = kernels[0]
        channels = (0, kernel.channels)
        place = self._weight_place(numbers[0], run, kernel, [channels])
        return [self._copy(run, kernel, channels, place)]

    def _copy(
        self, run: OpRun, kernel: TemplateKernel, channels: tuple[int, int], place: int
    ) -> CopyWeights:
        depth = self._block(run, kernel).c
        return CopyWeights(kernel=kernel.index, block_depth=depth, channels=channels, place=place)

    def _weight_place(
        self, number: int, run: OpRun, kernel: TemplateKernel, slices: Sequence[tuple[int, int]]
    ) -> int:
        """The place of a weight buffer, as large as what it holds."""
        key = (number, kernel.index)
        known = self.weight_places.get(key)
        if known is None:
            depth = self._block(run, kernel).c
            sizes = [len(self.constants.encode(kernel, depth, a, b).data) for a, b in slices]
            known = self.weight_places[key] = self.placing.add(
                memory=FAST if self.has_fast else ARENA,
                tensor=-1,
                size_bytes=align_up(max(sizes)),
                planned=self.homes.offsets[number],
                name=self.plan.buffers[number].name,
            )
        return known

    def _slices(self, step: int, run: OpRun) -> list[tuple[CopyWeights, tuple[int, int]]]:
        """Copy and channels of each depth slice of an op with staged weights."""
        assert run.buffering is not None
        numbers = self.homes.weights(run.op, step)
        own = self.kernels[run.op]
        if len(own) != 1:
            raise _refuse(f"op {run.op} is {len(own)} kernels", "its weights come in slices")
        (kernel,) = own
        borders = [*run.buffering.borders[:-1], kernel.channels]
        channels = list(pairwise(borders))
        buffers = max(1, min(run.buffering.buffers, len(numbers)))
        found = []
        for index, part in enumerate(channels):
            turn = index % buffers
            place = self._weight_place(numbers[turn], run, kernel, channels[turn::buffers])
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

    # --- places -----------------------------------------------------------------------------

    def place(self, tensor: int, kernel: TemplateKernel | None, step: int, *, writes: bool) -> int:
        """The place of a tensor of the template for a kernel of a segment (None: the host)."""
        fm = self.maps.get(tensor)
        if kernel is None:
            number = None if fm is None else self.homes.original(fm)
        else:
            number = self.homes.find(fm, step, writes=writes)
        key = (tensor, number)
        known = self.places.get(key)
        if known is None:
            known = self.places[key] = self._new_place(tensor, fm, number)
        return known

    def _new_place(self, tensor: int, fm: int | None, number: int | None) -> int:
        size, rows, over, planned, name = self.template.tensors[tensor].size_bytes, 0, None, None, ""
        if number is not None:
            buffer = self.plan.buffers[number]
            name = buffer.name
            planned = self.homes.offsets[number]
            if buffer.kind is BufferKind.ROLLING:
                rows = buffer.rows
                size = align_up(rows * self._pitch(tensor))
            if buffer.in_place_of is not None:
                if buffer.shift_bytes:
                    raise _refuse(f"{name!r} overlaps its input", "results over used rows")
                over = self._taken_over(buffer.in_place_of, buffer.first_step)
        return self.placing.add(
            memory=self.homes.memory(number, has_fast=self.has_fast),
            tensor=tensor,
            size_bytes=size,
            rows=rows,
            over=over,
            planned=planned,
            name=name or (f"map {fm}" if fm is not None else ""),
        )

    def _taken_over(self, fm: int, step: int) -> int | None:
        """The place that a result takes over."""
        number = self.homes.find(fm, step, writes=False)
        found = [
            place
            for (tensor, known), place in self.places.items()
            if known == number and self.maps.get(tensor) == fm
        ]
        if len(found) != 1:
            raise _refuse(f"a result takes over map {fm}", f"which has {len(found)} places")
        return found[0]

    def _pitch(self, tensor: int) -> int:
        """Row pitch of a tensor that is kept in rows; all its views must agree on it."""
        pitches = set()
        for own in self.kernels.values():
            for kernel in own:
                for role, use in kernel.uses:
                    if use.tensor == tensor:
                        view = getattr(kernel.state, role)
                        pitches.add((view.stride_y, use.delta_bytes))
        if len(pitches) != 1 or next(iter(pitches))[1]:
            raise _refuse(
                f"tensor {tensor} lies in a rolling buffer", f"but is seen with rows {pitches}"
            )
        return next(iter(pitches))[0]
