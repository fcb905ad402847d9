"""Is every byte that a kernel reads the one that the plan means? Without executing anything.

Bytes in memory carry a tag: the tensor, and which byte of it. What a kernel reads and writes is
taken from the registers of the finished file; what it should be, from the records of what was
planned. So a rolling buffer that is a row short, or a kernel in the wrong order, is found even
where values happen to be equal (SIM.md §5 "Version tags").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from npusched.emission.parts import BufferUse, Emitted, KernelRecord
from npusched.sim.container import SCRATCH, NpuOperator
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Storage
from npusched.sim.program import LoadedDma, LoadedKernel, Program
from npusched.sim.run import Executable

MAX_FAULTS = 100
"""Faults that are listed: one mistake shows in every kernel behind it."""

_NOTHING = -1
_CONSTANT = -2
_SHIFT = 40
"""Tags: tensor << 40 | byte. Tensors of the file (made by the host) count from ``_HOST`` on."""

_HOST = 1 << 22
_BYTE = (1 << _SHIFT) - 1


def find_tag_faults(executable: Executable, emitted: Emitted) -> tuple[str, ...]:
    """Return the reads of bytes that are not those of the plan, and records that do not fit."""
    faults = []
    for fault in _Checker(executable, emitted).run():
        faults.append(fault)
        if len(faults) == MAX_FAULTS:
            break
    return tuple(faults)


@dataclass(slots=True)
class _Names:
    """Which tensor of the records is which tensor of the file, learned where they meet."""

    of_host: dict[int, int] = field(default_factory=dict)
    of_record: dict[int, int] = field(default_factory=dict)

    def same(self, host: int, record: int) -> bool:
        """True if both name one tensor (or nothing speaks against it yet)."""
        known = self.of_host.setdefault(host, record), self.of_record.setdefault(record, host)
        return known == (record, host)


class _Checker:
    """Walks over the file in order of execution."""

    def __init__(self, executable: Executable, emitted: Emitted) -> None:
        self.executable = executable
        self.emitted = emitted
        self.graph = executable.graph
        self.names = _Names()
        self.tags: dict[int, Array] = {}
        self.places: dict[int, Array] = {}
        for operator, program in zip(executable.file.operators, executable.programs, strict=True):
            for tensor, region in zip(operator.memory_tensors, (1, 2), strict=True):
                size = program.regions[region].size_bytes
                self.tags[tensor] = np.full(size, _NOTHING, np.int64)
                self.places[tensor] = np.arange(size, dtype=np.int64)

    def run(self) -> Iterator[str]:
        """Check operator by operator."""
        numbers = {each.op: n for n, each in enumerate(self.executable.file.operators)}
        streams = {stream.partition: stream for stream in self.emitted.streams}
        self.host_writes(self.graph.inputs)
        for op in self.graph.ops:
            number = numbers.get(op.index)
            if number is None:
                yield from self.host_reads(op.inputs, f"op {op.index}")
                self.host_writes(op.outputs)
                continue
            yield from self.stream(number, streams[number].kernels)
        yield from self.host_reads(self.graph.outputs, "the end")

    def host_spans(self, tensors: Iterable[int]) -> Iterator[tuple[int, Array, int]]:
        """Return tensor, tags and size of those that lie in the arena."""
        scratch = self.executable.file.operators[0].memory_tensors[0]
        arena = self.tags[scratch]
        base = max(self.emitted.addresses.get(scratch, 0), 0)
        for index in tensors:
            tensor = self.graph.tensors[index] if index >= 0 else None
            if tensor is None or tensor.is_constant:
                continue
            at = self.emitted.addresses.get(index, -1) - base
            if 0 <= at <= len(arena) - tensor.size_bytes:
                yield index, arena[at : at + tensor.size_bytes], tensor.size_bytes

    def host_writes(self, tensors: Iterable[int]) -> None:
        """The host makes tensors."""
        for index, tags, size in self.host_spans(tensors):
            tags[:] = (_HOST + index << _SHIFT) + np.arange(size)

    def host_reads(self, tensors: Iterable[int], where: str) -> Iterator[str]:
        """The host reads tensors: all their bytes, of one tensor, in order."""
        for index, tags, size in self.host_spans(tensors):
            wrong = tags & _BYTE != np.arange(size)
            for owner in np.unique(tags >> _SHIFT).tolist():
                if owner < 0 or not self.is_same(owner, index):
                    wrong |= tags >> _SHIFT == owner
            if wrong.any():
                name = self.graph.tensors[index].name
                yield f"{where}: {int(wrong.sum())} of {size} bytes of {name} are not its own"

    def is_same(self, owner: int, index: int) -> bool:
        """True if an owner of bytes is tensor ``index`` of the file."""
        if owner >= _HOST:
            return owner - _HOST == index
        return self.names.same(index, owner)

    def stream(self, number: int, records: tuple[KernelRecord, ...]) -> Iterator[str]:
        """Check one operator's kernels against their records."""
        operator = self.executable.file.operators[number]
        program = self.executable.programs[number]
        if len(program.kernels) != len(records):
            yield f"operator {number} has {len(program.kernels)} kernels, {len(records)} records"
            return
        left = iter(records)
        for command in program.commands:
            if isinstance(command, LoadedDma):
                self.copy(operator, program, command)
            elif isinstance(command, LoadedKernel):
                where = f"operator {number}, {command.state.label}"
                yield from self.kernel(operator, program, command, next(left), where)

    def memory(self, operator: NpuOperator, program: Program, region: int) -> int | None:
        """Return the memory (its tensor) that a region is, None for constants."""
        found = program.regions[region]
        if found.is_read_only:
            return None
        return operator.memory_tensors[0 if found.key == SCRATCH else 1]

    def copy(self, operator: NpuOperator, program: Program, dma: LoadedDma) -> None:
        """Copied bytes keep their tags."""
        if dma.destination.internal:
            return
        target = self.memory(operator, program, dma.destination.region)
        assert target is not None
        source = self.memory(operator, program, dma.source.region)
        low, high = dma.source_span
        moved = (
            np.full(high - low, _CONSTANT) if source is None else self.tags[source][low:high].copy()
        )
        for row, (start, end) in enumerate(dma.destination_spans):
            begin = row * dma.length_bytes
            self.tags[target][start:end] = moved[begin : begin + dma.length_bytes]

    def kernel(
        self,
        operator: NpuOperator,
        program: Program,
        kernel: LoadedKernel,
        record: KernelRecord,
        where: str,
    ) -> Iterator[str]:
        """Check what a kernel reads, then tag what it writes."""
        uses = {use.role: use for use in record.buffers}
        views = (("ifm", kernel.ifm), ("ifm2", kernel.ifm2), ("ofm", kernel.ofm))
        for role, storage in views:
            if storage is None:
                continue
            memory = self.memory(operator, program, storage.view.region)
            use = uses.get(role)
            if memory is None and use is None:
                continue
            if memory is None or use is None or use.region != storage.view.region:
                yield f"{where}: its {role} is in region {storage.view.region}, its record says no"
                continue
            if use.rows != storage.view.h:
                yield f"{where}: its {role} has {storage.view.h} rows, its record {use.rows}"
                continue
            base, planned = storage.view.bases[0], _base(use)
            if base != planned:
                yield (
                    f"{where}: its {role} begins at {base}, row {use.first_row} of {use.name} is "
                    f"at {planned}"
                )
                continue
            yield from self.touch(memory, storage, use, where)

    def touch(self, memory: int, storage: Storage, use: BufferUse, where: str) -> Iterator[str]:
        """Compare the tags of a feature map that is read, or set those of one that is written."""
        wrong = total = 0
        pieces = zip(
            storage.pieces,
            storage.bytes_of(self.tags[memory]),
            storage.bytes_of(self.places[memory]),
            strict=True,
        )
        for piece, tags, places in pieces:
            wanted = places - use.address + _row_shift(use, piece.rows, places.ndim)
            if use.role == "ofm":
                tags[...] = (use.tensor << _SHIFT) + wanted
                continue
            total += tags.size
            wrong += int((~self.fits(tags, wanted, use.tensor)).sum())
        if wrong:
            yield (
                f"{where}: {wrong} of {total} bytes of its {use.role} ({use.name}, rows "
                f"{use.first_row} to {use.first_row + use.rows}) are not those that are meant"
            )

    def fits(self, tags: Array, wanted: Array, tensor: int) -> Array:
        """Return which tags are those of the wanted bytes of a tensor."""
        owners = tags >> _SHIFT
        right: Array = owners == tensor
        for owner in np.unique(owners).tolist():
            if owner >= _HOST and self.names.same(owner - _HOST, tensor):
                right |= owners == owner
        right &= tags & _BYTE == wanted
        return right


def _base(use: BufferUse) -> int:
    """Return the address of the first row that is touched."""
    row = use.first_row % use.capacity_rows if use.capacity_rows else use.first_row
    return use.address + use.row_zero_bytes + row * use.row_bytes


def _row_shift(use: BufferUse, rows: slice, axes: int) -> Array | int:
    """Return how far bytes of each row lie from where they would in the whole tensor."""
    if not use.capacity_rows:
        return 0
    absolute = use.first_row + np.arange(rows.start, rows.stop)
    shift: Array = (absolute - absolute % use.capacity_rows) * use.row_bytes
    return shift.reshape(-1, *(1,) * (axes - 1))
