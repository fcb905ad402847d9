"""Small models, one per kind of op, that several tests use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusched.ir import OpKind
from npusched.ir.options import CallOptions
from npusched.tflite import Builder

UNARY = ("relu", "relu6", "logistic", "tanh", "hard_swish", "exp", "abs", "neg", "elu", "gelu")
PADDINGS = ((0, 0), (1, 2), (0, 1), (0, 0))


def _one(
    method: str,
    *args: object,
    shape: tuple[int, ...] = (1, 8, 8, 8),
    dtype: str = "int8",
    **named: object,
) -> Callable[[], bytes]:
    """A model of one builder call on one input."""

    def build() -> bytes:
        b = Builder(method)
        found = getattr(b, method)(b.input("x", shape, dtype), *args, **named)
        b.output(*(found if isinstance(found, tuple) else (found,)))
        return b.build()

    return build


def _after_relu(method: str) -> bytes:
    b = Builder(method)
    b.output(getattr(b, method)(b.relu(b.input("x", (1, 8, 8, 8)))))
    return b.build()


def _batch_norm() -> bytes:
    b = Builder("batch_norm")
    b.output(b.batch_norm(b.conv2d(b.input("x", (1, 8, 8, 8)), 8), activation="RELU6"))
    return b.build()


def _reduce(kind: OpKind, axis: int) -> bytes:
    b = Builder("reduce")
    b.output(b.reduce(kind, b.input("x", (1, 8, 8, 8)), (axis,)))
    return b.build()


def _pack() -> bytes:
    b = Builder("pack")
    x = b.input("x", (1, 4, 6))
    b.output(b.pack([x, b.expand_dims(b.squeeze(x), 0)], 1))
    return b.build()


def _two_inputs(kind: str, y_shape: tuple[int, ...], dtype: str = "int8") -> bytes:
    b = Builder(kind)
    x, y = b.input("x", (1, 8, 8, 8), dtype), b.input("y", y_shape, dtype)
    b.output(getattr(b, kind)(x, y))
    return b.build()


def _concat(axis: int) -> bytes:
    b = Builder("concat")
    x = b.input("x", (1, 8, 8, 8))
    b.output(b.concat([x, b.max_pool2d(x, 3, stride=1, padding="SAME")], axis))
    return b.build()


def _matmul(adj_x: bool, adj_y: bool, dtype: str = "int8") -> bytes:
    b = Builder("matmul")
    x = b.input("x", (1, 2, 5, 7) if not adj_x else (1, 2, 7, 5), dtype)
    y = b.input("y", (1, 2, 7, 3) if not adj_y else (1, 2, 3, 7), dtype)
    b.output(b.batch_matmul(x, y, adj_x=adj_x, adj_y=adj_y))
    return b.build()


def _float_io() -> bytes:
    b = Builder("float_io")
    x = b.quantize(b.input("x", (1, 8, 8, 3), "float32"))
    b.output(b.dequantize(b.conv2d(x, 4)))
    return b.build()


def _branches() -> bytes:
    b = Builder("branches", seed=3)
    x = b.input("x", (1, 16, 16, 8))
    y = b.conv2d(x, 16, activation="RELU6", name="a")
    left = b.depthwise_conv2d(y, 3, activation="RELU", name="b")
    right = b.conv2d(y, 16, 1, name="c")
    z = b.add(left, right, activation="RELU", name="d")
    b.output(b.fully_connected(b.mean(z), 10), b.max_pool2d(z))
    b.signature("serve", {"image": x}, {})
    return b.build([("note", b"hello")])


def call_once() -> bytes:
    """A variable with an initialiser: VAR_HANDLE, CALL_ONCE, READ and ASSIGN in two subgraphs."""
    b = Builder("call_once")
    init = b.subgraph("init")
    start = init.const(np.zeros((1, 4)), "int8", scale=0.5)
    init.assign_variable(init.var_handle("state"), start)
    x = b.input("x", (1, 4), scale=0.5, zero_point=0)
    b.op(OpKind.CALL_ONCE, [], [], CallOptions(subgraphs=(init.index,)))
    handle = b.var_handle("state")
    total = b.add(x, b.read_variable(handle, (1, 4), scale=0.5), scale=0.5, zero_point=0)
    b.assign_variable(handle, total)
    b.output(total)
    return b.build()


def custom() -> bytes:
    """A custom op between two convolutions."""
    b = Builder("custom")
    x = b.conv2d(b.input("x", (1, 8, 8, 4)), 4)
    y = b.tensor("y", x.shape, x.dtype, scale=x.scale, zero_point=x.zero_point)
    b.custom("MyOp", [x, None], [y], b"\x01\x02")
    b.output(b.conv2d(y, 4))
    return b.build()


MODELS: dict[str, Callable[[], bytes]] = {
    "conv": _one("conv2d", 16, activation="RELU"),
    "conv_valid_s2": _one("conv2d", 5, (3, 2), stride=2, padding="VALID"),
    "conv_dilated": _one("conv2d", 8, dilation=2),
    "conv_groups": _one("conv2d", 8, groups=2),
    "conv_per_tensor": _one("conv2d", 8, per_channel=False),
    "conv_no_bias": _one("conv2d", 8, bias=False),
    "conv_uint8": _one("conv2d", 8, dtype="uint8"),
    "conv_int16": _one("conv2d", 8, dtype="int16"),
    "conv_float": _one("conv2d", 8, dtype="float32"),
    "conv_hybrid": _one("conv2d", 8, weights_dtype="int8", dtype="float32"),
    "conv_int4": _one("conv2d", 7, 1, weights_dtype="int4"),
    "conv_batch2": _one("conv2d", 8, shape=(2, 8, 8, 4)),
    "depthwise": _one("depthwise_conv2d", 3, activation="RELU6"),
    "depthwise_x2": _one("depthwise_conv2d", 3, multiplier=2),
    "depthwise_int16": _one("depthwise_conv2d", 3, dtype="int16"),
    "tconv": _one("transpose_conv", 4),
    "tconv_valid": _one("transpose_conv", 4, padding="VALID"),
    "fc": _one("fully_connected", 10, shape=(1, 64)),
    "fc_batch": _one("fully_connected", 10, activation="RELU", shape=(5, 64)),
    "fc_keep": _one("fully_connected", 10, keep_num_dims=True, shape=(1, 5, 64)),
    "fc_int16": _one("fully_connected", 10, shape=(1, 64), dtype="int16"),
    "max_pool": _one("max_pool2d"),
    "avg_pool": _one("avg_pool2d", 3, stride=2, padding="SAME"),
    **{name: _one(name) for name in UNARY},
    "logistic_int16": _one("logistic", dtype="int16"),
    "tanh_int16": _one("tanh", dtype="int16"),
    "relu_float": _one("relu", dtype="float32"),
    "gelu_tanh": _one("gelu", approximate=True),
    "leaky_relu": _one("leaky_relu", 0.2),
    "prelu": _one("prelu"),
    "log": lambda: _after_relu("log"),
    "rsqrt": lambda: _after_relu("rsqrt"),
    "softmax": _one("softmax", shape=(1, 10)),
    "softmax_int16": _one("softmax", shape=(1, 10), dtype="int16"),
    "add_int8": lambda: _two_inputs("add", (1, 8, 8, 8)),
    "add_uint8": lambda: _two_inputs("add", (1, 8, 8, 8), "uint8"),
    "add_int16": lambda: _two_inputs("add", (1, 8, 8, 8), "int16"),
    "sub_int8": lambda: _two_inputs("sub", (1, 8, 8, 8)),
    "mul_int8": lambda: _two_inputs("mul", (1, 8, 8, 8)),
    "mul_int16": lambda: _two_inputs("mul", (1, 8, 8, 8), "int16"),
    "minimum": lambda: _two_inputs("minimum", (1, 8, 8, 8)),
    "maximum": lambda: _two_inputs("maximum", (1, 8, 8, 8)),
    "squared_difference": lambda: _two_inputs("squared_difference", (1, 8, 8, 8)),
    "add_broadcast": lambda: _two_inputs("add", (1, 1, 1, 8)),
    "div_float": lambda: _two_inputs("div", (1, 8, 8, 8), "float32"),
    "add_const": _one("add", 0.5, activation="RELU"),
    "maximum_const": _one("maximum", 0.25),
    "batch_norm": _batch_norm,
    "requantize": _one("quantize", "int8", scale=0.1, zero_point=3),
    "float_io": _float_io,
    "pad": _one("pad", PADDINGS),
    "pad_v2": _one("pad_v2", PADDINGS, 5),
    "mirror_pad": _one("mirror_pad", PADDINGS),
    "concat": lambda: _concat(3),
    "concat_h": lambda: _concat(1),
    "split": _one("split", 4),
    "split_v": _one("split_v", (2, 4, 2)),
    "unpack": _one("unpack", 1, shape=(1, 4, 4, 12)),
    "pack": _pack,
    "slice": _one("slice", (0, 1, 2, 0), (1, 4, -1, 8)),
    "strided_slice": _one("strided_slice", (0, 1, 0, 0), (1, 7, 8, 8), (1, 2, 2, 1)),
    "strided_slice_shrink": _one("strided_slice", (0, -1), (0, 0), shrink_axis_mask=2, end_mask=1),
    "reshape": _one("reshape", (1, -1)),
    "squeeze": _one("squeeze", (1,), shape=(1, 1, 8, 8)),
    "expand_dims": _one("expand_dims", 1, shape=(1, 8, 8)),
    "transpose": _one("transpose", (0, 2, 1, 3), shape=(1, 4, 6, 8)),
    "tile": _one("tile", (1, 2, 1, 3)),
    "resize_bilinear": _one("resize_bilinear", (16, 16), half_pixel_centers=True),
    "resize_nearest": _one("resize_nearest", (16, 16)),
    "mean": _one("mean", keep_dims=True),
    "sum": _one("sum"),
    "reduce_max": lambda: _reduce(OpKind.REDUCE_MAX, 1),
    "reduce_min": lambda: _reduce(OpKind.REDUCE_MIN, 3),
    "batch_matmul": lambda: _matmul(False, False),
    "batch_matmul_adj_x": lambda: _matmul(True, False),
    "batch_matmul_int16": lambda: _matmul(False, True, "int16"),
    "arg_max": _one("arg_max"),
    "cast": _one("cast", "int32"),
    "gather": _one("gather", (3, 1), 1),
    "lstm": _one("lstm", 6, shape=(1, 5, 8)),
    "lstm_time_major": _one("lstm", 6, time_major=True, shape=(5, 2, 8)),
    "svdf": _one("svdf", 6, shape=(1, 16)),
    "branches": _branches,
    "call_once": call_once,
    "custom": custom,
}
