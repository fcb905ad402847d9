"""Whether every kernel computes what Vela's kernel does, with the weights that belong to it.

Taken from the finished file, registers and decoded weights, and compared with the template's. What
may differ is where feature maps lie, which rows and channels are made, padding above and below,
the block, the table's slot, and what only concerns time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np

from npusched.emission.parts import Emitted, KernelRecord
from npusched.sim.kernels.arrays import Array
from npusched.sim.program import LoadedKernel
from npusched.sim.run import Executable, open_compiled
from npusched.sim.state import KernelState
from npusched.sim.views import View
from npusched.vela.stream import StreamOpKind

MAX_FAULTS = 100
"""Faults that are listed."""


def find_numeric_faults(executable: Executable, emitted: Emitted) -> tuple[str, ...]:
    """Return the kernels that do not compute what the template's kernels of their records do.

    Raises SimError, ModelError if the template cannot be loaded.
    """
    theirs = [
        kernel for program in open_compiled(emitted.template).programs for kernel in program.kernels
    ]
    faults: list[str] = []
    for stream in emitted.streams:
        kernels = executable.programs[stream.partition].kernels
        for kernel, record in zip(kernels, stream.kernels, strict=False):
            where = f"operator {stream.partition}, {kernel.state.label}"
            faults += [
                f"{where}: {why}" for why in _faults(kernel, theirs[record.template], record)
            ]
            if len(faults) >= MAX_FAULTS:
                return tuple(faults[:MAX_FAULTS])
    return tuple(faults)


def _faults(ours: LoadedKernel, theirs: LoadedKernel, record: KernelRecord) -> Iterator[str]:
    channels = slice(*record.channels)
    if _plain(ours.state) != _plain(theirs.state):
        yield f"its registers do not say what those of Vela's {theirs.state.label} say"
    if theirs.volume is not None and not _same(ours.volume, theirs.volume[channels]):
        yield f"its weights are not those of channels {channels.start} to {channels.stop}"
    a, b = ours.arithmetic, theirs.arithmetic
    if a is None or b is None:
        return
    bias = None if b.weights is None else b.weights.bias[channels]
    if a.weights is not None and bias is not None and not _same(a.weights.bias, bias):
        yield f"its biases are not those of channels {channels.start} to {channels.stop}"
    if a.scaling is not None and b.scaling is not None:
        for mine, other in (
            (a.scaling.multiplier, b.scaling.multiplier),
            (a.scaling.shift, b.scaling.shift),
        ):
            if not _same(mine, other[channels] if other.ndim else other):
                yield f"its scales are not those of channels {channels.start} to {channels.stop}"
                break
    if a.table is not None and b.table is not None and not _same(a.table.entries, b.table.entries):
        yield "its table is another one"


def _same(a: Array | None, b: Array) -> bool:
    return a is not None and np.array_equal(a, b)


def _plain(state: KernelState) -> KernelState:
    """The state without what may differ."""
    return replace(
        state,
        index=0,
        offset_bytes=0,
        is_part_kernel=state.is_part_kernel and state.kind is StreamOpKind.CONV,
        ifm=_plain_view(state.ifm),
        ifm2=None if state.ifm2 is None else _plain_view(state.ifm2),
        ofm=_plain_view(state.ofm),
        window=msgspec.structs.replace(state.window, pad_top=0, pad_bottom=0),
        block=type(state.block)(0, 0, 0),
        weights=(),
        scales=(),
        table=None if state.table is None else 0,
        block_dependency=0,
        shram=(0, 0, 0),
    )


def _plain_view(view: View) -> View:
    """The view at no address, without rows; channels are those of a slice."""
    return replace(view, region=0, bases=(0, 0, 0, 0), height0=0, height1=0, h=0, c=0)
