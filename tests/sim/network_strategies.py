"""Hypothesis strategies: networks of a few steps, drawn so that failures shrink to small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import note
from hypothesis import strategies as st

from npusched.tflite import Builder
from npusched.tflite.graph_builder import Ref

Step: TypeAlias = Callable[[st.DrawFn, Builder, Ref], Ref]

CHANNELS = st.sampled_from((1, 3, 8, 16, 17, 33))
ACTIVATIONS = st.sampled_from(("NONE", "RELU", "RELU6"))


def _padding(draw: st.DrawFn, x: Ref, h: int, w: int) -> str:
    """VALID only where the window fits."""
    fits = x.shape[1] >= h and x.shape[2] >= w
    return draw(st.sampled_from(("SAME", "VALID"))) if fits else "SAME"


def conv(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Strides up to 3 (on odd heights too) or dilations; SAME pads an even window unequally."""
    h, w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    stride = draw(st.sampled_from((1, 2, 3)))
    dilation = draw(st.sampled_from((1, 2))) if stride == 1 else 1
    return b.conv2d(
        x,
        draw(CHANNELS),
        (h, w),
        stride=stride,
        dilation=dilation,
        padding=_padding(draw, x, dilation * (h - 1) + 1, dilation * (w - 1) + 1),
        activation=draw(ACTIVATIONS),
        per_channel=draw(st.booleans()),
    )


def depthwise(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Kernels up to 6x6."""
    h, w = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    stride = draw(st.sampled_from((1, 2, 3)))
    return b.depthwise_conv2d(x, (h, w), stride=stride, padding=_padding(draw, x, h, w))


def pool(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Maximum or average."""
    chosen: Callable[..., Ref] = draw(st.sampled_from((b.max_pool2d, b.avg_pool2d)))
    h, w = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride = draw(st.sampled_from((1, 2)))
    return chosen(x, (h, w), stride=stride, padding=_padding(draw, x, h, w))


def pointwise(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Activations and tables."""
    chosen: Callable[..., Ref] = draw(
        st.sampled_from((b.relu, b.relu6, b.hard_swish, b.leaky_relu))
    )
    return chosen(x)


def residual(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """A skip over one or two convolutions, joined; or a constant operand."""
    join: Callable[..., Ref] = draw(st.sampled_from((b.add, b.sub, b.mul)))
    if draw(st.booleans()):
        return join(x, 0.5)
    y = b.depthwise_conv2d(x, (draw(st.integers(1, 4)), 3))
    if draw(st.booleans()):
        y = b.conv2d(y, x.shape[3], draw(st.sampled_from((1, 3))), activation=draw(ACTIVATIONS))
    return join(x, y)


def pad(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Explicit padding, unequal: folded into what follows, or done by copies."""
    sides = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(2)]
    return b.pad(x, ((0, 0), *sides, (0, 0)))


def concat(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Two branches side by side."""
    return b.concat([x, b.max_pool2d(x, 3, stride=1, padding="SAME")], draw(st.integers(1, 3)))


def split(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Two halves that go different ways and are added (a plain activation for odd sizes)."""
    axis = draw(st.integers(1, 3))
    if x.shape[axis] % 2:
        return b.relu(x)
    first, second = b.split(x, 2, axis)
    return b.add(b.depthwise_conv2d(first, 3), second)


def resize(draw: st.DrawFn, b: Builder, x: Ref) -> Ref:
    """Twice as large, where that stays small."""
    _, h, w, _ = x.shape
    if h * w > 200:
        return b.conv2d(x, draw(CHANNELS), 1)
    return b.resize_nearest(x, (2 * h, 2 * w))


STEPS: tuple[Step, ...] = (
    conv,
    depthwise,
    pool,
    pointwise,
    residual,
    pad,
    concat,
    split,
    resize,
)


WINDOWED: tuple[Step, ...] = (conv, depthwise, pool, residual)
"""Steps that look at several rows: plans run them in stripes."""


@st.composite
def networks(
    draw: st.DrawFn,
    *,
    steps: tuple[Step, ...] = STEPS,
    count: tuple[int, int] = (1, 6),
    height: tuple[int, int] = (1, 41),
) -> bytes:
    """The bytes of a network of ``count`` (least, most) steps on a small image."""
    b = Builder("random", seed=draw(st.integers(0, 3)))
    shape = (
        1,
        draw(st.integers(*height)),
        draw(st.integers(1, 24)),
        draw(st.sampled_from((1, 3, 8, 16, 17, 32))),
    )
    x = b.input("x", shape, draw(st.sampled_from(("int8", "uint8", "int16"))))
    for _ in range(draw(st.integers(*count))):
        step = draw(st.sampled_from(steps))
        x = step(draw, b, x)
        note(f"{step.__name__}: {x.shape}")
    b.output(x)
    return b.build()
