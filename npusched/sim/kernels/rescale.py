"""Fixed-point scaling ``(v * multiplier + r) >> shift`` with the three roundings of the NPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusched.graph.types import Rounding
from npusched.sim.kernels.arrays import Ints

_WIDE = 1 << 62
_LIMB_BITS = 16


@dataclass(frozen=True, slots=True)
class Scaling:
    """Multiplier and shift, one pair (shape ()) or one per channel (shape (c,)).

    Multipliers are below 2**32, shifts below 64. ``headroom_bits`` (D in SIM.md §3) places the
    second rounding of DOUBLE: 0 for results, 20 or 15 for operands of additions.
    """

    multiplier: Ints
    shift: Ints
    rounding: Rounding = Rounding.DOUBLE
    headroom_bits: int = 0

    @staticmethod
    def one(multiplier: int, shift: int, rounding: Rounding, *, headroom_bits: int = 0) -> Scaling:
        """Return the same scaling for all channels."""
        return Scaling(np.array(multiplier), np.array(shift), rounding, headroom_bits)


def rescale(values: Ints, scaling: Scaling) -> Ints:
    """Return ``(values * multiplier + r) >> shift`` (arithmetic shift), exact for any input.

    r is 2**(s-1) for NATURAL (0 if s = 0), 2**s - 1 for negative values and 0 for others for
    TRUNCATE, and for DOUBLE 2**(s-1) plus, where s > 31 - D, 2**(30-D) with the sign of the
    value: that equals gemmlowp's doubling high multiplication followed by a rounding shift.
    """
    multiplier, shift = scaling.multiplier, scaling.shift
    if values.dtype.itemsize > 4 and values.size:
        low, high = int(values.min()), int(values.max())
        if max(high, -low) * int(multiplier.max()) >= _WIDE:
            return _rescale_wide(values.astype(np.int64), scaling)
    product = np.multiply(values, multiplier, dtype=np.int64)
    _add_rounding(product, values, scaling)
    product >>= shift
    return product


def _half(shift: Ints) -> Ints:
    """2**(s-1), 0 where s is 0."""
    return np.left_shift(np.int64(1), shift) >> 1


def _add_rounding(product: Ints, values: Ints, scaling: Scaling) -> None:
    """Add r to ``product`` in place; the sign is that of ``values``."""
    shift = scaling.shift
    match scaling.rounding:
        case Rounding.NATURAL:
            product += _half(shift)
        case Rounding.TRUNCATE:
            ones = np.left_shift(np.int64(1), shift) - 1
            product += np.where(values < 0, ones, 0)
        case Rounding.DOUBLE:
            product += _half(shift)
            second = _second(scaling)
            if np.any(second):
                product += np.where(values < 0, -second, second)
        case other:
            raise ValueError(f"{other} is not a rounding of this NPU")


def _second(scaling: Scaling) -> Ints:
    """Magnitude of the second rounding of DOUBLE, 0 where it does not apply."""
    bits = scaling.headroom_bits
    return np.where(scaling.shift > 31 - bits, np.int64(1) << (30 - bits), np.int64(0))


def _rescale_wide(values: Ints, scaling: Scaling) -> Ints:
    """``rescale`` for products beyond 63 bits: two limbs of the value, added with carry."""
    multiplier, shift = np.broadcast_arrays(scaling.multiplier, scaling.shift)
    high = (values >> _LIMB_BITS) * multiplier
    low = (values & ((1 << _LIMB_BITS) - 1)) * multiplier
    negative = values < 0
    match scaling.rounding:
        case Rounding.NATURAL:
            low = low + _half(shift)
        case Rounding.TRUNCATE:
            low = low + np.where(negative, np.left_shift(np.int64(1), shift) - 1, 0)
        case Rounding.DOUBLE:
            second = _second(scaling)
            low = low + _half(shift) + np.where(negative, -second, second)
        case other:
            raise ValueError(f"{other} is not a rounding of this NPU")
    carry = high + (low >> _LIMB_BITS)
    rest = low & ((1 << _LIMB_BITS) - 1)
    small = np.left_shift(carry, np.maximum(_LIMB_BITS - shift, 0)) + (rest >> shift)
    result: Ints = np.where(shift >= _LIMB_BITS, carry >> np.maximum(shift - _LIMB_BITS, 0), small)
    return result
