"""A command stream made ready to run: addresses, weights, scales and tables resolved once.

Everything that does not depend on inputs is done here. Weights, scales and tables must be
constants: bytes of a read-only region, or copies of them that a DMA delivered and nobody
overwrote since. That is followed byte by byte, so a stream that reads anything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from npusched.errors import SimError
from npusched.graph.types import Rounding
from npusched.hardware.target import Family
from npusched.sim.arithmetic import make_arithmetic
from npusched.sim.decode import Prepared, WeightDecoder
from npusched.sim.kernels import Arithmetic
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Region, Span, Storage, check_span
from npusched.sim.reader import MODELLED_HINT
from npusched.sim.state import KernelState, read_kernel
from npusched.vela.stream import (
    AddressRange,
    Register,
    Registers,
    Stream,
    StreamOp,
    StreamOpKind,
)

INTERNAL = -1
"""Key of the NPU's own memory (SHRAM), which holds the tables."""

LUT_BYTES = 2048
"""Tables lie in the last 2 KiB of the SHRAM, in 8 slots of 256 bytes (SIM.md §3)."""

LUT_SLOT_BYTES = 256

MAX_REGION_BYTES = 1 << 28
"""Largest memory that is followed byte by byte. Damaged streams reach up to 2**40."""

_REGION_NAMES = {0: "read_only", 1: "scratch", 2: "scratch_fast"}

_SMALL_MACS = 64
"""U55-32 and U55-64 have no reserved table banks: other kernels overwrite them (EMIT.md §5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of the accelerator decides results. ``shram_bytes`` is that of one core."""

    family: Family
    macs_per_cycle: int
    cores: int
    shram_bytes: int

    @property
    def ofm_ublock_depth(self) -> int:
        """Channels of an OFM micro-block (VELA_SPEC §1.1)."""
        return 4 if self.macs_per_cycle == 32 else 8

    @property
    def keeps_tables(self) -> bool:
        """True if kernels without tables leave the tables alone."""
        return self.macs_per_cycle > _SMALL_MACS

    @property
    def table_address(self) -> int:
        """First byte of slot 0 in the SHRAM."""
        return self.shram_bytes - LUT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKernel:
    """A kernel ready to run: what it computes, and where its feature maps lie.

    ``volume`` are its weights (OHWI, all cores, zero point subtracted), None without.
    ``arithmetic`` is None if the stream was loaded without constants.
    """

    state: KernelState
    arithmetic: Arithmetic | None
    volume: Array | None
    ifm: Storage
    ifm2: Storage | None
    ofm: Storage

    @property
    def volume_bytes(self) -> bytes:
        """The weights as bytes (to compare), b"" without."""
        return b"" if self.volume is None else self.volume.tobytes()

    @property
    def reads(self) -> tuple[Storage, ...]:
        """Feature maps that are read."""
        return (self.ifm,) if self.ifm2 is None else (self.ifm, self.ifm2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDma:
    """A DMA of ``rows`` pieces of ``length_bytes``.

    They lie side by side in the source, ``pitch_bytes`` apart in the destination. ``index`` counts
    DMAs from 0.
    """

    index: int
    offset_bytes: int
    source: AddressRange
    destination: AddressRange
    length_bytes: int
    rows: int = 1
    pitch_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes moved."""
        return self.rows * self.length_bytes

    @property
    def source_span(self) -> Span:
        """Bytes that are read."""
        return self.source.address, self.source.address + self.total_bytes

    @property
    def destination_spans(self) -> tuple[Span, ...]:
        """Bytes that are written, one span per row."""
        starts = [self.destination.address + row * self.pitch_bytes for row in range(self.rows)]
        return tuple((start, start + self.length_bytes) for start in starts)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until at most ``outstanding`` kernels (or DMAs) are in flight."""

    is_kernel: bool
    outstanding: int
    offset_bytes: int


Command: TypeAlias = LoadedKernel | LoadedDma | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A loaded stream: commands in issue order, and the memories they address."""

    machine: Machine
    regions: dict[int, Region]
    commands: tuple[Command, ...]

    @property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        """The kernels, in order."""
        return tuple(c for c in self.commands if isinstance(c, LoadedKernel))

    @property
    def dmas(self) -> tuple[LoadedDma, ...]:
        """The DMAs, in order."""
        return tuple(c for c in self.commands if isinstance(c, LoadedDma))


def machine_of(stream: Stream) -> Machine:
    """Return the machine that a stream's header names. Raises SimError for a U85."""
    if stream.family is Family.U85:
        raise SimError(
            "cannot execute a stream for Ethos-U85",
            "its registers and weight formats are not modelled",
            "compile for an Ethos-U55 or U65",
        )
    cores = 2 if stream.macs_per_cycle == 512 else 1
    return Machine(
        family=stream.family,
        macs_per_cycle=stream.macs_per_cycle,
        cores=cores,
        shram_bytes=stream.shram_bytes // cores,
    )


def load(stream: Stream, regions: Sequence[Region], *, resolves_constants: bool = True) -> Program:
    """Resolve a stream over its memories.

    ``resolves_constants``: decode weights, scales and tables; without them a program can be counted
    but not run. Raises SimError, naming the op, for states that are not modelled, addresses outside
    a region, writes to constants, and weights, scales or tables that are not constants.
    """
    by_index = {region.index: region for region in regions}
    loader = _Loader(machine_of(stream), by_index, has_constants=resolves_constants)
    return _load(stream, loader)


def load_bare(stream: Stream) -> Program:
    """Resolve a stream of which there are only the commands: it can be checked and counted.

    Regions are as large as the stream reaches; region 0 is taken as constant. Raises SimError as
    ``load``, except for what concerns constants.
    """
    sizes = _reached(stream)
    for index, size in sizes.items():
        _check_size(_REGION_NAMES.get(index, f"region {index}"), size)
    regions = {
        index: Region(
            index=index,
            name=_REGION_NAMES.get(index, f"region {index}"),
            size_bytes=size,
            content=bytes(size) if index == 0 else None,
        )
        for index, size in sizes.items()
    }
    return _load(stream, _Loader(machine_of(stream), regions, has_constants=False))


def _check_size(name: str, size_bytes: int) -> None:
    """Refuse memories that are too large to be followed byte by byte. Raises SimError."""
    if size_bytes > MAX_REGION_BYTES:
        raise SimError(
            f"the memory {name} is too large to execute in",
            f"the stream needs {size_bytes} bytes of it, at most {MAX_REGION_BYTES} are followed",
            "such an address is a sign of a damaged stream: compile the model again",
        )


def _reached(stream: Stream) -> dict[int, int]:
    """Return the bytes that a stream reaches in each region that it uses."""
    sizes: dict[int, int] = {}

    def reach(region: int, end: int) -> None:
        sizes[region] = max(sizes.get(region, 0), end)

    dmas = kernels = 0
    for op, registers in stream.walk():
        if op.kind is StreamOpKind.DMA:
            dma = read_dma(op, registers, dmas)
            dmas += 1
            reach(dma.source.region, dma.source_span[1])
            if not dma.destination.internal:
                reach(dma.destination.region, max(end for _, end in dma.destination_spans))
        elif op.is_kernel:
            state = read_kernel(op, registers, kernels)
            kernels += 1
            for view in state.views:
                reach(view.region, Storage.of(view).span[1])
            for part in (*state.weights, *state.scales):
                reach(part.region, part.address + part.length_bytes)
    return sizes


def _load(stream: Stream, loader: _Loader) -> Program:
    """Load all commands in order."""
    commands = []
    for op, registers in stream.walk():
        if op.kind is StreamOpKind.STOP:
            break
        command = loader.command(op, registers)
        if command is not None:
            commands.append(command)
    return Program(machine=loader.machine, regions=loader.regions, commands=tuple(commands))


def rounding_once(program: Program, kernels: frozenset[int]) -> Program:
    """Return the program with kernels (by index) that round once, NATURAL, whatever they say.

    The reference kernel of fully connected layers does (SIM.md §4).
    """

    def changed(command: Command) -> Command:
        if not isinstance(command, LoadedKernel) or command.state.index not in kernels:
            return command
        scaling = command.arithmetic.scaling if command.arithmetic else None
        if command.arithmetic is None or scaling is None:
            return command
        once = replace(command.arithmetic, scaling=replace(scaling, rounding=Rounding.NATURAL))
        return replace(command, arithmetic=once)

    return replace(program, commands=tuple(changed(command) for command in program.commands))


class _Loader:
    """Follows which bytes are constants while commands are read in order."""

    def __init__(
        self, machine: Machine, regions: dict[int, Region], *, has_constants: bool = True
    ) -> None:
        self.has_constants = has_constants
        self.machine = machine
        self.regions = regions
        self.decoder = WeightDecoder(machine.cores, machine.ofm_ublock_depth)
        self.kernels = self.dmas = 0
        self.bytes: dict[int, Array] = {
            INTERNAL: np.zeros(machine.shram_bytes, np.uint8),
        }
        self.known: dict[int, Array] = {INTERNAL: np.zeros(machine.shram_bytes, np.bool_)}
        for region in regions.values():
            if region.same_as is None:
                _check_size(region.name, region.size_bytes)
                content = region.content
                self.bytes[region.key] = (
                    np.zeros(region.size_bytes, np.uint8)
                    if content is None
                    else np.frombuffer(content, np.uint8)
                )
                self.known[region.key] = np.full(region.size_bytes, content is not None)

    def command(self, op: StreamOp, registers: Registers) -> Command | None:
        """Return the loaded form of an op, None for what only the host sees."""
        if op.is_kernel:
            return self.kernel(op, registers)
        match op.kind:
            case StreamOpKind.DMA:
                return self.dma(op, registers)
            case StreamOpKind.DMA_WAIT | StreamOpKind.KERNEL_WAIT:
                is_kernel = op.kind is StreamOpKind.KERNEL_WAIT
                return Wait(is_kernel, op.parameter, op.offset_bytes)
            case StreamOpKind.IRQ | StreamOpKind.PMU_MASK:
                return None
            case other:
                raise SimError(
                    f"cannot execute the command {other} at byte {op.offset_bytes}",
                    "it is not modelled",
                    "compile for an Ethos-U55 or U65 with Vela 5.2",
                )

    def region(self, index: int, where: str) -> Region:
        """Return a region by number."""
        region = self.regions.get(index)
        if region is None:
            raise SimError(
                f"{where} uses region {index}, which the file does not define",
                f"defined: {', '.join(str(known) for known in sorted(self.regions))}",
                "the stream is damaged: compile the model again",
            )
        return region

    def place(self, span: Span, index: int, where: str, *, writes: bool = False) -> int:
        """Check a span and return the key of its memory."""
        region = self.region(index, where)
        check_span(span, region, where)
        if writes and region.is_read_only:
            raise SimError(
                f"{where} writes to constants",
                f"bytes {span[0]} to {span[1]} of region {index} ({region.name})",
                "the stream is damaged: compile the model again",
            )
        return region.key

    def constant(self, part: AddressRange, where: str) -> bytes:
        """Return bytes that must be constants."""
        span = (part.address, part.address + part.length_bytes)
        key = self.place(span, part.region, where) if not part.internal else INTERNAL
        if key == INTERNAL and span[1] > self.machine.shram_bytes:
            raise self._outside(where, span)
        if not self.known[key][span[0] : span[1]].all():
            raise SimError(
                f"{where} reads bytes that hold no constant at this time",
                f"bytes {span[0]} to {span[1]} of region {part.region}",
                "a DMA is missing, or its copy was overwritten: compile the model again",
            )
        return self.bytes[key][span[0] : span[1]].tobytes()

    def _outside(self, where: str, span: Span) -> SimError:
        return SimError(
            f"{where} leaves the SHRAM",
            f"bytes {span[0]} to {span[1]}, it has {self.machine.shram_bytes}",
            "the stream is damaged: compile the model again",
        )

    def dma(self, op: StreamOp, registers: Registers) -> LoadedDma:
        """Read a DMA and follow the constants that it moves."""
        loaded = read_dma(op, registers, self.dmas)
        self.dmas += 1
        where = f"DMA {loaded.index} (byte {op.offset_bytes})"
        if loaded.source.internal:
            raise SimError(
                f"{where} reads the NPU's own memory",
                "copies out of the SHRAM are not modelled",
                MODELLED_HINT,
            )
        source = self.place(loaded.source_span, loaded.source.region, where)
        low, high = loaded.source_span
        values = self.bytes[source][low:high].reshape(loaded.rows, -1)
        known = self.known[source][low:high].reshape(loaded.rows, -1)
        for row, span in enumerate(loaded.destination_spans):
            if loaded.destination.internal:
                target = INTERNAL
                if span[1] > self.machine.shram_bytes:
                    raise self._outside(where, span)
            else:
                target = self.place(span, loaded.destination.region, where, writes=True)
            self.bytes[target][span[0] : span[1]] = values[row]
            self.known[target][span[0] : span[1]] = known[row]
        return loaded

    def kernel(self, op: StreamOp, registers: Registers) -> LoadedKernel:
        """Read a kernel, resolve its constants, and forget constants that it overwrites."""
        state = read_kernel(op, registers, self.kernels)
        self.kernels += 1
        storages = [Storage.of(view) for view in state.views]
        for number, storage in enumerate(storages):
            name = ("IFM", "IFM2")[number] if number < len(storages) - 1 else "OFM"
            where = f"the {name} of {state.label}"
            self.place(storage.span, storage.view.region, where, writes=name == "OFM")
        prepared, arithmetic = self.meaning(state) if self.has_constants else (None, None)
        ofm = storages[-1]
        for part in ofm.bytes_of(self.known[self.regions[state.ofm.region].key]):
            part[...] = False
        if state.table is None and not self.machine.keeps_tables:
            self.known[INTERNAL][:] = False
        return LoadedKernel(
            state=state,
            arithmetic=arithmetic,
            volume=None if prepared is None else prepared.volume,
            ifm=storages[0],
            ifm2=storages[1] if len(storages) > 2 else None,
            ofm=ofm,
        )

    def meaning(self, state: KernelState) -> tuple[Prepared | None, Arithmetic]:
        """Resolve the constants of a kernel."""
        weights = [self.constant(part, f"{state.label} (weights)") for part in state.weights]
        scales = [self.constant(part, f"{state.label} (scales)") for part in state.scales]
        prepared = self.decoder.prepare(state, weights, scales)
        return prepared, make_arithmetic(state, prepared, self.table(state))

    def table(self, state: KernelState) -> bytes:
        """Return the bytes of the kernel's table, b"" without one."""
        part = table_range(state, self.machine)
        return b"" if part is None else self.constant(part, f"{state.label} (table)")


def table_range(state: KernelState, machine: Machine) -> AddressRange | None:
    """Return where a kernel's table lies in the SHRAM: 256 entries of the OFM's type, or 2 KiB."""
    if state.table is None:
        return None
    size = LUT_BYTES if state.ofm.dtype.itemsize == 2 else 256 * state.ofm.dtype.itemsize
    address = machine.table_address + LUT_SLOT_BYTES * state.table
    return AddressRange(0, address, size, internal=True)


def read_dma(op: StreamOp, registers: Registers, index: int) -> LoadedDma:
    """Return what a DMA moves: one row, or rows apart in the destination (U65)."""
    where = f"DMA {index} (byte {op.offset_bytes})"
    source, destination = op.source, op.destination
    if source is None or destination is None:
        raise SimError(
            f"{where} has no addresses",
            "its source or destination was never set",
            "the stream is damaged: compile the model again",
        )
    for register in (
        Register.DMA_SOURCE_REGION,
        Register.DMA_SOURCE,
        Register.DMA_DESTINATION_REGION,
        Register.DMA_DESTINATION,
        Register.DMA_LENGTH,
    ):
        if register not in registers:
            raise SimError(
                f"{where} uses {register.name}, which was never set",
                "a DMA has two regions, two addresses and a length",
                "the stream is damaged: compile the model again",
            )
    length = registers[Register.DMA_LENGTH]
    strided = registers[Register.DMA_DESTINATION_REGION] >> 9 & 3
    if registers[Register.DMA_SOURCE_REGION] >> 9 & 3 or strided > 1:
        raise SimError(
            f"cannot execute {where}",
            "a strided source or a 3D destination is not modelled",
            MODELLED_HINT,
        )
    rows = registers.get(Register.DMA_SIZE0, 1) if strided else 1
    skip = registers.get(Register.DMA_SKIP0, 0) if strided else 0
    return LoadedDma(
        index=index,
        offset_bytes=op.offset_bytes,
        source=source,
        destination=destination,
        length_bytes=length,
        rows=rows,
        pitch_bytes=length + skip,
    )
