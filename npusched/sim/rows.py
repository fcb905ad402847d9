"""Stale rows: whether every kernel reads the rows of its producer that it needs.

Each byte carries which op wrote it and which row of that op's result it is. A kernel that reads
rows must see consecutive ones; and if a rolling buffer overwrites old rows, successive stripes of
an op must see rows that go on where the last stripe's stood. No data is needed
(SIM.md §5, "version tags").

Which kernels are stripes of one op is given (``ops``), or told by everything but rows, padding and
the row they begin with being equal. 32-bit data are not followed: they are temporaries of
decomposed ops (softmax), which repeat equal kernels, and never lie in rolling buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
import numpy as np

from npusched.graph.types import Upscale
from npusched.sim.hazards import Hazard, HazardKind
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Storage
from npusched.sim.program import LoadedDma, LoadedKernel, Program
from npusched.sim.state import KernelState
from npusched.sim.views import View
from npusched.vela.stream import StreamOpKind

OpKey: TypeAlias = "tuple[object, ...]"


@dataclass(slots=True)
class _Op:
    """What is known of an op: number, rows issued so far, the padding above its first row.

    ``saw_inner``: a stripe without padding above has been issued (padding then means that the
    op begins again). ``is_rolling``: it has overwritten rows of its own.
    """

    number: int
    rows: int = 0
    pad_top: int = 0
    saw_inner: bool = False
    is_rolling: bool = False
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    """(input, producer) -> producer's row minus the row that the window asks for."""


@dataclass(slots=True)
class _Tags:
    """Per byte: op that wrote it (0 = none), row of that op's result, row pitch of the writer."""

    op: Array
    row: Array
    pitch: Array

    @staticmethod
    def of(size: int) -> _Tags:
        """Return tags of an untouched memory."""
        return _Tags(np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int64))


def find_stale_rows(program: Program, ops: Mapping[int, int] | None = None) -> tuple[Hazard, ...]:
    """Return the kernels that read rows which are no longer (or not yet) the ones they need.

    ``ops``: kernel index -> op number, where known (kernels of one op are its stripes and slices).
    """
    checker = _Checker(program, ops or {})
    for command in program.commands:
        if isinstance(command, LoadedKernel):
            checker.kernel(command)
        elif isinstance(command, LoadedDma):
            checker.dma(command)
    return tuple(checker.found)


class _Checker:
    """Walks commands in order."""

    def __init__(self, program: Program, ops: Mapping[int, int]) -> None:
        self.keys = {index: region.key for index, region in program.regions.items()}
        self.tags = {
            region.key: _Tags.of(region.size_bytes)
            for region in program.regions.values()
            if region.same_as is None
        }
        self.given = ops
        self.ops: dict[OpKey, _Op] = {}
        self.numbered: list[_Op] = [_Op(0)]
        self.found: list[Hazard] = []

    def op(self, kernel: LoadedKernel) -> _Op:
        """Return the op that a kernel is a stripe of."""
        key = stripe_key(kernel, self.given.get(kernel.state.index))
        known = self.ops.get(key)
        window = kernel.state.window
        restarts = known is not None and window.pad_top > 0 and known.saw_inner
        if known is None or restarts:
            pad_top = kernel.state.window.pad_top
            known = self.ops[key] = _Op(len(self.numbered), pad_top=pad_top)
            self.numbered.append(known)
        known.saw_inner |= window.pad_top == 0
        return known

    def dma(self, dma: LoadedDma) -> None:
        """A copied row is still that row: tags move with the bytes."""
        if dma.destination.internal:
            return
        source, target = self.tags[self.keys[dma.source.region]], None
        target = self.tags[self.keys[dma.destination.region]]
        low, high = dma.source_span
        for name in ("op", "row", "pitch"):
            moved = getattr(source, name)[low:high].reshape(dma.rows, -1).copy()
            for row, (start, end) in enumerate(dma.destination_spans):
                getattr(target, name)[start:end] = moved[row]

    def kernel(self, kernel: LoadedKernel) -> None:
        """Check what a kernel reads, then tag what it writes."""
        op = self.op(kernel)
        for number, storage in enumerate(kernel.reads):
            why = self.check(kernel, op, number, storage)
            if why:
                self.found.append(
                    Hazard(
                        kind=HazardKind.STALE_ROWS,
                        offset_bytes=kernel.state.offset_bytes,
                        where=kernel.state.label,
                        why=why,
                    )
                )
                break
        view = kernel.ofm.view
        tags = self.tags[self.keys[view.region]]
        rows = np.broadcast_to(
            np.arange(op.rows, op.rows + view.h, dtype=np.int32)[:, None, None],
            (view.h, view.w, view.c),
        )
        if not op.is_rolling:
            before = kernel.ofm.read_byte(tags.op, 0) == op.number
            op.is_rolling = bool(before.any())
        kernel.ofm.mark(tags.op, np.full(rows.shape, op.number, np.int32))
        kernel.ofm.mark(tags.row, rows)
        kernel.ofm.mark(tags.pitch, np.full(rows.shape, view.stride_y, np.int64))
        op.rows += view.h

    def check(self, kernel: LoadedKernel, op: _Op, number: int, storage: Storage) -> str:
        """Return why the rows of one input are not the ones needed, "" if they are."""
        view = storage.view
        tags = self.tags[self.keys[view.region]]
        writers = storage.read_byte(tags.op, 0)
        if view.dtype.itemsize > 2:
            return ""
        comparable = (writers > 0) & (storage.read_byte(tags.pitch, 0) == view.stride_y)
        if not comparable.any():
            return ""
        wanted = _first_row(kernel.state, view, op) + np.arange(view.h)
        offsets = storage.read_byte(tags.row, 0) - wanted[:, None, None]
        for writer in np.unique(writers[comparable]).tolist():
            seen = offsets[comparable & (writers == writer)]
            low, high = int(seen.min()), int(seen.max())
            expected = op.offsets.setdefault((number, writer), high)
            is_rolling = self.numbered[writer].is_rolling
            if is_rolling and (low != expected or high != expected):
                bad = int((seen != expected).sum())
                return (
                    f"{bad} elements of its input {number} are of rows {low - expected:+d} to "
                    f"{high - expected:+d} beside the ones it needs: the rolling buffer is too "
                    f"small, or a stripe is missing"
                )
        return ""


def _first_row(state: KernelState, view: View, op: _Op) -> int:
    """Return the IFM row that the next stripe of an op begins with, padding cut off."""
    if state.kind is StreamOpKind.ELEMENTWISE:
        return 0 if view.h < state.ofm.h else op.rows
    first = max(0, op.rows * state.window.stride_h - op.pad_top)
    return first if state.upscale is Upscale.NONE else first // 2


def stripe_key(kernel: LoadedKernel, op: int | None) -> OpKey:
    """Return what stripes of one op have in common."""
    state = kernel.state
    window = msgspec.structs.replace(state.window, pad_top=0, pad_bottom=0)
    views = tuple((v.bases[0] % max(abs(v.stride_y), 1), _without_rows(v)) for v in state.views)
    return (
        op,
        state.kind,
        state.function,
        window,
        views,
        id(kernel.volume) if kernel.volume is not None else None,
        state.ofm_scale,
        state.opa_scale,
        state.scalar,
        state.table is None,
    )


def _without_rows(view: View) -> View:
    """The view of any stripe: no address, no rows."""
    return replace(view, bases=(0, 0, 0, 0), h=0, height0=0, height1=0)
