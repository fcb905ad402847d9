"""Fixed-point primitives of the TFLite reference kernels, on Python integers.

Only what table contents need. Sources: SIM.md §3; gemmlowp ``fixedpoint.h`` and the TFLite Micro
hard-swish kernel (as shipped with Vela 5.2.0).
"""

from __future__ import annotations

from npusched.graph.lower.scaling import Scale

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT16_MIN, INT16_MAX = -(1 << 15), (1 << 15) - 1

# exp(-1/8), 1/3 in Q0.31, and exp(-2**k) in Q0.31 for k = -2 .. 4
_EXP_OF_MINUS_EIGHTH = 1895147668
_ONE_THIRD = 715827883
_EXP_OF_MINUS_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def clamp(value: int, low: int, high: int) -> int:
    """Limit ``value`` to ``low .. high``."""
    return max(low, min(high, value))


def truncating_divide(value: int, divisor: int) -> int:
    """Divide with the quotient rounded towards zero, as C does (``divisor`` > 0)."""
    return value // divisor if value >= 0 else -(-value // divisor)


def rounding_high_multiply(a: int, b: int, bits: int = 32) -> int:
    """High half of ``2 * a * b``, rounded half away from zero on ties upwards, saturating.

    gemmlowp's SaturatingRoundingDoublingHighMul for 32-bit or 16-bit operands.
    """
    low = -(1 << (bits - 1))
    if a == low and b == low:
        return -low - 1
    product = a * b
    nudge = 1 << (bits - 2)
    return truncating_divide(product + (nudge if product >= 0 else 1 - nudge), 1 << (bits - 1))


def truncating_high_multiply16(a: int, b: int) -> int:
    """High half of ``2 * a * b`` for 16-bit operands, rounded to zero, saturating."""
    if a == b == INT16_MIN:
        return INT16_MAX
    return truncating_divide(a * b, 1 << 15)


def rounding_shift_right(value: int, shift: int) -> int:
    """Divide by ``2**shift``, halves away from zero (gemmlowp's RoundingDivideByPOT)."""
    if shift <= 0:
        return value
    remainder = value & ((1 << shift) - 1)
    threshold = ((1 << shift) - 1) // 2 + (1 if value < 0 else 0)
    return (value >> shift) + (1 if remainder > threshold else 0)


def saturating_shift_left16(value: int, shift: int) -> int:
    """Multiply by ``2**shift`` within 16 bits."""
    return clamp(value << shift, INT16_MIN, INT16_MAX)


def multiply_by_scale(value: int, scale: Scale, extra_shift: int = 0) -> int:
    """Apply a 31-bit multiplier and right shift as the reference kernels do (double rounding).

    ``extra_shift`` is added to the right shift. The left part of the shift is applied first.
    """
    left = 31 - scale.shift - extra_shift
    raised = _wrap32(value << max(left, 0))
    return rounding_shift_right(rounding_high_multiply(raised, scale.multiplier), max(-left, 0))


def exp_of_negative(value: int, integer_bits: int) -> int:
    """``exp(value)`` in Q0.31 for ``value`` <= 0 in Q(integer_bits).(31 - integer_bits).

    gemmlowp's exp_on_negative_values: a Taylor series around -1/8 on [-1/4, 0), then one
    multiplication per set bit of the rest.
    """
    if value == 0:
        return INT32_MAX
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    within = (value & (quarter - 1)) - quarter
    result = _exp_of_small(within << integer_bits)
    rest = within - value
    for exponent, factor in enumerate(_EXP_OF_MINUS_POWERS, start=-2):
        if integer_bits > exponent and rest & (1 << (fraction_bits + exponent)):
            result = rounding_high_multiply(result, factor)
    return result


def _exp_of_small(value: int) -> int:
    """``exp`` on [-1/4, 0) in Q0.31."""
    x = value + (1 << 28)
    x2 = rounding_high_multiply(x, x)
    x3 = rounding_high_multiply(x2, x)
    x4 = rounding_high_multiply(x2, x2)
    cubic = rounding_high_multiply(rounding_shift_right(x4, 2) + x3, _ONE_THIRD)
    series = x + rounding_shift_right(cubic + x2, 1)
    return _EXP_OF_MINUS_EIGHTH + rounding_high_multiply(_EXP_OF_MINUS_EIGHTH, series)


def _wrap32(value: int) -> int:
    return ((value - INT32_MIN) & 0xFFFFFFFF) + INT32_MIN
