"""Arithmetic on shapes that several passes share. All functions are pure.

The rules are those of Vela 5.2.0 (``compiler/shape_util.hpp``, ``compiler/scheduler_decompose.cpp``
ReshapeElementwise); LOWERING.md §4 lists them.
"""

from __future__ import annotations

from math import isqrt, prod

from npusched.graph.types import Shape4
from npusched.ir import Shape

MAX_AXIS = 1 << 16
"""Largest height, width or depth of a feature map (Vela 5.2.0, ``ethos_u55_constraints.cpp``)."""

DEEP_ENOUGH = 8
"""Elementwise ops on at least this many channels keep their shape."""

MIN_DEPTH = 16
"""Channels that a reshaped elementwise op gets at least."""


def ceil_div(value: int, divisor: int) -> int:
    """Return ``value / divisor`` rounded up."""
    return -(-value // divisor)


def pad_axes(shape: Shape, rank: int, fill: int = 1) -> Shape:
    """Prepend axes of ``fill`` until ``shape`` has at least ``rank`` axes."""
    return (fill,) * (rank - len(shape)) + shape


def shape4(shape: Shape) -> Shape4:
    """Return ``shape`` as (n, h, w, c): padded with ones, or leading axes merged into n."""
    padded = pad_axes(shape, 4)
    return (prod(padded[:-3]), padded[-3], padded[-2], padded[-1])


def squeezed(shape: Shape) -> Shape:
    """Return ``shape`` without its axes of size 1."""
    return tuple(axis for axis in shape if axis != 1)


def equal_reduced(left: Shape, right: Shape, fill: int = 1) -> bool:
    """Return True if the shapes differ at most in leading axes of ``fill``."""
    rank = max(len(left), len(right))
    return pad_axes(left, rank, fill) == pad_axes(right, rank, fill)


def with_axis(shape: Shape, axis: int, value: int) -> Shape:
    """Return ``shape`` with one axis replaced."""
    axis %= len(shape)
    return (*shape[:axis], value, *shape[axis + 1 :])


def around_axis(shape: Shape, axis: int) -> Shape:
    """Return the 3-D shape (product before the axis, the axis, product after it)."""
    return (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))


def prime_factors(value: int) -> list[int]:
    """Return the prime factors of ``value``, ascending; a large rest counts as one factor."""
    factors = []
    while value % 2 == 0:
        factors.append(2)
        value //= 2
    limit = isqrt(value)
    factor = 3
    while value > 1 and factor <= limit:
        while value % factor == 0:
            factors.append(factor)
            value //= factor
        factor += 2
    return [*factors, value] if value != 1 else factors


def deepened(shape: Shape) -> Shape:
    """Return (1, h, w, c) with the same elements and at least 16 channels, if they suffice.

    The smallest prime factors make the channels; each further factor goes to the width while it
    is smaller than the height, else to the height; height and width are swapped at the end if
    the width is larger. 64x64x3 becomes 48x16x16, 7x5x3 becomes 1x1x105.
    """
    elements = prod(shape)
    if elements == 0:
        return (0, 0, 0, 0)
    depth = height = width = 1
    for factor in prime_factors(elements):
        if depth < MIN_DEPTH:
            depth *= factor
        elif width < height:
            width *= factor
        else:
            height *= factor
    return (1, max(height, width), min(height, width), depth)


def folded_leading(shape: Shape) -> Shape:
    """Return a shape of at most 3 real axes for an elementwise op (rank 3 or (1, h, w, c)).

    Unit axes among the last three are dropped while others remain in front of them; what then
    still stands in front is merged into the height. 2x8x8x16 becomes 1x16x8x16.
    """
    while len(shape) > 3 and 1 in shape[-3:] and prod(shape) > prod(shape[-3:]):
        for axis in (-1, -2, -3):
            if len(shape) > 3 and shape[axis] == 1:
                at = len(shape) + axis
                shape = shape[:at] + shape[at + 1 :]
    if len(shape) > 3:
        shape = (1, prod(shape[:-2]), shape[-2], shape[-1])
    return shape


def fold_batch(batch: int) -> tuple[int, int]:
    """Return (h, w) over which a fully connected op spreads ``batch`` rows.

    w starts at max(batch // 16, ceil(sqrt(batch))) and grows to the next divisor:
    60 -> 6x10, 5 -> 1x5, 197 -> 1x197 (LOWERING §5).
    """
    root = isqrt(batch)
    width = max(batch // 16, root if root * root == batch else root + 1)
    while batch % width:
        width += 1
    return batch // width, width


def same_padding(size: int, stride: int, dilated_kernel: int) -> tuple[int, int]:
    """Return (before, after) of TFLite's SAME padding along one axis."""
    total = max((ceil_div(size, stride) - 1) * stride + dilated_kernel - size, 0)
    return total // 2, (total + 1) // 2
