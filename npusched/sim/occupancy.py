"""How many bytes of each memory are alive, over time.

A byte is alive from the start of the command that writes it to the end of the last one that reads
what was written. Bytes that the host writes live from the beginning; bytes that nothing reads
until the end are results and live to the end; what is overwritten unread lives while it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span
from npusched.sim.program import Command, LoadedDma, LoadedKernel, Program
from npusched.vela.stream import AddressRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Bytes alive in one writable memory: ``steps`` are (cycle, bytes from then on), by cycle.

    ``read_first_bytes`` were read before any command wrote them (the host's inputs),
    ``result_bytes`` were written and never read after.
    """

    memory: str
    steps: tuple[tuple[int, int], ...]
    read_first_bytes: int
    result_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at a time."""
        return max((size for _, size in self.steps), default=0)


def find_occupancy(
    program: Program,
    inputs: Sequence[tuple[int, Span]],
    starts: Sequence[int],
    ends: Sequence[int],
    total_cycles: int,
) -> tuple[Occupancy, ...]:
    """Return the occupancy of every writable memory. ``starts``, ``ends``: cycles per command."""
    count = len(program.commands)
    memories = {
        region.key: _Lives(region.name, region.size_bytes, count)
        for region in program.regions.values()
        if region.same_as is None and not region.is_read_only
    }
    keys = {index: region.key for index, region in program.regions.items()}
    for index, (low, high) in inputs:
        memories[keys[index]].host(low, high)
    for number, command in enumerate(program.commands):
        if isinstance(command, LoadedKernel | LoadedDma):
            _touch(memories, keys, number, command)
    times = np.array([time for pair in zip(starts, ends, strict=True) for time in pair], np.int64)
    return tuple(lives.occupancy(times, total_cycles) for _, lives in sorted(memories.items()))


def ordered_occupancy(
    program: Program, inputs: Sequence[tuple[int, Span]]
) -> tuple[Occupancy, ...]:
    """Return the occupancy with each command taking one step of time, one after the other."""
    count = len(program.commands)
    return find_occupancy(program, inputs, range(count), range(1, count + 1), count)


def _touch(
    memories: dict[int, _Lives], keys: dict[int, int], number: int, command: Command
) -> None:
    """Follow what one command reads, then what it writes."""
    reads, writes = (
        [(key, part) for key, part in parts if key in memories]
        for parts in _accesses(memories, keys, command)
    )
    for key, part in reads:
        memories[key].read(part, number)
    for key, part in writes:
        memories[key].write(part, number)


def _accesses(
    memories: dict[int, _Lives], keys: dict[int, int], command: Command
) -> tuple[list[tuple[int, Array]], list[tuple[int, Array]]]:
    """Byte numbers that a command reads and writes, by memory."""
    if isinstance(command, LoadedKernel):
        state = command.state
        reads = [
            (key, part)
            for storage in command.reads
            if (key := keys[storage.view.region]) in memories
            for part in storage.bytes_of(memories[key].numbers)
        ]
        reads += _ranges(memories, keys, (*state.weights, *state.scales))
        key = keys[state.ofm.region]
        return reads, [(key, part) for part in command.ofm.bytes_of(memories[key].numbers)]
    if isinstance(command, LoadedDma):
        low, high = command.source_span
        source = AddressRange(command.source.region, low, high - low, command.source.internal)
        target = command.destination
        written = [
            AddressRange(target.region, low, high - low, target.internal)
            for low, high in command.destination_spans
        ]
        return _ranges(memories, keys, (source,)), _ranges(memories, keys, written)
    return [], []


def _ranges(
    memories: dict[int, _Lives], keys: dict[int, int], parts: Sequence[AddressRange]
) -> list[tuple[int, Array]]:
    """Byte numbers of ranges in writable memories."""
    return [
        (
            keys[part.region],
            memories[keys[part.region]].numbers[part.address :][: part.length_bytes],
        )
        for part in parts
        if not part.internal and keys[part.region] in memories
    ]


class _Lives:
    """Per byte of a memory: who wrote it (1 + command, 0 = the host) and who read it last.

    Ends of lives are counted as events: 2 x command for its start, 2 x command + 1 for its end.
    """

    def __init__(self, name: str, size_bytes: int, commands: int) -> None:
        self.name = name
        self.numbers: Array = np.arange(size_bytes, dtype=np.int64)
        self._born = np.full(size_bytes, -1, np.int32)
        self._read = np.full(size_bytes, -1, np.int32)
        self._place = np.zeros(size_bytes, np.int32)
        self._changes = np.zeros(2 * commands + 1, np.int64)
        self._from_begin = 0
        self._read_first = 0

    def host(self, low: int, high: int) -> None:
        """The host writes bytes before the stream starts."""
        self._born[low:high] = 0

    def read(self, part: Array, command: int) -> None:
        """A command reads bytes."""
        numbers = part.reshape(-1)
        fresh = numbers[(self._born[numbers] <= 0) & (self._read[numbers] < 0)]
        self._born[fresh] = 0
        self._read_first += len(self._distinct(fresh))
        self._read[numbers] = command

    def write(self, part: Array, command: int) -> None:
        """A command writes bytes: what was there dies with its last reader."""
        numbers = self._distinct(part.reshape(-1))
        self._close(numbers, command)
        self._born[numbers] = command + 1
        self._read[numbers] = -1

    def _distinct(self, numbers: Array) -> Array:
        """Return the numbers, each once (strides of 0 repeat some)."""
        order = np.arange(len(numbers), dtype=np.int32)
        self._place[numbers] = order
        chosen: Array = numbers[self._place[numbers] == order]
        return chosen

    def _close(self, numbers: Array, command: int) -> None:
        """End the lives of bytes at their last reader, or at ``command`` if it is that itself."""
        born, read = self._born[numbers], self._read[numbers]
        used = (born > 0) | ((born == 0) & (read >= 0))
        born, read = born[used], read[used]
        unread = read < 0
        last = np.where(unread, 2 * (born - 1) + 1, 2 * read + 1)
        last = np.where(last > 2 * command, 2 * command, last)
        self._add(born, last)

    def _add(self, born: Array, last: Array | None) -> None:
        """Count lives."""
        host = born == 0
        self._from_begin += int(host.sum())
        np.add.at(self._changes, 2 * (born[~host] - 1), 1)
        if last is not None:
            np.add.at(self._changes, last, -1)

    def occupancy(self, times: Array, total_cycles: int) -> Occupancy:
        """Return the sum over time."""
        born, read = self._born, self._read
        written = born > 0
        results = written & (read < 0)
        self._add(born[results], None)
        others = (born >= 0) & (read >= 0)
        self._add(born[others], 2 * read[others] + 1)
        changes: dict[int, int] = {0: self._from_begin}
        for event in np.flatnonzero(self._changes).tolist():
            cycle = int(times[event])
            changes[cycle] = changes.get(cycle, 0) + int(self._changes[event])
        steps = []
        alive = 0
        for cycle in sorted(changes):
            alive += changes[cycle]
            steps.append((cycle, alive))
        if steps[-1][0] < total_cycles:
            steps.append((total_cycles, alive))
        return Occupancy(
            memory=self.name,
            steps=tuple(steps),
            read_first_bytes=self._read_first,
            result_bytes=int(results.sum()),
        )
