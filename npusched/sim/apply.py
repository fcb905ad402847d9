"""Applies the meaning of a scheduled op to arrays: whole, or the rows of one stripe.

A stripe is computed from the IFM rows that its windows reach, with the padding that is left there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as changed

from npusched.graph.chains import primary_ifm
from npusched.graph.types import Access, Kernel, KernelKind, Reverse, ScheduledOp, Upscale
from npusched.sim.kernels import (
    Arithmetic,
    Clamp,
    Table,
    centre,
    clamp,
    finish,
    lookup8,
    lookup16,
    run,
)
from npusched.sim.kernels.arrays import Array
from npusched.sim.meaning import WINDOWED, Meaning, Turn

_K = KernelKind


def pieces_of(op: ScheduledOp) -> list[ScheduledOp]:
    """Return the pieces that an op stands for, in order: itself, or one per place of its grid."""
    pieces = op.pieces
    if pieces is None:
        return [op]
    found = []
    for at in itertools.product(*(range(count) for count in pieces.grid)):
        ifms = tuple(
            _moved(access, at, step)
            for access, step in zip(op.ifms, pieces.ifm_steps, strict=False)
        )
        subs = tuple(changed(sub, ofm=_moved(sub.ofm, at, pieces.ofm_step)) for sub in op.sub_ops)
        ofm = _moved(op.ofm, at, pieces.ofm_step)
        found.append(changed(op, ifms=ifms, ofms=(ofm,), sub_ops=subs, pieces=None))
    return found[::-1] if pieces.backwards else found


def _moved(access: Access, at: Sequence[int], step: Sequence[int]) -> Access:
    n, h, w, c = (o + i * s for o, i, s in zip(access.offset, at, step, strict=True))
    return changed(access, offset=(n, h, w, c))


def rows_needed(op: ScheduledOp, position: int, start: int, end: int) -> tuple[int, int]:
    """Rows [low, high) of input ``position`` that OFM rows [start, end) are computed from.

    May be empty (low = high) where a window lies in the padding.
    """
    available = op.ifms[position].shape[1]
    if op.kind not in WINDOWED:
        return (start, end) if available == op.ofm.shape[1] else (0, available)
    if position != primary_ifm(op):
        return 0, available
    low, high = _reach(op.kernel, start, end)
    return min(max(low, 0), available), min(max(high, 0), available)


def _reach(kernel: Kernel, start: int, end: int) -> tuple[int, int]:
    """IFM rows of the windows of OFM rows [start, end), those in the padding included."""
    low = start * kernel.stride_h - kernel.pad_top
    return low, (end - 1) * kernel.stride_h - kernel.pad_top + kernel.dilated_h


def compute(meaning: Meaning, ifms: Sequence[Array], rows: tuple[int, int] | None = None) -> Array:
    """Return the stored OFM of stored inputs (n, h, w, c).

    ``rows``: only these rows of the OFM, from inputs cut to ``rows_needed``; None = all, from
    whole inputs.
    """
    op, arithmetic = meaning.op, meaning.arithmetic
    if op.kind is _K.MATMUL:
        values = finish(arithmetic, _product(arithmetic, ifms[0], ifms[1]))
    else:
        shape = ifms[0].shape[1:3]
        if op.kind in WINDOWED:
            arithmetic, shape = _at_rows(op, arithmetic, ifms[0].shape, rows)
        values = run(arithmetic, ifms[0], ifms[1] if len(ifms) > 1 else None, ofm_shape=shape)
    for step in meaning.after:
        match step:
            case Clamp():
                values = clamp(values, step)
            case Table() if step.interpolates:
                values = lookup16(values, step.entries)
            case Table():
                values = lookup8(values, step.entries, is_signed=step.is_signed)
            case Turn():
                values = _turned(values, step)
    return values.astype(meaning.dtype, copy=False)


def _product(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    """Rows of ``a`` (n, h, w, c) times rows of ``b`` (n, h, d, c): (n, h, w, d), exact."""
    first = centre(a, arithmetic.ifm_zero_point, np.int64)
    second = centre(b, arithmetic.ifm2_zero_point, np.int64)
    product: Array = first @ second.swapaxes(2, 3)
    return product


def _at_rows(
    op: ScheduledOp, arithmetic: Arithmetic, ifm: tuple[int, ...], rows: tuple[int, int] | None
) -> tuple[Arithmetic, tuple[int, int]]:
    """The arithmetic with the padding that these rows see, and (rows, columns) of the OFM."""
    if op.kind is _K.REDUCE_SUM:
        return arithmetic, (ifm[1], ifm[2])
    kernel = arithmetic.window
    _, oh, ow, _ = _unturned(op)
    factor = 1 if op.upscale is Upscale.NONE else 2
    start, end = rows or (0, oh)
    low, high = _reach(kernel, start, end)
    top = min(max(-low, 0), high - low)
    real = factor * ifm[1]
    left = kernel.pad_left
    width = (ow - 1) * kernel.stride_w + kernel.dilated_w
    window = changed(
        kernel,
        pad_top=top,
        pad_bottom=max(high - low - top - real, 0),
        pad_right=max(width - left - factor * ifm[2], 0),
    )
    return replace(arithmetic, window=window), (end - start, ow)


def _unturned(op: ScheduledOp) -> tuple[int, int, int, int]:
    """Shape of the OFM before it is transposed."""
    n, h, w, c = op.ofm.shape
    shape = [-(-h // op.ofm.step_h), -(-w // op.ofm.step_w), c]
    if op.transpose is not None:
        before = [0, 0, 0]
        for after, axis in enumerate(op.transpose):
            before[axis] = shape[after]
        shape = before
    return n, shape[0], shape[1], shape[2]


def _turned(values: Array, turn: Turn) -> Array:
    if turn.transpose is not None:
        values = values.transpose(0, *(1 + axis for axis in turn.transpose))
    axis = {Reverse.H: 1, Reverse.W: 2, Reverse.C: 3}.get(turn.reverse)
    return values if axis is None else np.flip(values, axis)
