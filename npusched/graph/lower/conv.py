"""Convolutions beyond one kernel: groups, depth multipliers.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp``
(ConvertConvolutionGroup), ``compiler/scheduler_decompose.cpp`` (DecomposeDepthwiseConv2D).
"""

from __future__ import annotations

from msgspec.structs import replace

from npusched.graph.lower.basic_kernels import (
    MAX_HARDWARE_DILATION,
    add_missing_bias,
    conv_rescale,
    lower_conv2d,
    set_weights,
    weight_values,
    window,
)
from npusched.graph.lower.common import NO_SCALE, quant, use
from npusched.graph.lower.transpose import decompose_transpose
from npusched.graph.types import KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir.options import ConvOptions


def lower_convolution(graph: WorkGraph, op: WorkOp) -> None:
    """CONV_2D: one kernel, or one per group, whose results are copied side by side.

    Groups of one input and one output channel are one depthwise convolution, if the hardware
    does its dilation and nobody else reads the weights.
    """
    values = weight_values(op)
    groups = op.ifm.region[-1] // values.shape[-1]
    if groups <= 1:
        lower_conv2d(graph, op)
    elif _is_depthwise(op, groups):
        _lower_as_depthwise(graph, op)
    else:
        for index in range(groups):
            _lower_group(graph, op, index, groups)
        graph.remove(op)


def _is_depthwise(op: WorkOp, groups: int) -> bool:
    options, weights = op.options, op.weights
    assert isinstance(options, ConvOptions)
    assert weights is not None
    values = weight_values(op)
    return (
        values.shape[-1] == 1
        and values.shape[0] == groups
        and max(options.dilation_h, options.dilation_w) <= MAX_HARDWARE_DILATION
        and len(weights.tensor.readers) == 1
    )


def _lower_as_depthwise(graph: WorkGraph, op: WorkOp) -> None:
    options = op.options
    assert isinstance(options, ConvOptions)
    channels, height, width, _ = weight_values(op).shape
    op.kind = KernelKind.DEPTHWISE
    op.kernel = window(
        op.ifm.shape, (height, width), options, (options.dilation_h, options.dilation_w)
    )
    add_missing_bias(graph, op, channels)
    op.ofm_rescale = conv_rescale(op)


def _lower_group(graph: WorkGraph, op: WorkOp, index: int, groups: int) -> None:
    """Add the convolution of one group, and the copy of its result into its channels."""
    assert op.weights is not None
    outputs = weight_values(op).shape[0] // groups
    depth = op.ifm.shape[-1] // groups
    low, high = index * outputs, (index + 1) * outputs
    piece = op.clone()
    zeros = (0,) * (len(op.ifm.shape) - 1)
    piece.ifms = [
        replace(
            op.ifm,
            slice_offset=(*zeros, index * depth),
            slice_shape=(*op.ifm.shape[:-1], depth),
        )
    ]
    part = graph.new_tensor(
        f"{op.ofm.tensor.name}/group_{index}",
        (*op.ofm.shape[:-1], outputs),
        op.ofm.tensor.dtype,
        scale=op.ofm.scale,
        zero_point=op.ofm.zero_point,
    )
    piece.ofms = [use(part, quant(op.ofm))]
    piece.weights = _slice_of(graph, op.weights, low, high, f"group {index}")
    if op.bias is not None:
        piece.bias = _slice_of(graph, op.bias, low, high, f"group {index}")
    graph.add(piece)
    lower_conv2d(graph, piece)
    target = replace(op.ofm, slice_offset=(*zeros, low), slice_shape=(*op.ofm.shape[:-1], outputs))
    graph.add(
        WorkOp(
            kind=KernelKind.MEMORY_COPY,
            source_ops=op.source_ops,
            ifms=[use(part, quant(op.ofm))],
            ofms=[target],
            rounding=Rounding.NATURAL,
            name=op.name,
        )
    )


def _slice_of(graph: WorkGraph, link: Link, low: int, high: int, tag: str) -> Link:
    """Return a link to outputs ``low`` .. ``high`` of constant weights or biases."""
    old = link.tensor
    assert old.data is not None
    per_channel = len(old.scales) > 1
    data = old.data[low:high]
    tensor = replace(
        old,
        name=f"{old.name}/{tag}",
        shape=data.shape,
        data=data,
        scales=old.scales[low:high] if per_channel else old.scales,
        zero_points=old.zero_points[low:high] if per_channel else old.zero_points,
        readers=[],
        writers=[],
    )
    graph.tensors.append(tensor)
    return replace(link, tensor=tensor, shape=data.shape)


# --- step 3 --------------------------------------------------------------------------------


def decompose_depthwise(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: cut a depth multiplier m into m depthwise kernels and a transpose.

    Kernel i computes output i of every channel, into index i of a tensor (m, h, w, c), which is
    then transposed to (h, w, c, m). Later batches, and slices, are copied to their place.
    """
    depth = op.ifm.region[-1]
    multiplier = weight_values(op).shape[0] // depth
    if multiplier <= 1:
        return
    batches = op.ofm.region[0]
    for batch in range(batches):
        ofm = op.ofm
        target = ofm.tensor
        apart = batch > 0 or op.ofm.is_sliced
        if apart:
            target = _new_like(graph, op, f"batch_{batch}", (1, *ofm.region[1:]))
        _one_batch(graph, op, batch, multiplier, target)
        if apart:
            _copy_batch(graph, op, batch, target)
    graph.remove(op)


def _new_like(graph: WorkGraph, op: WorkOp, name: str, shape: tuple[int, ...]) -> WorkTensor:
    ofm = op.ofm
    return graph.new_tensor(
        f"{ofm.tensor.name}/{name}",
        shape,
        ofm.tensor.dtype,
        scale=ofm.scale,
        zero_point=ofm.zero_point,
    )


def _one_batch(
    graph: WorkGraph, op: WorkOp, batch: int, multiplier: int, target: WorkTensor
) -> None:
    _, height, width, outputs = op.ofm.region
    depth = outputs // multiplier
    shape = (multiplier, height, width, depth)
    parts = _new_like(graph, op, f"outputs_{batch}", shape)
    values = weight_values(op)
    for index in range(multiplier):
        piece = op.clone()
        if op.ofm.region[0] > 1:
            ifm = op.ifm
            offset = (0,) * 4 if ifm.slice_offset is None else ifm.slice_offset
            piece.ifms = [
                replace(
                    ifm,
                    slice_offset=(offset[0] + batch, *offset[1:]),
                    slice_shape=(1, *ifm.region[1:]),
                )
            ]
        piece.ofms = [
            replace(
                op.ofm,
                tensor=parts,
                shape=shape,
                slice_offset=(index, 0, 0, 0),
                slice_shape=(1, height, width, depth),
            )
        ]
        graph.add(piece, before=op)
        set_weights(graph, piece, values[index::multiplier], f"output {index} of {multiplier}")
        _every_output(graph, piece, index, multiplier)
    transpose = WorkOp(
        kind=KernelKind.TRANSPOSE,
        source_ops=op.source_ops,
        ifms=[use(parts, NO_SCALE)],
        ofms=[use(target, NO_SCALE, (height, width, depth, multiplier))],
        perm=(1, 2, 3, 0),
        name=op.name,
    )
    graph.add(transpose, before=op)
    decompose_transpose(graph, transpose)


def _every_output(graph: WorkGraph, piece: WorkOp, index: int, multiplier: int) -> None:
    """Keep output ``index`` of each channel of weight scales, bias and rescale."""
    assert piece.weights is not None
    weights = piece.weights.tensor
    if len(weights.scales) > 1:
        weights.scales = weights.scales[index::multiplier]
    if len(weights.zero_points) > 1:
        weights.zero_points = weights.zero_points[index::multiplier]
    bias = piece.bias
    if bias is not None and bias.tensor.data is not None and bias.tensor.data.size > 1:
        data = bias.tensor.data.reshape(-1)[index::multiplier]
        tensor = replace(bias.tensor, shape=data.shape, data=data, readers=[], writers=[])
        graph.tensors.append(tensor)
        bias.tensor.readers.remove(piece)
        piece.bias = replace(bias, tensor=tensor, shape=data.shape)
        tensor.readers.append(piece)
    rescale = piece.ofm_rescale
    if rescale is not None and len(rescale.multipliers) > 1:
        piece.ofm_rescale = Rescale(
            multipliers=rescale.multipliers[index::multiplier],
            shifts=rescale.shifts[index::multiplier],
            rounding=rescale.rounding,
        )


def _copy_batch(graph: WorkGraph, op: WorkOp, batch: int, source: WorkTensor) -> None:
    """Copy the result of one batch to its place."""
    region = op.ofm.region
    offset = op.ofm.slice_offset or (0, 0, 0, 0)
    graph.add(
        WorkOp(
            kind=KernelKind.MEMORY_COPY,
            source_ops=op.source_ops,
            ifms=[use(source, NO_SCALE)],
            ofms=[
                replace(
                    op.ofm,
                    slice_offset=(offset[0] + batch, *offset[1:]),
                    slice_shape=(1, *region[1:]),
                    scale=None,
                    zero_point=0,
                )
            ],
            rounding=Rounding.NATURAL,
            name=op.name,
        ),
        before=op,
    )
