"""Limits of convolutions, pools and products: strides, kernels, shapes of weights and results.

Facts: LOWERING §2.4; Vela 5.2.0, tflite_supported_operators.cpp and _u55.cpp.
"""

from __future__ import annotations

from npusched.ir import DataType, OpKind
from npusched.ir.options import BatchMatMulOptions, ConvOptions, Padding
from npusched.ops.constraint import Constraint, at_most, shape_text
from npusched.ops.operands import Operands
from npusched.ops.roles import Role
from npusched.ops.window import Window, axis

MAX_STRIDE = 3
MAX_POOL_HEIGHT = 256
MAX_POOL_AREA = 256 * 256
MAX_PADDED_POOL = 8
MAX_PRODUCT_AXIS = 1 << 16

_STRIDE_FIX = "use strides up to 3, or split the stride over two ops"


def _stride_text(window: Window) -> str:
    return f"{window.stride_h}x{window.stride_w}"


def _stride(operands: Operands) -> str | None:
    window = operands.window
    if window is None or max(window.stride_h, window.stride_w) <= MAX_STRIDE:
        return None
    return _stride_text(window)


STRIDE = Constraint(
    limit="stride",
    what="stride",
    allowed=f"strides up to {MAX_STRIDE}x{MAX_STRIDE}",
    fix=_STRIDE_FIX,
    find=_stride,
)


def _unrollable_stride(operands: Operands) -> str | None:
    window = operands.window
    if window is None:
        return None
    high = window.stride_h > MAX_STRIDE and axis(operands.ofm_shape, 2) != 1
    wide = window.stride_w > MAX_STRIDE and axis(operands.ofm_shape, 1) != 1
    dilated = (window.dilation_h, window.dilation_w) != (1, 1)
    if not (high or wide) or not (window.has_padding or dilated):
        return None
    why = "with padding" if window.has_padding else "with dilation"
    return f"{_stride_text(window)} {why}"


UNROLLABLE_STRIDE = Constraint(
    limit="stride",
    what="stride",
    allowed=f"strides up to {MAX_STRIDE}x{MAX_STRIDE}, larger ones without padding and dilation, "
    "or along an axis whose result has size 1",
    fix="use VALID padding without dilation, or strides up to 3",
    find=_unrollable_stride,
)


def _pool_height(operands: Operands) -> int | None:
    return None if operands.window is None else operands.window.h


def _pool_area(operands: Operands) -> int | None:
    return None if operands.window is None else operands.window.h * operands.window.w


_POOL_FIX = "pool in two steps, or use MEAN for a global pool"

POOL_HEIGHT = at_most(
    "kernel_height", "kernel height", MAX_POOL_HEIGHT, _pool_height, fix=_POOL_FIX
)
POOL_AREA = at_most("kernel_area", "kernel area", MAX_POOL_AREA, _pool_area, fix=_POOL_FIX)


def _unpadded(operands: Operands) -> bool:
    return operands.window is not None and not operands.window.has_padding


AVERAGE_HEIGHT = at_most(
    "kernel_height",
    "kernel height (no padding)",
    MAX_POOL_HEIGHT,
    lambda o: _pool_height(o) if _unpadded(o) else None,
    fix=_POOL_FIX,
)
AVERAGE_AREA = at_most(
    "kernel_area",
    "kernel area (no padding)",
    MAX_POOL_AREA,
    lambda o: _pool_area(o) if _unpadded(o) else None,
    fix=_POOL_FIX,
)


def _padded_average(operands: Operands) -> str | None:
    window = operands.window
    if window is None or not window.has_padding or max(window.h, window.w) <= MAX_PADDED_POOL:
        return None
    return f"{window.h}x{window.w}"


PADDED_AVERAGE = Constraint(
    limit="padded_kernel",
    what="padded kernel",
    allowed=f"kernels up to {MAX_PADDED_POOL}x{MAX_PADDED_POOL} where SAME padding adds pixels",
    fix="use VALID padding, or pool in two steps",
    find=_padded_average,
)


def _empty_pool(operands: Operands) -> str | None:
    window = operands.window
    if window is None or min(window.h, window.w) >= 1:
        return None
    return f"{window.h}x{window.w}"


POOL_KERNEL = Constraint(
    limit="kernel",
    what="kernel",
    allowed="kernels of at least 1x1",
    fix="give the pool a kernel",
    find=_empty_pool,
    gate=True,
)


def _transpose_conv_stride(operands: Operands) -> str | None:
    window = operands.window
    if window is None:
        return None
    stride = (window.stride_h, window.stride_w)
    ifm = operands.ifm_shape()
    one_row = axis(ifm, 2) == 1 and window.h == 1
    one_column = axis(ifm, 1) == 1 and window.w == 1
    ok = stride in ((1, 1), (2, 2)) or (stride == (1, 2) and one_row)
    ok = ok or (stride == (2, 1) and one_column)
    return None if ok else _stride_text(window)


TRANSPOSE_CONV_STRIDE = Constraint(
    limit="stride",
    what="stride",
    allowed="1x1, 2x2, 1x2 where input and kernel have one row, 2x1 where they have one column",
    fix="use stride 2, or a resize followed by a convolution",
    find=_transpose_conv_stride,
)


def _transpose_conv_shape(operands: Operands) -> str | None:
    window, options = operands.window, operands.op.options
    if window is None or not isinstance(options, ConvOptions):
        return None
    ifm, ofm = operands.ifm_shape(), operands.ofm_shape
    if options.padding is Padding.SAME:
        extra_h = extra_w = 0
    else:
        extra_h = max(window.h - window.stride_h, 0)
        extra_w = max(window.w - window.stride_w, 0)
    want = (
        axis(ifm, 2) * window.stride_h + extra_h,
        axis(ifm, 1) * window.stride_w + extra_w,
    )
    have = (axis(ofm, 2), axis(ofm, 1))
    return None if want == have else f"{shape_text(have)} from {shape_text(ifm)}"


TRANSPOSE_CONV_SHAPE = Constraint(
    limit="result_shape",
    what="result",
    allowed="results of just input*stride (SAME) or input*stride + max(kernel-stride, 0) (VALID)",
    fix="drop the output padding, and crop or pad with a separate op",
    find=_transpose_conv_shape,
)


def _fully_connected_weights(operands: Operands) -> str | None:
    weights = operands.weights
    if weights is None:
        return "none"
    shape = weights.shape
    if len(shape) >= 2 and weights.tensor.elements == shape[0] * shape[-1]:
        return None
    return shape_text(shape)


FULLY_CONNECTED_WEIGHTS = Constraint(
    limit="weight_shape",
    what="weights",
    allowed="weights of shape O x 1 x ... x 1 x I",
    fix="store the weights as a matrix",
    find=_fully_connected_weights,
)


def _is_product(operands: Operands) -> bool:
    """Say if two computed feature maps are multiplied (BATCH_MATMUL, FC with computed weights)."""
    weights = operands.weights
    if operands.kind is OpKind.FULLY_CONNECTED:
        return weights is not None and not weights.tensor.is_constant
    return True


def _reduced_axis(operands: Operands) -> int | None:
    if not _is_product(operands):
        return None
    options = operands.op.options
    swapped = isinstance(options, BatchMatMulOptions) and options.adj_x
    return axis(operands.ifm_shape(), 1 if swapped else 0)


def _product_depth(operands: Operands) -> int | None:
    return axis(operands.ofm_shape, 0) if _is_product(operands) else None


_PRODUCT_FIX = "split the product into smaller ones"

PRODUCT_REDUCED_AXIS = at_most(
    "reduced_axis", "reduced axis", MAX_PRODUCT_AXIS, _reduced_axis, fix=_PRODUCT_FIX
)
PRODUCT_DEPTH = at_most(
    "result_depth", "result depth", MAX_PRODUCT_AXIS, _product_depth, fix=_PRODUCT_FIX
)


def _product_type(operands: Operands) -> str | None:
    ifm = operands.get(Role.IFM)
    if ifm is None or not _is_product(operands) or ifm.tensor.dtype is DataType.INT8:
        return None
    return ifm.tensor.dtype.label


PRODUCT_TYPE = Constraint(
    limit="product_type",
    what="input type",
    allowed="products of two computed tensors only in int8",
    fix="quantise this product to int8, or make one side constant (FULLY_CONNECTED)",
    find=_product_type,
)
