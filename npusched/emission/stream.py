"""Writes command streams: events with addresses in, words and records of kernels out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npusched.emission.blockdep import BlockDependencies, Frame, tile_spans
from npusched.emission.constants import Constants
from npusched.emission.events import ARENA, CopyTensor, CopyWeights, Issue, Place, Run
from npusched.emission.luts import LutSlots
from npusched.emission.parts import BufferUse, KernelRecord, Stream
from npusched.emission.registers import (
    Placed,
    channel_bytes,
    relevant,
    rows_of,
    stripe_registers,
    weight_registers,
)
from npusched.emission.shram import shram_registers
from npusched.emission.storage import Addresses
from npusched.emission.template import CONSTANT, ConstantUse, Template, TemplateKernel
from npusched.emission.waits import INTERNAL, Access, Needed, Queues
from npusched.sim.memory import Storage
from npusched.sim.program import LUT_SLOT_BYTES, table_range
from npusched.sim.state import FIRST_TABLE, KernelState, read_kernel
from npusched.vela.stream import TWO_WORDS, Register, StreamOpKind, kernel_op

STOP = 0xFFFF0000
_LUT_REGION = 0x103
"""DMA destination: bit 8 = the NPU's own memory; Vela sets the low bits, too."""

_CODES = {
    StreamOpKind.CONV: 0x2,
    StreamOpKind.DEPTHWISE: 0x3,
    StreamOpKind.POOL: 0x5,
    StreamOpKind.ELEMENTWISE: 0x6,
}
_DMA, _DMA_WAIT, _KERNEL_WAIT = 0x10, 0x11, 0x12


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Everything that a stream writer needs beside the events."""

    template: Template
    issue: Issue
    addresses: Addresses
    constants: Constants
    source_ops: Mapping[int, tuple[int, ...]]

    def region(self, place: Place) -> int:
        """Region of a place: the arena is 1, the staging memory 2."""
        return 1 if place.memory == ARENA else 2


def write_streams(located: Located) -> tuple[Stream, ...]:
    """Return one stream per NPU operator."""
    writers = [_Writer(located, number) for number in range(len(located.template.partitions))]
    for partition, event in located.issue.events:
        if isinstance(event, Run):
            writers[partition].run(event)
        elif isinstance(event, CopyWeights):
            writers[partition].copy_weights(event)
        elif isinstance(event, CopyTensor):
            writers[partition].copy_tensor(event)
    return tuple(writer.finish() for writer in writers)


class _Writer:
    """One stream: registers as last written, what is in flight, tables, records."""

    def __init__(self, located: Located, partition: int) -> None:
        self.located, self.partition = located, partition
        self.template, self.constants = located.template, located.constants
        accelerator = self.template.accelerator
        self.words: list[int] = []
        self.state: dict[int, int] = {}
        self.queues = Queues(accelerator.max_outstanding_dma)
        self.blocks = BlockDependencies(accelerator)
        self.luts = LutSlots()
        self.records: list[KernelRecord] = []
        self.before: Run | None = None

    # --- words ------------------------------------------------------------------------------

    def set(self, register: int, value: int) -> None:
        """Write a register unless it holds the value."""
        if self.state.get(register) == value:
            return
        self.state[register] = value
        if register & TWO_WORDS:
            self.words += [register | (value >> 32 & 0xFFFF) << 16, value & 0xFFFFFFFF]
        else:
            self.words.append(register | (value & 0xFFFF) << 16)

    def act(self, code: int, parameter: int) -> None:
        """Write an acting command."""
        self.words.append(code | parameter << 16)

    def wait(self, needed: Needed) -> None:
        """Write the waits."""
        if needed.dmas is not None:
            self.act(_DMA_WAIT, needed.dmas)
        if needed.kernels is not None:
            self.act(_KERNEL_WAIT, needed.kernels)

    def finish(self) -> Stream:
        """End the stream."""
        return Stream((*self.words, STOP), self.partition, tuple(self.records))

    # --- copies -----------------------------------------------------------------------------

    def dma(self, source: tuple[int, int], target: tuple[int, int], size: int) -> None:
        """Copy bytes; source and target are (region, address)."""
        internal = target[0] == _LUT_REGION
        memory = INTERNAL if internal else target[0]
        first = self.template.kernels[0].registers.get(Register.PARALLEL_MODE)
        if first is not None:
            self.set(Register.PARALLEL_MODE, first)
        self.set(Register.DMA_SOURCE_REGION, source[0])
        self.set(Register.DMA_SOURCE, source[1])
        self.set(Register.DMA_DESTINATION_REGION, target[0])
        self.set(Register.DMA_DESTINATION, target[1])
        self.set(Register.DMA_LENGTH, size)
        needed = self.queues.dma(
            (
                Access(source[0], (source[1], source[1] + size), writes=False),
                Access(memory, (target[1], target[1] + size), writes=True),
            )
        )
        self.wait(needed)
        self.act(_DMA, 0)

    def copy_weights(self, event: CopyWeights) -> None:
        """Copy a chunk of weights, all cores in one piece."""
        kernel = self.template.kernels[event.kernel]
        chunk = self.constants.chunk(kernel, event.block_depth, *event.channels)
        self.dma((CONSTANT, chunk.address), self.at(event.place), chunk.total_bytes)

    def copy_tensor(self, event: CopyTensor) -> None:
        """Copy a whole tensor."""
        size = self.located.issue.places[event.source].size_bytes
        self.dma(self.at(event.source), self.at(event.destination), size)

    def at(self, number: int) -> tuple[int, int]:
        """Region and address of a place."""
        place = self.located.issue.places[number]
        return self.located.region(place), self.located.addresses.of[number]

    # --- kernels ----------------------------------------------------------------------------

    def run(self, run: Run) -> None:
        """Issue a kernel."""
        kernel = self.template.kernels[run.kernel]
        placed = self.placed(kernel, run)
        registers = stripe_registers(kernel, run, placed)
        self.weights(kernel, run, registers)
        if run.block != kernel.state.block:
            rows = run.rows[1] - run.rows[0]
            registers |= shram_registers(kernel.state, run.block, self.template.accelerator, rows)
        self.table(kernel, registers)
        op = kernel_op(
            kernel.op.kind,
            4 * len(self.words),
            kernel.op.parameter,
            registers,
            self.template.machine.family,
        )
        state = read_kernel(op, registers, len(self.records))
        frames = dict(self.frames(kernel, run, placed))
        limit = self.blocks.issue(state, frames)
        registers[Register.BLOCK_DEPENDENCY] = self.capped(kernel, run, limit)
        needed = self.queues.kernel(self.accesses(state))
        for register in relevant(kernel, registers):
            self.set(register, registers[register])
        self.wait(needed)
        self.act(_CODES[kernel.op.kind], kernel.op.parameter)
        self.record(kernel, run, placed)
        self.before = run

    def placed(self, kernel: TemplateKernel, run: Run) -> dict[str, Placed]:
        """Where the kernel's feature maps lie."""
        found = {}
        for role, number in run.places:
            place = self.located.issue.places[number]
            region, address = self.at(number)
            found[role] = Placed(place.tensor, region, address, place.rows)
        for role in ("ifm", "ifm2"):
            use = getattr(kernel, role)
            if isinstance(use, ConstantUse):
                found[role] = Placed(-1, CONSTANT, self.constants.constant_map(use))
        return found

    def weights(self, kernel: TemplateKernel, run: Run, registers: dict[int, int]) -> None:
        """Point to the weights."""
        if not kernel.weights:
            return
        chunk = self.constants.chunk(kernel, run.block.c, *run.channels)
        region, address = CONSTANT, chunk.address
        if run.weights is not None:
            region, address = self.at(run.weights)
        cores = self.template.machine.cores
        weight_registers(registers, region, address, chunk.cores, cores)

    def table(self, kernel: TemplateKernel, registers: dict[int, int]) -> None:
        """See that the kernel's table is in the SHRAM."""
        machine = self.template.machine
        if kernel.state.table is None:
            if not machine.keeps_tables:
                self.luts.forget()
            return
        source = self.constants.table(kernel)
        slot, missing = self.luts.need((source, len(kernel.table)), len(self.records))
        if missing:
            address = machine.table_address + slot * LUT_SLOT_BYTES
            self.dma((CONSTANT, source), (_LUT_REGION, address), len(kernel.table))
        activation = registers[Register.ACTIVATION]
        registers[Register.ACTIVATION] = activation & ~31 | FIRST_TABLE + slot

    def accesses(self, state: KernelState) -> Iterator[Access]:
        """Bytes that a kernel touches."""
        for view in state.views:
            writes = view is state.ofm
            for span in tile_spans(Storage.of(view)):
                yield Access(view.region, span, writes)
        for part in (*state.weights, *state.scales):
            yield Access(part.region, (part.address, part.address + part.length_bytes), False)
        machine = self.template.machine
        table = table_range(state, machine)
        if not machine.keeps_tables:
            tables = (machine.table_address, machine.shram_bytes)
            yield Access(INTERNAL, tables if table else (0, machine.shram_bytes), table is None)
        elif table is not None:
            yield Access(INTERNAL, (table.address, table.address + table.length_bytes), False)

    def frames(
        self, kernel: TemplateKernel, run: Run, placed: Mapping[str, Placed]
    ) -> Iterator[tuple[str, Frame]]:
        """How the kernel's views lie in their tensors."""
        for role, use in kernel.uses:
            view = getattr(kernel.state, role)
            row, rest = divmod(use.delta_bytes, max(abs(view.stride_y), 1))
            low, _ = rows_of(kernel, role, *run.rows)
            sliced = role == "ofm" or kernel.state.kind is StreamOpKind.DEPTHWISE
            pitch = (view.stride_y, view.stride_x, view.stride_c, rest)
            channel = run.channels[0] if sliced else 0
            yield role, Frame(placed[role].tensor, pitch, row + low, channel)

    def capped(self, kernel: TemplateKernel, run: Run, limit: int) -> int:
        """Never more than Vela writes behind the same kernel."""
        whole = run.rows == (0, kernel.rows) and run.channels == (0, kernel.channels)
        if self.before is None or not whole or self.before.kernel != kernel.index - 1:
            return limit
        before = self.template.kernels[self.before.kernel]
        if self.before.rows != (0, before.rows):
            return limit
        return min(limit, kernel.state.block_dependency)

    # --- records ----------------------------------------------------------------------------

    def record(self, kernel: TemplateKernel, run: Run, placed: Mapping[str, Placed]) -> None:
        """Note what was issued, for the sidecar."""
        self.records.append(
            KernelRecord(
                index=len(self.records),
                template=kernel.index,
                op=run.op,
                name=kernel.state.label,
                source_ops=self.located.source_ops.get(run.op, ()),
                rows=run.rows,
                channels=run.channels,
                block=(run.block.h, run.block.w, run.block.c),
                buffers=tuple(self.buffers(kernel, run, placed)),
                weights=run.weights,
            )
        )

    def buffers(
        self, kernel: TemplateKernel, run: Run, placed: Mapping[str, Placed]
    ) -> Iterator[BufferUse]:
        """The feature maps of a kernel in memory."""
        places = dict(run.places)
        for role, use in kernel.uses:
            view = getattr(kernel.state, role)
            low, high = rows_of(kernel, role, *run.rows)
            where = placed[role]
            sliced = role == "ofm" or kernel.state.kind is StreamOpKind.DEPTHWISE
            channel = run.channels[0] if sliced else 0
            yield BufferUse(
                role=role,
                tensor=where.tensor,
                name=self.located.issue.places[places[role]].name,
                region=where.region,
                address=where.address,
                first_row=low,
                rows=high - low,
                capacity_rows=where.rows,
                row_bytes=view.stride_y,
                row_zero_bytes=use.delta_bytes + channel_bytes(view, channel),
            )
