"""Where Vela put everything: its ``tensors`` table as buffers of our feature maps and weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import FeatureMap, Placement
from npusched.hardware.target import Target
from npusched.memory import Allocation, align_up, lower_bound
from npusched.schedule.check_sharing import live_ranges
from npusched.schedule.lifetimes import Lifetime, lifetimes
from npusched.schedule.types import Buffer, BufferKind
from npusched.vela.match import Matching
from npusched.vela.records import VelaOp, VelaTensor
from npusched.vela.row_fields import memory_of

_WEIGHT_BUFFER = re.compile(r"WB_(single|double|double2)_\d+_op(\d+)")
"""Names of weight buffers: kind, bytes, index of the op (Vela 5.2.0, scheduler.cpp)."""

_UNNAMED = "<unnamed>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A segment of Vela's schedule: our ops, and the input copies that run before them."""

    ops: tuple[int, ...]
    copies: tuple[VelaOp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """All buffers with addresses. ``missing``: what has none, one sentence each.

    ``homes``: memory of every map that crosses segments. ``weight_buffers``: number of buffers of
    each op with staged weights.
    """

    buffers: tuple[Buffer, ...]
    allocations: tuple[tuple[str, Allocation], ...]
    homes: Mapping[int, str]
    weight_buffers: Mapping[int, int]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    def memory_at(self, tensor: int, step: int) -> str | None:
        """Memory that readers and writers of a map use in a segment; copies go first."""
        found = [
            buffer
            for buffer in self.buffers
            if buffer.tensor == tensor
            and buffer.kind is not BufferKind.WEIGHTS
            and buffer.first_step <= step < buffer.end_step
        ]
        return min(found, key=lambda b: not b.is_copy).memory if found else None


Placed = tuple[Buffer, int]
"""A buffer and its address."""


def locate(
    graph: OpGraph,
    target: Target,
    matching: Matching,
    tensors: Sequence[VelaTensor],
    cuts: Sequence[Cut],
) -> Located:
    """Find the address of every feature map and weight buffer of a matched schedule."""
    search = _Search(graph, target, matching, tensors, cuts)
    placed = [*search.feature_maps(), *search.copies(), *search.weights()]
    placed += search.left_to_runtime(placed)
    placed = _mark_takeovers(graph, placed)
    homes = {
        buffer.tensor: buffer.memory
        for buffer, _ in placed
        if buffer.kind is BufferKind.FEATURE_MAP and not buffer.is_copy
    }
    counts: dict[int, int] = defaultdict(int)
    for buffer, _ in placed:
        if buffer.kind is BufferKind.WEIGHTS:
            counts[buffer.tensor] += 1
    memories = sorted({buffer.memory for buffer, _ in placed})
    return Located(
        buffers=tuple(buffer for buffer, _ in placed),
        allocations=tuple((memory, _allocation(placed, memory)) for memory in memories),
        homes=homes,
        weight_buffers=counts,
        missing=tuple(search.missing),
        notes=tuple(search.notes),
    )


def _allocation(placed: Sequence[Placed], memory: str) -> Allocation:
    mine = [(buffer, offset) for buffer, offset in placed if buffer.memory == memory]
    return Allocation(
        offsets=tuple(offset for _, offset in mine),
        peak_bytes=max(offset + buffer.size_bytes for buffer, offset in mine),
        bound_bytes=lower_bound(live_ranges([buffer for buffer, _ in mine])),
    )


class _Search:
    """Looks tensors up by name, then by size and life."""

    def __init__(
        self,
        graph: OpGraph,
        target: Target,
        matching: Matching,
        tensors: Sequence[VelaTensor],
        cuts: Sequence[Cut],
    ) -> None:
        self.graph, self.target, self.matching, self.cuts = graph, target, matching, cuts
        self.lives = lifetimes(graph, target)
        self.segment_of = {v: index for index, cut in enumerate(cuts) for v in cut.ops}
        self.step_of = self._steps()
        self.by_name: dict[str, list[VelaTensor]] = defaultdict(list)
        self.by_size: dict[int, list[VelaTensor]] = defaultdict(list)
        for tensor in tensors:
            self.by_name[tensor.name].append(tensor)
            self.by_size[tensor.size_bytes].append(tensor)
        self.tensors = tensors
        self.used: set[int] = set()
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.unplaced: list[Buffer] = []

    def _steps(self) -> dict[int, int]:
        """Our segment of each of Vela's time steps (its times count half steps)."""
        found = {}
        for index, cut in enumerate(self.cuts):
            rows = [row for v in cut.ops for row in self.matching.rows[v]]
            for row in (*cut.copies, *rows):
                found[row.time_index // 2] = index
        return found

    def feature_maps(self) -> list[Placed]:
        """Maps that cross segments whole, maps inside a segment in rolling buffers."""
        placed = []
        names = self._names()
        for tensor, life in sorted(self.lives.items()):
            fm = self.graph.feature_maps[tensor]
            buffer = self._buffer(fm, life)
            found = self._find(names.get(tensor, fm.name) or _UNNAMED, buffer)
            if found is None:
                self._not_found(fm, life, buffer)
                continue
            self.used.add(found.id)
            rows, size = buffer.rows, buffer.size_bytes
            if buffer.kind is BufferKind.ROLLING:
                view = self.graph.ops[life.writers[0]].final_ofm.view
                rows, size = found.size_bytes // fm.viewed_row_bytes(view), found.size_bytes
            memory = memory_of(self.target, found.memory) or buffer.memory
            placed.append(
                (replace(buffer, memory=memory, rows=rows, size_bytes=size), found.start_address)
            )
        return placed

    def _buffer(self, fm: FeatureMap, life: Lifetime) -> Buffer:
        """The buffer that a map needs, in its memory by default."""
        last_step = len(self.cuts) - 1
        first = self.segment_of.get(life.first, 0) if life.first >= 0 else 0
        last = last_step if life.last >= len(self.graph.ops) else self.segment_of[life.last]
        cut = self.cuts[first] if self.cuts else Cut(ops=())
        inner = life.first in cut.ops[:-1] and life.last in cut.ops[1:]
        return Buffer(
            kind=BufferKind.ROLLING if inner else BufferKind.FEATURE_MAP,
            name=fm.name,
            tensor=fm.id,
            memory=self.target.roles.cache if inner else self.target.roles.arena,
            rows=fm.shape[1],
            size_bytes=life.size_bytes,
            first_step=first,
            end_step=max(last, first) + 1,
        )

    def _names(self) -> dict[int, str]:
        """Names that Vela gives the results of NPU ops: those of the last op of the group."""
        names: dict[int, str] = {}
        for op in self.graph.ops:
            if op.placement is Placement.NPU:
                row = self.matching.rows[op.id][0]
                last = row.followers[-1] if row.followers else row
                names.setdefault(op.final_ofm.tensor, last.name)
        return names

    def _find(self, name: str, buffer: Buffer) -> VelaTensor | None:
        """Vela's tensor of a map: by name, else by size and first step alone."""
        rolling = buffer.kind is BufferKind.ROLLING
        named = [t for t in self.by_name[name] if rolling or t.size_bytes == buffer.size_bytes]
        found = self._best(named, buffer)
        if found is None and not rolling:
            found = self._best(self.by_size[buffer.size_bytes], buffer, exact_start=True)
        return found

    def _best(
        self, tensors: Sequence[VelaTensor], buffer: Buffer, *, exact_start: bool = False
    ) -> VelaTensor | None:
        for tensor in tensors:
            first = self.step_of.get(tensor.start_time // 2, 0)
            last = self.step_of.get(tensor.end_time // 2, len(self.cuts) - 1)
            starts = first == buffer.first_step if exact_start else first <= buffer.first_step
            if tensor.id not in self.used and starts and last >= buffer.end_step - 1:
                return tensor
        return None

    def _not_found(self, fm: FeatureMap, life: Lifetime, buffer: Buffer) -> None:
        """Maps of CPU ops and variables are the runtime's; any other one must have a place."""
        users = (*life.readers, *life.writers)
        on_cpu = all(self.graph.ops[v].placement is Placement.CPU for v in users)
        if fm.is_persistent or on_cpu:
            self.unplaced.append(buffer)
        else:
            self.missing.append(
                f"Vela's tensors table has no place for {fm.name!r} ({buffer.size_bytes} bytes)"
            )

    def copies(self) -> list[Placed]:
        """Copies of graph inputs in the staging memory."""
        placed: list[Placed] = []
        for index, cut in enumerate(self.cuts):
            for row in cut.copies:
                tensor = self.graph.ops[cut.ops[0]].ifms[0].tensor
                fm = self.graph.feature_maps[tensor]
                found = next(iter(self.by_name[row.name]), None)
                if found is None:
                    self.missing.append(f"Vela's tensors table has no place for {row.name!r}")
                    continue
                buffer = Buffer(
                    kind=BufferKind.FEATURE_MAP,
                    name=row.name,
                    tensor=tensor,
                    memory=self.target.roles.cache,
                    rows=fm.shape[1],
                    size_bytes=found.size_bytes,
                    first_step=index,
                    end_step=index + 1,
                    is_copy=True,
                )
                placed.append((buffer, found.start_address))
        return placed

    def weights(self) -> list[Placed]:
        """Weight buffers by the op's index in Vela's list; one buffer may serve several ops."""
        rows = {v: self.matching.rows[v] for v in self.segment_of}
        positions = self._positions()
        owner = {positions[row.id]: v for v, found in rows.items() for row in found}
        served: dict[int, list[VelaTensor]] = defaultdict(list)
        for tensor in self.tensors:
            match = _WEIGHT_BUFFER.fullmatch(tensor.name)
            if match is not None and int(match[2]) in owner:
                served[owner[int(match[2])]].append(tensor)
        placed = []
        for v, found in rows.items():
            if all(row.weights is None or row.weights.buffering == "None" for row in found):
                continue
            mine = served.get(v) or self._shared(served, v)
            if not mine:
                self.missing.append(f"Vela's tensors table has no weight buffer of op {v}")
            placed += [self._weight_buffer(v, tensor) for tensor in mine]
        return placed

    def _weight_buffer(self, v: int, tensor: VelaTensor) -> Placed:
        """One buffer; Vela's times are half steps, which is what a prefetch needs."""
        step = self.segment_of[v]
        first = self.step_of.get(tensor.start_time // 2, step)
        last = self.step_of.get(tensor.end_time // 2, step)
        buffer = Buffer(
            kind=BufferKind.WEIGHTS,
            name=tensor.name,
            tensor=v,
            memory=memory_of(self.target, tensor.memory) or self.target.roles.cache,
            rows=0,
            size_bytes=align_up(tensor.size_bytes),
            first_step=min(first, step),
            end_step=max(last, step) + 1,
            late_start=first < step and tensor.start_time % 2 == 1,
            early_end=last >= step and tensor.end_time % 2 == 0,
        )
        return buffer, tensor.start_address

    def _positions(self) -> dict[int, int]:
        """Index of each row among all ops that Vela schedules, copies included."""
        rows = [row for found in self.matching.rows.values() for row in found]
        ordered = sorted((*rows, *self.matching.copies), key=lambda row: row.index)
        return {row.id: position for position, row in enumerate(ordered)}

    def _shared(self, served: Mapping[int, list[VelaTensor]], v: int) -> list[VelaTensor]:
        """The buffer of the op before, where it holds the same weights (VELA_SPEC_2 §7.1)."""
        mine = self.graph.ops[v].weights
        for before in range(v - 1, max(v - 3, -1), -1):
            theirs = self.graph.ops[before].weights
            if mine is not None and theirs is not None and theirs.key == mine.key:
                return list(served.get(before, ()))
        return []

    def left_to_runtime(self, placed: Sequence[Placed]) -> list[Placed]:
        """Maps that Vela leaves to the runtime go above everything else in the arena."""
        found: list[Placed] = []
        for buffer in self.unplaced:
            tops = [
                offset + other.size_bytes
                for other, offset in (*placed, *found)
                if other.memory == buffer.memory
            ]
            found.append((buffer, align_up(max(tops, default=0))))
        if found:
            size = sum(buffer.size_bytes for buffer, _ in found)
            self.notes.append(
                f"Vela gives {len(found)} tensors of CPU ops no address ({size} bytes): "
                "they are counted above its arena"
            )
        return found


def _mark_takeovers(graph: OpGraph, placed: Sequence[Placed]) -> list[Placed]:
    """Find results that are written over an input that ends there, at the same address."""
    at: dict[tuple[str, int, int], list[Buffer]] = defaultdict(list)
    for buffer, offset in placed:
        if buffer.kind is not BufferKind.WEIGHTS:
            at[buffer.memory, offset, buffer.size_bytes].append(buffer)
    result = []
    for buffer, offset in placed:
        old = None
        if buffer.kind is not BufferKind.WEIGHTS:
            reads = {
                access.tensor for v in graph.writers[buffer.tensor] for access in graph.ops[v].reads
            }
            for other in at[buffer.memory, offset, buffer.size_bytes]:
                ends_here = other.end_step == buffer.first_step + 1
                if other.tensor in reads and other.tensor != buffer.tensor and ends_here:
                    old = other.tensor
        result.append((replace(buffer, in_place_of=old), offset))
    return result
