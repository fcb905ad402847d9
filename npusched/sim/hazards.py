"""Static checks of a program, without data: order of commands, and what is read before written.

Commands run concurrently: kernels and DMAs are two queues that only waits synchronise, and a
kernel may start while its predecessor still computes its last blocks (BLOCKDEP). Rules: SIM.md
§5, EMIT.md §5. What happens between kernels that are not neighbours, and whether a kernel may
write over what its predecessor reads, is assumed safe, as Vela assumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from npusched.hardware.target import Family
from npusched.sim.blockdep import BlockDependency
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span, Storage
from npusched.sim.program import (
    INTERNAL,
    LoadedDma,
    LoadedKernel,
    Program,
    Wait,
    table_range,
)
from npusched.vela.stream import AddressRange

MAX_KERNELS = 2
"""Kernels in flight (VELA_SPEC §1.1)."""

MAX_DMAS = {Family.U55: 1, Family.U65: 2}
"""DMAs in flight (VELA_SPEC §1.1)."""


class HazardKind(StrEnum):
    """What is wrong."""

    MISSING_DMA_WAIT = "missing_dma_wait"
    MISSING_KERNEL_WAIT = "missing_kernel_wait"
    BLOCK_DEPENDENCY = "block_dependency"
    UNINITIALISED = "uninitialised"
    STALE_ROWS = "stale_rows"
    SHRAM = "shram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """One finding: what, at which command (byte of the stream), in words."""

    kind: HazardKind
    offset_bytes: int
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} (byte {self.offset_bytes}): {self.why}"


@dataclass(slots=True)
class _Shadow:
    """Per byte of a memory: who touched it last (sequence numbers from 1, 0 = nobody)."""

    dma_write: Array
    dma_read: Array
    kernel_write: Array
    kernel_read: Array
    is_written: Array

    @staticmethod
    def of(size: int, *, is_written: bool) -> _Shadow:
        """Return the shadow of ``size`` bytes."""
        return _Shadow(
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.zeros(size, np.int32),
            np.full(size, is_written),
        )


def find_hazards(
    program: Program,
    inputs: Iterable[tuple[int, Span]] = (),
    written: dict[int, Array] | None = None,
) -> tuple[Hazard, ...]:
    """Return all findings, in command order.

    ``inputs`` are (region, span) of bytes that the host writes before the stream starts.
    ``written``: per region key, which bytes earlier streams wrote; updated in place. A correct
    stream has no findings.
    """
    checker = _Checker(program, inputs, written or {})
    for command in program.commands:
        if isinstance(command, Wait):
            checker.wait(command)
        elif isinstance(command, LoadedDma):
            checker.dma(command)
        else:
            checker.kernel(command)
    if written is not None:
        written.update({key: shadow.is_written for key, shadow in checker.shadows.items()})
    return tuple(checker.found)


class _Checker:
    """Walks commands in order."""

    def __init__(
        self,
        program: Program,
        inputs: Iterable[tuple[int, Span]],
        written: Mapping[int, Array],
    ) -> None:
        self.machine = program.machine
        self.keys = {index: region.key for index, region in program.regions.items()}
        self.shadows = {
            region.key: _Shadow.of(region.size_bytes, is_written=region.is_read_only)
            for region in program.regions.values()
            if region.same_as is None
        }
        self.shadows[INTERNAL] = _Shadow.of(self.machine.shram_bytes, is_written=False)
        for key, mask in written.items():
            self.shadows[key].is_written |= mask
        for index, (low, high) in inputs:
            self.shadows[self.keys[index]].is_written[low:high] = True
        self.found: list[Hazard] = []
        self.kernels = self.kernels_done = 0
        self.dmas = self.dmas_done = 0
        self.max_dmas = MAX_DMAS.get(self.machine.family, 1)
        self.blocks = BlockDependency(
            {region.key: region.size_bytes for region in program.regions.values()}, self.keys
        )

    def report(self, kind: HazardKind, offset_bytes: int, where: str, why: str) -> None:
        """Add a finding."""
        self.found.append(Hazard(kind=kind, offset_bytes=offset_bytes, where=where, why=why))

    def wait(self, wait: Wait) -> None:
        """All but the last ``outstanding`` of a queue are done."""
        if wait.is_kernel:
            self.kernels_done = max(self.kernels_done, self.kernels - wait.outstanding)
        else:
            self.dmas_done = max(self.dmas_done, self.dmas - wait.outstanding)

    def shadow(self, part: AddressRange) -> _Shadow:
        """Return the shadow of a range's memory."""
        return self.shadows[INTERNAL if part.internal else self.keys[part.region]]

    def dma(self, dma: LoadedDma) -> None:
        """Check a DMA against kernels and DMAs in flight."""
        where = f"DMA {dma.index}"
        source, target = self.shadow(dma.source), self.shadow(dma.destination)
        low, high = dma.source_span
        kernels = _in_flight(source.kernel_write[low:high], self.kernels_done)
        dmas = _in_flight(source.dma_write[low:high], self.dmas_done)
        for start, end in dma.destination_spans:
            kernels |= _in_flight(target.kernel_write[start:end], self.kernels_done)
            kernels |= _in_flight(target.kernel_read[start:end], self.kernels_done)
            dmas |= _in_flight(target.dma_write[start:end], self.dmas_done)
            dmas |= _in_flight(target.dma_read[start:end], self.dmas_done)
        if kernels:
            self.report(
                HazardKind.MISSING_KERNEL_WAIT,
                dma.offset_bytes,
                where,
                "it touches bytes of a kernel that may still run",
            )
        if dmas:
            self.report(
                HazardKind.MISSING_DMA_WAIT,
                dma.offset_bytes,
                where,
                "it touches bytes of a DMA that may still run",
            )
        self.dmas += 1
        self.dmas_done = max(self.dmas_done, self.dmas - self.max_dmas)
        written = source.is_written[low:high].reshape(dma.rows, -1)
        source.dma_read[low:high] = self.dmas
        for row, (start, end) in enumerate(dma.destination_spans):
            target.dma_write[start:end] = self.dmas
            target.is_written[start:end] = written[row]

    def kernel(self, kernel: LoadedKernel) -> None:
        """Check a kernel against DMAs in flight and its predecessor."""
        state = kernel.state
        self.blocks.check(kernel, self.kernels_done < self.kernels, self._block_hazard)
        self.kernels += 1
        conflict = unwritten = 0
        for storage in kernel.reads:
            shadow = self.shadows[self.keys[storage.view.region]]
            conflict |= _any_in_flight(storage, shadow.dma_write, self.dmas_done)
            unwritten += sum(int((~part).sum()) for part in storage.bytes_of(shadow.is_written))
            for part in storage.bytes_of(shadow.kernel_read):
                part[...] = self.kernels
        for constant in self._constants(kernel):
            shadow = self.shadow(constant)
            place = slice(constant.address, constant.address + constant.length_bytes)
            conflict |= _in_flight(shadow.dma_write[place], self.dmas_done)
            unwritten += int((~shadow.is_written[place]).sum())
            shadow.kernel_read[place] = self.kernels
        ofm = self.shadows[self.keys[state.ofm.region]]
        conflict |= _any_in_flight(kernel.ofm, ofm.dma_write, self.dmas_done)
        conflict |= _any_in_flight(kernel.ofm, ofm.dma_read, self.dmas_done)
        for part in kernel.ofm.bytes_of(ofm.kernel_write):
            part[...] = self.kernels
        for part in kernel.ofm.bytes_of(ofm.is_written):
            part[...] = True
        if state.table is None and not self.machine.keeps_tables:
            tables = self.shadows[INTERNAL]
            conflict |= _in_flight(tables.dma_write, self.dmas_done)
            tables.kernel_write[:] = self.kernels
        if conflict:
            self.report(
                HazardKind.MISSING_DMA_WAIT,
                state.offset_bytes,
                state.label,
                "it touches bytes of a DMA that may still run",
            )
        if unwritten:
            self.report(
                HazardKind.UNINITIALISED,
                state.offset_bytes,
                state.label,
                f"it reads {unwritten} bytes that nobody wrote",
            )
        self.kernels_done = max(self.kernels_done, self.kernels - MAX_KERNELS)

    def _constants(self, kernel: LoadedKernel) -> list[AddressRange]:
        """Weights, scales and table of a kernel."""
        table = table_range(kernel.state, self.machine)
        parts = [*kernel.state.weights, *kernel.state.scales]
        return parts if table is None else [*parts, table]

    def _block_hazard(self, kernel: LoadedKernel, why: str) -> None:
        state = kernel.state
        self.report(HazardKind.BLOCK_DEPENDENCY, state.offset_bytes, state.label, why)


def _in_flight(sequence: Array, done: int) -> bool:
    """True if any byte was touched by something that may still run."""
    return bool(sequence.size) and int(sequence.max()) > done


def _any_in_flight(storage: Storage, sequence: Array, done: int) -> bool:
    return any(_in_flight(part, done) for part in storage.bytes_of(sequence))
