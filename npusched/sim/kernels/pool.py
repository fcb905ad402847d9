"""Pools and sums over channels: exact results before scaling.

The windows slide over values that ``geometry.prepare`` made: centred and padded.
"""

from __future__ import annotations

import numpy as np

from npusched.graph.types import Kernel
from npusched.sim.kernels.arrays import Array, Ints
from npusched.sim.kernels.geometry import pad, taps


def max_pool(padded: Array, kernel: Kernel) -> Ints:
    """Return the largest value of each window (n, oh, ow, c).

    Padding must hold less than any value, so that it never wins.
    """
    views = taps(padded, kernel)
    result: Ints = views[0].copy()
    for view in views[1:]:
        np.maximum(result, view, out=result)
    return result


def window_sum(padded: Array, kernel: Kernel) -> Ints:
    """Return the sum of each window (n, oh, ow, c); padding must be 0.

    An average pool without padding is this, scaled: its OFM scale already holds 1/taps.
    """
    views = taps(padded, kernel)
    total: Ints = views[0].copy()
    for view in views[1:]:
        total += view
    return total


def average_pool(padded: Array, kernel: Kernel) -> Ints:
    """Return the average over each window's real taps, rounded half away from zero.

    That is what the NPU does if any side is padded: it divides by the taps inside the IFM.
    Padding must be 0.
    """
    total = window_sum(padded, kernel).astype(np.int64)
    h = padded.shape[1] - kernel.pad_top - kernel.pad_bottom
    w = padded.shape[2] - kernel.pad_left - kernel.pad_right
    count = window_sum(pad(np.ones((1, h, w, 1), np.int64), kernel), kernel)
    count = np.maximum(count, 1)
    magnitude = (2 * np.abs(total) + count) // (2 * count)
    average: Ints = np.where(total < 0, -magnitude, magnitude)
    return average


def reduce_sum(centred: Array) -> Ints:
    """Return the sum over channels, shape (n, h, w, 1)."""
    total: Ints = centred.sum(axis=3, keepdims=True, dtype=np.int64)
    return total
