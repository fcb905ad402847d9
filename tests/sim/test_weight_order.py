"""The order of weights in streams, against plain loops and the C codec's reordering."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.cost.types import Traversal
from npusched.errors import SimError
from npusched.sim.mlw import decode_mlw
from npusched.sim.weights import (
    WeightLayout,
    arrange_weights,
    decode_scales,
    interleave,
    weight_order,
)


def slow_order(layout: WeightLayout) -> list[int]:
    """SIM.md §3 "Weights", written as loops."""
    oc, kh, kw, ic = layout.ohwi
    step_y, step_x = 8 // layout.dilation_h, 8 // layout.dilation_w
    part, dw = layout.traversal is Traversal.PART_KERNEL, layout.traversal is Traversal.DEPTHWISE
    ifm_block = 16 if part or layout.wide else 32
    pad = 4 if dw else (2 if layout.wide else 4) if part else 1
    found = []

    def place(o: int, y: int, x: int, i: int, inside: bool) -> None:
        good = inside and o < oc and i < ic
        found.append(((o * kh + y) * kw + x) * ic + i if good else -1)

    for ob in range(0, oc, layout.block_depth):
        depth = min(layout.block_depth, oc - ob)
        for ib in range(0, 1 if dw else ic, ifm_block):
            clipped = 8 if dw else min(ifm_block, ic - ib) if part else ifm_block
            for sy in range(0, kh, step_y):
                for sx in range(0, kw, step_x):
                    sh, sw = min(step_y, kh - sy), min(step_x, kw - sx)
                    taps = -(-sh * sw // pad) * pad
                    outer = range(0, clipped, 8) if part else range(1)
                    inner = range(1) if part or dw else range(0, clipped, 8)
                    for io in outer:
                        for ou in range(0, depth, layout.ublock_depth):
                            for tap in range(taps):
                                y, x = tap // sw, tap % sw
                                for ii in inner:
                                    for lane in range(layout.ublock_depth):
                                        for c in range(1 if dw else 8):
                                            place(
                                                ob + ou + lane, sy + y, sx + x,
                                                ib + io + ii + c, y < sh,
                                            )  # fmt: skip
    return found


layouts = st.builds(
    lambda o, h, w, i, block, ublock, traversal, wide, dy, dx: WeightLayout(
        ohwi=(o, h, w, 1 if traversal is Traversal.DEPTHWISE else i),
        block_depth=block * ublock,
        ublock_depth=ublock,
        traversal=traversal,
        wide=wide,
        dilation_h=dy,
        dilation_w=dx,
    ),
    st.integers(1, 40),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([4, 8]),
    st.sampled_from(list(Traversal)),
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 2),
)


@settings(max_examples=40, deadline=None)
@given(layouts)
def test_equals_plain_loops(layout: WeightLayout) -> None:
    order = weight_order(layout)
    assert order.tolist() == slow_order(layout)
    inside = np.sort(order[order >= 0])
    assert inside.tolist() == list(range(int(np.prod(layout.ohwi))))


@settings(max_examples=30, deadline=None)
@given(layouts, st.integers(0, 2**31))
def test_inverts_the_c_reordering(layout: WeightLayout, seed: int) -> None:
    """Encode a random volume with Vela's codec, decode and arrange it: the same volume."""
    from ethosu import mlw_codec

    volume = np.random.default_rng(seed).integers(-127, 128, layout.ohwi).astype(np.int16)
    is_depthwise = layout.traversal is Traversal.DEPTHWISE
    source = volume.transpose(3, 1, 2, 0) if is_depthwise else volume
    stream, _ = mlw_codec.reorder_encode(
        8,
        layout.ublock_depth,
        np.ascontiguousarray(volume),
        layout.block_depth,
        is_depthwise,
        layout.traversal is Traversal.PART_KERNEL,
        16 if layout.wide else 8,
        8 // layout.dilation_h,
        8 // layout.dilation_w,
    )
    assert source.size == volume.size
    assert np.array_equal(arrange_weights(decode_mlw(bytes(stream)), layout), volume)


LAYOUT = WeightLayout(
    ohwi=(5, 1, 1, 3), block_depth=8, ublock_depth=8, traversal=Traversal.DEPTH_FIRST
)


def test_weights_outside_the_volume_are_refused() -> None:
    """1 x 1 x 3 -> 5 fills 8 x 32 places; a nonzero one beside the volume is a wrong order."""
    values = np.zeros(256, np.int16)
    arrange_weights(values, LAYOUT)
    values[5] = 1
    with pytest.raises(SimError, match="not zero"):
        arrange_weights(values, LAYOUT)
    with pytest.raises(SimError, match="holds 255 weights, 256 are read"):
        arrange_weights(values[:255], LAYOUT)
    trailing = np.zeros(300, np.int16)
    arrange_weights(trailing, LAYOUT)
    trailing[299] = 3
    with pytest.raises(SimError):
        arrange_weights(trailing, LAYOUT)


def test_scales_by_hand() -> None:
    """Bias -2 as 40 bits, scale 0x40000001, shift 37; then bias 2**39 - 1."""
    first = (2**40 - 2).to_bytes(5, "little") + (0x40000001).to_bytes(4, "little") + bytes([37])
    second = (2**39 - 1).to_bytes(5, "little") + (7).to_bytes(4, "little") + bytes([0])
    scales = decode_scales(first + second + b"\0" * 12, 2)
    assert scales.bias.tolist() == [-2, 2**39 - 1]
    assert scales.multiplier.tolist() == [0x40000001, 7]
    assert scales.shift.tolist() == [37, 0]
    with pytest.raises(SimError, match="too short"):
        decode_scales(first, 2)
    with pytest.raises(SimError, match="6 bits"):
        decode_scales(first[:9] + bytes([64]), 1)


def test_two_cores_take_turns() -> None:
    """Core 0 has channels 0, 2, 4; core 1 has 1, 3."""
    joined = interleave((np.array([0, 2, 4]), np.array([1, 3])))
    assert joined.tolist() == [0, 1, 2, 3, 4]
