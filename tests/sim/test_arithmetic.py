"""Reference arithmetic against exact integers and plain loops."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.graph.types import Kernel, Rounding, Upscale
from npusched.sim.kernels import (
    Arithmetic,
    Binary,
    Clamp,
    Operands,
    PreparedConv,
    PreparedDepthwise,
    Scaling,
    Table,
    Unary,
    Window,
    lookup16,
    rescale,
    run,
)
from npusched.sim.kernels.arrays import Array

ROUNDINGS = (Rounding.DOUBLE, Rounding.NATURAL, Rounding.TRUNCATE)


def exact(value: int, multiplier: int, shift: int, rounding: Rounding, headroom: int = 0) -> int:
    """SIM.md §3 "Rescale", in Python's integers."""
    half = 1 << (shift - 1) if shift else 0
    match rounding:
        case Rounding.NATURAL:
            r = half
        case Rounding.TRUNCATE:
            r = (1 << shift) - 1 if value < 0 else 0
        case _:
            r = half
            if shift > 31 - headroom:
                r += (1 << (30 - headroom)) * (-1 if value < 0 else 1)
    return (value * multiplier + r) >> shift


def gemmlowp(value: int, multiplier: int, shift: int) -> int:
    """Saturating rounding doubling high multiplication, then a rounding right shift of shift-31."""
    product = value * multiplier
    nudge = (1 << 30) if product >= 0 else 1 - (1 << 30)
    high = abs(product + nudge) >> 31
    high = high if product + nudge >= 0 else -high
    exponent = shift - 31
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> exponent) + (1 if (high & mask) > threshold else 0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-(2**39), 2**39 - 1), min_size=1, max_size=20),
    st.integers(0, 2**32 - 1),
    st.integers(0, 62),
    st.sampled_from(ROUNDINGS),
    st.sampled_from([0, 15, 20]),
)
def test_rescale_is_exact(
    values: list[int], multiplier: int, shift: int, rounding: Rounding, headroom: int
) -> None:
    """40-bit accumulators times 32-bit multipliers exceed 63 bits: the wide path must agree."""
    wanted = [exact(value, multiplier, shift, rounding, headroom) for value in values]
    good = [(v, w) for v, w in zip(values, wanted, strict=True) if -(2**63) <= w < 2**63]
    array = np.array([v for v, _ in good], np.int64)
    scaling = Scaling.one(multiplier, shift, rounding, headroom_bits=headroom)
    assert rescale(array, scaling).tolist() == [w for _, w in good]


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(2**30, 2**31 - 1), st.integers(31, 60))
def test_double_rounding_is_gemmlowp(value: int, multiplier: int, shift: int) -> None:
    scaling = Scaling.one(multiplier, shift, Rounding.DOUBLE)
    got = int(rescale(np.array([value], np.int32), scaling)[0])
    assert got == gemmlowp(value, multiplier, shift)


def test_roundings_by_hand() -> None:
    """-3 / 2 = -1.5: half up gives -1, towards zero -1; 3 / 2: 2 and 1. With shift 32 and factor
    2**31 DOUBLE rounds twice: -1 * 2**31 + 2**31 - 2**30 = -2**30, >> 32 = -1 (half away).
    """
    two = np.array([-3, 3], np.int64)
    assert rescale(two, Scaling.one(1, 1, Rounding.NATURAL)).tolist() == [-1, 2]
    assert rescale(two, Scaling.one(1, 1, Rounding.TRUNCATE)).tolist() == [-1, 1]
    one = np.array([-1, 1], np.int64)
    assert rescale(one, Scaling.one(1 << 31, 32, Rounding.DOUBLE)).tolist() == [-1, 1]
    assert rescale(one, Scaling.one(1 << 31, 32, Rounding.NATURAL)).tolist() == [0, 1]


@st.composite
def windows(draw: st.DrawFn) -> Kernel:
    """Any kernel whose padding is smaller than itself."""
    h, w = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dilation_h, dilation_w = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    tall, wide = st.integers(0, (h - 1) * dilation_h), st.integers(0, (w - 1) * dilation_w)
    return Kernel(
        h=h,
        w=w,
        stride_h=draw(st.integers(1, 3)),
        stride_w=draw(st.integers(1, 3)),
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        pad_top=draw(tall),
        pad_left=draw(wide),
        pad_bottom=draw(tall),
        pad_right=draw(wide),
    )


def slow_window(ifm: Array, zero: int, kernel: Kernel, oh: int, ow: int) -> list[Array]:
    """For each output place the centred taps (n, kh, kw, c), padding 0, as a list in row order."""
    n, h, w, c = ifm.shape
    found = []
    for y in range(oh):
        for x in range(ow):
            taps = np.zeros((n, kernel.h, kernel.w, c), np.int64)
            for ky in range(kernel.h):
                for kx in range(kernel.w):
                    iy = y * kernel.stride_h - kernel.pad_top + ky * kernel.dilation_h
                    ix = x * kernel.stride_w - kernel.pad_left + kx * kernel.dilation_w
                    if 0 <= iy < h and 0 <= ix < w:
                        taps[:, ky, kx] = ifm[:, iy, ix].astype(np.int64) - zero
            found.append(taps)
    return found


def sizes(kernel: Kernel, oh: int, ow: int) -> tuple[int, int]:
    """IFM rows and columns of an OFM of oh x ow."""
    return (
        (oh - 1) * kernel.stride_h + kernel.dilated_h - kernel.pad_top - kernel.pad_bottom,
        (ow - 1) * kernel.stride_w + kernel.dilated_w - kernel.pad_left - kernel.pad_right,
    )


@settings(max_examples=80, deadline=None)
@given(windows(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31), st.booleans())
def test_convolutions_equal_plain_loops(
    kernel: Kernel, oh: int, ow: int, seed: int, wide: bool
) -> None:
    """Asymmetric padding, strides, dilations; 16-bit data must switch to wider sums."""
    generator = np.random.default_rng(seed)
    h, w = sizes(kernel, oh, ow)
    if h < 1 or w < 1:
        return
    kind = np.dtype("i2" if wide else "i1")
    limits = np.iinfo(kind)
    ifm = generator.integers(limits.min, limits.max + 1, (2, h, w, 5)).astype(kind)
    zero = 0 if wide else int(generator.integers(-128, 128))
    bound = (1 << 16) if wide else 256
    bias = generator.integers(-(2**20), 2**20, 6)
    weights = generator.integers(-255, 256, (6, kernel.h, kernel.w, 5)).astype(np.int16)
    deep = generator.integers(-255, 256, (5, kernel.h, kernel.w, 1)).astype(np.int16)
    identity = np.dtype(np.int64)
    places = slow_window(ifm, zero, kernel, oh, ow)
    got = run(
        Arithmetic(
            operation=Window.CONV, dtype=identity, window=kernel, ifm_zero_point=zero,
            weights=PreparedConv.of(weights, bias, ifm_bound=bound),
        ),
        ifm,
        ofm_shape=(oh, ow),
    )  # fmt: skip
    wanted = [np.einsum("nhwi,ohwi->no", taps, weights.astype(np.int64)) + bias for taps in places]
    assert np.array_equal(got, np.stack(wanted, 1).reshape(2, oh, ow, 6))
    got = run(
        Arithmetic(
            operation=Window.DEPTHWISE, dtype=identity, window=kernel, ifm_zero_point=zero,
            weights=PreparedDepthwise.of(deep, bias[:5], ifm_bound=bound),
        ),
        ifm,
        ofm_shape=(oh, ow),
    )  # fmt: skip
    wanted = [
        np.einsum("nhwc,chw->nc", taps, deep[..., 0].astype(np.int64)) + bias[:5] for taps in places
    ]
    assert np.array_equal(got, np.stack(wanted, 1).reshape(2, oh, ow, 5))


@settings(max_examples=60, deadline=None)
@given(windows(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_pools_equal_plain_loops(kernel: Kernel, oh: int, ow: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    h, w = sizes(kernel, oh, ow)
    if h < 1 or w < 1:
        return
    ifm = generator.integers(-128, 128, (1, h, w, 3)).astype(np.int8)
    inside = slow_window(np.ones_like(ifm), 0, kernel, oh, ow)
    if min(int(taps.sum()) for taps in inside) == 0:
        return
    places = slow_window(ifm, 7, kernel, oh, ow)

    def pool(operation: Window) -> Array:
        form = Arithmetic(
            operation=operation, dtype=np.dtype(np.int64), window=kernel, ifm_zero_point=7
        )
        return run(form, ifm, ofm_shape=(oh, ow)).reshape(-1, 3)

    sums = np.stack([taps.sum((0, 1, 2)) for taps in places])
    counts = np.stack([taps.sum((0, 1, 2)) for taps in inside])
    assert np.array_equal(pool(Window.SUM_POOL), sums)
    halves = np.sign(sums) * ((2 * np.abs(sums) + counts) // (2 * counts))
    assert np.array_equal(pool(Window.AVERAGE_POOL), halves)
    largest = [
        np.where(mask > 0, taps, -999).max((0, 1, 2))
        for taps, mask in zip(places, inside, strict=True)
    ]
    assert np.array_equal(pool(Window.MAX_POOL), np.stack(largest))


def test_reduce_sum_by_hand() -> None:
    """(1 - 1) + (2 - 1) + (5 - 1) = 5."""
    form = Arithmetic(operation=Window.REDUCE_SUM, dtype=np.dtype(np.int32), ifm_zero_point=1)
    ifm = np.array([1, 2, 5], np.int32).reshape(1, 1, 1, 3)
    assert run(form, ifm, ofm_shape=(1, 1)).tolist() == [[[[5]]]]


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (Upscale.NEAREST, [[1, 1, 2], [1, 1, 2], [3, 3, 4]]),
        (Upscale.ZEROS, [[1, 0, 2], [0, 0, 0], [3, 0, 4]]),
    ],
)
def test_upscaling_cuts_odd_sizes(mode: Upscale, wanted: list[list[int]]) -> None:
    """A 1x1 sum over a 2 x 2 IFM upscaled to 3 x 3: the fourth row and column are cut."""
    form = Arithmetic(operation=Window.SUM_POOL, dtype=np.dtype(np.int32), mode=mode)
    ifm = np.array([[1, 2], [3, 4]], np.int8).reshape(1, 2, 2, 1)
    assert run(form, ifm, ofm_shape=(3, 3))[0, :, :, 0].tolist() == wanted


def elementwise(operation: Binary | Unary, *values: list[int], **more: object) -> list[int]:
    """Run on 1 x 1 x c arrays of int32."""
    form = Arithmetic(operation=operation, dtype=np.dtype(np.int64), **more)  # type: ignore[arg-type]
    arrays = [np.array(each, np.int32).reshape(1, 1, 1, -1) for each in values]
    found = run(form, *arrays, ofm_shape=(1, 1))
    return [int(value) for value in found.ravel()]


def test_elementwise_by_hand() -> None:
    """CLZ of 0 is 32, of 1 is 31, of -1 is 0; SHL keeps 32 bits; SHR rounds half up (5/2 = 3)."""
    assert elementwise(Unary.CLZ, [0, 1, 255, -1, 2**31 - 1]) == [32, 31, 24, 0, 1]
    assert elementwise(Unary.ABS, [-5, 5, 0]) == [5, 5, 0]
    assert elementwise(Binary.SHL, [1, 3, 1], [4, 31, 31]) == [16, -(2**31), -(2**31)]
    half_up = Scaling.one(1, 0, Rounding.NATURAL)
    assert elementwise(Binary.SHR, [5, -5, 5], [1, 1, 0], shift_rounding=half_up) == [3, -2, 5]
    assert elementwise(Binary.SHR, [8], [1, 2, 3], shift_rounding=half_up) == [4, 2, 1]
    assert elementwise(Binary.MIN, [1, -7], [0, 3]) == [0, -7]
    assert elementwise(Binary.MAX, [1, -7], [0, 3]) == [1, 3]
    assert elementwise(Binary.MUL, [2**31 - 1], [-(2**31)]) == [-(2**31 - 1) * 2**31]
    assert elementwise(Binary.SUB, [1], [3], ifm2_is_first=True) == [2]
    assert elementwise(Binary.SUB, [1], scalar=4) == [-3]


def test_operand_scaling_by_hand() -> None:
    """a = 3 scaled by 2**30 >> 11 (D = 20: second rounding for shifts above 11) is
    (3 * 2**30 + 2**10) >> 11 = 1572864; b = 2 << 19 = 1048576; together 2621440.
    """
    scaling = Scaling.one(1 << 30, 11, Rounding.DOUBLE, headroom_bits=20)
    operands = Operands(a=scaling, shift=19)
    assert elementwise(Binary.ADD, [3], [2], operands=operands) == [2621440]
    assert elementwise(Binary.ADD, [3], [2], operands=Operands(7, 5)) == [31]


def test_leaky_relu_scales_negatives_only() -> None:
    """-8 * 1 / 4 = -2; 8 stays."""
    quarter = Scaling.one(1, 2, Rounding.NATURAL)
    assert elementwise(Unary.LEAKY_RELU, [-8, 8], scaling=quarter) == [-2, 8]


def test_epilogue_order() -> None:
    """Zero point before the clamp, clamp before the table, table entry without zero point."""
    entries = np.arange(256, dtype=np.int8)
    form = Arithmetic(
        operation=Window.SUM_POOL,
        dtype=np.dtype(np.int8),
        limits=Clamp(10, -128, 20),
        table=Table(entries=entries),
    )
    ifm = np.array([5, 100], np.int8).reshape(1, 1, 1, 2)
    assert run(form, ifm, ofm_shape=(1, 1)).ravel().tolist() == [
        int(np.int8(15 + 128 - 256)),
        int(np.int8(20 + 128 - 256)),
    ]


def test_interpolated_table_by_hand() -> None:
    """Entry 256 (values 0 to 127): base 1000, slope 64: at 64, 1000 + (64*64 + 64 >> 7) = 1032.
    Entry 0 (from -32768): base -5, slope -128: at -32767, -5 + (-128 + 64 >> 7) = -6.
    """
    words = np.zeros(512, np.uint32)
    words[256] = 1000 | 64 << 16
    words[0] = 0xFFFB | (0x10000 - 128) << 16
    assert lookup16(np.array([64, -32767]), words).tolist() == [1032, -6]


def test_rows_at_a_time_equal_the_whole() -> None:
    """A stripe of rows with the padding that is left there gives the same rows."""
    generator = np.random.default_rng(3)
    kernel = Kernel(h=3, w=3, stride_h=2, stride_w=1, pad_top=1, pad_left=1, pad_right=1)
    ifm = generator.integers(-128, 128, (1, 10, 6, 4)).astype(np.int8)
    weights = generator.integers(-127, 128, (5, 3, 3, 4)).astype(np.int16)
    form = Arithmetic(
        operation=Window.CONV,
        dtype=np.dtype(np.int32),
        window=kernel,
        weights=PreparedConv.of(weights, np.zeros(5, np.int64), ifm_bound=255),
    )
    whole = run(form, ifm, ofm_shape=(5, 6))
    for first, last in ((0, 2), (2, 3), (3, 5)):
        low, high = max(0, first * 2 - 1), (last - 1) * 2 + 2
        top = kernel.pad_top if first == 0 else 0
        part = replace(form, window=msgspec.structs.replace(kernel, pad_top=top))
        rows = run(part, ifm[:, low:high], ofm_shape=(last - first, 6))
        assert np.array_equal(rows, whole[:, first:last])
