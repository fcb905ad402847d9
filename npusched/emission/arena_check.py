"""Does every tensor in the arena still hold its values when it is read? Across the whole file.

NPU operators and the host's ops share one arena, in which TFLM places tensors where the file says.
The simulator keeps the host's tensors apart, so it would not see one overwritten: this check
follows who wrote each byte last, operator by operator and kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from npusched.sim.container import SCRATCH, NpuOperator, planned_offsets
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span, Storage
from npusched.sim.program import LoadedDma, LoadedKernel, Program
from npusched.sim.run import Executable

_NOBODY = 0
_NPU = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaFinding:
    """A tensor that no longer holds its values: what reads it, in words."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


def check_arena(executable: Executable) -> tuple[ArenaFinding, ...]:
    """Return the tensors of the main subgraph that are overwritten before they are read last."""
    return tuple(_Checker(executable).run())


class _Checker:
    """Owner per byte of the arena: 0 nobody, -1 an NPU operator, n + 1 tensor n."""

    def __init__(self, executable: Executable) -> None:
        self.graph = executable.graph
        offsets = planned_offsets(executable.content, executable.file.model)[0]
        self.places = {
            tensor.index: (offsets[tensor.index], offsets[tensor.index] + tensor.size_bytes)
            for tensor in self.graph.tensors
            if offsets[tensor.index] >= 0 and not tensor.is_constant
        }
        self.operators = {
            each.op: (each, program)
            for each, program in zip(executable.file.operators, executable.programs, strict=True)
            if each.subgraph == self.graph.index
        }
        self.memories = {t for each, _ in self.operators.values() for t in each.memory_tensors}
        ends = [end for tensor, (_, end) in self.places.items() if tensor not in self.memories]
        for each, _ in self.operators.values():
            scratch = each.memory_tensors[0]
            ends.append(max(offsets[scratch], 0) + self.graph.tensors[scratch].size_bytes)
        self.offsets = offsets
        self.owner = np.zeros(max(ends, default=0), np.int32)

    def run(self) -> Iterator[ArenaFinding]:
        """Walk over the ops in order."""
        self.take(self.graph.inputs)
        for op in self.graph.ops:
            known = self.operators.get(op.index)
            where = f"op {op.index} ({op.custom_code or op.kind})"
            if known is None:
                yield from self.holds(op.inputs, where)
                self.take(op.outputs)
                yield from self.holds(op.inputs, f"{where}, while it writes")
                continue
            operator, program = known
            yield from self.holds((each.tensor.index for each in operator.inputs), where)
            yield from self.stream(operator, program, where)
            self.made(operator)
        yield from self.holds(self.graph.outputs, "the end")

    def take(self, tensors: Iterable[int]) -> None:
        """Let tensors own their bytes."""
        for tensor in tensors:
            if tensor in self.places:
                low, high = self.places[tensor]
                self.owner[low:high] = tensor + 1

    def made(self, operator: NpuOperator) -> None:
        """Let results own what NPU operators wrote of them, or what was an input (a view).

        Vela makes some results bit by bit, in several operators.
        """
        starts = {self.places[each.tensor.index][0]: each.tensor.index for each in operator.inputs}
        for each in operator.outputs:
            low, high = self.places[each.tensor.index]
            allowed = [_NPU, starts.get(low, each.tensor.index) + 1]
            others = self.owner[low:high]
            others[np.isin(others, allowed)] = each.tensor.index + 1

    def holds(self, tensors: Iterable[int], where: str) -> Iterator[ArenaFinding]:
        """Check that tensors own their bytes."""
        for tensor in tensors:
            if tensor not in self.places or tensor in self.memories:
                continue
            low, high = self.places[tensor]
            others = self.owner[low:high]
            wrong = np.flatnonzero(others != tensor + 1)
            if len(wrong):
                yield ArenaFinding(where=where, why=self.lost(tensor, low, wrong, others))

    def lost(self, tensor: int, low: int, wrong: Array, others: Array) -> str:
        """Say who has the bytes of a tensor."""
        owner = int(others[wrong[0]])
        by = "nobody wrote" if owner == _NOBODY else "the NPU overwrote"
        if owner > 0:
            by = f"{self.graph.tensors[owner - 1].name} overwrote"
        name = self.graph.tensors[tensor].name
        return f"{by} {len(wrong)} bytes of {name}, from {low + int(wrong[0])}"

    def stream(self, operator: NpuOperator, program: Program, where: str) -> Iterator[ArenaFinding]:
        """Follow a command stream: it reads what NPU operators wrote, or inputs of its own."""
        start = max(self.offsets[operator.memory_tensors[0]], 0)
        arena = self.owner[start:]
        allowed = {each.tensor.index + 1 for each in operator.inputs} | {_NPU}
        key = program.regions[SCRATCH].key
        for command in program.commands:
            if isinstance(command, LoadedKernel):
                for storage in command.reads:
                    if program.regions[storage.view.region].key == key:
                        yield from self.reads(storage, arena, allowed, command, where)
                if program.regions[command.ofm.view.region].key == key:
                    for part in command.ofm.bytes_of(arena):
                        part[...] = _NPU
            elif isinstance(command, LoadedDma):
                yield from self.copies(command, program, arena, allowed, where)

    def reads(
        self, storage: Storage, arena: Array, allowed: set[int], kernel: LoadedKernel, where: str
    ) -> Iterator[ArenaFinding]:
        """Check what a kernel reads."""
        found = {int(each) for part in storage.bytes_of(arena) for each in np.unique(part)}
        for owner in sorted(found - allowed):
            yield ArenaFinding(
                where=f"{where}, {kernel.state.label}", why=self.foreign(owner, storage.span)
            )

    def copies(
        self, dma: LoadedDma, program: Program, arena: Array, allowed: set[int], where: str
    ) -> Iterator[ArenaFinding]:
        """Check what a DMA reads of the arena, and let the NPU own what it writes there."""
        key = program.regions[SCRATCH].key
        if not dma.source.internal and program.regions[dma.source.region].key == key:
            low, high = dma.source_span
            for owner in sorted({int(each) for each in np.unique(arena[low:high])} - allowed):
                # Copies are rounded up to 16 bytes: what nobody wrote behind the end is harmless.
                if owner != _NOBODY:
                    yield ArenaFinding(
                        where=f"{where}, DMA {dma.index}", why=self.foreign(owner, (low, high))
                    )
        if not dma.destination.internal and program.regions[dma.destination.region].key == key:
            for low, high in dma.destination_spans:
                arena[low:high] = _NPU

    def foreign(self, owner: int, span: Span) -> str:
        """Say whose bytes were read."""
        if owner == _NOBODY:
            return f"it reads bytes {span[0]} to {span[1]}, some of which nobody wrote"
        name = self.graph.tensors[owner - 1].name
        return f"it reads bytes {span[0]} to {span[1]}, some of which {name} overwrote"
