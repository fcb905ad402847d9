"""Contents of lookup tables, exactly as Vela 5.2 (regor) fills them (LOWERING.md §9).

8-bit tables have 256 entries, from the smallest input value to the largest; entries are signed
for int8. 16-bit tables have 512 words ``base | slope << 16`` (unsigned) over the whole input range.
Sources: Vela 5.2.0, ``compiler/tflite_graph_optimiser*.cpp``, ``compiler/lut_util.hpp``,
``compiler/softmax.cpp``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from npusched.graph.lower import scaling
from npusched.graph.lower.fixedpoint import (
    INT16_MAX,
    INT16_MIN,
    clamp,
    exp_of_negative,
    multiply_by_scale,
    rounding_high_multiply,
    rounding_shift_right,
    saturating_shift_left16,
    truncating_divide,
    truncating_high_multiply16,
)
from npusched.graph.lower.scaling import Scale, float32, quantize_scale, round_half_away
from npusched.ir import DataType

Table = tuple[int, ...]
RealFunction = Callable[[float], float]

STEPS16: Final = 512
"""Segments of a 16-bit interpolating table."""

SOFTMAX_EXP_RANGE: Final = 10.0
"""Default of regor's option for the exponent range of int16 softmax."""

INT16_SPAN: Final = INT16_MAX - INT16_MIN

# TFLite's uint16 sigmoid table is round(65536 * sigmoid(i / 24)), plus one at these places.
# fmt: off
_SIGMOID_TABLE_ONE_MORE: Final = frozenset((
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41,
    43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
))
# fmt: on
# The reference's 1/sqrt table is round(2**20 / sqrt(i)), minus one at these places.
_RSQRT_TABLE_ONE_LESS: Final = frozenset((2, 8, 131))
_RSQRT_SHIFT: Final = 20


# --- 8-bit tables --------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def table8(
    function: RealFunction,
    *,
    dtype: DataType,
    ifm_scale: float,
    ifm_zero_point: int,
    ofm_scale: float,
    ofm_zero_point: int,
) -> Table:
    """Table of a real function: ``clamp(round_half_away(zo + f(si * (x - zi)) / so))``."""
    low, high = scaling.dtype_range(dtype)
    entries = []
    for x in range(low, high + 1):
        value = ofm_zero_point + function(ifm_scale * (x - ifm_zero_point)) / ofm_scale
        entries.append(_saturate(value, low, high))
    return tuple(entries)


def _saturate(value: float, low: int, high: int) -> int:
    if math.isinf(value) or math.isnan(value):
        return low if value < 0 else high
    return clamp(round_half_away(value), low, high)


def sigmoid(x: float) -> float:
    """Logistic function, exactly 0 up to -8 and 1 from 8 on."""
    if x <= -8.0:
        return 0.0
    return 1.0 if x >= 8.0 else 1.0 / (1.0 + math.exp(-x))


def elu(x: float) -> float:
    """``x`` if positive, else ``exp(x) - 1``."""
    return x if x > 0 else math.exp(x) - 1


def gelu(x: float) -> float:
    """Gaussian error linear unit."""
    return x * 0.5 * math.erfc(-x / math.sqrt(2.0))


def gelu_approximate(x: float) -> float:
    """Gaussian error linear unit, tanh form (the cubic coefficient is single precision)."""
    argument = math.sqrt(2.0 / math.pi) * (float32(0.044715) * x**3 + x)
    return 0.5 * x * (1.0 + math.tanh(argument))


def exp32(x: float) -> float:
    """Exponential in single precision."""
    x = float32(x)
    return math.inf if x > 88.72284 else float32(math.exp(x))


def log32(minimum: float) -> RealFunction:
    """Return the natural logarithm in single precision; ``minimum`` where it is undefined."""

    def log(x: float) -> float:
        return minimum if x <= 0.0 else float32(math.log(float32(x)))

    return log


def log_minimum(dtype: DataType, ofm_scale: float, ofm_zero_point: int) -> float:
    """Real value of the smallest output of a LOG (single precision)."""
    low = -128 if dtype is DataType.INT8 else INT16_MIN
    return float32((low - ofm_zero_point) * float32(ofm_scale))


def leaky_relu8(
    *,
    dtype: DataType,
    ifm_scale: float,
    ifm_zero_point: int,
    ofm_scale: float,
    ofm_zero_point: int,
    alpha_scale: float,
    alpha_factor: int = 1,
) -> Table:
    """LEAKY_RELU (and PRELU with equal slopes) in the reference's fixed point.

    The slope is ``alpha_scale * alpha_factor``: a LEAKY_RELU has factor 1; a PRELU has its
    quantised alpha less the zero point, and the tensor's scale.
    """
    low, high = scaling.dtype_range(dtype)
    identity = scaling.mul_scale(ifm_scale, 1.0, ofm_scale)
    slope = scaling.mul_scale(ifm_scale, abs(alpha_scale), ofm_scale)
    sign = -1 if alpha_scale < 0 else 1
    slope = Scale(sign * slope.multiplier, slope.shift)
    entries = []
    for x in range(low, high + 1):
        value = x - ifm_zero_point
        if value < 0:
            value = multiply_by_scale(alpha_factor * value, slope)
        else:
            value = multiply_by_scale(value, identity)
        entries.append(clamp(ofm_zero_point + value, low, high))
    return tuple(entries)


def hard_swish8(
    *,
    dtype: DataType,
    ifm_scale: float,
    ifm_zero_point: int,
    ofm_scale: float,
    ofm_zero_point: int,
) -> Table:
    """HARD_SWISH by the 16-bit fixed-point steps of the TFLite Micro kernel."""
    low, high = scaling.dtype_range(dtype)
    fine_scale = (1.0 / 128.0) * ifm_scale
    output = quantize_scale(fine_scale / ofm_scale)
    relu = quantize_scale(fine_scale / (3.0 / 32768.0))
    output16, relu16 = _to_int16(output.multiplier), _to_int16(relu.multiplier)
    entries = []
    for x in range(low, high + 1):
        fine = (x - ifm_zero_point) << 7
        gate = _hard_swish_gate(fine, relu16, 31 - relu.shift)
        scaled = rounding_high_multiply(fine, output16, bits=16)
        result = truncating_high_multiply16(gate, scaled)
        value = rounding_shift_right(result, output.shift - 31)
        entries.append(clamp(ofm_zero_point + value, low, high))
    return tuple(entries)


def _hard_swish_gate(fine: int, multiplier: int, left_shift: int) -> int:
    """``relu6(x + 3) / 6`` in Q0.15."""
    value = fine
    if left_shift > 0:
        value = saturating_shift_left16(value, left_shift - 1)
    value = rounding_high_multiply(value, multiplier, bits=16)
    if left_shift > 0:
        value = saturating_shift_left16(value, 1)
    elif left_shift < 0:
        value = rounding_shift_right(value, -left_shift)
    return (value + (1 << 15)) >> 1


def _to_int16(multiplier: int) -> int:
    halved = truncating_divide(truncating_divide(multiplier, 1 << 15) + 1, 2)
    return clamp(halved, INT16_MIN, INT16_MAX)


def rsqrt8(
    *, ifm_scale: float, ifm_zero_point: int, ofm_scale: float, ofm_zero_point: int
) -> Table:
    """RSQRT of int8: the reference's Q20 table, rescaled; the maximum where undefined."""
    factor = 1.0 / float32(float32(math.sqrt(float32(ifm_scale))) * float32(ofm_scale))
    scale = quantize_scale(factor)
    entries = [127]
    for x in range(-127, 128):
        index = max(0, x - ifm_zero_point)
        if index == 0:
            entries.append(127)
            continue
        value = ofm_zero_point + multiply_by_scale(_rsqrt_entry(index), scale, _RSQRT_SHIFT)
        entries.append(clamp(value, -128, 127))
    return tuple(entries)


def _rsqrt_entry(index: int) -> int:
    exact = (1 << _RSQRT_SHIFT) / math.sqrt(index)
    return round_half_away(exact) - (1 if index in _RSQRT_TABLE_ONE_LESS else 0)


# --- 16-bit interpolating tables -----------------------------------------------------------


@functools.lru_cache(maxsize=64)
def table16(
    function: RealFunction,
    *,
    ifm_scale: float,
    ifm_zero_point: int,
    ofm_scale: float,
    ofm_zero_point: int,
    single: bool = True,
) -> Table:
    """Table of 512 segments of a real function; arithmetic in single or double precision.

    Each entry is the function at the segment's start less half of the interpolation error in the
    middle; the slope leads to the next entry, the last one to ``f(max)``. A negative last base
    borrows one from the last slope, as in regor (its sum is taken on sign-extended 32 bits).
    """
    t = np.float32 if single else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        q_min, q_max = t(INT16_MIN), t(INT16_MAX)
        low = t(ifm_scale) * (q_min - t(ifm_zero_point))
        high = t(ifm_scale) * (q_max - t(ifm_zero_point))
        out_low = t(ofm_scale) * (q_min - t(ofm_zero_point))
        out_high = t(ofm_scale) * (q_max - t(ofm_zero_point))
        step = (high - low) / t(STEPS16)
        half = step / t(2)
        to_output = (q_max - q_min + t(1)) / (out_high - out_low)

        def value(x: np.floating) -> np.floating:
            return t(t(function(float(x))) * to_output)

        points = []
        for i in range(STEPS16):
            start = low + t(i) * step
            sample = _round(value(start), t)
            line = _round((value(low + t(i + 1) * step) + sample) / t(2), t)
            middle = _round(value(start + half), t)
            points.append(_int16(sample - _round((line - middle) / t(2), t)))
        points.append(_int16(_round(value(high), t)))
    words = [_word(a, b - a) for a, b in itertools.pairwise(points)]
    words[-1] = (points[-2] + ((points[-1] - points[-2]) << 16)) & 0xFFFFFFFF
    return tuple(words)


def _round(value: np.floating, t: type[np.floating]) -> np.floating:
    """Round halves away from zero, keeping the precision (and infinities)."""
    if not np.isfinite(value):
        return value
    return t(round_half_away(float(value)))


def _int16(value: np.floating) -> int:
    if np.isnan(value):
        return INT16_MAX
    return int(min(max(float(value), INT16_MIN), INT16_MAX))


def _word(base: int, slope: int) -> int:
    return (base & 0xFFFF) | ((slope & 0xFFFF) << 16)


def rsqrt32(ofm_scale: float) -> RealFunction:
    """Return 1/sqrt in single precision; the largest output where it is undefined."""
    maximum = float32(INT16_MAX * float32(ofm_scale))

    def rsqrt(x: float) -> float:
        return maximum if x <= 0.0 else float32(1.0 / float32(math.sqrt(float32(x))))

    return rsqrt


@functools.lru_cache(maxsize=64)
def sigmoid_tanh16(*, tanh: bool) -> Table:
    """U85 table for int16 LOGISTIC and TANH: TFLite's sigmoid table, odd around 0.

    Word 256 + i holds the segment of argument i / 24 (tanh: half of that). Slopes are never
    negative; the ends of the range are flat, except sigmoid's first segment.
    """
    words = []
    for i in range(-256, 256):
        if i >= 0:
            start, end = _odd(i), _odd(min(i + 1, 255))
        else:
            near = 255 if i == -256 else -i
            flat = tanh and i == -256
            start, end = -_odd(near), -_odd(255 if flat else near - 1)
        words.append(_word(start, max(end - start, 0)))
    return tuple(words)


def _odd(index: int) -> int:
    exact = round_half_away(65536.0 / (1.0 + math.exp(-index / 24.0)))
    return min(exact + (1 if index in _SIGMOID_TABLE_ONE_MORE else 0), 0xFFFF) - 0x8000


def arg_max16(depth: int) -> Table:
    """U55/U65 ARG_MAX: every word has base ``depth - 1`` and slope -128.

    The input carries ``depth - 1 - index`` in its low 7 bits, which the interpolation subtracts.
    """
    return (_word(depth - 1, -128),) * STEPS16


# --- softmax -------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def softmax_exp8(beta: float, ifm_scale: float) -> Table:
    """int32 table of ``exp`` in Q0.31 for differences -255 .. 0 (8-bit softmax)."""
    integer_bits, signed_bits = 5, 31
    limit = (1 << signed_bits) - 1.0
    real = min(beta * ifm_scale * (1 << (signed_bits - integer_bits)), limit)
    scale = quantize_scale(real)
    left = 31 - scale.shift
    span = ((1 << integer_bits) - 1) * (1 << (signed_bits - integer_bits))
    smallest = -math.floor(span / (1 << left)) if left >= 0 else -math.inf
    entries = []
    for difference in range(-255, 1):
        if difference < smallest:
            entries.append(0)
            continue
        raised = clamp(difference << max(left, 0), -(1 << 31), (1 << 31) - 1)
        rescaled = rounding_high_multiply(raised, scale.multiplier)
        entries.append(exp_of_negative(rescaled, integer_bits))
    return tuple(entries)


@functools.lru_cache(maxsize=64)
def softmax_exp16() -> Table:
    """Table of ``exp`` over [-range, 0] for int16 softmax (input offset by 32767)."""
    return table16(
        math.exp,
        ifm_scale=SOFTMAX_EXP_RANGE / INT16_SPAN,
        ifm_zero_point=INT16_MAX,
        ofm_scale=2.0 / INT16_SPAN,
        ofm_zero_point=0,
        single=False,
    )


@functools.lru_cache(maxsize=64)
def softmax_reciprocal16() -> Table:
    """Table of ``1 / (1 + x)`` over [0, 1] for int16 softmax (input offset by -32768)."""
    return table16(
        lambda x: 1.0 / (1.0 + x),
        ifm_scale=1.0 / INT16_SPAN,
        ifm_zero_point=INT16_MIN,
        ofm_scale=2.0 / INT16_SPAN,
        ofm_zero_point=0,
        single=False,
    )
