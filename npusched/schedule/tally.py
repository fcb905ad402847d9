"""Cost of a kernel in a plan, and the sum that it is made of."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from npusched.cost.types import BlockConfig, OpCost, WeightBytes


class KernelCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of all stripes of one op, and its value in the objective.

    ``cycles``: sum over stripes of max(NPU, memories); ``core_cycles``: the NPU alone. Bytes and
    busy cycles are by memory name.
    """

    block: BlockConfig | None
    weights: WeightBytes
    cycles: int
    core_cycles: int
    cpu_cycles: int
    macs: int
    busy: Mapping[str, int]
    read: Mapping[str, int]
    written: Mapping[str, int]
    score: float


class Places(msgspec.Struct, frozen=True, cache_hash=True):
    """Memories of an op's feature maps: (feature map id, memory), sorted by id."""

    of: tuple[tuple[int, str], ...]


class Tally:
    """Sums the stripes of one kernel."""

    def __init__(self) -> None:
        self.block: BlockConfig | None = None
        self.cycles = self.core = self.macs = 0
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.busy: dict[str, int] = {}

    def add(self, cost: OpCost, count: int, *, wait_cycles: int = 0) -> None:
        """Add ``count`` stripes that cost the same; in each the NPU waits for so many cycles."""
        core = cost.npu_cycles + wait_cycles
        self.block = cost.block
        self.cycles += count * max(core, cost.cycles)
        self.core += count * core
        self.macs += count * cost.macs
        busy, read, written = self.busy, self.read, self.written
        for name, access in cost.memory_cycles:
            busy[name] = busy.get(name, 0) + count * access
        for move in cost.transfers:
            name = move.memory
            read[name] = read.get(name, 0) + count * move.bytes_read
            written[name] = written.get(name, 0) + count * move.bytes_written

    def copy(self, size_bytes: int, source: str, destination: str, cycles: int) -> None:
        """A DMA that nothing hides."""
        self.cycles += cycles
        self.core += cycles
        self._move(source, size_bytes, 0)
        self._move(destination, 0, size_bytes)

    def _move(self, memory: str, read: int, written: int) -> None:
        self.read[memory] = self.read.get(memory, 0) + read
        self.written[memory] = self.written.get(memory, 0) + written
