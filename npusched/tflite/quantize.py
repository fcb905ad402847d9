"""Deterministic random weights, and quantisation that follows a rough estimate of value ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.ir import ActivationKind, DataType

RANGE_STDS: Final = 4.0
"""Half width of a quantised range in standard deviations: saturates about 1 value in 16,000."""

_PIECES_STD: Final = 65536 / math.sqrt(3.0)
_GRID: Final = tuple(i / 4 for i in range(-16, 17))
_DENSITY: Final = tuple(math.exp(-z * z / 2) for z in _GRID)


class Spread(msgspec.Struct, frozen=True):
    """Rough distribution of a tensor's real values.

    ``low`` and ``high`` are what it reaches in practice; None: 4 standard deviations off the mean.
    """

    mean: float = 0.0
    std: float = 1.0
    low: float | None = None
    high: float | None = None

    @property
    def power(self) -> float:
        """Mean square."""
        return self.mean**2 + self.std**2

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value in practice."""
        low = self.mean - RANGE_STDS * self.std if self.low is None else self.low
        high = self.mean + RANGE_STDS * self.std if self.high is None else self.high
        return low, high

    @property
    def bounds(self) -> tuple[float, float]:
        """Range worth representing: the limits, and 0."""
        low, high = self.limits
        return min(low, 0.0), max(high, 0.0)

    def within(self, low: float, high: float) -> Spread:
        """The same, but never outside [low, high]."""
        own_low, own_high = self.limits
        return Spread(self.mean, self.std, max(low, own_low), min(high, own_high))

    def through(self, function: Callable[[float], float]) -> Spread:
        """Return the spread of ``function`` of such a value (33 points of a normal density)."""
        values = [function(self.mean + self.std * z) for z in _GRID]
        total = math.fsum(_DENSITY)
        mean = math.fsum(d * v for d, v in zip(_DENSITY, values, strict=True)) / total
        square = math.fsum(d * v * v for d, v in zip(_DENSITY, values, strict=True)) / total
        std = math.sqrt(max(square - mean * mean, 1e-12))
        return Spread(rounded(mean), rounded(std), rounded(min(values)), rounded(max(values)))


def activated(spread: Spread, activation: ActivationKind) -> Spread:
    """Return the spread behind a fused activation."""
    match activation:
        case ActivationKind.RELU:
            return spread.through(lambda v: max(v, 0.0))
        case ActivationKind.RELU6:
            return spread.through(lambda v: min(max(v, 0.0), 6.0))
        case ActivationKind.RELU_N1_TO_1:
            return spread.through(lambda v: min(max(v, -1.0), 1.0))
        case ActivationKind.TANH:
            return spread.through(math.tanh)
        case ActivationKind.SIGN_BIT:
            return spread.through(lambda v: float(v < 0))
        case ActivationKind.NONE:
            return spread


def quantization_of(spread: Spread, dtype: DataType) -> tuple[float | None, int]:
    """Return (scale, zero point) that represents ``spread`` in ``dtype``; (None, 0) for others.

    8-bit types are asymmetric over the whole range, int16 is symmetric (zero point 0), as the
    TFLite quantisation specification asks. Scales are float32 values.
    """
    low, high = spread.bounds
    if not high > low:
        high = low + 1.0
    if dtype is DataType.INT16:
        return float(np.float32(max(-low, high) / 32767)), 0
    if dtype not in (DataType.INT8, DataType.UINT8):
        return None, 0
    scale = float(np.float32((high - low) / 255))
    first = -128 if dtype is DataType.INT8 else 0
    return scale, min(max(round(first - low / scale), first), first + 255)


def normal(
    seed: int, salt: int, shape: tuple[int, ...], *, centred: tuple[int, ...] = ()
) -> npt.NDArray[np.float64]:
    """Return about normal values (mean 0, std 1, limits +-3.46), the same on every machine.

    Sums of four 16-bit pieces of the raw PCG64 stream, whose bits numpy keeps stable. ``centred``:
    axes over which the values add up to 0 (means are taken of integers, so they are exact).
    """
    count = math.prod(shape)
    raw = np.random.PCG64([seed, salt]).random_raw(count) if count else np.zeros(0, np.uint64)
    pieces = np.asarray(raw, "<u8").view("<u2").reshape(count, 4)
    sums = pieces.sum(axis=1, dtype=np.int64).reshape(shape)
    middle: npt.NDArray[np.float64] = np.full((1,) * len(shape), 2.0 * 65535)
    if centred and count:
        over = math.prod(shape[axis] for axis in centred)
        middle = sums.sum(axis=centred, keepdims=True) / over
    found: npt.NDArray[np.float64] = (sums - middle) / _PIECES_STD
    return found.reshape(shape)


def quantize_weights(
    values: npt.NDArray[np.float64], dtype: DataType, axis: int | None
) -> tuple[npt.NDArray[np.generic], tuple[float, ...], tuple[int, ...]]:
    """Return (stored values, scales, zero points): symmetric, per ``axis`` or per tensor.

    uint8 is offset by 128. float32 comes back as it is, without scales.
    """
    if dtype is DataType.FLOAT32:
        return values.astype(np.float32), (), ()
    limit = 7 if dtype is DataType.INT4 else 127
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    peak = np.abs(values).max(axis=others, keepdims=True, initial=1e-9)
    scales = (peak / limit).astype(np.float32)
    offset = 128 if dtype is DataType.UINT8 else 0
    stored = np.clip(np.rint(values / scales.astype(np.float64)), -limit, limit) + offset
    flat = tuple(float(s) for s in scales.reshape(-1))
    kind = np.uint8 if dtype is DataType.UINT8 else np.int8
    return stored.astype(kind), flat, (offset,) * len(flat)


def rounded(value: float) -> float:
    """Six significant digits: absorbs differences between math libraries."""
    return float(f"{value:.6g}")
