"""Elementwise operations: unary and binary, on centred values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from npusched.sim.kernels.arrays import Array, Ints
from npusched.sim.kernels.rescale import Scaling, rescale


class Unary(StrEnum):
    """Operations of one operand."""

    ABS = "abs"
    LEAKY_RELU = "leaky_relu"
    CLZ = "clz"


class Binary(StrEnum):
    """Operations of two operands."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    SHL = "shl"
    SHR = "shr"


@dataclass(frozen=True, slots=True)
class Operands:
    """How operands of ADD and SUB are scaled.

    ``a`` and ``b`` as plain factors, or one of them as a fixed-point scaling; the other is then
    shifted left by ``shift`` (19 for 8-bit, 14 for 16-bit operands, SIM.md §3).
    """

    a: int | Scaling = 1
    b: int | Scaling = 1
    shift: int = 0


def scale_operands(a: Ints, b: Ints, operands: Operands) -> tuple[Ints, Ints]:
    """Return both operands of an addition, scaled."""
    return (
        _scaled(a, operands.a, operands.shift),
        _scaled(b, operands.b, operands.shift),
    )


def _scaled(values: Ints, factor: int | Scaling, shift: int) -> Ints:
    if isinstance(factor, Scaling):
        return rescale(values, factor)
    scaled: Ints = values.astype(np.int64) * factor
    return scaled << shift


def binary(operation: Binary, a: Ints, b: Ints, *, shift_rounding: Scaling | None = None) -> Ints:
    """Return a (op) b of centred, broadcastable operands (before the OFM's scaling).

    SHR rescales ``a`` by 2**-b with the rounding of ``shift_rounding``; SHL keeps 32 bits.
    """
    match operation:
        case Binary.ADD:
            return a + b
        case Binary.SUB:
            return a - b
        case Binary.MUL:
            return a.astype(np.int64) * b
        case Binary.MIN:
            return np.minimum(a, b)
        case Binary.MAX:
            return np.maximum(a, b)
        case Binary.SHL:
            return (a.astype(np.int64) << _shift(b)).astype(np.int32)
        case Binary.SHR:
            assert shift_rounding is not None
            values, amounts = np.broadcast_arrays(a, b)
            shift = _shift(amounts).astype(np.int64)
            return rescale(
                values.astype(np.int64),
                Scaling(np.array(1), shift, shift_rounding.rounding),
            )


def _shift(amounts: Array) -> Array:
    """Shift amounts as the NPU takes them: 0 to 63."""
    return np.clip(amounts, 0, 63)


def unary(operation: Unary, values: Ints) -> Ints:
    """Return ABS or CLZ (count of leading zeros of 32 bits, 32 for 0) of centred values.

    LEAKY_RELU returns its operand: only negatives are scaled afterwards.
    """
    match operation:
        case Unary.ABS:
            return np.abs(values.astype(np.int64))
        case Unary.LEAKY_RELU:
            return values
        case Unary.CLZ:
            bits = (values.astype(np.int64) & 0xFFFFFFFF).astype(np.float64)
            exponent = np.frexp(bits)[1]
            return 32 - exponent.astype(np.int64)
