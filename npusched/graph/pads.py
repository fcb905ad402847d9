"""Pads: swallowed by a convolution, or written as fills around a copy.

Sources: LOWERING.md §4; Vela 5.2.0, ``compiler/graphir_optimiser.cpp``
(ReplacePadByExplicitPadding, RewritePad, ResetKernelAttributes, FixupPoolStrides,
UnrollKernelStrides).
"""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec.structs import replace

from npusched.graph.kinds import CONVOLUTIONS, POOLS, is_windowed
from npusched.graph.lower.basic_moves import constant_ints
from npusched.graph.moves import merged_sources
from npusched.graph.shapes import around_axis, pad_axes, with_axis
from npusched.graph.types import Kernel, KernelKind, Pieces, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.ir import OpKind, Shape

MAX_STRIDE = 3
"""Largest stride of a kernel (LOWERING §4)."""


def has_no_padding(kernel: Kernel) -> bool:
    """Return True if the kernel pads nowhere."""
    return not (kernel.pad_top or kernel.pad_left or kernel.pad_bottom or kernel.pad_right)


def pad_amounts(op: WorkOp) -> tuple[Shape, Shape]:
    """Return (before, after) per axis of the IFM of an OpKind.PAD."""
    values = constant_ints(op.params[1])
    return values[0::2], values[1::2]


def swallow_pad(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Let a convolution without own padding do the zero padding of the PAD that feeds it.

    Only height and width may be padded, less than the dilated kernel, with equal quantisation.
    """
    if op.kind not in CONVOLUTIONS or not has_no_padding(op.kernel):
        return op
    writers = op.ifm.tensor.writers
    if len(writers) != 1 or writers[0].kind is not OpKind.PAD or writers[0].cpu:
        return op
    pad = writers[0]
    source, padded = pad.ifm, pad.ofm
    if (
        pad.pad_value != padded.zero_point
        or source.tensor.dtype is not padded.tensor.dtype
        or source.scale is None
        or (source.scale, source.zero_point) != (padded.scale, padded.zero_point)
        or padded.region[-3:-1] != op.ifm.region[-3:-1]
    ):
        return op
    before, after = pad_amounts(pad)
    if any((*before[:-3], before[-1], *after[:-3], after[-1])):
        return op
    kernel = op.kernel
    height, width = source.region[-3:-1]
    bottom = _needed_after(height, kernel.stride_h, kernel.dilated_h, before[-3], after[-3])
    right = _needed_after(width, kernel.stride_w, kernel.dilated_w, before[-2], after[-2])
    if max(before[-2], right) >= kernel.dilated_w or max(before[-3], bottom) >= kernel.dilated_h:
        return op
    op.kernel = replace(
        kernel, pad_top=before[-3], pad_left=before[-2], pad_bottom=bottom, pad_right=right
    )
    _read_unpadded(graph, op, source)
    op.source_ops = merged_sources(op.source_ops, pad.source_ops)
    if not padded.tensor.readers and not padded.tensor.is_graph_output:
        graph.remove(pad)
    return op


def _needed_after(size: int, stride: int, dilated: int, before: int, after: int) -> int:
    """Return how much of the padding ``after`` a strided convolution really reads."""
    total = max((-(-size // stride) - 1) * stride + dilated - size, 0)
    needed = total - before
    remainder = after % stride - (abs(needed) % stride) * (1 if needed >= 0 else -1)
    return max(0, after - remainder - (0 if remainder >= 0 else stride))


def _read_unpadded(graph: WorkGraph, op: WorkOp, source: Link) -> None:
    """Make ``op`` read the PAD's input; a slice of the channels moves along."""
    old = op.ifm
    link = source.copy()
    if old.slice_offset is not None and old.slice_shape is not None:
        offset = old.slice_offset
        if source.slice_offset is not None:
            offset = tuple(a + b for a, b in zip(offset, source.slice_offset, strict=True))
        link.slice_offset = offset
        link.slice_shape = (*old.slice_shape[:-3], *source.region[-3:-1], old.slice_shape[-1])
    graph.replace_ifm(op, 0, link)


def rewrite_pad(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Replace a PAD by fills of its non-zero sides and a copy of the input into the centre."""
    if op.kind is not OpKind.PAD or op.cpu:
        return op
    before, after = pad_amounts(op)
    ofm, shape = op.ofm, op.ofm.shape
    rank = len(op.ifm.shape)
    largest = max(
        prod(shape) // shape[axis] * max(before[axis], after[axis]) for axis in range(rank)
    )
    dtype = ofm.tensor.dtype
    values = np.full(largest, op.pad_value, dtype=dtype.label)
    fill = graph.new_tensor("pad_const", (largest,), dtype, data=values)
    reshaped = rank > 4 or (rank == 4 and op.ifm.shape[0] > 1)
    for axis in range(rank):
        view = around_axis(shape, axis) if reshaped else shape
        at = 1 if reshaped else axis
        zeros = (0,) * len(view)
        if before[axis]:
            box = with_axis(view, at, before[axis])
            _add_fill(graph, op, Link(tensor=fill, shape=box), view, zeros, box)
        if after[axis]:
            box = with_axis(view, at, after[axis])
            offset = with_axis(zeros, at, view[at] - after[axis])
            _add_fill(graph, op, Link(tensor=fill, shape=box), view, offset, box)
    centre = ofm.copy()
    centre.slice_offset, centre.slice_shape = before, op.ifm.shape
    copy = _add_copy(graph, op, op.ifm.copy(), centre)
    graph.remove(op)
    return copy


def _add_fill(
    graph: WorkGraph, op: WorkOp, source: Link, view: Shape, offset: Shape, box: Shape
) -> None:
    target = replace(op.ofm, shape=view, slice_offset=offset, slice_shape=box)
    source.scale, source.zero_point = target.scale, target.zero_point
    _add_copy(graph, op, source, target)


def _add_copy(graph: WorkGraph, op: WorkOp, source: Link, target: Link) -> WorkOp:
    return graph.add(
        WorkOp(
            kind=KernelKind.MEMORY_COPY,
            source_ops=op.source_ops,
            ifms=[source],
            ofms=[target],
            rounding=Rounding.NATURAL,
            name=op.name,
        )
    )


# --- windows -------------------------------------------------------------------------------


def fix_pool_stride(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Set the stride of a pool over the whole plane to 1."""
    del graph
    kernel = op.kernel
    if op.kind in POOLS and len(op.ifm.shape) >= 3:
        size = (kernel.h, kernel.w)
        if size == (kernel.stride_h, kernel.stride_w) == op.ifm.shape[-3:-1] and has_no_padding(
            kernel
        ):
            op.kernel = replace(kernel, stride_h=1, stride_w=1)
    return op


def reset_kernel(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Set strides along output axes of size 1, and dilations of kernel axes of size 1, to 1."""
    del graph
    if is_windowed(op.kind) or op.kind is OpKind.TRANSPOSE_CONV:
        kernel = op.kernel
        shape = pad_axes(op.ofm.region, 3)
        op.kernel = replace(
            kernel,
            stride_h=1 if shape[-3] == 1 else kernel.stride_h,
            stride_w=1 if shape[-2] == 1 else kernel.stride_w,
            dilation_h=1 if kernel.h == 1 else kernel.dilation_h,
            dilation_w=1 if kernel.w == 1 else kernel.dilation_w,
        )
    return op


def unroll_strides(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Turn a convolution or pool with a stride above 3 into one piece per output pixel.

    Not with padding, dilation or slices. The pieces run from the last pixel to the first.
    """
    del graph
    if op.kind not in (KernelKind.CONV2D, KernelKind.AVG_POOL, KernelKind.MAX_POOL):
        return op
    kernel, ifm, ofm = op.kernel, op.ifm, op.ofm
    if max(kernel.stride_h, kernel.stride_w) <= MAX_STRIDE or op.pieces is not None:
        return op
    if (
        not has_no_padding(kernel)
        or max(kernel.dilation_h, kernel.dilation_w) > 1
        or ifm.slice_offset is not None
        or ofm.slice_offset is not None
    ):
        return op
    batch, height, width = pad_axes(ofm.shape, 4)[-4:-1]
    zeros = (0,) * len(ofm.shape)
    ifm.slice_offset, ofm.slice_offset = zeros, zeros
    ifm.slice_shape = (1, kernel.h, kernel.w, ifm.shape[-1])[-len(ifm.shape) :]
    ofm.slice_shape = (1, 1, 1, ofm.shape[-1])[-len(ofm.shape) :]
    op.pieces = Pieces(
        grid=(batch, height, width, 1),
        ifm_steps=((1, kernel.stride_h, kernel.stride_w, 0),),
        ofm_step=(1, 1, 1, 0),
        backwards=True,
    )
    op.kernel = replace(kernel, stride_h=1, stride_w=1)
    return op
