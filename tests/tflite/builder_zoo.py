"""Small models, one per kind of op, that several tests use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusched.ir import OpKind
from npusched.ir.options import CallOptions
from npusched.tflite import Builder, Ref

UNARY = ("relu", "relu6", "logistic", "tanh", "hard_swish", "exp", "abs", "neg", "elu", "gelu")


def _one(name: str, make: Callable[[Builder, Ref], Ref], shape: tuple[int, ...] = (1, 8, 8, 8),
         dtype: str = "int8") -> bytes:  # fmt: skip
    b = Builder(name)
    x = b.input("x", shape, dtype)
    b.output(make(b, x))
    return b.build()


def _multi(name: str, make: Callable[[Builder, Ref], tuple[Ref, ...]],
           shape: tuple[int, ...] = (1, 4, 4, 12)) -> bytes:  # fmt: skip
    b = Builder(name)
    b.output(*make(b, b.input("x", shape)))
    return b.build()


def _two_inputs(name: str, kind: str, y_shape: tuple[int, ...], dtype: str = "int8") -> bytes:
    b = Builder(name)
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
    "conv": lambda: _one("conv", lambda b, x: b.conv2d(x, 16, activation="RELU")),
    "conv_valid_s2": lambda: _one("c", lambda b, x: b.conv2d(x, 5, (3, 2), stride=2, padding="VALID")),
    "conv_dilated": lambda: _one("c", lambda b, x: b.conv2d(x, 8, dilation=2)),
    "conv_groups": lambda: _one("c", lambda b, x: b.conv2d(x, 8, groups=2)),
    "conv_per_tensor": lambda: _one("c", lambda b, x: b.conv2d(x, 8, per_channel=False)),
    "conv_no_bias": lambda: _one("c", lambda b, x: b.conv2d(x, 8, bias=False)),
    "conv_uint8": lambda: _one("c", lambda b, x: b.conv2d(x, 8), dtype="uint8"),
    "conv_int16": lambda: _one("c", lambda b, x: b.conv2d(x, 8), dtype="int16"),
    "conv_float": lambda: _one("c", lambda b, x: b.conv2d(x, 8), dtype="float32"),
    "conv_hybrid": lambda: _one("c", lambda b, x: b.conv2d(x, 8, weights_dtype="int8"), dtype="float32"),
    "conv_int4": lambda: _one("c", lambda b, x: b.conv2d(x, 7, 1, weights_dtype="int4")),
    "conv_batch2": lambda: _one("c", lambda b, x: b.conv2d(x, 8), (2, 8, 8, 4)),
    "depthwise": lambda: _one("d", lambda b, x: b.depthwise_conv2d(x, 3, activation="RELU6")),
    "depthwise_x2": lambda: _one("d", lambda b, x: b.depthwise_conv2d(x, 3, multiplier=2)),
    "depthwise_int16": lambda: _one("d", lambda b, x: b.depthwise_conv2d(x, 3), dtype="int16"),
    "tconv": lambda: _one("t", lambda b, x: b.transpose_conv(x, 4)),
    "tconv_valid": lambda: _one("t", lambda b, x: b.transpose_conv(x, 4, padding="VALID")),
    "fc": lambda: _one("f", lambda b, x: b.fully_connected(x, 10), (1, 64)),
    "fc_batch": lambda: _one("f", lambda b, x: b.fully_connected(x, 10, activation="RELU"), (5, 64)),
    "fc_keep": lambda: _one("f", lambda b, x: b.fully_connected(x, 10, keep_num_dims=True), (1, 5, 64)),
    "fc_int16": lambda: _one("f", lambda b, x: b.fully_connected(x, 10), (1, 64), "int16"),
    "max_pool": lambda: _one("p", lambda b, x: b.max_pool2d(x)),
    "avg_pool": lambda: _one("p", lambda b, x: b.avg_pool2d(x, 3, stride=2, padding="SAME")),
    **{k: (lambda k=k: _one(k, lambda b, x: getattr(b, k)(x))) for k in UNARY},
    **{
        f"{k}_int16": (lambda k=k: _one(k, lambda b, x: getattr(b, k)(x), dtype="int16"))
        for k in ("logistic", "tanh")
    },
    "relu_float": lambda: _one("relu", lambda b, x: b.relu(x), dtype="float32"),
    "gelu_tanh": lambda: _one("gelu", lambda b, x: b.gelu(x, approximate=True)),
    "leaky_relu": lambda: _one("leaky", lambda b, x: b.leaky_relu(x, 0.2)),
    "prelu": lambda: _one("prelu", lambda b, x: b.prelu(x)),
    "log": lambda: _one("log", lambda b, x: b.log(b.relu(x))),
    "rsqrt": lambda: _one("rsqrt", lambda b, x: b.rsqrt(b.relu(x))),
    "softmax": lambda: _one("softmax", lambda b, x: b.softmax(x), (1, 10)),
    "softmax_int16": lambda: _one("softmax", lambda b, x: b.softmax(x), (1, 10), "int16"),
    **{
        f"{k}_{d}": (lambda k=k, d=d: _two_inputs(k, k, (1, 8, 8, 8), d))
        for k in ("add", "sub", "mul")
        for d in ("int8", "uint8", "int16")
    },
    "minimum": lambda: _two_inputs("min", "minimum", (1, 8, 8, 8)),
    "maximum": lambda: _two_inputs("max", "maximum", (1, 8, 8, 8)),
    "squared_difference": lambda: _two_inputs("sqd", "squared_difference", (1, 8, 8, 8)),
    "add_broadcast": lambda: _two_inputs("add", "add", (1, 1, 1, 8)),
    "add_const": lambda: _one("add", lambda b, x: b.add(x, 0.5, activation="RELU")),
    "maximum_const": lambda: _one("max", lambda b, x: b.maximum(x, 0.25)),
    "div_float": lambda: _two_inputs("div", "div", (1, 8, 8, 8), "float32"),
    "batch_norm": lambda: _one("bn", lambda b, x: b.batch_norm(b.conv2d(x, 8), activation="RELU6")),
    "requantize": lambda: _one("q", lambda b, x: b.quantize(x, "int8", scale=0.1, zero_point=3)),
    "float_io": _float_io,
    "pad": lambda: _one("pad", lambda b, x: b.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)])),
    "pad_v2": lambda: _one("pad", lambda b, x: b.pad_v2(x, [(0, 0), (1, 2), (0, 1), (0, 0)], 5)),
    "mirror_pad": lambda: _one("pad", lambda b, x: b.mirror_pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)])),
    "concat": lambda: _concat(3),
    "concat_h": lambda: _concat(1),
    "split": lambda: _multi("split", lambda b, x: b.split(x, 3)),
    "split_v": lambda: _multi("split", lambda b, x: b.split_v(x, (2, 4, 6))),
    "unpack": lambda: _multi("unpack", lambda b, x: b.unpack(x, 1)),
    "pack": lambda: _one("pack", lambda b, x: b.pack([x, b.expand_dims(b.squeeze(x), 0)], 1), (1, 4, 6)),
    "slice": lambda: _one("slice", lambda b, x: b.slice(x, (0, 1, 2, 0), (1, 4, -1, 8))),
    "strided_slice": lambda: _one(
        "ss", lambda b, x: b.strided_slice(x, (0, 1, 0, 0), (1, 7, 8, 8), (1, 2, 2, 1))
    ),
    "strided_slice_shrink": lambda: _one(
        "ss", lambda b, x: b.strided_slice(x, (0, -1), (0, 0), shrink_axis_mask=2, end_mask=1)
    ),
    "reshape": lambda: _one("reshape", lambda b, x: b.reshape(x, (1, -1))),
    "squeeze": lambda: _one("squeeze", lambda b, x: b.squeeze(x, (1,)), (1, 1, 8, 8)),
    "expand_dims": lambda: _one("expand", lambda b, x: b.expand_dims(x, 1), (1, 8, 8)),
    "transpose": lambda: _one("transpose", lambda b, x: b.transpose(x, (0, 2, 1, 3)), (1, 4, 6, 8)),
    "tile": lambda: _one("tile", lambda b, x: b.tile(x, (1, 2, 1, 3))),
    "resize_bilinear": lambda: _one(
        "r", lambda b, x: b.resize_bilinear(x, (16, 16), half_pixel_centers=True)
    ),
    "resize_nearest": lambda: _one("r", lambda b, x: b.resize_nearest(x, (16, 16))),
    "mean": lambda: _one("mean", lambda b, x: b.mean(x, keep_dims=True)),
    "sum": lambda: _one("sum", lambda b, x: b.sum(x)),
    "reduce_max": lambda: _one("rm", lambda b, x: b.reduce(OpKind.REDUCE_MAX, x, (1,))),
    "reduce_min": lambda: _one("rm", lambda b, x: b.reduce(OpKind.REDUCE_MIN, x, (3,))),
    "batch_matmul": lambda: _matmul(False, False),
    "batch_matmul_adj_y": lambda: _matmul(False, True),
    "batch_matmul_int16": lambda: _matmul(False, True, "int16"),
    "arg_max": lambda: _one("argmax", lambda b, x: b.arg_max(x)),
    "cast": lambda: _one("cast", lambda b, x: b.cast(x, "int32")),
    "gather": lambda: _one("gather", lambda b, x: b.gather(x, (3, 1), 1)),
    "lstm": lambda: _one("lstm", lambda b, x: b.lstm(x, 6), (1, 5, 8)),
    "lstm_time_major": lambda: _one("lstm", lambda b, x: b.lstm(x, 6, time_major=True), (5, 2, 8)),
    "svdf": lambda: _one("svdf", lambda b, x: b.svdf(x, 6), (1, 16)),
    "branches": _branches,
    "call_once": call_once,
    "custom": custom,
}  # fmt: skip
