"""Pieces of convolutions, pools and reductions that are too large, or stride too far, for one run.

Sources: LOWERING.md §4; Vela 5.2.0, ``compiler/scheduler_decompose.cpp`` (NewOfmBlockShape,
DecomposeBlocks, NewPaddingForBlock, UpdatePaddingAndIfmOffset, DecomposeForStrides,
DecomposeReduce).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.block_query import BlockOf, BlockQuery
from npusched.graph.kinds import CONVOLUTIONS
from npusched.graph.lower.basic_kernels import set_weights, weight_values
from npusched.graph.shapes import MAX_AXIS, ceil_div
from npusched.graph.types import Kernel, KernelKind, Pieces, Shape4
from npusched.graph.work import WorkGraph, WorkOp

MAX_STRIDE = 3
"""Largest stride of a kernel (LOWERING §4)."""

_CUT_KINDS = frozenset(
    {*CONVOLUTIONS, KernelKind.AVG_POOL, KernelKind.MAX_POOL, KernelKind.SUM_POOL}
)

_EDGE_BLOCKS = 256
"""Blocks at each end of an axis that may see padding: kernels have at most 256 rows (§2.4)."""


def is_strided(op: WorkOp) -> bool:
    """Return True if the stride of ``op`` is too far for the hardware."""
    return max(op.kernel.stride_h, op.kernel.stride_w) > MAX_STRIDE


def needs_cutting(op: WorkOp) -> bool:
    """Return True if ``op`` must be cut into blocks of its result (and, if strided, into taps)."""
    large = any(max(link.region[-3:]) > MAX_AXIS for link in (op.ifm, op.ofm))
    return op.kind in _CUT_KINDS and (large or is_strided(op))


def cut_blocks(graph: WorkGraph, op: WorkOp, block_of: BlockOf) -> list[WorkOp]:
    """Return ``op`` cut so that no axis exceeds 65536 and, on U85, no stride exceeds 3."""
    if not needs_cutting(op) or op.pieces is not None:
        return [op]
    strided = is_strided(op)
    blocks = list(_blocks(graph, op, block_of))
    return [tap for block in blocks for tap in _taps(graph, block)] if strided else blocks


# --- blocks --------------------------------------------------------------------------------


class _Run(msgspec.Struct, frozen=True):
    """Equal blocks along one axis: where the first starts, and what each reads and writes."""

    count: int
    step: int
    ofm_offset: int
    ofm_size: int
    ifm_offset: int
    ifm_size: int
    ifm_step: int
    pad_before: int
    pad_after: int


def _blocks(graph: WorkGraph, op: WorkOp, block_of: BlockOf) -> Iterator[WorkOp]:
    """Cut the OFM of ``op`` into hardware blocks; equal ones form a grid of pieces."""
    query = BlockQuery(
        kind=op.kind if isinstance(op.kind, KernelKind) else KernelKind.CONV2D,
        ifm=_four(op.ifm.region),
        ofm=_four(op.ofm.region),
        ifm_bits=op.ifm.element_type.bits,
        ofm_bits=op.ofm.element_type.bits,
        kernel=Kernel(dilation_h=op.kernel.dilation_h, dilation_w=op.kernel.dilation_w),
        scaled=op.accumulator_scaled,
    )
    block = block_of(query)
    if all(size <= limit for size, limit in zip(op.ofm.region[-3:], block, strict=True)):
        yield op
        return
    depth = op.ofm.region[-1]
    rows = _runs(op, -3, block[0])
    columns = _runs(op, -2, block[1])
    depths = [(start, min(block[2], depth - start)) for start in range(0, depth, block[2])]
    for row, column, (start, channels) in product(rows, columns, depths):
        piece = _block(op, row, column, start, channels)
        if channels != depth:
            _take_channels(graph, piece, start, channels)
        yield piece


def _four(shape: tuple[int, ...]) -> Shape4:
    return (shape[-4], shape[-3], shape[-2], shape[-1])


def _runs(op: WorkOp, axis: int, size: int) -> list[_Run]:
    """Return the blocks of ``size`` along one axis, neighbours of equal form joined.

    Only blocks near the ends differ from those between, so no others are looked at.
    """
    starts = range(0, op.ofm.region[axis], size)
    shown = list(starts)
    if len(starts) > 2 * _EDGE_BLOCKS:
        shown = [*starts[:_EDGE_BLOCKS], *starts[-_EDGE_BLOCKS:]]
    runs = []
    for _, group in groupby((_single(op, axis, start, size) for start in shown), key=_form):
        members = list(group)
        last = members[-1].ofm_offset
        count = (last - members[0].ofm_offset) // size + 1
        runs.append(replace(members[0], count=count))
    return runs


def _form(run: _Run) -> tuple[int, int, int, int]:
    return (run.ofm_size, run.ifm_size, run.pad_before, run.pad_after)


def _single(op: WorkOp, axis: int, start: int, size: int) -> _Run:
    kernel = op.kernel
    if axis == -3:
        taps, stride, before, after = kernel.h, kernel.stride_h, kernel.pad_top, kernel.pad_bottom
    else:
        taps, stride, before, after = kernel.w, kernel.stride_w, kernel.pad_left, kernel.pad_right
    whole, ofm_size = op.ifm.region[axis], op.ofm.region[axis]
    wanted = min(size, ofm_size - start)
    offset = min(start * stride - before, whole)
    pad_before = max(before - max(offset + before, 0), 0)
    rest = whole - (size * stride + offset + taps - 1)
    pad_after = min(after, max(-rest, 0))
    read = (wanted - 1) * stride + taps - pad_before - pad_after
    if size >= ofm_size:
        read = whole
    return _Run(
        count=1,
        step=size,
        ofm_offset=start,
        ofm_size=wanted,
        ifm_offset=max(offset, 0),
        ifm_size=min(read, whole - offset),
        ifm_step=size * stride,
        pad_before=max(-offset, 0),
        pad_after=pad_after,
    )


def _block(op: WorkOp, row: _Run, column: _Run, start: int, channels: int) -> WorkOp:
    piece = op.clone()
    piece.kernel = replace(
        op.kernel,
        pad_top=row.pad_before,
        pad_bottom=row.pad_after,
        pad_left=column.pad_before,
        pad_right=column.pad_after,
    )
    ifm, ofm = piece.ifm, piece.ofm
    base_in = (0,) * 4 if ifm.slice_offset is None else ifm.slice_offset[-4:]
    base_out = (0,) * 4 if ofm.slice_offset is None else ofm.slice_offset[-4:]
    ifm.slice_offset = (
        base_in[0],
        base_in[1] + row.ifm_offset,
        base_in[2] + column.ifm_offset,
        base_in[3],
    )
    ifm.slice_shape = (op.ifm.region[-4], row.ifm_size, column.ifm_size, op.ifm.region[-1])
    ofm.slice_offset = (
        base_out[0],
        base_out[1] + row.ofm_offset,
        base_out[2] + column.ofm_offset,
        base_out[3] + start,
    )
    ofm.slice_shape = (op.ofm.region[-4], row.ofm_size, column.ofm_size, channels)
    if op.kind is not KernelKind.CONV2D:
        ifm.slice_offset = (*ifm.slice_offset[:3], base_in[3] + start)
        ifm.slice_shape = (*ifm.slice_shape[:3], channels)
    if row.count * column.count > 1:
        piece.pieces = Pieces(
            grid=(1, row.count, column.count, 1),
            ifm_steps=((0, row.ifm_step, column.ifm_step, 0),),
            ofm_step=(0, row.step, column.step, 0),
        )
    return piece


def _take_channels(graph: WorkGraph, piece: WorkOp, start: int, channels: int) -> None:
    """Keep weights, bias and rescale of the OFM channels [start, start + channels)."""
    part = slice(start, start + channels)
    if piece.weights is not None:
        _rearrange(graph, piece, weight_values(piece)[part], f"channels {start}+{channels}")
    if piece.bias is not None and piece.bias.tensor.data is not None:
        values = piece.bias.tensor.data.reshape(-1)
        if values.size > 1:
            tensor = replace(
                piece.bias.tensor, shape=(channels,), data=values[part], readers=[], writers=[]
            )
            graph.tensors.append(tensor)
            piece.bias = replace(piece.bias, tensor=tensor, shape=(channels,))
    rescale = piece.ofm_rescale
    if rescale is not None and len(rescale.multipliers) > 1:
        piece.ofm_rescale = replace(
            rescale, multipliers=rescale.multipliers[part], shifts=rescale.shifts[part]
        )


def _rearrange(graph: WorkGraph, piece: WorkOp, values: npt.NDArray[np.generic], tag: str) -> None:
    """Give a piece that is not registered yet other weights."""
    assert piece.weights is not None
    piece.weights.tensor.readers.append(piece)
    set_weights(graph, piece, values, tag)
    piece.weights.tensor.readers.remove(piece)


# --- strides -------------------------------------------------------------------------------


def _taps(graph: WorkGraph, op: WorkOp) -> list[WorkOp]:
    """Return one accumulating 1x1 op per kernel tap, which reads the IFM in steps of the stride.

    Taps that would read nothing but padding are left out (not all of them). Where ``op`` is a
    grid of pieces, all taps of a piece run before the next piece.
    """
    kernel = op.kernel
    found: list[WorkOp] = []
    for y, x in product(range(kernel.h), range(kernel.w)):
        rows = _tap_range(op, -3, y, kernel.stride_h, kernel.pad_top)
        columns = _tap_range(op, -2, x, kernel.stride_w, kernel.pad_left)
        if rows is None or columns is None:
            if found or (y, x) != (kernel.h - 1, kernel.w - 1):
                continue
            rows, columns = rows or _TapRange(0, 0, 1), columns or _TapRange(0, 0, 1)
        found.append(_tap(graph, op, (y, x), rows, columns))
    found[0].keep_accumulators = False
    found[-1].write_ofm = True
    return found


class _TapRange(msgspec.Struct, frozen=True):
    """Rows (or columns) of padding before, the first one read, and how many are spanned."""

    padding: int
    first: int
    size: int


def _tap_range(op: WorkOp, axis: int, tap: int, stride: int, pad: int) -> _TapRange | None:
    """Return what a tap reads along one axis, None if it is all padding."""
    ifm = op.ifm
    base = 0 if ifm.slice_offset is None else ifm.slice_offset[axis]
    offset = base - pad + tap
    size = min(ifm.shape[axis] - offset, ifm.region[axis])
    if size <= 0:
        return None
    if offset < 0:
        skipped = ceil_div(-offset, stride)
        if skipped >= op.ofm.region[axis] or offset + skipped * stride >= size:
            return None
    return _TapRange(max(-offset, 0), max(offset, 0), size)


def _tap(
    graph: WorkGraph, op: WorkOp, at: tuple[int, int], rows: _TapRange, columns: _TapRange
) -> WorkOp:
    """Return the op of the kernel tap at (y, x)."""
    piece = op.clone()
    piece.kernel = Kernel(pad_top=rows.padding, pad_left=columns.padding)
    piece.keep_accumulators, piece.write_ofm = True, False
    ifm = piece.ifm
    base = (0,) * 4 if ifm.slice_offset is None else ifm.slice_offset[-4:]
    ifm.slice_offset = (base[0], rows.first, columns.first, base[3])
    ifm.slice_shape = (op.ifm.region[-4], rows.size, columns.size, op.ifm.region[-1])
    ifm.step_h, ifm.step_w = op.kernel.stride_h, op.kernel.stride_w
    if piece.weights is not None:
        y, x = at
        values = weight_values(piece)[:, y : y + 1, x : x + 1, :]
        _rearrange(graph, piece, values, f"tap {y},{x}")
    return piece
