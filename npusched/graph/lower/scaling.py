"""Fixed-point multipliers and clamp ranges, exactly as Vela 5.2 (regor) derives them.

A real factor becomes an integer multiplier and a right shift, ``value = multiplier / 2**shift``.
Everything is a pure function of numbers. Sources: LOWERING.md §1 and §8; Vela 5.2.0,
``common/scaling.cpp``, ``tflite/tflite_scaling.cpp``, ``architecture/ethos_u_scaling.cpp``,
``compiler/tflite_graph_optimiser.cpp`` (ConvertQuantizationToExplicit).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from npusched.graph.types import KernelKind, Rescale, Rounding
from npusched.hardware.target import Family
from npusched.ir import DataType

MULTIPLIER_BITS = 31
REDUCED_BITS = 16
MAX_SHIFT = 63
MAX_REDUCED_MULTIPLIER = 0x7FFF


class Scale(NamedTuple):
    """``multiplier / 2**shift``: the form of every scale register."""

    multiplier: int
    shift: int

    @property
    def real(self) -> float:
        """The factor as a real number."""
        return math.ldexp(self.multiplier, -self.shift)

    def rescale(self, rounding: Rounding = Rounding.DOUBLE) -> Rescale:
        """Return the same factor as a one-element ``Rescale``."""
        return Rescale(multipliers=(self.multiplier,), shifts=(self.shift,), rounding=rounding)


UNIT = Scale(1, 0)
"""No scaling."""


def float32(value: float) -> float:
    """Round to single precision."""
    return float(np.float32(value))


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero (C ``round``)."""
    whole = math.trunc(value)
    return whole + int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else whole


def truncating_half(value: int) -> int:
    """Halve, rounding towards zero (C integer division)."""
    return value // 2 if value >= 0 else -(-value // 2)


def quantize_scale(value: float, *, reduced: bool = False) -> Scale:
    """Split a non-negative factor into a 31-bit (``reduced``: 15-bit) multiplier and a shift.

    With ``value = m * 2**e`` and 0.5 <= m < 1 the multiplier is ``round(m * 2**31)`` (halves away
    from zero) and the shift ``31 - e``. A shift above 63 is repaid from the multiplier, or the
    scale is (0, 0) if nothing would be left; a negative one is repaid where 31 bits allow it.
    """
    mantissa, exponent = math.frexp(value)
    multiplier = round_half_away(mantissa * (1 << MULTIPLIER_BITS))
    shift = MULTIPLIER_BITS - exponent
    if multiplier >= 1 << MULTIPLIER_BITS:  # C's int32 conversion saturates nowhere; keep the value
        multiplier, shift = multiplier >> 1, shift - 1
    if reduced:
        multiplier = min((multiplier >> 16) + ((multiplier >> 15) & 1), MAX_REDUCED_MULTIPLIER)
        shift -= REDUCED_BITS
    if shift > MAX_SHIFT:
        excess = shift - MAX_SHIFT
        return Scale(multiplier >> excess, MAX_SHIFT) if multiplier > 2**excess else Scale(0, 0)
    if shift < 0 and multiplier < 2.0 ** (shift + 32):
        return Scale(multiplier << -shift, 0)
    return Scale(multiplier, shift)


def without_trailing_zeros(scale: Scale) -> Scale:
    """Cancel common powers of two (how regor recognises a unit scale)."""
    multiplier, shift = scale
    while multiplier > 1 and multiplier % 2 == 0 and shift > 0:
        multiplier, shift = multiplier // 2, shift - 1
    return Scale(multiplier, shift)


# --- per op family -------------------------------------------------------------------------


def conv_scales(
    *,
    ifm_scale: float,
    weight_scales: Sequence[float],
    ofm_scale: float,
    ifm_dtype: DataType,
    bias_dtype: DataType,
    fully_connected: bool = False,
) -> tuple[Scale, ...]:
    """Per-channel (or one) output scale of conv-like ops: ``si * sw / so``.

    The product is taken in double precision; in single precision for uint8 inputs and for fully
    connected ops with one weight scale. 16-bit inputs with 64-bit bias use the reduced form.
    """
    reduced = bias_dtype is DataType.INT64 and ifm_dtype.bits == 16
    single = ifm_dtype is DataType.UINT8 or (fully_connected and len(weight_scales) == 1)
    scales = []
    for weight_scale in weight_scales:
        product = float32(ifm_scale) * float32(weight_scale)
        if single:
            product = float32(product)
        scales.append(quantize_scale(product / float32(ofm_scale), reduced=reduced))
    return tuple(scales)


def conv_rounding(ifm_dtype: DataType, bias_dtype: DataType | None) -> Rounding:
    """Choose the rounding of conv-like ops: natural for int16 without int32 bias, else double."""
    if ifm_dtype is DataType.INT16 and bias_dtype is not DataType.INT32:
        return Rounding.NATURAL
    return Rounding.DOUBLE


def default_bias_dtype(ifm_dtype: DataType, rounding: Rounding) -> DataType:
    """Type of the zero bias that is supplied where a conv-like op has none (LOWERING §1)."""
    if ifm_dtype is DataType.INT16 and rounding is not Rounding.DOUBLE:
        return DataType.INT64
    return DataType.INT32


class AddSubScales(NamedTuple):
    """Scales of both inputs and of the result of ADD and SUB."""

    ifm: Scale
    ifm2: Scale
    ofm: Scale


def add_sub_scales(
    ifm_scale: float, ifm2_scale: float, ofm_scale: float, bits: int
) -> AddSubScales:
    """Input and output scales of ADD/SUB; ``bits`` is the width of the inputs.

    Inputs are brought to twice the larger scale, pre-shifted left by 20 (8 bit) or 15 (wider)
    bits. Equal 8-bit scales try 16 bits first, valid if the output multiplier ends in 12 zeros.
    """
    if ifm_scale == ifm2_scale and bits == 8:
        simple = _add_sub(ifm_scale, ifm2_scale, ofm_scale, 16)
        if simple.ofm.multiplier & 0xFFF == 0:
            return simple
    return _add_sub(ifm_scale, ifm2_scale, ofm_scale, add_sub_left_shift(bits))


def add_sub_left_shift(bits: int) -> int:
    """Left shift D of ADD/SUB inputs, which double rounding compensates (SIM.md §3)."""
    return 20 if bits == 8 else 15


def _add_sub(
    ifm_scale: float, ifm2_scale: float, ofm_scale: float, left_shift: int
) -> AddSubScales:
    twice_max = 2 * max(ifm_scale, ifm2_scale)
    factor = float(1 << left_shift)
    return AddSubScales(
        quantize_scale(ifm_scale * factor / twice_max),
        quantize_scale(ifm2_scale * factor / twice_max),
        quantize_scale(twice_max / (ofm_scale * factor)),
    )


def mul_scale(ifm_scale: float, ifm2_scale: float, ofm_scale: float) -> Scale:
    """Output scale of MUL, in single precision throughout."""
    product = float32(float32(ifm_scale) * float32(ifm2_scale))
    return quantize_scale(float32(product / float32(ofm_scale)))


def mul_scale_double(ifm_scale: float, ifm2_scale: float, ofm_scale: float) -> Scale:
    """Output scale of a product in double precision (int16 softmax)."""
    return quantize_scale(ifm_scale * ifm2_scale / ofm_scale)


def abs_scale(ifm_scale: float, ofm_scale: float) -> Scale:
    """Output scale of ABS, AVERAGE_POOL_2D and SUM: a double-precision quotient."""
    return quantize_scale(ifm_scale / ofm_scale)


def copy_scale(
    ifm_scale: float | None,
    ofm_scale: float | None,
    ifm_zero_point: int = 0,
    ofm_zero_point: int = 0,
) -> Scale:
    """Output scale of QUANTIZE and copies: unit iff scale *and* zero point are equal.

    An equal scale with another zero point gives (2**30, 30), the same factor.
    """
    if ifm_scale is None or ofm_scale is None:
        return UNIT
    if ifm_scale == ofm_scale and ifm_zero_point == ofm_zero_point:
        return UNIT
    return quantize_scale(float32(ifm_scale) / float32(ofm_scale))


def relu_scale(
    ifm_scale: float | None,
    ofm_scale: float | None,
    ifm_zero_point: int = 0,
    ofm_zero_point: int = 0,
) -> Scale:
    """Output scale of the RELU family: as ``copy_scale``, the quotient in single precision."""
    if ifm_scale is None or ofm_scale is None:
        return UNIT
    if ifm_scale == ofm_scale and ifm_zero_point == ofm_zero_point:
        return UNIT
    return quantize_scale(float32(float32(ifm_scale) / float32(ofm_scale)))


def matmul_scale(ifm_scale: float, ifm2_scale: float, ofm_scale: float, bits: int) -> Scale:
    """Output scale of BATCH_MATMUL; reduced unless the inputs are 8-bit."""
    product = float32(float32(ifm_scale) * float32(ifm2_scale))
    return quantize_scale(product / ofm_scale, reduced=bits != 8)


def leaky_relu_scales(ifm_scale: float, ofm_scale: float, alpha: float) -> tuple[Scale, Scale]:
    """Scales (positive side, negative side) of a native LEAKY_RELU, in single precision."""
    ratio = float32(float32(ifm_scale) / float32(ofm_scale))
    scaled = float32(float32(float32(alpha) * float32(ifm_scale)) / float32(ofm_scale))
    positive = quantize_scale(ratio)
    negative = quantize_scale(abs(scaled))
    return positive, Scale(
        -negative.multiplier if scaled < 0 else negative.multiplier, negative.shift
    )


def sigmoid_tanh_scale(ifm_scale: float, *, tanh: bool) -> Scale:
    """Scale before the U55/U65 int16 sigmoid/tanh unit, whose input unit is 1/(3*4096).

    Input scales of 2**-12 (tanh also 2**-11), within 0.1 % of the exponent, become a small
    multiplier; others are doubled until they reach 15 bits.
    """
    log2 = math.log2(ifm_scale)
    power = round_half_away(log2)
    shift = power + 12
    if abs(log2 - power) < 0.001 and (shift == 0 or (tanh and shift == 1)):
        return Scale(3 << shift, 0)
    value = 0x3000 * ifm_scale
    shift = 0
    while value < 16384 and shift <= 30:
        shift += 1
        value *= 2
    return Scale(int(value), shift)


class MeanScale(NamedTuple):
    """MEAN: the sum is multiplied by the int32 constant, then scaled by ``ofm``."""

    multiplier: int
    ofm: Scale


def mean_scale(ifm_scale: float, ofm_scale: float, count: int) -> MeanScale:
    """Multiplier and shift of MEAN over ``count`` elements, as the reference kernel divides."""
    scale = quantize_scale(ifm_scale / ofm_scale)
    left_shift = MULTIPLIER_BITS - scale.shift
    shift = min(count.bit_length() - 1, 32, MULTIPLIER_BITS + left_shift)
    multiplier = (scale.multiplier << shift) // count
    return MeanScale(multiplier, Scale(1, MULTIPLIER_BITS - (left_shift - shift)))


def average_pool_scale(count: int, scale: Scale, family: Family) -> Scale:
    """OFM scale register of an unpadded average pool over ``count`` taps.

    ``scale`` is the graph's own rescale of the op. On U85 this holds only for pools that sum
    (a kernel side above 8); there one bit less is used (LOWERING §8).
    """
    bits = 31 if family is not Family.U85 else 30
    ratio = 1.0
    rescale_bits = 0
    if without_trailing_zeros(scale) != UNIT:
        ratio = scale.real
        if ratio > 1:
            rescale_bits = math.ceil(ratio).bit_length() - 1 + 2
        elif ratio < 1:
            rescale_bits = -(math.ceil(1.0 / ratio).bit_length() - 1)
    exponent = math.frexp(float32(count - 1))[1]
    shift = bits - rescale_bits + exponent
    reciprocal = ((1 << shift) + (1 << exponent)) // count
    return Scale(math.ceil(ratio * reciprocal), shift)


def lstm_cell_scale(cell_scale: float) -> Scale:
    """Scale from the LSTM cell state (a power of two) to the tanh unit's input."""
    left = 12 + math.trunc(math.log2(cell_scale))
    return Scale(3, -left) if left < 0 else Scale(3 << left, 0)


# --- clamps --------------------------------------------------------------------------------


def dtype_range(dtype: DataType) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool type (bool as regor's Bool8: -128, 127)."""
    if dtype.is_signed or dtype is DataType.BOOL:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def quantize_value(value: float, scale: float, zero_point: int) -> int:
    """Quantise a real value: ``zero_point + round_half_away(float32(value / scale))``."""
    return zero_point + round_half_away(float32(float32(value) / float32(scale)))


class Clamp(msgspec.Struct, frozen=True):
    """Bounds in quantised units; None = unbounded on that side."""

    minimum: int | None
    maximum: int | None


_REAL_BOUNDS: dict[KernelKind, tuple[float | None, float | None]] = {
    KernelKind.RELU: (0.0, None),
    KernelKind.RELU6: (0.0, 6.0),
    KernelKind.RELU_N1_TO_1: (-1.0, 1.0),
    KernelKind.RELU0_TO_1: (0.0, 1.0),
}


def relu_clamp(kind: KernelKind, scale: float, zero_point: int) -> Clamp:
    """Clamp of a RELU-family kernel on an output with this quantisation (LOWERING §1).

    Raises KeyError for other kernels.
    """
    low, high = _REAL_BOUNDS[kind]
    return Clamp(
        None if low is None else quantize_value(low, scale, zero_point),
        None if high is None else quantize_value(high, scale, zero_point),
    )
