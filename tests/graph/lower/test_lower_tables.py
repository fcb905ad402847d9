"""Lookup tables and fixed-point primitives against hand arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.graph.lower import fixedpoint, lut
from npusched.graph.lower.scaling import Scale
from npusched.ir import DataType


def test_rounding_high_multiply_rounds_ties_up() -> None:
    """2 * 2**30 * 1 / 2**32 = 1/2 rounds to 1; the negative tie -1/2 to 0 (gemmlowp)."""
    assert fixedpoint.rounding_high_multiply(1 << 30, 1) == 1
    assert fixedpoint.rounding_high_multiply(-(1 << 30), 1) == 0
    assert fixedpoint.rounding_high_multiply(-(1 << 31), -(1 << 31)) == (1 << 31) - 1


@pytest.mark.parametrize(("value", "expected"), [(5, 3), (-5, -3), (4, 2), (-6, -3), (-7, -4)])
def test_rounding_shift_right_by_one(value: int, expected: int) -> None:
    """Halves go away from zero: 5/2 = 2.5 -> 3, -5/2 -> -3, -7/2 -> -4."""
    assert fixedpoint.rounding_shift_right(value, 1) == expected


def test_multiply_by_scale_applies_left_shifts_first() -> None:
    """3 * 2 = 6: multiplier 2**30 (one half), right shift 29 = left shift 2."""
    assert fixedpoint.multiply_by_scale(3, Scale(1 << 30, 29)) == 6


@given(st.floats(-31.0, 0.0))
def test_exp_of_negative_is_exp(x: float) -> None:
    """Q5.26 in, Q0.31 out; the series leaves out (1/8)**5 / 5! = 2.5e-7."""
    raw = round(x * (1 << 26))
    found = fixedpoint.exp_of_negative(raw, 5) / 2.0**31
    assert found == pytest.approx(math.exp(raw / 2.0**26), abs=3e-7)


def test_table8_saturates_and_offsets() -> None:
    """f(x) = 2x, scales 1, zi = 10, zo = -5: x = 10 -> -5; x = 20 -> 15; x = 127 -> 229 -> 127."""
    table = lut.table8(
        lambda x: 2 * x,
        dtype=DataType.INT8,
        ifm_scale=1.0,
        ifm_zero_point=10,
        ofm_scale=1.0,
        ofm_zero_point=-5,
    )
    assert (table[128 + 10], table[128 + 20], table[128 + 127], table[0]) == (-5, 15, 127, -128)


def test_sigmoid_is_cut_off_at_eight() -> None:
    assert lut.sigmoid(-8.0) == 0.0
    assert lut.sigmoid(8.0) == 1.0
    assert lut.sigmoid(7.999) < 1.0


def test_rsqrt8_reads_the_reference_table() -> None:
    """x - zi = 4: 1/sqrt(4) = 0.5; si = 1, so = 1/128: 0.5 * 128 = 64. Zero maps to 127."""
    table = lut.rsqrt8(ifm_scale=1.0, ifm_zero_point=-128, ofm_scale=1 / 128, ofm_zero_point=0)
    assert table[4] == 64
    assert table[0] == 127


def test_leaky_relu8_uses_one_scale_per_side() -> None:
    """Equal scales, alpha 1/2: -10 -> -5, 10 -> 10."""
    table = lut.leaky_relu8(
        dtype=DataType.INT8,
        ifm_scale=0.1,
        ifm_zero_point=0,
        ofm_scale=0.1,
        ofm_zero_point=0,
        alpha_scale=0.5,
    )
    assert (table[128 - 10], table[128 + 10]) == (-5, 10)


def test_hard_swish8_at_its_corners() -> None:
    """Scale 1/16: x = -3 (raw -48) -> 0; x = 3 (48) -> 3 (48); x = 1 (16) -> 4/6 (10.67 -> 11)."""
    table = lut.hard_swish8(
        dtype=DataType.INT8, ifm_scale=1 / 16, ifm_zero_point=0, ofm_scale=1 / 16, ofm_zero_point=0
    )
    assert (table[128 - 48], table[128 + 48], table[128 + 16]) == (0, 48, 11)


def _value16(table: tuple[int, ...], x: int) -> int:
    """Interpolate as the NPU does: base + (slope * rest + 64) >> 7."""
    word = np.uint32(table[(x + 32768) >> 7])
    base, slope = np.int16(word & 0xFFFF), np.int16(word >> 16)
    return int(base) + ((int(slope) * ((x + 32768) & 127) + 64) >> 7)


@given(st.integers(-32768, 32767))
def test_table16_of_the_identity_is_the_identity(x: int) -> None:
    """The last segment's end is f(32767), which lies 1/128 of a step short: at most 1 off."""
    table = lut.table16(
        lambda v: v, ifm_scale=1 / 256, ifm_zero_point=0, ofm_scale=1 / 256, ofm_zero_point=0
    )
    assert abs(_value16(table, x) - x) <= 1


def test_last_segment_of_a_negative_base_borrows_from_its_slope() -> None:
    """f = -4096 everywhere: base -4096 = 0xF000, slope 0; sign-extended sum 0xFFFFF000."""
    table = lut.table16(
        lambda _: -1.0, ifm_scale=1.0, ifm_zero_point=0, ofm_scale=1 / 4096, ofm_zero_point=0
    )
    assert table[0] == 0x0000F000
    assert table[-1] == 0xFFFFF000


def test_sigmoid_tanh_table_is_odd() -> None:
    """Word 256 starts at 0; word 256 + i starts at sigmoid(i / 24) * 65536 - 32768.

    i = 24: sigmoid(1) = 0.7310586 -> 47910.7 - 32768 = 15143 (rounded).
    """
    table = lut.sigmoid_tanh16(tanh=True)
    assert table[256] & 0xFFFF == 0
    assert table[256 + 24] & 0xFFFF == 15143
    assert (table[256 - 24] & 0xFFFF) == 0x10000 - 15143


def test_softmax_exp8_ends_at_one_and_is_zero_far_out() -> None:
    """Difference 0 -> 2**31 - 1 (one in Q0.31); -255 * 0.5 = -127 is beyond Q5.26: 0."""
    table = lut.softmax_exp8(1.0, 0.5)
    assert table[255] == (1 << 31) - 1
    assert table[0] == 0
    assert table[253] == pytest.approx(math.exp(-1.0) * 2**31, rel=1e-6)


def test_arg_max_table_subtracts_the_low_bits() -> None:
    """depth 20: value 37 * 128 + 4 (index 19 - 4 = 15) -> base 19 + (-128 * 4 + 64 >> 7) = 15."""
    assert _value16(lut.arg_max16(20), 37 * 128 + 4) == 15
