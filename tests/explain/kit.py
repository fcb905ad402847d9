"""Small models of the kinds that explanations are about, none of them a case of the corpus."""

from __future__ import annotations

from functools import cache

import numpy as np

from npusched.report.explain_types import ExplainReport, Subject
from npusched.tflite import Builder

TARGET = "ethos-u55-128"


def explained(
    content: bytes, subject: Subject = "peak", target: str = TARGET, **options: object
) -> ExplainReport:
    """An explanation without Vela, the same everywhere."""
    import npusched

    options = {"use_vela": False, **options}
    return npusched.explain(content, target, subject, **options)  # type: ignore[arg-type]


@cache
def wide(channels: int) -> bytes:
    """Three convolutions over many rows of so many channels."""
    b = Builder("wide")
    x = b.input("x", (1, 96, 64, 3))
    for k in range(2):
        x = b.conv2d(x, channels, 3, activation="RELU", name=f"wide{k}")
    b.output(b.conv2d(x, 1, 3, name="last"))
    return b.build()


@cache
def dense() -> bytes:
    """One matrix that is read from flash and used once."""
    b = Builder("dense")
    b.output(b.fully_connected(b.input("x", (1, 512)), 96, name="dense"))
    return b.build()


@cache
def norm_behind_pool() -> bytes:
    """A pool, a batch norm as MUL and ADD, a 1x1 convolution that could take it."""
    b = Builder("norm")
    x = b.max_pool2d(b.input("x", (1, 24, 24, 32)), 4, stride=4)
    x = b.mul(x, np.linspace(0.5, 2, 32), name="scale")
    x = b.add(x, np.linspace(-1, 1, 32), name="shift")
    b.output(b.conv2d(x, 8, 1, name="mix"))
    return b.build()


@cache
def norm_behind_conv() -> bytes:
    """A convolution and a batch norm that 'npusched fold' takes away."""
    b = Builder("norm")
    x = b.conv2d(b.input("x", (1, 16, 16, 8)), 16, 3)
    b.output(b.batch_norm(x, name="norm"))
    return b.build()


@cache
def recurrent(steps: int = 3) -> bytes:
    """An LSTM over so many steps."""
    b = Builder("recurrent")
    b.output(b.fully_connected(b.lstm(b.input("x", (1, steps, 24)), 16, name="lstm"), 4))
    return b.build()


@cache
def attention_like() -> bytes:
    """A softmax over long rows, whose decomposition needs 32-bit maps."""
    b = Builder("attention")
    b.output(b.softmax(b.input("x", (1, 2, 75, 75)), name="softmax"))
    return b.build()


@cache
def averaged() -> bytes:
    """A mean over a large map."""
    b = Builder("averaged")
    x = b.conv2d(b.input("x", (1, 40, 40, 3)), 24, 3, stride=2)
    b.output(b.fully_connected(b.reshape(b.mean(x, (1, 2), keep_dims=True), (1, 24)), 5))
    return b.build()


@cache
def backwards() -> bytes:
    """An op in the middle that only the CPU runs: a slice with a negative stride."""
    b = Builder("backwards")
    x = b.conv2d(b.input("x", (1, 12, 12, 8)), 8, 3, name="first")
    x = b.strided_slice(x, (0, 11, 0, 0), (1, -13, 12, 8), (1, -2, 1, 1), name="flip")
    b.output(b.conv2d(x, 4, 3, name="second"))
    return b.build()


@cache
def stretched() -> bytes:
    """A transpose convolution with a stride that Ethos-U55 does not have."""
    b = Builder("stretched")
    x = b.conv2d(b.input("x", (1, 6, 6, 4)), 8, 3, name="first")
    b.output(b.transpose_conv(x, 4, 4, stride=4, name="grow"))
    return b.build()
