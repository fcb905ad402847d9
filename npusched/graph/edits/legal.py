"""Ops that break a limit of the NPU, written as ops that keep it. Shapes stay the same."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from npusched.graph.edits.uses import Uses
from npusched.ir import DataType, Model, OpKind, Padding
from npusched.ir.options import (
    ConcatOptions,
    ConvOptions,
    PoolOptions,
    ReduceOptions,
    StridedSliceOptions,
)
from npusched.ops import operands_of
from npusched.tflite.editor import Editor

MAX_SLICES = 64
"""Most slices that a reversed axis is cut into."""

_CONVOLUTIONS = frozenset({OpKind.CONV_2D, OpKind.DEPTHWISE_CONV_2D})


def padded_apart(model: Model, subgraph: int, op: int) -> bytes | None:
    """SAME padding of a convolution as a PAD of its own before a VALID one. Results are equal."""
    return _strided(model, subgraph, op, in_two=False)


def strided_in_two(model: Model, subgraph: int, op: int) -> bytes | None:
    """A stride above 3 as a smaller one, and a pool of 1x1 that skips. Results are equal."""
    return _strided(model, subgraph, op, in_two=True)


def _strided(model: Model, subgraph: int, op: int, *, in_two: bool) -> bytes | None:
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    options, window = source.options, operands_of(graph, source).window
    if source.kind not in _CONVOLUTIONS or not isinstance(options, ConvOptions) or window is None:
        return None
    pads = [
        (0, 0),
        (window.pad_top, window.pad_bottom),
        (window.pad_left, window.pad_right),
        (0, 0),
    ]
    if not in_two and not window.has_padding:
        return None
    first_h, then_h = _two_strides(options.stride_h) if in_two else (options.stride_h, 1)
    first_w, then_w = _two_strides(options.stride_w) if in_two else (options.stride_w, 1)
    if in_two and (then_h, then_w) == (1, 1):
        return None
    editor = Editor(model, subgraph)
    result = graph.tensors[source.outputs[0]]
    plain = replace(options, padding=Padding.VALID, stride_h=first_h, stride_w=first_w)
    data = source.inputs[0]
    with editor.before(op):
        if window.has_padding:
            data = editor.pad(editor.ref(data), pads, name=f"pad_{op}").index
    editor.set_inputs(op, [data, *source.inputs[1:]])
    editor.set_options(op, plain)
    if in_two:
        _, h, w, _ = graph.tensors[source.inputs[0]].shape
        out = editor.ref(result.index)
        between = editor.tensor(
            f"strided_{op}",
            (
                result.shape[0],
                (h + window.pad_top + window.pad_bottom - window.dilated_h) // first_h + 1,
                (w + window.pad_left + window.pad_right - window.dilated_w) // first_w + 1,
                result.shape[3],
            ),
            result.dtype,
            scale=out.scale,
            zero_point=out.zero_point,
        )
        skip = PoolOptions(
            padding=Padding.VALID, stride_h=then_h, stride_w=then_w, filter_h=1, filter_w=1
        )
        editor.set_outputs(op, [between.index])
        with editor.before(op + 1):
            editor.op(OpKind.MAX_POOL_2D, [between], [out], skip)
    return editor.content()


def _two_strides(stride: int) -> tuple[int, int]:
    """(a stride of at most 3, what is left to skip); (stride, 1) if it does not divide."""
    for first in (3, 2):
        if stride > 3 and stride % first == 0:
            return first, stride // first
    return (stride, 1) if stride <= 3 else (1, stride)


def padded_pool_apart(model: Model, subgraph: int, op: int) -> bytes | None:
    """SAME padding of a maximum as a PADV2 with the least value. Results are equal."""
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    options, window = source.options, operands_of(graph, source).window
    if source.kind is not OpKind.MAX_POOL_2D or not isinstance(options, PoolOptions):
        return None
    least = {DataType.INT8: -128, DataType.UINT8: 0, DataType.INT16: -32768}
    dtype = graph.tensors[source.inputs[0]].dtype
    if window is None or not window.has_padding or dtype not in least:
        return None
    pads = [
        (0, 0),
        (window.pad_top, window.pad_bottom),
        (window.pad_left, window.pad_right),
        (0, 0),
    ]
    editor = Editor(model, subgraph)
    with editor.before(op):
        x = editor.pad_v2(editor.ref(source.inputs[0]), pads, least[dtype], name=f"pad_{op}")
    editor.set_inputs(op, [x.index])
    editor.set_options(op, replace(options, padding=Padding.VALID))
    return editor.content()


def slices_of_reversed(model: Model, subgraph: int, op: int) -> bytes | None:
    """A STRIDED_SLICE that walks backwards as single slices, joined. Results are equal."""
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    if source.kind is not OpKind.STRIDED_SLICE:
        return None
    options = source.options
    values = [graph.tensors[t].data for t in source.inputs[1:4]]
    data, result = graph.tensors[source.inputs[0]], graph.tensors[source.outputs[0]]
    if any(v is None for v in values) or not isinstance(options, StridedSliceOptions):
        return None
    if options.ellipsis_mask or options.new_axis_mask or options.shrink_axis_mask:
        return None
    begin, end, strides = ([int(x) for x in np.asarray(v).reshape(-1)] for v in values)
    taken = []
    for axis, size in enumerate(data.shape):
        first = None if options.begin_mask >> axis & 1 else begin[axis]
        last = None if options.end_mask >> axis & 1 else end[axis]
        taken.append(list(range(size))[first : last : strides[axis]])
    back = [axis for axis, stride in enumerate(strides) if stride < 0]
    if len(back) != 1 or not 1 < len(taken[back[0]]) <= MAX_SLICES:
        return None
    if tuple(len(each) for each in taken) != result.shape:
        return None
    editor, (turned,) = Editor(model, subgraph), back
    with editor.before(op):
        x, out = editor.ref(data.index), editor.ref(result.index)
        parts = []
        for place in taken[turned]:
            start = [place if a == turned else each[0] for a, each in enumerate(taken)]
            stop = [place + 1 if a == turned else each[-1] + 1 for a, each in enumerate(taken)]
            steps = [1 if a == turned else s for a, s in enumerate(strides)]
            parts.append(editor.strided_slice(x, start, stop, steps, name=f"turned_{op}_{place}"))
        editor.op(OpKind.CONCATENATION, parts, [out], ConcatOptions(axis=turned))
    editor.remove(op)
    return editor.content()


def requantised_operands(model: Model, subgraph: int, op: int) -> bytes | None:
    """MINIMUM and MAXIMUM of inputs that QUANTIZE brings to the result's scale.

    Results may move by a step.
    """
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    if source.kind not in (OpKind.MINIMUM, OpKind.MAXIMUM):
        return None
    result = graph.tensors[source.outputs[0]]
    if result.quantization is None or len(result.quantization.scales) != 1:
        return None
    editor = Editor(model, subgraph)
    inputs = []
    with editor.before(op):
        for t in source.inputs:
            tensor, ref = graph.tensors[t], editor.ref(t)
            if tensor.quantization == result.quantization:
                inputs.append(t)
            elif tensor.data is not None and ref.scale is not None:
                real = (tensor.data.astype(np.float64) - ref.zero_point) * ref.scale
                scale, zero = result.quantization.scales[0], result.quantization.zero_points[0]
                stored = np.clip(np.rint(real / scale) + zero, *_range(result.dtype))
                constant = editor.const(
                    stored, result.dtype, name=f"operand_{op}", scale=scale, zero_point=zero
                )
                inputs.append(constant.index)
            else:
                as_result = editor.tensor(
                    f"operand_{op}_{t}",
                    tensor.shape,
                    result.dtype,
                    scale=result.quantization.scales[0],
                    zero_point=result.quantization.zero_points[0],
                )
                editor.op(OpKind.QUANTIZE, [ref], [as_result])
                inputs.append(as_result.index)
    editor.set_inputs(op, inputs)
    return editor.content()


def _range(dtype: DataType) -> tuple[int, int]:
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    return low, low + (1 << dtype.bits) - 1


def mean_before_transpose(model: Model, subgraph: int, op: int) -> bytes | None:
    """MEANs over axes that a TRANSPOSE moved as one MEAN before it.

    Only where what is left needs no transposing. Results may move by a step.
    """
    graph = model.subgraphs[subgraph]
    uses, source = Uses(graph), graph.ops[op]
    turning = uses.writer.get(source.inputs[0]) if source.inputs else None
    if source.kind is not OpKind.MEAN or turning is None or turning.kind is not OpKind.TRANSPOSE:
        return None
    order = graph.tensors[turning.inputs[1]].data
    if order is None:
        return None
    left, gone = [int(axis) for axis in order.reshape(-1)], list[int]()
    chain: list[int] = []
    while True:
        axes, options = uses.tensor(source, 1), source.options
        keeps = isinstance(options, ReduceOptions) and options.keep_dims
        if source.kind is not OpKind.MEAN or axes is None or axes.data is None or keeps:
            return None
        places = {int(axis) % len(left) for axis in axes.data.reshape(-1)}
        gone += [axis for place, axis in enumerate(left) if place in places]
        left = [axis for place, axis in enumerate(left) if place not in places]
        chain.append(source.index)
        result = source.outputs[0]
        if left == sorted(left):
            break
        if not uses.own(result):
            return None
        source = uses.readers[result][0]
    editor = Editor(model, subgraph)
    with editor.before(op):
        axes_before = editor.const(sorted(gone), "int32", name=f"axes_{op}")
    editor.set_inputs(op, [turning.inputs[0], axes_before.index])
    editor.set_outputs(op, [result])
    editor.remove(*chain[1:])
    if uses.own(turning.outputs[0]):
        editor.remove(turning.index)
    return editor.content()


def mean_in_two(model: Model, subgraph: int, op: int) -> bytes | None:
    """A MEAN over two axes as two MEANs over one. Results may move by a step."""
    graph = model.subgraphs[subgraph]
    uses, source = Uses(graph), graph.ops[op]
    if source.kind is not OpKind.MEAN:
        return None
    axes, data = uses.tensor(source, 1), graph.tensors[source.inputs[0]]
    if axes is None or axes.data is None or axes.elements != 2:
        return None
    first, second = sorted(int(a) % len(data.shape) for a in axes.data.reshape(-1))
    options = source.options
    keeps = isinstance(options, ReduceOptions) and options.keep_dims
    editor = Editor(model, subgraph)
    with editor.before(op):
        between = editor.reduce(
            OpKind.MEAN,
            editor.ref(data.index),
            [first],
            keep_dims=True,
            name=f"mean_{op}_first",
            scale=editor.ref(data.index).scale,
            zero_point=editor.ref(data.index).zero_point,
        )
        constant = editor.const((second,) if keeps else (first, second), "int32", name=f"axes_{op}")
    editor.set_inputs(op, [between.index, constant.index])
    return editor.content()


def as_table(model: Model, subgraph: int, op: int) -> bytes | None:
    """A stand-in: TANH for an op of one computed int8 input that keeps its shape."""
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    if len(source.outputs) != 1 or not source.inputs or source.inputs[0] < 0:
        return None
    data, result = graph.tensors[source.inputs[0]], graph.tensors[source.outputs[0]]
    others = [t for t in source.inputs[1:] if t >= 0 and not graph.tensors[t].is_constant]
    same = data.shape == result.shape and data.dtype is result.dtype is DataType.INT8
    if not same or others or data.quantization is None or result.quantization is None:
        return None
    editor = Editor(model, subgraph)
    with editor.before(op):
        editor.op(OpKind.TANH, [editor.ref(data.index)], [editor.ref(result.index)])
    editor.remove(op)
    return editor.content()
