"""Executed figures: what a program really reads, writes and issues.

Bytes are counted from addresses, not estimated. ``once`` counts each element that a kernel
touches once; ``fetched`` counts what the NPU fetches block by block: halos of neighbouring blocks
again, the IFM again for each depth block of a convolution, weights and scales again for each block
of rows and columns (the order of VELA_SPEC §3.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from npusched.graph.types import Upscale
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span
from npusched.sim.program import LoadedDma, LoadedKernel, Program, Wait, table_range
from npusched.sim.state import KernelState
from npusched.sim.views import Pool, View
from npusched.vela.stream import AddressRange, StreamOpKind


class Purpose(StrEnum):
    """What bytes are for."""

    FEATURE_MAP = "feature_map"
    WEIGHTS = "weights"
    SCALES = "scales"
    TABLE = "table"
    DMA = "dma"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of one purpose in one memory (by its name in the file; tables are in the SHRAM)."""

    memory: str
    purpose: Purpose
    read_bytes: int
    written_bytes: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Bytes of a memory that the program touches: how many, and the high-water mark."""

    memory: str
    size_bytes: int
    touched_bytes: int
    high_water_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything that is counted. ``kernels`` by kind; ``macs`` without padding taps."""

    kernels: tuple[tuple[str, int], ...]
    dmas: int
    dma_bytes: int
    waits: int
    macs: int
    traffic: tuple[Traffic, ...]
    memories: tuple[Touched, ...]

    @property
    def kernel_count(self) -> int:
        """Kernels issued."""
        return sum(count for _, count in self.kernels)


SHRAM = "shram"


def count_figures(program: Program, inputs: Iterable[tuple[int, Span]] = ()) -> Figures:
    """Count what a program does. ``inputs``: bytes that the host writes (they count as touched)."""
    counter = _Counter(program)
    for region, (low, high) in inputs:
        counter.touched[program.regions[region].key][low:high] = True
    for kernel in program.kernels:
        counter.kernel(kernel)
    for dma in program.dmas:
        counter.dma(dma)
    kinds = Counter(
        str(k.state.kind if k.state.function is None else k.state.function.name.lower())
        for k in program.kernels
    )
    return Figures(
        kernels=tuple(sorted(kinds.items())),
        dmas=len(program.dmas),
        dma_bytes=sum(dma.total_bytes for dma in program.dmas),
        waits=sum(isinstance(command, Wait) for command in program.commands),
        macs=sum(kernel_macs(kernel.state) for kernel in program.kernels),
        traffic=counter.traffic(),
        memories=counter.memories(),
    )


def kernel_macs(state: KernelState) -> int:
    """Multiplications of a convolution: taps x outputs (x IFM channels unless depthwise)."""
    if state.kind not in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE):
        return 0
    depth = state.ifm.c if state.kind is StreamOpKind.CONV else 1
    window, ofm = state.window, state.ofm
    return window.h * window.w * depth * ofm.h * ofm.w * ofm.c


class _Counter:
    """Adds up bytes per memory and purpose."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sums: dict[tuple[str, Purpose], list[int]] = {}
        self.names = {region.key: region.name for region in program.regions.values()}
        self.touched: dict[int, Array] = {
            region.key: np.zeros(region.size_bytes, np.bool_)
            for region in program.regions.values()
            if region.same_as is None
        }

    def add(
        self, memory: str, purpose: Purpose, *, read: int = 0, written: int = 0, fetched: int = 0
    ) -> None:
        """Add bytes."""
        entry = self.sums.setdefault((memory, purpose), [0, 0, 0])
        for place, amount in enumerate((read, written, fetched)):
            entry[place] += amount

    def key(self, region: int) -> int:
        """Key of a region's memory."""
        return self.program.regions[region].key

    def touch(self, part: AddressRange) -> str:
        """Mark a range, return its memory's name."""
        if part.internal:
            return SHRAM
        key = self.key(part.region)
        self.touched[key][part.address : part.address + part.length_bytes] = True
        return self.names[key]

    def kernel(self, kernel: LoadedKernel) -> None:
        """Count a kernel."""
        state = kernel.state
        for storage in (*kernel.reads, kernel.ofm):
            for part in storage.bytes_of(self.touched[self.key(storage.view.region)]):
                part[...] = True
        for storage in kernel.reads:
            view = storage.view
            once = view.h * view.w * view.c * view.dtype.itemsize
            self.add(
                self.names[self.key(view.region)],
                Purpose.FEATURE_MAP,
                read=once,
                fetched=fetched_bytes(state, view),
            )
        ofm = state.ofm
        self.add(
            self.names[self.key(ofm.region)],
            Purpose.FEATURE_MAP,
            written=ofm.h * ofm.w * ofm.c * ofm.dtype.itemsize,
        )
        again = -(-ofm.h // state.block.h) * -(-ofm.w // state.block.w)
        streams = [(Purpose.WEIGHTS, each) for each in state.weights]
        streams += [(Purpose.SCALES, each) for each in state.scales]
        for purpose, each in streams:
            length = each.length_bytes
            self.add(self.touch(each), purpose, read=length, fetched=again * length)
        table = table_range(state, self.program.machine)
        if table is not None:
            self.add(SHRAM, Purpose.TABLE, read=table.length_bytes, fetched=table.length_bytes)

    def dma(self, dma: LoadedDma) -> None:
        """Count a DMA."""
        low, high = dma.source_span
        source = AddressRange(dma.source.region, low, high - low, dma.source.internal)
        self.add(self.touch(source), Purpose.DMA, read=high - low, fetched=high - low)
        for start, end in dma.destination_spans:
            part = AddressRange(
                dma.destination.region, start, end - start, dma.destination.internal
            )
            self.add(self.touch(part), Purpose.DMA, written=end - start)

    def traffic(self) -> tuple[Traffic, ...]:
        """Return the sums."""
        return tuple(
            Traffic(
                memory=memory,
                purpose=purpose,
                read_bytes=read,
                written_bytes=written,
                fetched_bytes=fetched,
            )
            for (memory, purpose), (read, written, fetched) in sorted(self.sums.items())
        )

    def memories(self) -> tuple[Touched, ...]:
        """Return what is touched of each memory."""
        return tuple(
            Touched(
                memory=self.names[key],
                size_bytes=len(mask),
                touched_bytes=int(mask.sum()),
                high_water_bytes=int(mask.nonzero()[0][-1]) + 1 if mask.any() else 0,
            )
            for key, mask in sorted(self.touched.items())
        )


def fetched_bytes(state: KernelState, view: View) -> int:
    """Return what the NPU fetches of one IFM, block by block."""
    size = view.dtype.itemsize
    if state.kind is StreamOpKind.ELEMENTWISE:
        return view.h * view.w * view.c * size
    window, ofm, block = state.window, state.ofm, state.block
    upscale = 1 if state.upscale is Upscale.NONE else 2
    rows = _reached(
        ofm.h, block.h, window.stride_h, window.dilated_h, window.pad_top, view.h, upscale
    )
    columns = _reached(
        ofm.w, block.w, window.stride_w, window.dilated_w, window.pad_left, view.w, upscale
    )
    deep = state.kind is StreamOpKind.CONV or state.function is Pool.REDUCE_SUM
    again = -(-ofm.c // block.c) if deep else 1
    return rows * columns * view.c * size * again


def _reached(
    ofm: int, block: int, stride: int, extent: int, pad: int, ifm: int, upscale: int
) -> int:
    """Rows (or columns) of the IFM that all blocks along one axis reach together."""
    total = 0
    for start in range(0, ofm, block):
        end = min(start + block, ofm)
        low, high = start * stride - pad, (end - 1) * stride + extent - pad
        low, high = low // upscale, -(-high // upscale)
        total += min(max(high, 0), ifm) - max(low, 0)
    return total
