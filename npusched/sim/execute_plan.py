"""Executes a plan: its segments stripe by stripe, through its buffers at their addresses.

Every memory is one array of bytes; whatever an op reads was written there by the op before it, in
the layout of the feature map, in rolling buffers by row mod rows. The results must equal those of
``interpret``, bit for bit. Constants (weights, tables, constant maps) are not stored as bytes;
the places of resident weights are marked, and must stay untouched until they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npusched.errors import PlanError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Access, FeatureMap, Layout, Placement, ScheduledOp
from npusched.schedule.check_sharing import address_faults
from npusched.schedule.issue import stripes_of
from npusched.schedule.lifetimes import storage
from npusched.schedule.types import Buffer, BufferKind, Plan, Segment
from npusched.sim.apply import compute, rows_needed
from npusched.sim.host_ops import HostOps
from npusched.sim.interpret import checked, constant_array, meanings_of, region_of
from npusched.sim.kernels.arrays import Array
from npusched.sim.meaning import Meaning, numpy_type
from npusched.sim.plan_memory import ByteMemory, Place


@dataclass(frozen=True, slots=True)
class Executed:
    """What a plan computed; arrays have storage shapes, but for those of ``rolled``.

    ``tensors``: feature map id -> values, read back from its buffer after the segment that
    completes it. ``rolled``: maps that only ever exist row by row, as their rows were written, in
    the shape that the writer sees (rows that nobody needs are zeros; ``rolled_rows``: id -> rows
    made). ``outputs``: the
    graph's outputs, read back after the last segment.
    """

    tensors: dict[int, Array]
    rolled: dict[int, Array]
    rolled_rows: dict[int, int]
    outputs: tuple[Array, ...]


class PlanExecutor:
    """A plan of a graph, ready to run on any number of inputs.

    ``is_checked``: refuse reads of rows and bytes that something else has overwritten; without it
    such reads give what the bytes hold. ``single_rounding``: see ``meaning_of``. ``host`` runs the
    CPU ops. Raises SimError for ops that cannot be executed, PlanError for plans that have no
    addresses.
    """

    def __init__(
        self,
        graph: OpGraph,
        plan: Plan,
        *,
        is_checked: bool = True,
        single_rounding: bool = True,
        host: HostOps | None = None,
    ) -> None:
        self.graph, self.plan, self.is_checked, self.host = graph, plan, is_checked, host
        self.meanings = meanings_of(graph, single_rounding=single_rounding, host=host)
        self.offsets = _offsets(plan)
        if is_checked:
            check_addresses(plan)
        self.same = storage(graph)

    def run(self, inputs: Sequence[Array]) -> Executed:
        """Run on one array per graph input (as stored, any shape of the right size).

        Raises SimError for inputs of another number or size, PlanError for accesses outside a
        buffer and (checked) for values that are not where the plan says.
        """
        return self.run_batch([inputs])[0]

    def run_batch(self, batch: Sequence[Sequence[Array]]) -> list[Executed]:
        """Like ``run``, for several inputs, each in memories of its own; CPU ops run on all."""
        runs = [_Execution(self, checked(self.graph, inputs)) for inputs in batch]
        for step, segment in enumerate(self.plan.segments):
            if segment.placement is Placement.NPU or self.host is None:
                for run in runs:
                    run.run_segment(step, segment)
                continue
            (v,) = segment.ops
            op = self.graph.ops[v]
            given = [run.give_host(step, segment, self.host.reads(op)) for run in runs]
            for run, results in zip(runs, self.host.run(op, given), strict=True):
                run.take_from_host(op, results)
        return [run.executed() for run in runs]

    @property
    def memory_bytes(self) -> int:
        """Bytes that the memories of one run take here, tags included."""
        return sum(9 * allocation.peak_bytes for _, allocation in self.plan.allocations)


def execute_plan(
    graph: OpGraph,
    plan: Plan,
    inputs: Sequence[Array],
    *,
    is_checked: bool = True,
    single_rounding: bool = True,
) -> Executed:
    """Run a plan once (see ``PlanExecutor``)."""
    executor = PlanExecutor(graph, plan, is_checked=is_checked, single_rounding=single_rounding)
    return executor.run(inputs)


def _offsets(plan: Plan) -> list[int]:
    """Address of each of the plan's buffers in its memory."""
    by_memory = {
        memory: dict(
            zip(
                (k for k, buffer in enumerate(plan.buffers) if buffer.memory == memory),
                allocation.offsets,
                strict=True,
            )
        )
        for memory, allocation in plan.allocations
    }
    missing = {buffer.memory for buffer in plan.buffers} - set(by_memory)
    if missing:
        raise PlanError("the plan has no addresses", f"for {', '.join(sorted(missing))}")
    return [by_memory[buffer.memory][k] for k, buffer in enumerate(plan.buffers)]


def check_addresses(plan: Plan) -> None:
    """Refuse buffers that share bytes while both are needed (PlanError)."""
    for memory, allocation in plan.allocations:
        faults = address_faults(plan.in_memory(memory), allocation)
        if faults:
            raise PlanError(f"the plan's addresses in {memory} are wrong", faults[0])


class _Execution:
    """One run: memories, and what has been made."""

    def __init__(self, executor: PlanExecutor, inputs: Sequence[Array]) -> None:
        self.graph, self.plan = executor.graph, executor.plan
        self.meanings, self.offsets, self.same = executor.meanings, executor.offsets, executor.same
        self.is_checked = executor.is_checked
        self.memories = {
            memory: ByteMemory(memory, allocation.peak_bytes, executor.is_checked)
            for memory, allocation in self.plan.allocations
        }
        self.step = 0
        self.segment: Segment
        self.rolled: dict[int, Array] = {}
        self.rolled_rows: dict[int, int] = {}
        self.last_writer = {t: ops[-1] for t, ops in self.graph.writers.items() if ops}
        for fm in self.graph.feature_maps.values():
            if fm.is_persistent and fm.id not in self.same:
                self._store(fm, np.zeros(fm.shape, numpy_type(fm.dtype)))
        for tensor, values in zip(self.graph.inputs, inputs, strict=True):
            self._store(self.graph.feature_maps[tensor], values)
        self.tensors = {tensor: self._whole(tensor) for tensor in self.graph.inputs}

    def run_segment(self, step: int, segment: Segment) -> None:
        """Run all ops of an NPU segment."""
        self._begin(step, segment)
        self._run_ops()
        self._claim_weights(late=True)
        self._keep(segment.ops)

    def give_host(self, step: int, segment: Segment, reads: Sequence[int]) -> dict[int, Array]:
        """Begin a CPU op: what the memories hold of these inputs, by position."""
        self._begin(step, segment)
        (v,) = segment.ops
        op = self.graph.ops[v]
        return {k: self._read(op.ifms[k], None, None) for k in reads}

    def take_from_host(self, op: ScheduledOp, results: Mapping[int, Array]) -> None:
        """End a CPU op: store its results, by position."""
        for position, values in results.items():
            access = op.ofms[position]
            place = self._find(access.tensor, writes=True)
            self.memories[place.memory].write(place, access, values)
            self.tensors[access.tensor] = self._whole(access.tensor)
        self._claim_weights(late=True)

    def executed(self) -> Executed:
        """What has been computed; the outputs are read back now."""
        outputs = tuple(self._output(tensor) for tensor in self.graph.outputs)
        return Executed(self.tensors, self.rolled, self.rolled_rows, outputs)

    def _keep(self, ops: Sequence[int]) -> None:
        """Read back the maps that these ops have completed."""
        for v in ops:
            tensor = self.graph.ops[v].final_ofm.tensor
            if self.last_writer[tensor] == v and not self._find(tensor, writes=True).rolling_rows:
                self.tensors[tensor] = self._whole(tensor)

    # --- one segment -----------------------------------------------------------------------

    def _begin(self, step: int, segment: Segment) -> None:
        """Mark weights that arrive now, and copy maps that this segment reads elsewhere."""
        self.step, self.segment = step, segment
        self._claim_weights(late=False)
        for copy in self.segment.copies:
            access = _whole_access(self.graph.feature_maps[copy.tensor])
            source = self._find(copy.tensor, memory=copy.source)
            place = self._find(copy.tensor, memory=copy.destination, copies=True)
            values = self.memories[source.memory].read(source, access)
            self.memories[place.memory].write(place, access, values)

    def _claim_weights(self, *, late: bool) -> None:
        for k, buffer in enumerate(self.plan.buffers):
            starts = buffer.first_step == self.step and buffer.late_start == late
            if buffer.kind is BufferKind.WEIGHTS and starts:
                self.memories[buffer.memory].claim(self._place(k, buffer))

    def _run_ops(self) -> None:
        made = {self.graph.ops[v].final_ofm.tensor for v in self.segment.ops}
        rolling = {t for t in made if self._find(t, writes=True).rolling_rows}
        for v, start, end in stripes_of(self.graph, self.segment, rolling):
            total = self.graph.ops[v].ofm.shape[1]
            self._check_weights(v)
            for meaning in self.meanings[v]:
                self._kernel(meaning, (start, end) if end - start < total else None)

    def _check_weights(self, v: int) -> None:
        if not self.is_checked:
            return
        for k, buffer in enumerate(self.plan.buffers):
            if buffer.kind is BufferKind.WEIGHTS and buffer.tensor == v and self._lives(buffer):
                self.memories[buffer.memory].check_claim(self._place(k, buffer))

    def _kernel(self, meaning: Meaning, rows: tuple[int, int] | None) -> None:
        """Run one kernel on some rows: read, compute, write."""
        op = meaning.op
        if rows is not None and any(a.step_h > 1 for a in (*op.ifms, op.final_ofm)):
            raise PlanError(f"op {op.id} runs in stripes", "but it touches every second row only")
        target = self._find(op.final_ofm.tensor, writes=True)
        if self.is_checked and self.plan.buffers[target.number].shift_bytes:
            # what it overwrites is gone before it reads: a kernel writes while it reads
            self.memories[target.memory].reserve(target, op.final_ofm, rows)
        values = []
        for position, access in enumerate(op.ifms):
            needed = None if rows is None else rows_needed(op, position, *rows)
            values.append(self._read(access, needed, target))
        result = compute(meaning, values, rows)
        self.memories[target.memory].write(target, op.final_ofm, result, rows)
        if target.rolling_rows:
            self._note(op, result, rows)

    def _read(self, access: Access, rows: tuple[int, int] | None, target: Place | None) -> Array:
        fm = self.graph.feature_maps[access.tensor]
        if fm.is_constant:
            part = region_of(constant_array(fm), access)
            return part if rows is None else part[:, rows[0] : rows[1]]
        place = self._find(access.tensor)
        if self.is_checked and target is not None:
            self._check_apart(place, target)
        return self.memories[place.memory].read(place, access, rows)

    def _check_apart(self, source: Place, target: Place) -> None:
        """A kernel may write over what it reads only where the plan says so."""
        if source.memory != target.memory or source.number == target.number:
            return
        over = self.plan.buffers[target.number].in_place_of
        if over == self.plan.buffers[source.number].tensor:
            return
        if source.offset_bytes < target.end_bytes and target.offset_bytes < source.end_bytes:
            raise PlanError(
                f"{target.name!r} is written over {source.name!r}, which is being read",
                f"at {target.offset_bytes} and {source.offset_bytes} of {source.memory}",
            )

    def _note(self, op: ScheduledOp, result: Array, rows: tuple[int, int] | None) -> None:
        """Remember the rows of a map that never exists as a whole."""
        written = op.final_ofm
        if written.tensor not in self.rolled:
            self.rolled[written.tensor] = np.zeros(written.view, result.dtype)
        start, end = rows or (0, written.view[1])
        self.rolled[written.tensor][:, start:end] = result
        self.rolled_rows[written.tensor] = end

    # --- buffers ---------------------------------------------------------------------------

    def _lives(self, buffer: Buffer) -> bool:
        return buffer.first_step <= self.step < buffer.end_step

    def _find(
        self,
        tensor: int,
        *,
        memory: str | None = None,
        copies: bool | None = None,
        writes: bool = False,
    ) -> Place:
        """The place of a map in this segment: a copy, if there is one and it is read."""
        stored = self.same.get(tensor, tensor)
        found = [
            (k, buffer)
            for k, buffer in enumerate(self.plan.buffers)
            if buffer.kind is not BufferKind.WEIGHTS
            and buffer.tensor == stored
            and self._lives(buffer)
            and memory in (None, buffer.memory)
            and not (writes and buffer.is_copy)
            and copies in (None, buffer.is_copy)
        ]
        if not found:
            name = self.graph.feature_maps[tensor].name
            raise PlanError(f"{name!r} has no buffer in segment {self.step}")
        k, buffer = max(found, key=lambda item: item[1].is_copy)
        return self._place(k, buffer)

    def _place(self, number: int, buffer: Buffer) -> Place:
        rolls = buffer.kind is BufferKind.ROLLING
        if rolls and buffer.rows < 1:
            raise PlanError(f"the rolling buffer of {buffer.name!r} has no rows")
        is_map = buffer.kind is not BufferKind.WEIGHTS
        return Place(
            number=number,
            name=buffer.name,
            memory=buffer.memory,
            offset_bytes=self.offsets[number],
            size_bytes=buffer.size_bytes,
            layout=self.graph.feature_maps[buffer.tensor].layout if is_map else Layout.NHWC,
            rolling_rows=buffer.rows if rolls else 0,
        )

    def _store(self, fm: FeatureMap, values: Array) -> None:
        place = self._find(fm.id, writes=True)
        self.memories[place.memory].write(place, _whole_access(fm), values.reshape(fm.shape))

    def _whole(self, tensor: int) -> Array:
        """All of a map; bricks are laid out in the shape that its writers saw."""
        fm = self.graph.feature_maps[tensor]
        place = self._find(tensor, writes=True)
        access = _whole_access(fm)
        writers = self.graph.writers[tensor]
        if writers and place.layout is not Layout.NHWC:
            written = self.graph.ops[writers[-1]].final_ofm
            access = Access(
                tensor=tensor, shape=written.view, view=written.view, dtype=written.dtype
            )
        values = self.memories[place.memory].read(place, access)
        return values.reshape(-1).view(numpy_type(fm.dtype)).reshape(fm.shape)

    def _output(self, tensor: int) -> Array:
        fm = self.graph.feature_maps[tensor]
        return constant_array(fm).reshape(fm.shape) if fm.is_constant else self._whole(tensor)


def _whole_access(fm: FeatureMap) -> Access:
    return Access(tensor=fm.id, shape=fm.shape, view=fm.shape, dtype=fm.dtype)
