"""Which kernels read what a kernel wrote, from addresses alone."""

from __future__ import annotations

import numpy as np

from npusched.sim.kernels.arrays import Array
from npusched.sim.program import LoadedDma, LoadedKernel, Program


def readers(program: Program) -> tuple[frozenset[int], ...]:
    """Return for each kernel the later kernels that read bytes of its OFM before others do.

    Copies by DMA are followed. Numbers are kernel indices.
    """
    keys = {index: region.key for index, region in program.regions.items()}
    writers: dict[int, Array] = {
        region.key: np.zeros(region.size_bytes, np.int32)
        for region in program.regions.values()
        if region.same_as is None
    }
    found: list[set[int]] = [set() for _ in program.kernels]
    for command in program.commands:
        if isinstance(command, LoadedDma):
            _copy(command, writers, keys)
        elif isinstance(command, LoadedKernel):
            number = command.state.index
            for storage in command.reads:
                for part in storage.bytes_of(writers[keys[storage.view.region]]):
                    for writer in np.unique(part).tolist():
                        if writer:
                            found[writer - 1].add(number)
            for part in command.ofm.bytes_of(writers[keys[command.ofm.view.region]]):
                part[...] = number + 1
    return tuple(frozenset(each) for each in found)


def _copy(dma: LoadedDma, writers: dict[int, Array], keys: dict[int, int]) -> None:
    if dma.destination.internal:
        return
    low, high = dma.source_span
    moved = writers[keys[dma.source.region]][low:high].reshape(dma.rows, -1).copy()
    for row, (start, end) in enumerate(dma.destination_spans):
        writers[keys[dma.destination.region]][start:end] = moved[row]
