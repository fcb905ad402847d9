"""A transpose convolution of any stride as plain convolutions, one per row phase.

Row y = s*q + r of the result sums in[q + d] * w[r + pad - s*d] over the offsets d: every phase r of
stride s takes every s-th tap of the kernel. A convolution computes all column phases of one row
phase as channels; a RESHAPE makes columns of them, a CONCATENATION and a RESHAPE rows.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.graph.edits.uses import Uses
from npusched.ir import ActivationKind, DataType, Model, Op, OpKind, Padding, Tensor
from npusched.ir.options import ConvOptions, ReshapeOptions
from npusched.tflite import Ref
from npusched.tflite.editor import Editor

Taps: TypeAlias = "list[list[int | None]]"
"""Per phase, the tap of every offset; None = no tap there."""


class _Phases(msgspec.Struct, frozen=True):
    """One axis: offsets ``low`` to ``high`` of the input, and the taps of every phase."""

    low: int
    high: int
    taps: Taps


def subpixel_transpose_conv(model: Model, subgraph: int, op: int) -> bytes | None:
    """Return the file with a TRANSPOSE_CONV as convolutions of one phase each; results are equal.

    None for one with an activation, or whose result is not input times stride.
    """
    graph = model.subgraphs[subgraph]
    uses, source = Uses(graph), graph.ops[op]
    options = source.options
    if source.kind is not OpKind.TRANSPOSE_CONV or not isinstance(options, ConvOptions):
        return None
    weights, bias = uses.tensor(source, 1), uses.tensor(source, 3)
    data, result = graph.tensors[source.inputs[2]], uses.result(source)
    steps = (options.stride_h, options.stride_w)
    plain = options.activation is ActivationKind.NONE and (bias is None or bias.is_constant)
    whole = result.shape[1:3] == (data.shape[1] * steps[0], data.shape[2] * steps[1])
    if weights is None or weights.data is None or weights.quantization is None:
        return None
    rows, columns = (
        _phases(weights.shape[1 + a], steps[a], data.shape[1 + a], result.shape[1 + a])
        for a in (0, 1)
    )
    if not plain or not whole or max(rows.low, columns.low) > 0 or min(rows.high, columns.high) < 0:
        return None
    return _interleaved(model, subgraph, source, rows, columns)


def _phases(kernel: int, stride: int, size: int, result: int) -> _Phases:
    """The taps of one axis; SAME pads the smaller half in front."""
    pad = max((size - 1) * stride + kernel - result, 0) // 2
    offsets = [
        (r + pad - k) // stride
        for r in range(stride)
        for k in range(kernel)
        if (r + pad - k) % stride == 0
    ]
    low, high = min(offsets), max(offsets)
    taps: Taps = []
    for r in range(stride):
        places = [r + pad - stride * d for d in range(low, high + 1)]
        taps.append([k if 0 <= k < kernel else None for k in places])
    return _Phases(low, high, taps)


def _interleaved(model: Model, subgraph: int, op: Op, rows: _Phases, columns: _Phases) -> bytes:
    graph, editor = model.subgraphs[subgraph], Editor(model, subgraph)
    n, h, w, _ = graph.tensors[op.inputs[2]].shape
    with editor.before(op.index):
        x, out = editor.ref(op.inputs[2]), editor.ref(op.outputs[0])
        pads = [(0, 0), (-rows.low, rows.high), (-columns.low, columns.high), (0, 0)]
        if any(any(pair) for pair in pads):
            x = editor.pad(x, pads, name=f"tconv_{op.index}_pad")
        lines = []
        for row in rows.taps:
            made = _one_row_phase(editor, graph.tensors, op, x, row, columns.taps)
            shape = (n, h, w * len(columns.taps), out.shape[3])
            lines.append(editor.reshape(made, shape))
        joined = lines[0]
        if len(lines) > 1:
            joined = editor.concat(lines, 2, name=f"tconv_{op.index}_rows")
        stated = editor.const(out.shape, "int32", name=f"tconv_{op.index}_shape")
        editor.op(OpKind.RESHAPE, [joined, stated], [out], ReshapeOptions(new_shape=out.shape))
    editor.remove(op.index)
    return editor.content()


def _one_row_phase(
    editor: Editor,
    tensors: tuple[Tensor, ...],
    op: Op,
    x: Ref,
    row: list[int | None],
    columns: Taps,
) -> Ref:
    """The convolution of one row phase: channels are (column phase, channel of the result)."""
    weights, bias = tensors[op.inputs[1]], tensors[op.inputs[3]] if len(op.inputs) > 3 else None
    known, out = weights.quantization, editor.ref(op.outputs[0])
    assert weights.data is not None
    assert known is not None
    channels, many = weights.shape[0], len(columns)
    zero = known.zero_points[0] if known.zero_points else 0
    scales = known.scales if len(known.scales) > 1 else known.scales * channels
    sums = np.zeros(channels) if bias is None or bias.data is None else bias.data
    dtype = DataType.INT64 if x.dtype is DataType.INT16 else DataType.INT32
    inputs = [
        x,
        editor.const(
            _taken(weights.data, zero, row, columns),
            weights.dtype,
            scale=scales * many,
            zero_point=(zero,) * (many * channels),
        ),
        editor.const(
            np.tile(sums.reshape(-1), many),
            dtype if bias is None else bias.dtype,
            scale=tuple(float(np.float32((x.scale or 1.0) * s)) for s in scales) * many,
        ),
    ]
    return editor.apply(
        OpKind.CONV_2D,
        inputs,
        ConvOptions(padding=Padding.VALID),
        dtype=out.dtype,
        scale=out.scale,
        zero_point=out.zero_point,
    )


def _taken(
    weights: npt.NDArray[np.generic], zero: int, row: list[int | None], columns: Taps
) -> npt.NDArray[np.int64]:
    """The kernels of one row phase, OHWI; where there is no tap they are zero."""
    channels, depth = weights.shape[0], weights.shape[3]
    kernel = np.full((len(columns), channels, len(row), len(columns[0]), depth), zero, np.int64)
    for q, column in enumerate(columns):
        for i, ky in enumerate(row):
            for j, kx in enumerate(column):
                if ky is not None and kx is not None:
                    kernel[q, :, i, j] = weights[:, ky, kx]
    return kernel.reshape(len(columns) * channels, *kernel.shape[2:])
