"""Multipliers against hand arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.graph.lower import scaling
from npusched.graph.types import KernelKind, Rounding
from npusched.hardware.target import Family
from npusched.ir import DataType


def test_quantize_scale_of_one_is_half_times_two() -> None:
    """1 = 0.5 * 2**1: multiplier 0.5 * 2**31 = 2**30, shift 31 - 1 = 30."""
    assert scaling.quantize_scale(1.0) == (1 << 30, 30)


def test_quantize_scale_rounds_the_mantissa() -> None:
    """0.3 = 0.6 * 2**-1: round(0.6 * 2147483648) = round(1288490188.8) = 1288490189, shift 32."""
    assert scaling.quantize_scale(0.3) == (1288490189, 32)


def test_reduced_scale_keeps_sixteen_bits() -> None:
    """1288490189 >> 16 = 19660, bit 15 of 1288490189 is 1, so 19661; shift 32 - 16 = 16."""
    assert scaling.quantize_scale(0.3, reduced=True) == (19661, 16)


def test_reduced_scale_is_capped() -> None:
    """0.99999 * 2**15 = 32767.67, rounded up 32768, does not fit: 32767."""
    assert scaling.quantize_scale(0.99999, reduced=True) == (32767, 15)


def test_shift_above_63_is_repaid_or_lost() -> None:
    """2**-40 = 0.5 * 2**-39: (2**30, 70), 7 too many: (2**23, 63). 2**-80 leaves nothing."""
    assert scaling.quantize_scale(2.0**-40) == (1 << 23, 63)
    assert scaling.quantize_scale(2.0**-80) == (0, 0)


@given(st.floats(1e-9, 1e9))
def test_quantize_scale_is_accurate(value: float) -> None:
    """31 mantissa bits: relative error at most 2**-31."""
    assert scaling.quantize_scale(value).real == pytest.approx(value, rel=2.0**-31)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 1), (-0.5, -1), (2.5, 3), (-2.5, -3), (0.49999999999999994, 0), (-0.2, 0), (7.0, 7)],
)
def test_round_half_away(value: float, expected: int) -> None:
    assert scaling.round_half_away(value) == expected


def test_equal_eight_bit_add_uses_the_simple_form() -> None:
    """s1 = s2 = 0.5, so = 1: m = 1, f = 2**16: inputs 2**15 each = (2**30, 15) repaid; out 2**-16.

    2**15 = 0.5 * 2**16: (2**30, 31 - 16 = 15). Output m / (1 * 65536) = 2**-16 = 0.5 * 2**-15:
    (2**30, 46), whose low 12 bits are 0, so the simple form stays.
    """
    scales = scaling.add_sub_scales(0.5, 0.5, 1.0, 8)
    assert scales.ifm == scales.ifm2 == (1 << 30, 15)
    assert scales.ofm == (1 << 30, 46)


def test_unequal_add_shifts_twenty_bits_or_fifteen() -> None:
    """s1 = 0.25, s2 = so = 0.5: m = 1; 8 bit: 2**18, 2**19, out 2**-19; 16 bit: 2**13, 2**14."""
    eight = scaling.add_sub_scales(0.25, 0.5, 0.5, 8)
    assert [s.real for s in eight] == [2.0**18, 2.0**19, 2.0**-19]
    sixteen = scaling.add_sub_scales(0.25, 0.5, 0.5, 16)
    assert [s.real for s in sixteen] == [2.0**13, 2.0**14, 2.0**-14]


def test_copy_scale_differs_for_another_zero_point() -> None:
    assert scaling.copy_scale(0.5, 0.5) == (1, 0)
    assert scaling.copy_scale(0.5, 0.5, 3, 4) == (1 << 30, 30)
    assert scaling.copy_scale(0.5, 0.25) == (1 << 30, 29)


def test_conv_scales_in_double_and_single_precision() -> None:
    """float32(0.1)*float32(0.1) in double has 48 bits; in single precision it is rounded to 24."""
    args = {"ifm_scale": 0.1, "weight_scales": (0.1,), "ofm_scale": 1.0}
    double = scaling.conv_scales(ifm_dtype=DataType.INT8, bias_dtype=DataType.INT32, **args)  # type: ignore[arg-type]
    single = scaling.conv_scales(ifm_dtype=DataType.UINT8, bias_dtype=DataType.INT32, **args)  # type: ignore[arg-type]
    tenth = scaling.float32(0.1)
    assert double == (scaling.quantize_scale(tenth * tenth),)
    assert single == (scaling.quantize_scale(scaling.float32(tenth * tenth)),)
    assert double != single


def test_conv_rounding() -> None:
    assert scaling.conv_rounding(DataType.INT16, DataType.INT64) is Rounding.NATURAL
    assert scaling.conv_rounding(DataType.INT16, DataType.INT32) is Rounding.DOUBLE
    assert scaling.conv_rounding(DataType.INT8, None) is Rounding.DOUBLE


def test_mean_scale_divides_like_the_reference() -> None:
    """Equal scales, n = 49: (2**30, 30), L = 31-30 = 1; t = min(5, 32, 32) = 5.

    multiplier = (2**30 << 5) // 49 = 701217968 (2**35 = 34359738368; / 49 = 701219150.36) ->
    701219150; shift 31 - (1 - 5) = 35.
    """
    assert scaling.mean_scale(0.5, 0.5, 49) == (701219150, (1, 35))


def test_average_pool_scale_of_nine_taps() -> None:
    """n = 9: frexp(8) exponent 4; U55: shift 35, (2**35 + 2**4) // 9 = 3817748709 (.1)."""
    assert scaling.average_pool_scale(9, scaling.UNIT, Family.U55) == ((2**35 + 16) // 9, 35)
    assert scaling.average_pool_scale(9, scaling.UNIT, Family.U85) == ((2**34 + 16) // 9, 34)


def test_average_pool_scale_leaves_room_for_a_rescale() -> None:
    """r = 2.5: ceil 3, log2 1, 1 + 2 = 3 bits less: shift 28 + 4 = 32."""
    scale = scaling.average_pool_scale(9, scaling.quantize_scale(2.5), Family.U55)
    assert scale == (math.ceil(2.5 * ((2**32 + 16) // 9)), 32)


def test_sigmoid_tanh_scale() -> None:
    """2**-12: (3, 0). tanh at 2**-11: (6, 0); sigmoid doubles 0x3000 * 2**-11 = 6 up to 24576."""
    assert scaling.sigmoid_tanh_scale(2.0**-12, tanh=False) == (3, 0)
    assert scaling.sigmoid_tanh_scale(2.0**-11, tanh=True) == (6, 0)
    assert scaling.sigmoid_tanh_scale(2.0**-11, tanh=False) == (24576, 12)


def test_lstm_cell_scale() -> None:
    """2**-11: 12 - 11 = 1: (6, 0). 2**-14: -2: (3, 2)."""
    assert scaling.lstm_cell_scale(2.0**-11) == (6, 0)
    assert scaling.lstm_cell_scale(2.0**-14) == (3, 2)


def test_leaky_relu_negative_alpha_keeps_its_sign() -> None:
    positive, negative = scaling.leaky_relu_scales(0.5, 0.5, -0.5)
    assert positive == (1 << 30, 30)
    assert negative == (-(1 << 30), 31)


def test_relu_clamps() -> None:
    """zp -128, scale 6/255: q(6) = -128 + 255 = 127; q(0) = -128; q(-1) = -128 - 42.5 -> -171."""
    scale = 6 / 255
    assert scaling.relu_clamp(KernelKind.RELU6, scale, -128) == scaling.Clamp(-128, 127)
    assert scaling.relu_clamp(KernelKind.RELU, scale, -128) == scaling.Clamp(-128, None)
    one = scaling.relu_clamp(KernelKind.RELU_N1_TO_1, 0.4, 0)
    assert one == scaling.Clamp(-3, 3)  # 2.5 rounds away from zero


def test_matmul_is_reduced_for_sixteen_bits() -> None:
    """0.5 * 0.5 / 1 = 0.25 = 0.5 * 2**-1: (2**30, 32); reduced (2**14, 16)."""
    assert scaling.matmul_scale(0.5, 0.5, 1.0, 8) == (1 << 30, 32)
    assert scaling.matmul_scale(0.5, 0.5, 1.0, 16) == (1 << 14, 16)


def test_dtype_range() -> None:
    assert scaling.dtype_range(DataType.INT8) == (-128, 127)
    assert scaling.dtype_range(DataType.UINT8) == (0, 255)
    assert scaling.dtype_range(DataType.BOOL) == (-128, 127)
