"""What follows the scaling: zero point, clamp, table look-up, and the OFM's type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npusched.sim.kernels.arrays import Array, Ints


@dataclass(frozen=True, slots=True)
class Clamp:
    """Zero point that is added, and inclusive limits."""

    zero_point: int
    minimum: int
    maximum: int


def clamp(values: Ints, limits: Clamp) -> Ints:
    """Return ``values + zero_point``, limited."""
    if limits.zero_point:
        values = np.add(values, limits.zero_point)
    limited: Ints = np.clip(values, limits.minimum, limits.maximum)
    return limited


def lookup8(values: Ints, table: Array, *, is_signed: bool) -> Array:
    """Return the table's entry of each value: index v + 128 (signed), or v."""
    entries: Array = table[values + 128 if is_signed else values]
    return entries


def lookup16(values: Ints, words: npt.NDArray[np.uint32]) -> Ints:
    """Return the interpolated entry of 16-bit values.

    512 words hold a base (low 16 bits, signed) and a slope (high 16 bits, signed); the entry is
    base + (slope * (v & 127) + 64 >> 7) with index (v + 32768) >> 7 (SIM.md §3).
    """
    wide = values.astype(np.int64)
    index = (wide + 32768) >> 7
    base = (words & 0xFFFF).astype(np.uint16).view(np.int16).astype(np.int64)
    slope = (words >> 16).astype(np.uint16).view(np.int16).astype(np.int64)
    entry: Ints = base[index] + ((slope[index] * (wide & 127) + 64) >> 7)
    return entry


def store(values: Array, dtype: npt.DTypeLike) -> Array:
    """Return ``values`` in the OFM's type (low bits are kept, as memory does)."""
    return values.astype(dtype)
