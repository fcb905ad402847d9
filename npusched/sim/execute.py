"""Run a loaded program over its memories: only data moves here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npusched.errors import SimError
from npusched.sim.kernels import run
from npusched.sim.kernels.arrays import Array
from npusched.sim.program import LoadedDma, LoadedKernel, Program

Observer = Callable[[LoadedKernel, Array], None]
"""Called behind each kernel with what it wrote: (batch, h, w, c)."""


def new_memories(program: Program, batch: int, *, fill: int = 0) -> dict[int, Array]:
    """Return the memories by region key: (batch, bytes) of ``fill``, (1, bytes) for constants.

    A program may run again on memories that it has used.
    """
    memories: dict[int, Array] = {}
    for region in program.regions.values():
        if region.same_as is not None:
            continue
        if region.content is not None:
            memories[region.key] = np.frombuffer(region.content, np.uint8)[None]
        else:
            memories[region.key] = np.full((batch, region.size_bytes), fill, np.uint8)
    return memories


def execute(
    program: Program, memories: Mapping[int, Array], observer: Observer | None = None
) -> None:
    """Run all commands in issue order on ``memories`` (waits order nothing here: see hazards)."""
    keys = {index: region.key for index, region in program.regions.items()}
    for command in program.commands:
        if isinstance(command, LoadedKernel):
            result = run_kernel(command, memories, keys)
            if observer is not None:
                observer(command, result)
        elif isinstance(command, LoadedDma):
            _move(command, memories, keys)


def run_kernel(
    kernel: LoadedKernel, memories: Mapping[int, Array], keys: Mapping[int, int]
) -> Array:
    """Run one kernel; return what it wrote (n, h, w, c).

    Raises SimError if the program was loaded without constants.
    """
    if kernel.arithmetic is None:
        raise SimError(
            "cannot run a bare command stream",
            f"{kernel.state.label} has no weights or tables",
            "run the compiled .tflite file",
        )
    ofm = kernel.ofm.view
    ifm = kernel.ifm.read(memories[keys[kernel.ifm.view.region]])
    ifm2 = None
    if kernel.ifm2 is not None:
        ifm2 = kernel.ifm2.read(memories[keys[kernel.ifm2.view.region]])
    result = run(kernel.arithmetic, ifm, ifm2, ofm_shape=(ofm.h, ofm.w))
    kernel.ofm.write(memories[keys[ofm.region]], result)
    return result


def _move(dma: LoadedDma, memories: Mapping[int, Array], keys: Mapping[int, int]) -> None:
    """Copy bytes. Tables need no copy: they were resolved when the program was loaded."""
    if dma.destination.internal:
        return
    low, high = dma.source_span
    source = memories[keys[dma.source.region]][:, low:high].copy()
    target = memories[keys[dma.destination.region]]
    for row, (start, end) in enumerate(dma.destination_spans):
        target[:, start:end] = source[:, row * dma.length_bytes : (row + 1) * dma.length_bytes]
