"""The arithmetic of NPU kernels on int64, as SIM.md §3 describes it. For tests only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npusched.graph.lower.lut import sigmoid_tanh16
from npusched.graph.lower.scaling import dtype_range
from npusched.graph.types import Activation, Rescale, Rounding
from npusched.ir import DataType

Array = npt.NDArray[np.int64]
Stored = npt.NDArray[Any]

NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.INT8: np.dtype(np.int8),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.BOOL: np.dtype(np.int8),
}


def scaled(
    value: Array, multiplier: Array | int, shift: Array | int, rounding: Rounding, left: int = 0
) -> Array:
    """``(value * multiplier + r) >> shift`` elementwise; ``left``: pre-shift of ADD/SUB inputs."""
    m, s = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    assert float(np.abs(value).max(initial=0)) * float(np.abs(m).max()) <= 2.0**62
    product = value * m
    one = np.int64(1)
    half = np.where(s > 0, one << np.maximum(s - 1, 0), 0)
    match rounding:
        case Rounding.NATURAL:
            return np.asarray((product + half) >> s)
        case Rounding.TRUNCATE:
            return np.asarray((product + np.where(value < 0, (one << s) - 1, 0)) >> s)
        case Rounding.TRUNCATE_LOWER:
            return np.asarray(product >> s)
        case Rounding.SYMMETRIC:
            return np.asarray(np.sign(product) * ((np.abs(product) + half) >> s))
        case Rounding.DOUBLE:
            extra = np.where(s > 31 - left, one << (30 - left), 0) * np.sign(value)
            return np.asarray((product + half + extra) >> s)


def rescaled(
    value: Array, rescale: Rescale | None, left: int = 0, only_shift: bool = False
) -> Array:
    """Apply a rescale; several pairs are per channel."""
    if rescale is None:
        return value
    multipliers = [1] * len(rescale.shifts) if only_shift else list(rescale.multipliers)
    return scaled(value, np.array(multipliers), np.array(rescale.shifts), rescale.rounding, left)


def wrapped(value: Array, dtype: DataType) -> Array:
    """Wrap to a type as C casts do."""
    return value.astype(NUMPY[dtype]).astype(np.int64)


def table_lookup(index: Array, table: Sequence[int], dtype: DataType) -> Array:
    """Look stored values of ``dtype`` up: 256 entries, or 512 interpolated segments."""
    entries = np.array(table, dtype=np.int64)
    if len(table) == 256:
        return entries[index - dtype_range(dtype)[0]]
    base, slope = entries & 0xFFFF, (entries >> 16) & 0xFFFF
    base, slope = base - ((base & 0x8000) << 1), slope - ((slope & 0x8000) << 1)
    segment, rest = (index + 32768) >> 7, (index + 32768) & 127
    return np.asarray(base[segment] + ((slope[segment] * rest + 64) >> 7), np.int64)


def activated(value: Array, activation: Activation | None, source: DataType) -> Array:
    """Clamp or look up stored values."""
    if activation is None:
        return value
    if activation.lut is not None:
        return table_lookup(value, activation.lut, source)
    low = -(1 << 62) if activation.minimum is None else activation.minimum
    high = (1 << 62) if activation.maximum is None else activation.maximum
    return np.asarray(np.clip(value, max(low, -(1 << 62)), min(high, 1 << 62)), np.int64)


def bent(value: Array, *, tanh: bool) -> Array:
    """int16 sigmoid or tanh of inputs in units of 1/12288, as the TFLite reference has them.

    The NPU's own unit is not published; it is taken to equal the reference.
    """
    table = [(word & 0xFFFF) + 0x8000 for word in sigmoid_tanh16(tanh=False)[256:]]
    known = np.array([*table, table[-1]], np.int64)
    bits = 8 if tanh else 9
    magnitude = np.abs(value)
    segment, rest = magnitude >> bits, magnitude & ((1 << bits) - 1)
    low = known[np.minimum(segment, 255)]
    high = known[np.minimum(segment + 1, 255)]
    result = (low << bits) + rest * (high - low)
    if tanh:
        result = np.where(segment >= 255, 0xFFFF << 8, result)
        positive = result - (1 << 23) + (1 << 7)
        negative = -result + (1 << 23) + (1 << 7) - 1
        return np.where(value >= 0, positive, negative) >> 8
    result = np.where(segment >= 255, 0x7FFF << 10, result)
    return np.where(value >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10
