"""Models of one op (or a few) that Vela places on the NPU, and helpers to compile them."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55
from npusched.ir import OpKind
from npusched.sim.run import Executable, open_compiled
from npusched.tflite import Builder
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.runner import compile_model

ACCELERATORS = ("ethos-u55-32", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512")
SHAPE = (1, 9, 7, 13)


@lru_cache(maxsize=256)
def compiled(content: bytes, config: str, arena: int | None = None, size: bool = False) -> bytes:
    """Compile with Vela; ``size``: optimise for size."""
    options = VelaOptions(
        optimise=Optimise.SIZE if size else Optimise.PERFORMANCE, arena_cache_size_bytes=arena
    )
    return compile_model(content, load_target(config), options, cache=None).compiled


def executable(content: bytes, config: str, arena: int | None = None) -> Executable:
    """Compile and load."""
    return open_compiled(compiled(content, config, arena))


@lru_cache(maxsize=8)
def corpus_model(folder: Path, name: str) -> bytes:
    """A model of the corpus."""
    return (folder / "models" / f"{name}.tflite").read_bytes()


def accelerator(config: str) -> AcceleratorU55:
    """An accelerator by name."""
    found = load_target(config).accelerator
    assert isinstance(found, AcceleratorU55)
    return found


def one_op(
    method: str,
    *args: object,
    shape: tuple[int, ...] = SHAPE,
    dtype: str = "int8",
    **named: object,
) -> Callable[[], bytes]:
    """A maker of a model with one op: a method of the builder on one input."""

    def build() -> bytes:
        b = Builder(method)
        found = getattr(b, method)(b.input("x", shape, dtype), *args, **named)
        b.output(*(found if isinstance(found, tuple) else (found,)))
        return b.build()

    return build


def two_operands(
    kind: str,
    y: tuple[int, ...] = SHAPE,
    dtype: str = "int8",
    x: tuple[int, ...] = SHAPE,
    **named: object,
) -> Callable[[], bytes]:
    """A maker of a model with one op on two inputs of the shapes ``x`` and ``y``."""

    def build() -> bytes:
        b = Builder(kind)
        b.output(getattr(b, kind)(b.input("x", x, dtype), b.input("y", y, dtype), **named))
        return b.build()

    return build


def _unequal_add(dtype: str = "int8") -> bytes:
    """An addition whose operands have different scales (32-bit operand scaling)."""
    b = Builder("unequal")
    x = b.input("x", SHAPE, dtype, scale=0.02, zero_point=0)
    y = b.input("y", SHAPE, dtype, scale=0.07, zero_point=0)
    b.output(b.add(x, y, scale=0.09, zero_point=0), b.sub(y, x, scale=0.08, zero_point=0))
    return b.build()


def _concat(axis: int) -> bytes:
    b = Builder("concat")
    x = b.input("x", (1, 8, 8, 8))
    b.output(b.concat([x, b.max_pool2d(x, 3, stride=1, padding="SAME")], axis))
    return b.build()


def reduced(kind: OpKind, axis: int) -> bytes:
    """A model that reduces one axis."""
    b = Builder("reduce")
    b.output(b.reduce(kind, b.input("x", (1, 8, 8, 8)), (axis,)))
    return b.build()


def _network() -> bytes:
    """Residual, depthwise, branches, pooling, softmax."""
    b = Builder("network", seed=5)
    x = b.conv2d(b.input("x", (1, 33, 29, 3)), 16, stride=2, activation="RELU6")
    y = b.depthwise_conv2d(x, 3, activation="RELU")
    y = b.add(b.conv2d(y, 16, 1), x, activation="RELU")
    z = b.concat([b.max_pool2d(y), b.avg_pool2d(y, 2)], 3)
    b.output(b.softmax(b.fully_connected(b.mean(z), 10)))
    return b.build()


def tall_network(height: int = 64) -> bytes:
    """A chain of convolutions that a small arena cascades."""
    b = Builder("tall", seed=7)
    x = b.conv2d(b.input("x", (1, height, 40, 3)), 16, activation="RELU6")
    x = b.depthwise_conv2d(x, 3, activation="RELU6")
    x = b.conv2d(x, 24, 1, stride=2)
    x = b.depthwise_conv2d(x, 5, activation="RELU6")
    b.output(b.conv2d(x, 8, 3, stride=2))
    return b.build()


MODELS: dict[str, Callable[[], bytes]] = {
    "conv": one_op("conv2d", 20, activation="RELU"),
    "conv_1x1": one_op("conv2d", 33, 1),
    "conv_valid_3x2_s2": one_op("conv2d", 5, (3, 2), stride=2, padding="VALID"),
    "conv_s3": one_op("conv2d", 6, 5, stride=3),
    "conv_11x3": one_op("conv2d", 4, (11, 3), shape=(1, 16, 9, 5)),
    "conv_9x9": one_op("conv2d", 4, 9, shape=(1, 12, 12, 8)),
    "conv_dilated": one_op("conv2d", 8, dilation=2),
    "conv_dilated_5x5": one_op("conv2d", 8, 5, dilation=(2, 1), shape=(1, 14, 11, 6)),
    "conv_groups": one_op("conv2d", 8, groups=2, shape=(1, 8, 8, 8)),
    "conv_per_tensor": one_op("conv2d", 8, per_channel=False),
    "conv_deep": one_op("conv2d", 40, 3, shape=(1, 5, 5, 70)),
    "conv_shallow": one_op("conv2d", 17, 3, shape=(1, 12, 10, 1)),
    "conv_one_channel": one_op("conv2d", 1, 3),
    "conv_uint8": one_op("conv2d", 8, dtype="uint8"),
    "conv_int16": one_op("conv2d", 8, dtype="int16"),
    "conv_relu_n1": one_op("conv2d", 8, activation="RELU_N1_TO_1"),
    "depthwise": one_op("depthwise_conv2d", 3, activation="RELU6"),
    "depthwise_5x5_s2": one_op("depthwise_conv2d", 5, stride=2, shape=(1, 15, 11, 24)),
    "depthwise_dilated": one_op("depthwise_conv2d", 3, dilation=2),
    "depthwise_x2": one_op("depthwise_conv2d", 3, multiplier=2, shape=(1, 8, 8, 8)),
    "depthwise_int16": one_op("depthwise_conv2d", 3, dtype="int16"),
    "depthwise_uint8": one_op("depthwise_conv2d", 3, dtype="uint8"),
    "tconv": one_op("transpose_conv", 4),
    "tconv_valid": one_op("transpose_conv", 4, padding="VALID"),
    "fc": one_op("fully_connected", 10, shape=(1, 64)),
    "fc_long": one_op("fully_connected", 70, shape=(1, 515)),
    "fc_batch": one_op("fully_connected", 10, activation="RELU", shape=(5, 64)),
    "max_pool": one_op("max_pool2d", 3, stride=2, padding="SAME"),
    "max_pool_valid": one_op("max_pool2d"),
    "max_pool_uint8": one_op("max_pool2d", dtype="uint8"),
    "max_pool_int16": one_op("max_pool2d", dtype="int16"),
    "avg_pool_same": one_op("avg_pool2d", 3, stride=2, padding="SAME"),
    "avg_pool_valid": one_op("avg_pool2d", (2, 3), stride=1, padding="VALID"),
    "avg_pool_int16": one_op("avg_pool2d", 2, padding="VALID", dtype="int16"),
    "mean": one_op("mean", keep_dims=True),
    "reduce_max": lambda: reduced(OpKind.REDUCE_MAX, 1),
    **{name: one_op(name) for name in ("relu", "relu6", "logistic", "tanh", "hard_swish")},
    **{name: one_op(name) for name in ("exp", "abs", "gelu")},
    "leaky_relu": one_op("leaky_relu", 0.2),
    "leaky_relu_int16": one_op("leaky_relu", 0.2, dtype="int16"),
    "prelu": one_op("prelu"),
    "exp_int16": one_op("exp", dtype="int16"),
    "hard_swish_uint8": one_op("hard_swish", dtype="uint8"),
    "softmax": one_op("softmax", shape=(1, 10)),
    "softmax_rows": one_op("softmax", shape=(1, 5, 12)),
    "softmax_uint8": one_op("softmax", shape=(1, 10), dtype="uint8"),
    "softmax_int16": one_op("softmax", shape=(1, 10), dtype="int16"),
    **{f"{name}_int8": two_operands(name) for name in ("add", "sub", "mul", "minimum", "maximum")},
    **{f"{name}_uint8": two_operands(name, dtype="uint8") for name in ("add", "mul", "maximum")},
    **{f"{name}_int16": two_operands(name, dtype="int16") for name in ("add", "sub", "mul")},
    "add_unequal": _unequal_add,
    "add_unequal_int16": lambda: _unequal_add("int16"),
    "add_broadcast_c": two_operands("add", (1, 1, 1, 13)),
    "add_broadcast_hw": two_operands("mul", (1, 9, 7, 1)),
    "sub_broadcast_reversed": two_operands("sub", SHAPE, x=(1, 1, 7, 13)),
    "add_scalar": one_op("add", 0.5, activation="RELU"),
    "mul_scalar": one_op("mul", -0.75),
    "maximum_scalar": one_op("maximum", 0.25),
    "squared_difference": two_operands("squared_difference"),
    "batch_matmul": two_operands("batch_matmul", (1, 2, 7, 3), x=(1, 2, 5, 7)),
    "requantize": one_op("quantize", "int8", scale=0.1, zero_point=3),
    "to_uint8": one_op("quantize", "uint8", scale=0.1, zero_point=30),
    "resize_bilinear": one_op("resize_bilinear", (18, 14)),
    "resize_nearest": one_op("resize_nearest", (18, 14)),
    "pad": one_op("pad", ((0, 0), (1, 2), (0, 1), (0, 0))),
    "concat_c": lambda: _concat(3),
    "concat_h": lambda: _concat(1),
    "split": one_op("split", 4, shape=(1, 8, 8, 8)),
    "slice": one_op("slice", (0, 1, 2, 0), (1, 4, -1, 8)),
    "strided_slice": one_op("strided_slice", (0, 1, 0, 0), (1, 7, 7, 13), (1, 2, 2, 1)),
    "transpose": one_op("transpose", (0, 2, 1, 3)),
    "transpose_c": one_op("transpose", (0, 3, 1, 2)),
    "network": _network,
    "tall": tall_network,
}


def rng(seed: int) -> np.random.Generator:
    """Seeded generator."""
    return np.random.default_rng(seed)
