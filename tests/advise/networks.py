"""Networks with one thing to change each, and the same without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusched.ir import OpKind
from npusched.tflite import Builder, Ref

Net = Callable[[], bytes]

SIZE = 16
"""Rows and columns of most inputs."""


def built(
    make: Callable[[Builder, Ref], Ref], shape: tuple[int, ...] = (1, SIZE, SIZE, 16)
) -> bytes:
    """A network from one int8 input; results of a multiple of 16 channels leave nothing to say."""
    b = Builder("net")
    b.output(make(b, b.input("x", shape)))
    return b.build()


def stack(channels: int, size: int = SIZE) -> bytes:
    """Two convolutions with so many channels between them."""
    return built(
        lambda b, x: b.conv2d(b.conv2d(x, channels, activation="RELU"), 16), (1, size, size, 16)
    )


def healthy() -> bytes:
    """Nothing that a rule about models has a word for."""
    return built(lambda b, x: b.conv2d(b.conv2d(x, 32, activation="RELU"), 16), (1, 64, 64, 16))


def norm_before(*, folded: bool) -> bytes:
    """A batch norm between a pool and a 1x1 convolution, or none."""

    def make(b: Builder, x: Ref) -> Ref:
        pooled = b.max_pool2d(x, 2)
        return b.conv2d(pooled if folded else b.batch_norm(pooled), 16, 1)

    return built(make)


def norm_behind(*, folded: bool) -> bytes:
    """A batch norm behind a convolution, or none."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        return b.conv2d(y if folded else b.batch_norm(y), 16, 1)

    return built(make)


def island(*, turned: bool) -> bytes:
    """A PAD, a RELU and a sum in NCHW between two convolutions, or in NHWC."""

    def make(b: Builder, x: Ref) -> Ref:
        a, c = b.conv2d(x, 16), b.conv2d(x, 16)
        if turned:
            a, c = (b.transpose(t, (0, 3, 1, 2)) for t in (a, c))
        total = b.add(b.relu(a), c)
        edges = [(0, 0), (1, 1), (2, 2), (0, 0)]
        padded = b.pad(total, [edges[k] for k in (0, 3, 1, 2)] if turned else edges)
        if turned:
            padded = b.transpose(padded, (0, 2, 3, 1))
        return b.conv2d(padded, 16, padding="VALID")

    return built(make)


def turned_input(*, turned: bool) -> bytes:
    """An NCHW input that is turned first, or an NHWC one."""
    b = Builder("net")
    x = b.input("x", (1, 16, SIZE, SIZE) if turned else (1, SIZE, SIZE, 16))
    y = b.transpose(x, (0, 2, 3, 1)) if turned else x
    b.output(b.conv2d(y, 16))
    return b.build()


def float_network(dtype: str) -> bytes:
    """A small network in float32 or int8."""
    b = Builder("net")
    x = b.input("x", (1, SIZE, SIZE, 16), dtype)
    y = b.conv2d(x, 16, activation="RELU")
    z = b.fully_connected(b.reshape(b.avg_pool2d(y, SIZE), (1, 16)), 16)
    b.output(z)
    return b.build()


def float_middle(*, in_float: bool) -> bytes:
    """A RELU and a convolution in float between int8 convolutions, or all in int8."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16, scale=1 / 16, zero_point=0)
        if in_float:
            z = b.conv2d(b.relu(b.dequantize(y)), 16, 1)
            return b.conv2d(b.quantize(z, "int8", scale=1 / 16, zero_point=0), 16)
        r = b.apply(OpKind.RELU, [y], scale=1 / 16, zero_point=0)
        z = b.conv2d(r, 16, 1, scale=1 / 16, zero_point=0)
        return b.conv2d(z, 16)

    return built(make)


def float_input(*, in_float: bool) -> bytes:
    """An input that the model quantises, or that comes in int8."""
    b = Builder("net")
    x = b.input("x", (1, SIZE, SIZE, 16), "float32" if in_float else "int8")
    y = b.quantize(x, "int8") if in_float else x
    b.output(b.conv2d(y, 16))
    return b.build()


def high_pool(kind: OpKind, parts: tuple[int, ...]) -> bytes:
    """A pool over the whole height, in one step or several."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        for part in parts:
            y = b.pool(kind, y, (part, 1), stride=(part, 1))
        return y

    return built(make, (1, 512, 6, 16))


def wide_stride(*, in_two: bool) -> bytes:
    """A convolution of stride 4 with SAME padding, or a PAD, stride 2 and a pool that skips."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        if in_two:
            y = b.pad(y, [(0, 0), (0, 1), (0, 1), (0, 0)])
            y = b.max_pool2d(b.conv2d(y, 16, 5, stride=2, padding="VALID"), 1, stride=2)
            return b.conv2d(y, 16)
        return b.conv2d(b.conv2d(y, 16, 5, stride=4), 16)

    return built(make)


def depthwise_stride(*, in_two: bool) -> bytes:
    """A depthwise convolution of stride 4, or of stride 2 and a pool that skips."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        if in_two:
            y = b.depthwise_conv2d(y, 4, stride=2, padding="VALID")
            return b.conv2d(b.max_pool2d(y, 1, stride=2), 16)
        return b.conv2d(b.depthwise_conv2d(y, 4, stride=4, padding="VALID"), 16)

    return built(make)


def custom_middle(code: str) -> bytes:
    """A custom op between convolutions, or a TANH in its place."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        z = b.tensor("custom", y.shape, "int8", scale=1 / 128)
        if code:
            b.custom(code, [y], [z])
        else:
            b.op(OpKind.TANH, [y], [z])
        return b.conv2d(z, 16)

    return built(make)


def attention(pieces: int) -> bytes:
    """A SOFTMAX of two rows of 2,304, in so many pieces."""

    def make(b: Builder, x: Ref) -> Ref:
        rows = b.reshape(x, (2, 2304))
        if pieces == 1:
            return b.reshape(b.softmax(rows), (1, 12, 12, 32))
        parts = [b.softmax(b.slice(rows, (k, 0), (1, 2304))) for k in range(pieces)]
        return b.reshape(b.concat(parts, 0), (1, 12, 12, 32))

    return built(make, (1, 12, 12, 32))


def classifier(*, softmax: bool) -> bytes:
    """Logits of 16 classes, or their probabilities."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.fully_connected(b.reshape(b.avg_pool2d(x, SIZE), (1, 16)), 16)
        return b.softmax(y) if softmax else y

    return built(make)


def global_mean(*, pooled: bool) -> bytes:
    """A MEAN over height and width, or a pool, a reshape and a QUANTIZE."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 64)
        if not pooled:
            return b.fully_connected(b.mean(y), 16)
        flat = b.reshape(b.avg_pool2d(y, SIZE), (1, 64))
        return b.fully_connected(b.quantize(flat, "int8", scale=0.05, zero_point=0), 16)

    return built(make)


def heavy_weights(*, sparse: bool) -> bytes:
    """A fully connected layer that waits for flash, half of its weights 0 or none."""
    values = np.random.default_rng(0).normal(size=(64, 512))
    if sparse:
        values[np.abs(values) < np.median(np.abs(values))] = 0

    def make(b: Builder, x: Ref) -> Ref:
        return b.fully_connected(x, 64, weights=values / 16)

    return built(make, (1, 512))


def silu(*, hard: bool) -> bytes:
    """A SiLU as LOGISTIC and MUL, or a HARD_SWISH."""

    def make(b: Builder, x: Ref) -> Ref:
        y = b.conv2d(x, 16)
        return b.conv2d(b.hard_swish(y) if hard else b.mul(y, b.logistic(y)), 16)

    return built(make)
