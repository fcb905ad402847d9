"""Lowering of convolutions, fully connected ops, pools and elementwise ops: one kernel each.

Sources: LOWERING.md §1, §5, §8; Vela 5.2.0, ``tflite/tflite_reader.cpp`` (SetKernel),
``compiler/tflite_graph_optimiser.cpp`` (FixupBias, FixupDilationGT2, ConvertZeroPoint,
ConvertQuantizationToExplicit), ``compiler/graphir_optimiser.cpp`` (RewriteFullyConnected,
RewriteDepthwise, RewriteNegate).
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.lower import scaling
from npusched.graph.shapes import fold_batch, same_padding
from npusched.graph.types import Activation, Kernel, KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.ir import DataType, OpKind, Padding, Shape
from npusched.ir.options import ConvOptions, PoolOptions

MAX_HARDWARE_DILATION = 2

_RELUS: dict[OpKind, KernelKind] = {
    OpKind.RELU: KernelKind.RELU,
    OpKind.RELU6: KernelKind.RELU6,
    OpKind.RELU_N1_TO_1: KernelKind.RELU_N1_TO_1,
    OpKind.RELU_0_TO_1: KernelKind.RELU0_TO_1,
}

_BINARY: dict[OpKind, KernelKind] = {
    OpKind.ADD: KernelKind.ADD,
    OpKind.SUB: KernelKind.SUB,
    OpKind.MUL: KernelKind.MUL,
    OpKind.DIV: KernelKind.DIV,
    OpKind.MINIMUM: KernelKind.MINIMUM,
    OpKind.MAXIMUM: KernelKind.MAXIMUM,
}


def rescale_or_unit(scale: scaling.Scale, rounding: Rounding) -> Rescale | None:
    """Return ``scale`` as a rescale, None if it is unit."""
    return None if scale == scaling.UNIT else scale.rescale(rounding)


# --- windows -------------------------------------------------------------------------------


def window(
    ifm: Shape, size: tuple[int, int], options: ConvOptions | PoolOptions, dilation: tuple[int, int]
) -> Kernel:
    """Return the kernel of an op with a window of ``size`` (h, w) on an IFM of shape ``ifm``."""
    pads_h = pads_w = (0, 0)
    if options.padding is Padding.SAME:
        pads_h = same_padding(ifm[-3], options.stride_h, (size[0] - 1) * dilation[0] + 1)
        pads_w = same_padding(ifm[-2], options.stride_w, (size[1] - 1) * dilation[1] + 1)
    return Kernel(
        h=size[0],
        w=size[1],
        stride_h=options.stride_h,
        stride_w=options.stride_w,
        dilation_h=dilation[0],
        dilation_w=dilation[1],
        pad_top=pads_h[0],
        pad_bottom=pads_h[1],
        pad_left=pads_w[0],
        pad_right=pads_w[1],
    )


def _set_window(op: WorkOp, size: tuple[int, int], options: ConvOptions) -> None:
    """Set the kernel of a convolution, unless a folded SPACE_TO_BATCH_ND has already set it."""
    if op.kernel == Kernel():
        dilation = (options.dilation_h, options.dilation_w)
        op.kernel = window(op.ifm.shape, size, options, dilation)


def weight_values(op: WorkOp) -> npt.NDArray[np.generic]:
    """Return the constant weights of ``op`` as stored. The op must have them."""
    assert op.weights is not None
    values = op.weights.tensor.data
    assert values is not None
    return values


def set_weights(graph: WorkGraph, op: WorkOp, values: npt.NDArray[np.generic], tag: str) -> None:
    """Give ``op`` rearranged weights; ``tag`` says how they differ from the file's."""
    old = op.weights
    assert old is not None
    tensor = replace(
        old.tensor,
        name=f"{old.tensor.name}/{tag}" if tag else old.tensor.name,
        shape=values.shape,
        data=values,
        readers=[],
        writers=[],
    )
    graph.tensors.append(tensor)
    old.tensor.readers.remove(op)
    op.weights = replace(old, tensor=tensor, shape=values.shape)
    tensor.readers.append(op)


def add_missing_bias(graph: WorkGraph, op: WorkOp, channels: int) -> None:
    """Set the rounding of a conv-like op and supply a zero bias where the file has none."""
    ifm_dtype = op.ifm.tensor.dtype
    op.rounding = scaling.conv_rounding(
        ifm_dtype, None if op.bias is None else op.bias.tensor.dtype
    )
    if op.bias is None:
        dtype = scaling.default_bias_dtype(ifm_dtype, op.rounding)
        zeros = np.zeros(channels, dtype=dtype.label)
        op.bias = graph.link(graph.new_tensor("bias", (channels,), dtype, data=zeros))
        op.bias.tensor.readers.append(op)


def conv_rescale(op: WorkOp, *, fully_connected: bool = False) -> Rescale | None:
    """Return the output rescale of a conv-like op: per channel if its weights are so quantised."""
    assert op.weights is not None
    assert op.bias is not None
    ifm, weights, ofm = op.ifm.tensor, op.weights.tensor, op.ofm.tensor
    if not (ifm.scales and weights.scales and ofm.scales):
        return None
    scales = scaling.conv_scales(
        ifm_scale=ifm.scales[0],
        weight_scales=weights.scales,
        ofm_scale=ofm.scales[0],
        ifm_dtype=ifm.dtype,
        bias_dtype=op.bias.tensor.dtype,
        fully_connected=fully_connected,
    )
    if all(scale == scaling.UNIT for scale in scales):
        return None
    return Rescale(
        multipliers=tuple(scale.multiplier for scale in scales),
        shifts=tuple(scale.shift for scale in scales),
        rounding=op.rounding or Rounding.DOUBLE,
    )


def _materialised_dilation(dilation: int) -> tuple[int, int]:
    """Split a dilation into (what the hardware does, what zero taps do)."""
    hardware = 2 if dilation % 2 == 0 else 1
    return hardware, dilation // hardware


def realise_large_dilation(graph: WorkGraph, op: WorkOp) -> None:
    """Turn a dilation above 2 into zero-point taps (d3: 3x3 -> 7x7 d1; d4: -> 5x5 d2).

    Weights must be in OHWI order. Vela does both axes as soon as one exceeds 2.
    """
    kernel = op.kernel
    if max(kernel.dilation_h, kernel.dilation_w) <= MAX_HARDWARE_DILATION:
        return
    hardware_h, manual_h = _materialised_dilation(kernel.dilation_h)
    hardware_w, manual_w = _materialised_dilation(kernel.dilation_w)
    values = weight_values(op)
    out, _, _, depth = values.shape
    assert op.weights is not None
    zero_point = op.weights.tensor.zero_points[0] if op.weights.tensor.zero_points else 0
    size_h, size_w = (kernel.h - 1) * manual_h + 1, (kernel.w - 1) * manual_w + 1
    spread = np.full((out, size_h, size_w, depth), zero_point, dtype=values.dtype)
    spread[:, ::manual_h, ::manual_w, :] = values
    set_weights(graph, op, spread, f"dilated {manual_h}x{manual_w}")
    op.kernel = replace(kernel, h=size_h, w=size_w, dilation_h=hardware_h, dilation_w=hardware_w)


# --- conv-like ops -------------------------------------------------------------------------


def lower_conv2d(graph: WorkGraph, op: WorkOp) -> None:
    """CONV_2D with one group: Conv2D; a batch of 1x1 convolutions folds like a fully connected."""
    options = op.options
    assert isinstance(options, ConvOptions)
    out, height, width, _ = weight_values(op).shape
    op.kind = KernelKind.CONV2D
    _set_window(op, (height, width), options)
    add_missing_bias(graph, op, out)
    op.ofm_rescale = conv_rescale(op)
    realise_large_dilation(graph, op)
    if op.ifm.shape[0] > 1 and _is_one_tap(op.kernel):
        _fold_batch(op, op.ifm.shape[-1])


def lower_depthwise(graph: WorkGraph, op: WorkOp) -> None:
    """DEPTHWISE_CONV_2D: DepthwiseConv2D, or Conv2D where the IFM has one channel.

    With a multiplier above 1 on several channels the weights keep all outputs; step 3 cuts them.
    """
    options = op.options
    assert isinstance(options, ConvOptions)
    values = weight_values(op)
    _, height, width, out = values.shape
    depth = op.ifm.shape[-1]
    single = depth == 1 and out > 1 and op.ofm.shape[-1] == out
    op.kind = KernelKind.CONV2D if single else KernelKind.DEPTHWISE
    _set_window(op, (height, width), options)
    add_missing_bias(graph, op, out)
    op.ofm_rescale = conv_rescale(op)
    set_weights(graph, op, values.transpose(3, 1, 2, 0), "")
    realise_large_dilation(graph, op)
    if single and op.ifm.shape[0] > 1 and _is_one_tap(op.kernel):
        _fold_batch(op, depth)


def _is_one_tap(kernel: Kernel) -> bool:
    """Return True for 1x1 with stride 1, whatever the dilation."""
    return (kernel.h, kernel.w, kernel.stride_h, kernel.stride_w) == (1, 1, 1, 1)


def lower_fully_connected(graph: WorkGraph, op: WorkOp) -> None:
    """FULLY_CONNECTED with constant weights: a 1x1 convolution; the batch becomes H x W."""
    values = weight_values(op)
    inputs = values.shape[-1]
    op.kind = KernelKind.FULLY_CONNECTED
    add_missing_bias(graph, op, values.shape[0])
    op.ofm_rescale = conv_rescale(op, fully_connected=True)
    set_weights(graph, op, values.reshape(-1, 1, 1, inputs), "")
    _fold_batch(op, inputs)


def _fold_batch(op: WorkOp, inputs: int) -> None:
    """View the IFM as (1, h, w, inputs), and the OFM alike where there is more than one row."""
    batch = prod(op.ifm.shape) // inputs
    if batch <= 1:
        op.ifm.shape = (1, 1, 1, inputs)
        return
    height, width = fold_batch(batch)
    op.ifm.shape = (1, height, width, inputs)
    op.ofm.shape = (1, height, width, op.ofm.shape[-1])


# --- pools ---------------------------------------------------------------------------------


def lower_pool(graph: WorkGraph, op: WorkOp) -> None:
    """AVERAGE_POOL_2D (zero points ignored, real rescale) and MAX_POOL_2D (no rescale)."""
    del graph
    options = op.options
    assert isinstance(options, PoolOptions)
    average = op.kind is OpKind.AVERAGE_POOL_2D
    op.kernel = window(op.ifm.shape, (options.filter_h, options.filter_w), options, (1, 1))
    op.kind = KernelKind.AVG_POOL if average else KernelKind.MAX_POOL
    op.rounding = Rounding.NATURAL
    if average:
        ifm, ofm = op.ifm.scale, op.ofm.scale
        op.ifm.zero_point = op.ofm.zero_point = 0
        if ifm is not None and ofm is not None:
            scale = scaling.abs_scale(ifm, ofm)
            if scaling.without_trailing_zeros(scale) != scaling.UNIT:
                op.ofm_rescale = scale.rescale(Rounding.NATURAL)


# --- elementwise ---------------------------------------------------------------------------


def lower_binary(graph: WorkGraph, op: WorkOp) -> None:
    """ADD, SUB, MUL, DIV, MINIMUM, MAXIMUM."""
    del graph
    assert isinstance(op.kind, OpKind)
    op.kind = _BINARY[op.kind]
    op.rounding = Rounding.DOUBLE
    clear_wide_zero_points(op)
    first, second, result = op.ifms[0].scale, op.ifms[1].scale, op.ofm.scale
    if op.kind is KernelKind.DIV:
        op.ifms[0].zero_point = op.ifms[1].zero_point = op.ofm.zero_point = 0
    if first is None or second is None or result is None:
        return
    if op.kind in (KernelKind.ADD, KernelKind.SUB):
        scales = scaling.add_sub_scales(first, second, result, op.ifm.tensor.dtype.bits)
        op.ifm_rescales = (scales.ifm.rescale(), scales.ifm2.rescale())
        op.ofm_rescale = scales.ofm.rescale()
    elif op.kind is KernelKind.MUL:
        op.ofm_rescale = rescale_or_unit(scaling.mul_scale(first, second, result), Rounding.DOUBLE)


def clear_wide_zero_points(op: WorkOp) -> None:
    """Ignore the zero points of inputs of 32 bits and more (ConvertZeroPoint)."""
    for link in op.ifms:
        if link.element_type.bits >= 32:
            link.zero_point = 0


def lower_abs(graph: WorkGraph, op: WorkOp) -> None:
    """ABS: one kernel with the quotient of the scales."""
    del graph
    op.kind = KernelKind.ABS
    op.rounding = Rounding.DOUBLE
    clear_wide_zero_points(op)
    if op.ifm.scale is not None and op.ofm.scale is not None:
        scale = scaling.abs_scale(op.ifm.scale, op.ofm.scale)
        op.ofm_rescale = rescale_or_unit(scale, Rounding.DOUBLE)


def lower_neg(graph: WorkGraph, op: WorkOp) -> None:
    """NEG: Sub(0, x) without rescaling."""
    clear_wide_zero_points(op)
    dtype = op.ifm.tensor.dtype
    zero = graph.new_tensor("const_zero", (1,), dtype, data=np.zeros(1, dtype=dtype.label))
    op.kind = KernelKind.SUB
    op.rounding = Rounding.NATURAL
    op.ifms.insert(0, Link(tensor=zero, shape=(1,)))
    zero.readers.append(op)


def lower_relu(graph: WorkGraph, op: WorkOp) -> None:
    """RELU family: a clamp, rescaled only if input and output are quantised differently."""
    del graph
    assert isinstance(op.kind, OpKind)
    op.kind = _RELUS[op.kind]
    op.rounding = Rounding.DOUBLE
    clear_wide_zero_points(op)
    ifm, ofm = op.ifm, op.ofm
    clamp = scaling.relu_clamp(op.kind, 1.0 if ofm.scale is None else ofm.scale, ofm.zero_point)
    op.activation = Activation(minimum=clamp.minimum, maximum=clamp.maximum, function=op.kind.value)
    scale = scaling.relu_scale(ifm.scale, ofm.scale, ifm.zero_point, ofm.zero_point)
    op.ofm_rescale = rescale_or_unit(scale, Rounding.DOUBLE)


def lower_quantize(graph: WorkGraph, op: WorkOp) -> None:
    """QUANTIZE between integer types: a 1x1 pool that rescales."""
    del graph
    op.kind = KernelKind.QUANTIZE
    op.rounding = Rounding.DOUBLE
    clear_wide_zero_points(op)
    op.ofm_rescale = rescale_or_unit(
        scaling.copy_scale(op.ifm.scale, op.ofm.scale, op.ifm.zero_point, op.ofm.zero_point),
        Rounding.DOUBLE,
    )


def is_wide(dtype: DataType) -> bool:
    """Return True for types that the NPU copies as two or four 16-bit values."""
    return dtype.bits > 16
