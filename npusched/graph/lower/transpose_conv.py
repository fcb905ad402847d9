"""TRANSPOSE_CONV: one convolution of an upscaled input, or one per stride phase (U85).

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp``
(RewriteTransposeConvPadding), ``compiler/scheduler_decompose.cpp`` (LegaliseTransposeConv2D,
DecomposeTransposeConv2DLargeStride).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from npusched.graph.lower.basic_kernels import (
    add_missing_bias,
    conv_rescale,
    set_weights,
    weight_values,
)
from npusched.graph.lower.common import is_u85
from npusched.graph.lower.scaling import truncating_half
from npusched.graph.shapes import ceil_div
from npusched.graph.split import cut
from npusched.graph.types import Kernel, KernelKind, Upscale
from npusched.graph.work import WorkGraph, WorkOp
from npusched.ir import OpKind, Padding
from npusched.ir.options import ConvOptions

# --- step 1 --------------------------------------------------------------------------------


def lower_transpose_conv(graph: WorkGraph, op: WorkOp) -> None:
    """TRANSPOSE_CONV: keep it whole (kind unchanged), with its window, bias and scales.

    The kernel's padding is that of the convolution on the upscaled input (U55/U65), or the rows
    and columns that SAME cuts off the full result (U85; negative where it adds some).
    """
    options = op.options
    assert isinstance(options, ConvOptions)
    outputs, height, width, _ = weight_values(op).shape
    add_missing_bias(graph, op, outputs)
    op.ofm_rescale = conv_rescale(op)
    stride_h, stride_w = options.stride_h, options.stride_w
    ifm_h, ifm_w = op.ifm.shape[-3:-1]
    ofm_h, ofm_w = op.ofm.shape[-3:-1]
    same = options.padding is Padding.SAME
    if is_u85(graph):
        rows = _cropped(height, stride_h) if same else (0, 0)
        columns = _cropped(width, stride_w) if same else (0, 0)
    else:
        upscaled = _is_upscaled(op, height, width, stride_h, stride_w)
        rows = _padding(ifm_h * stride_h, ofm_h, height, stride_h, upscaled, same)
        columns = _padding(ifm_w * stride_w, ofm_w, width, stride_w, upscaled, same)
    op.kernel = Kernel(
        h=height,
        w=width,
        stride_h=stride_h,
        stride_w=stride_w,
        pad_top=rows[0],
        pad_bottom=rows[1],
        pad_left=columns[0],
        pad_right=columns[1],
    )
    op.kind = OpKind.TRANSPOSE_CONV


def _is_upscaled(op: WorkOp, height: int, width: int, stride_h: int, stride_w: int) -> bool:
    """Return True for the strides that zero insertion by 2 serves."""
    flat = op.ifm.shape[-3] * stride_h == 1 and height == 1
    thin = op.ifm.shape[-2] * stride_w == 1 and width == 1
    return (
        (stride_h, stride_w) == (2, 2)
        or ((stride_h, stride_w) == (2, 1) and thin)
        or ((stride_h, stride_w) == (1, 2) and flat)
    )


def _padding(
    upscaled_size: int, ofm: int, kernel: int, stride: int, upscaled: bool, same: bool
) -> tuple[int, int]:
    """Padding (before, after) of one axis on U55/U65."""
    needed = max(0, ofm - 1 + kernel - upscaled_size)
    if not upscaled:
        return (needed + 1) // 2, needed // 2
    if not same:
        return kernel - 1, max(kernel - 2, 0)
    after = max((needed + 1) // stride - 1, 0)
    return max(kernel - 1 - after, 0), after


def _cropped(kernel: int, stride: int) -> tuple[int, int]:
    """Rows (before, after) that SAME cuts off the full result on U85."""
    total = kernel - stride
    before = truncating_half(total)
    return before, total - before


# --- step 3 --------------------------------------------------------------------------------


def decompose_transpose_conv(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: flip the weights; upscale the input by zeros (U55/U65) or cut into phases (U85)."""
    kernel = op.kernel
    if op.ofm.region[-3] == 1:
        kernel = replace(kernel, stride_h=1)
    if op.ofm.region[-2] == 1:
        kernel = replace(kernel, stride_w=1)
    if is_u85(graph):
        for batch in range(op.ofm.region[0]):
            _phases(graph, op, kernel, batch)
        graph.remove(op)
        return
    op.kind = KernelKind.CONV2D
    if 2 in (kernel.stride_h, kernel.stride_w):
        op.upscale = Upscale.ZEROS
    op.kernel = replace(kernel, stride_h=1, stride_w=1)
    set_weights(graph, op, weight_values(op)[:, ::-1, ::-1, :], "flipped")
    cut(graph, op)


class _Phase(msgspec.Struct, frozen=True):
    """The outputs ``first``, ``first + stride``, ... of one axis, as a convolution of stride 1.

    ``taps`` are the kernel positions that reach them, already in the order of a convolution;
    ``skipped`` input rows at the start lie outside, ``before`` and ``after`` are padding.
    """

    first: int
    taps: range
    skipped: int
    before: int
    after: int


def _axis_phases(kernel: int, stride: int, ofm: int, crop: tuple[int, int]) -> Iterator[_Phase]:
    """Yield the phases of one axis that a tap reaches, in the order of the outputs."""
    added, cut = max(0, -crop[0]), max(0, crop[0])
    for offset in range(min(kernel + added, stride)):
        tap = (offset + stride - added % stride) % stride
        if tap >= kernel:
            continue
        more = (kernel - 1 - tap) // stride
        if cut:
            first = offset + ceil_div(cut - offset, stride) * stride - cut
            shift = more - ceil_div(cut - offset, stride)
        else:
            first = offset
            shift = more + ceil_div(added - offset, stride)
        outputs = ceil_div(ofm - first, stride)
        without_end = ceil_div(ofm - first + crop[1], stride)
        yield _Phase(
            first=first,
            taps=range(tap + more * stride, tap - 1, -stride),
            skipped=max(0, -shift),
            before=max(0, shift),
            after=max(0, more + outputs - without_end),
        )


def _phases(graph: WorkGraph, op: WorkOp, kernel: Kernel, batch: int) -> None:
    """Add one convolution per phase; it writes every stride-th row and column of the result."""
    ifm, ofm = op.ifm.region, op.ofm.region
    base_n, base_h, base_w, base_c = op.ifm.slice_offset or (0, 0, 0, 0)
    to_n, to_h, to_w, to_c = op.ofm.slice_offset or (0, 0, 0, 0)
    if kernel.stride_h > kernel.h or kernel.stride_w > kernel.w:
        _fill_with_bias(graph, op, batch)
    rows = list(
        _axis_phases(kernel.h, kernel.stride_h, ofm[-3], (kernel.pad_top, kernel.pad_bottom))
    )
    columns = list(
        _axis_phases(kernel.w, kernel.stride_w, ofm[-2], (kernel.pad_left, kernel.pad_right))
    )
    values = weight_values(op)
    for row in rows:
        for column in columns:
            piece = op.clone()
            piece.kind = KernelKind.CONV2D
            piece.kernel = Kernel(
                h=len(row.taps),
                w=len(column.taps),
                pad_top=row.before,
                pad_left=column.before,
                pad_bottom=row.after,
                pad_right=column.after,
            )
            piece.ifm.slice_offset = (
                base_n + batch,
                base_h + row.skipped,
                base_w + column.skipped,
                base_c,
            )
            piece.ifm.slice_shape = (
                1,
                ifm[1] - row.skipped,
                ifm[2] - column.skipped,
                ifm[3],
            )
            piece.ofm.slice_offset = (to_n + batch, to_h + row.first, to_w + column.first, to_c)
            piece.ofm.slice_shape = (1, ofm[1] - row.first, ofm[2] - column.first, ofm[3])
            piece.ofm.step_h, piece.ofm.step_w = kernel.stride_h, kernel.stride_w
            graph.add(piece, before=op)
            taps = np.ix_(range(values.shape[0]), row.taps, column.taps, range(values.shape[3]))
            set_weights(graph, piece, values[taps], f"phase {row.taps} {column.taps}")


def _fill_with_bias(graph: WorkGraph, op: WorkOp, batch: int) -> None:
    """Add a 1x1 convolution with weights of zero: outputs that no tap reaches hold the bias."""
    values = weight_values(op)
    assert op.weights is not None
    fill = op.clone()
    fill.kind = KernelKind.CONV2D
    fill.kernel = Kernel()
    for link in (fill.ifm, fill.ofm):
        n, h, w, c = link.slice_offset or (0, 0, 0, 0)
        link.slice_offset, link.slice_shape = (n + batch, h, w, c), (1, *link.region[1:])
    graph.add(fill, before=op)
    zeros = np.zeros((values.shape[0], 1, 1, values.shape[3]), dtype=values.dtype)
    set_weights(graph, fill, zeros, "zero")
    assert fill.weights is not None
    fill.weights.tensor.zero_points = (0,)
