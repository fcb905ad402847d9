"""Random models of a few ops that read each other's results, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npusched.errors import NpuschedError
from npusched.ir import Model
from npusched.tflite import read_model
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref

TYPES = ("int8",) * 6 + ("uint8", "int16")
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


@dataclass
class Draw:
    """What a step may use: the builder, the dice, the tensor it is about, and all others."""

    b: Builder
    dice: random.Random
    x: Ref
    pool: list[Ref]

    @property
    def activation(self) -> str:
        """A fused activation."""
        return self.dice.choice(ACTIVATIONS)

    @property
    def padding(self) -> str:
        """SAME or VALID."""
        return self.dice.choice(("SAME", "VALID"))

    @property
    def other(self) -> Ref:
        """A tensor like ``x``."""
        return self.dice.choice(
            [y for y in self.pool if y.shape == self.x.shape and y.dtype == self.x.dtype]
        )

    def constant(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Numbers that broadcast over ``x``."""
        shape = tuple(1 if self.dice.random() < 0.5 else size for size in self.x.shape)
        return np.linspace(-1, 1, prod(shape)).reshape(shape)

    def pads(self) -> list[tuple[int, int]]:
        """Up to 2 rows and columns on each side."""
        margin = [(self.dice.randint(0, 2), self.dice.randint(0, 2)) for _ in range(2)]
        return [(0, 0), *margin, (0, 0)]


Step = Callable[[Draw], Ref | tuple[Ref, ...]]


def _conv(d: Draw) -> Ref:
    return d.b.conv2d(
        d.x,
        d.dice.choice((1, 3, 8, 16, 24)),
        (d.dice.choice((1, 2, 3, 5)), d.dice.choice((1, 3))),
        stride=d.dice.choice((1, 1, 2, 3)),
        padding=d.padding,
        dilation=d.dice.choice((1, 1, 2)),
        activation=d.activation,
        per_channel=d.dice.random() < 0.5,
    )


def _depthwise(d: Draw) -> Ref:
    return d.b.depthwise_conv2d(
        d.x,
        d.dice.choice((3, 5)),
        stride=d.dice.choice((1, 2)),
        padding=d.padding,
        activation=d.activation,
    )


def _far(d: Draw) -> Ref:
    if d.dice.random() < 0.5:
        return d.b.max_pool2d(d.x, d.dice.choice((4, 5)), stride=4, padding="VALID")
    size = d.dice.choice((4, 5))
    return d.b.conv2d(d.x, 8, size, stride=size, padding="VALID", activation=d.activation)


def _pool(d: Draw) -> Ref:
    pool = d.dice.choice((d.b.max_pool2d, d.b.avg_pool2d))
    stride = d.dice.choice((1, 2, 3))
    return pool(
        d.x, d.dice.choice((2, 3)), stride=stride, padding=d.padding, activation=d.activation
    )


def _binary(d: Draw) -> Ref:
    op = d.dice.choice((d.b.add, d.b.sub, d.b.mul))
    return op(d.x, d.dice.choice((d.other, d.constant())), activation=d.activation)


def _extreme(d: Draw) -> Ref:
    return d.dice.choice((d.b.minimum, d.b.maximum))(d.x, d.other)


def _function(d: Draw) -> Ref:
    b = d.b
    functions = (b.relu, b.relu6, b.logistic, b.tanh, b.hard_swish, b.leaky_relu, b.abs, b.neg)
    return d.dice.choice(functions)(d.x)


def _requantise(d: Draw) -> Ref:
    if d.dice.random() < 0.5:
        return d.b.quantize(d.x, d.dice.choice(("int8", "uint8", "int16")))
    return d.b.quantize(d.x, d.x.dtype.label, scale=0.05, zero_point=0)


def _reshape(d: Draw) -> Ref:
    size = prod(d.x.shape)
    shapes = [(1, size), (1, 1, 1, size), tuple(reversed(d.x.shape))]
    if size % 2 == 0:
        shapes += [(1, 2, size // 2), (1, size // 2, 1, 2)]
    return d.b.reshape(d.x, d.dice.choice(shapes))


def _concat(d: Draw) -> Ref:
    axis = d.dice.randrange(len(d.x.shape))

    def fits(y: Ref) -> bool:
        shapes = zip(y.shape, d.x.shape, strict=False)
        return (
            y.dtype == d.x.dtype
            and len(y.shape) == len(d.x.shape)
            and all(a == b for i, (a, b) in enumerate(shapes) if i != axis)
        )

    others = [y for y in d.pool if fits(y)]
    return d.b.concat([d.x, *d.dice.choices(others, k=d.dice.randint(1, 3))], axis)


def _split(d: Draw) -> tuple[Ref, ...]:
    axes = [axis for axis, size in enumerate(d.x.shape) if size % 2 == 0]
    return d.b.split(d.x, 2, d.dice.choice(axes))


def _slice(d: Draw) -> Ref:
    begin = [d.dice.randint(0, size - 1) for size in d.x.shape]
    sizes = [d.dice.randint(1, size - at) for size, at in zip(d.x.shape, begin, strict=True)]
    return d.b.slice(d.x, begin, sizes)


def _every_other(d: Draw) -> Ref:
    n, h, w, c = d.x.shape
    strides = (1, d.dice.choice((1, 2)), d.dice.choice((1, 2)), 1)
    return d.b.strided_slice(d.x, (0, 0, 0, 0), (n, h, w, c), strides)


def _padded_conv(d: Draw) -> Ref:
    padded = d.b.pad(d.x, d.pads())
    d.pool.append(padded)
    size, stride = d.dice.choice((1, 3, 5)), d.dice.choice((1, 2))
    if d.dice.random() < 0.5:
        return d.b.depthwise_conv2d(padded, size, stride=stride, padding="VALID")
    return d.b.conv2d(padded, 8, size, stride=stride, padding="VALID", activation=d.activation)


def _mean(d: Draw) -> Ref:
    axes = d.dice.choice(((1, 2), (1,), (2,), (3,)))
    return d.b.mean(d.x, axes, keep_dims=d.dice.random() < 0.5)


def _transpose(d: Draw) -> Ref:
    order = list(range(len(d.x.shape)))
    d.dice.shuffle(order)
    return d.b.transpose(d.x, order)


def _resize(d: Draw) -> Ref:
    _, h, w, _ = d.x.shape
    resize = d.dice.choice((d.b.resize_bilinear, d.b.resize_nearest))
    return resize(d.x, (2 * h, 2 * w), half_pixel_centers=d.dice.random() < 0.5)


def _host(d: Draw) -> Ref:
    out = d.b.tensor(
        f"host{len(d.b.ops)}",
        d.x.shape,
        d.x.dtype.label,
        scale=d.x.scale,
        zero_point=d.x.zero_point,
    )
    d.b.custom("Mystery", [d.x], [out])
    return out


STEPS: tuple[Step, ...] = (
    *(_conv,) * 3,
    *(_depthwise,) * 2,
    *(_binary,) * 4,
    *(_reshape, _concat, _split, _transpose) * 2,
    *(_far, _pool, _extreme, _function, _requantise, _slice, _every_other, _padded_conv),
    *(_mean, _resize, _host),
    lambda d: d.b.fully_connected(d.x, d.dice.choice((1, 5, 16)), activation=d.activation),
    lambda d: d.b.softmax(d.x),
    lambda d: d.b.pad(d.x, d.pads()),
    lambda d: d.b.pad_v2(d.x, d.pads(), value=d.dice.choice((0, 5))),
    lambda d: d.b.squeeze(d.x),
    lambda d: d.b.transpose_conv(d.x, 8, 3, stride=2, padding=d.padding),
    lambda d: d.b.prelu(d.x),
)


def random_model(seed: int) -> Model | None:
    """Return a model of up to 7 ops, None if the dice made no op that fits."""
    dice = random.Random(seed)
    b = Builder(f"random{seed}", seed=seed)
    shape = (
        1 if dice.random() < 0.85 else dice.choice((2, 3)),
        dice.choice((1, 2, 5, 8, 13, 16)),
        dice.choice((1, 3, 8, 9, 16)),
        dice.choice((1, 2, 3, 8, 16, 17, 32)),
    )
    pool = [b.input("x", shape, dice.choice(TYPES))]
    for _ in range(dice.randint(1, 7)):
        _grow(b, dice, pool)
    made = pool[1:]
    if not made:
        return None
    b.output(*_outputs(dice, made))
    return read_model(b.build(), b.name)


def _grow(b: Builder, dice: random.Random, pool: list[Ref]) -> None:
    """Add an op on a recent tensor; not every op fits every tensor."""
    x = dice.choice(pool[-3:] if dice.random() < 0.8 else pool)
    try:
        found = dice.choice(STEPS)(Draw(b, dice, x, pool))
    except (ValueError, IndexError, TypeError, NpuschedError):
        return
    pool += found if isinstance(found, tuple) else (found,)


def _outputs(dice: random.Random, made: Sequence[Ref]) -> list[Ref]:
    outputs = [made[-1]]
    if dice.random() < 0.3:
        outputs.append(dice.choice(made))
    return list({ref.index: ref for ref in outputs}.values())
