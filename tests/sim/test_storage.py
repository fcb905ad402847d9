"""Feature maps in byte memories: every element lies where the address formula says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import SimError
from npusched.sim.memory import Region, Storage, check_span
from npusched.sim.views import View


def address(view: View, y: int, x: int, c: int) -> int:
    """SIM.md §3 "Addresses"."""
    right = x >= view.width0
    low = y >= (view.height1 if right else view.height0)
    base = view.bases[right + 2 * low]
    ty = y - ((view.height1 if right else view.height0) if low else 0)
    tx = x - (view.width0 if right else 0)
    size = view.dtype.itemsize
    if view.is_brick:
        inner = (c // 16) * view.stride_c + (c % 16) * size
        return base + ty * view.stride_y + tx * 16 * size + inner
    return base + ty * view.stride_y + tx * view.stride_x + c * size


@st.composite
def views(draw: st.DrawFn) -> View:
    """NHWC or bricks, one to four tiles far apart, any width and type."""
    h, w, c = (draw(st.integers(1, n)) for n in (7, 6, 40))
    kind = np.dtype(draw(st.sampled_from(["i1", "u1", "i2", "i4"])))
    is_brick = draw(st.booleans())
    size = kind.itemsize
    deep = -(-c // 16) * 16
    pitch = w * (deep if is_brick else c) * size + 16 * draw(st.integers(0, 2))
    height0, height1 = draw(st.integers(1, h + 1)), draw(st.integers(1, h + 1))
    return View(
        region=1,
        bases=(0, 40_000, 80_000, 120_000),
        height0=height0,
        height1=height1,
        width0=draw(st.integers(1, w + 1)),
        stride_y=pitch,
        stride_x=c * size,
        stride_c=16 * w * size,
        dtype=kind,
        is_brick=is_brick,
        zero_point=0,
        h=h,
        w=w,
        c=c,
    )


@settings(max_examples=80, deadline=None)
@given(views())
def test_write_and_read_follow_the_address_formula(view: View) -> None:
    storage = Storage.of(view)
    memory = np.zeros((2, 200_000), np.uint8)
    values = np.random.default_rng(0).integers(0, 127, (2, view.h, view.w, view.c))
    values = values.astype(view.dtype)
    storage.write(memory, values)
    expected = np.zeros_like(memory)
    places = []
    for y in range(view.h):
        for x in range(view.w):
            for c in range(view.c):
                place = address(view, y, x, c)
                places.append(place)
                raw = values[:, y, x, c].copy().view(np.uint8).reshape(2, -1)
                expected[:, place : place + view.dtype.itemsize] = raw
    assert np.array_equal(memory, expected)
    assert np.array_equal(storage.read(memory), values)
    assert storage.span == (min(places), max(places) + view.dtype.itemsize)
    shadow = np.zeros(200_000, np.int32)
    numbers = np.arange(view.h * view.w * view.c, dtype=np.int32).reshape(view.h, view.w, view.c)
    storage.mark(shadow, numbers)
    for byte in range(view.dtype.itemsize):
        assert np.array_equal(storage.read_byte(shadow, byte), numbers)


def test_negative_strides_walk_backwards() -> None:
    """A reversed OFM: base at the last row, stride -4: rows 0, 1, 2 at bytes 8, 4, 0."""
    view = View(
        region=1, bases=(8, 0, 0, 0), height0=3, height1=3, width0=2, stride_y=-4, stride_x=2,
        stride_c=1, dtype=np.dtype("i1"), is_brick=False, zero_point=0, h=3, w=2, c=2,
    )  # fmt: skip
    memory = np.zeros((1, 12), np.uint8)
    Storage.of(view).write(memory, np.arange(12, dtype=np.int8).reshape(1, 3, 2, 2))
    assert memory[0].tolist() == [8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]
    assert Storage.of(view).span == (0, 12)


def test_spans_outside_a_region_are_refused() -> None:
    region = Region(index=1, name="scratch", size_bytes=100)
    check_span((0, 100), region, "it")
    for span in ((-1, 4), (90, 101)):
        with pytest.raises(SimError, match="leaves its memory"):
            check_span(span, region, "it")
