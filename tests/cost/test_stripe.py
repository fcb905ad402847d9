"""Striped costs: rows needed, agreement with Vela's own estimate, sums over stripes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.cost.op_cost import op_cost
from npusched.cost.stripe import (
    ofm_rows_total,
    rows_needed,
    stripe_cost,
    striped_nominal,
)
from npusched.cost.types import Basis, CostFm, CostOp, CostSub, WeightBytes
from npusched.graph.types import Kernel, KernelKind, Reverse, Upscale
from npusched.hardware import load_target
from npusched.hardware.target import Target


@pytest.fixture(scope="module")
def u55() -> Target:
    return load_target("ethos-u55-128")


def fm(target: Target, h: int, w: int, c: int, *, brick: bool = True) -> CostFm:
    return CostFm((1, h, w, c), 8, brick, target.roles.arena)


def conv(target: Target, h: int, k: int, stride: int, pad: int) -> CostOp:
    rows = (h + 2 * pad - k) // stride + 1
    return CostOp(
        KernelKind.CONV2D,
        fm(target, h, 24, 16),
        fm(target, rows, 24, 32),
        kernel=Kernel(h=k, w=3, stride_h=stride, pad_top=pad, pad_bottom=pad, pad_left=1),
        has_scales=True,
    )


def test_vww_first_conv_in_single_rows(u55: Target) -> None:
    """Vela's own estimate of mlpt_vww's first op at 1-row stripes is 49152 (VELA_SPEC §8.1)."""
    op = CostOp(
        KernelKind.CONV2D,
        fm(u55, 96, 96, 3, brick=False),
        fm(u55, 48, 48, 8),
        kernel=Kernel(h=3, w=3, stride_h=2, stride_w=2, pad_bottom=1, pad_right=1),
        has_scales=True,
        subs=(CostSub(KernelKind.RELU, 8, fm(u55, 48, 48, 8)),),
    )
    assert striped_nominal(u55, op, 1, basis=Basis.VELA) == 49152


def test_part_of_a_stripe_counts_as_such(u55: Target) -> None:
    """12 rows are 2.4 stripes of 5, or 3 of 4, in Vela's estimate."""
    op = conv(u55, 12, 3, 1, 1)
    one = striped_nominal(u55, op, 12, basis=Basis.VELA)
    assert striped_nominal(u55, op, 20, basis=Basis.VELA) == one
    three = striped_nominal(u55, op, 4, basis=Basis.VELA)
    assert three % 3 == 0
    fifth = striped_nominal(u55, conv(u55, 15, 3, 1, 1), 5, basis=Basis.VELA) // 3
    assert striped_nominal(u55, op, 5, basis=Basis.VELA) == int(2.4 * fifth)


@given(
    st.integers(1, 40),
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from(list(Upscale)),
    st.data(),
)
def test_rows_needed_by_enumeration(
    h: int, k: int, stride: int, dilation: int, pad: int, upscale: Upscale, data: st.DataObject
) -> None:
    """Every IFM row that a tap of an output row touches is inside, and both ends are touched."""
    target = load_target("ethos-u55-128")
    factor = 1 if upscale is Upscale.NONE else 2
    extent = (k - 1) * dilation + 1
    rows = (h * factor + 2 * pad - extent) // stride + 1
    if rows < 1 or (k == 1 and stride == 1 and rows != h * factor):
        return
    op = CostOp(
        KernelKind.CONV2D,
        fm(target, h, 8, 8),
        fm(target, rows, 8, 8),
        kernel=Kernel(h=k, stride_h=stride, dilation_h=dilation, pad_top=pad, pad_bottom=pad),
        upscale=upscale,
    )
    start = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(start + 1, rows))
    positions = range(start * stride - pad, (end - 1) * stride - pad + extent)
    touched = {p // factor for p in positions if 0 <= p < h * factor}
    low, high = rows_needed(op, start, end)
    assert 0 <= low < high <= h
    if touched:
        assert (low, high) == (min(touched), max(touched) + 1)


def test_rows_needed_of_kernels_that_mix_rows(u55: Target) -> None:
    """Transposes of H, reversals of H and reductions in height need all rows."""
    whole = fm(u55, 8, 4, 16)
    flipped = CostOp(KernelKind.REVERSE, whole, whole, reverse=Reverse.H)
    assert rows_needed(flipped, 2, 3) == (0, 8)
    turned = CostOp(KernelKind.TRANSPOSE, whole, fm(u55, 4, 8, 16), transpose=(1, 0, 2))
    assert rows_needed(turned, 0, 1) == (0, 8)
    within = CostOp(KernelKind.TRANSPOSE, whole, fm(u55, 8, 16, 4), transpose=(0, 2, 1))
    assert rows_needed(within, 2, 5) == (2, 5)
    summed = CostOp(KernelKind.REDUCE_MAX, whole, fm(u55, 1, 4, 16))
    assert rows_needed(summed, 0, 1) == (0, 8)
    row = CostOp(KernelKind.ADD, fm(u55, 1, 4, 16), whole, whole)
    assert rows_needed(row, 3, 5) == (0, 1)


def test_rows_outside_the_ofm_are_refused(u55: Target) -> None:
    op = conv(u55, 12, 3, 1, 1)
    for start, end in ((0, 0), (-1, 2), (5, 20)):
        with pytest.raises(ValueError, match="not a stripe"):
            rows_needed(op, start, end)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ethos-u55-64", "ethos-u65-256", "ethos-u85-256"]),
    st.integers(8, 48),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 2),
    st.integers(1, 12),
)
def test_stripes_do_all_the_macs_and_read_weights_again(
    name: str, h: int, k: int, stride: int, step: int
) -> None:
    """Stripes issue the op's MACs and write its bytes; each reads the weights at least once."""
    target = load_target(name)
    op = conv(target, h, k, stride, k // 2)
    weights = WeightBytes(4096, 320)
    rows = ofm_rows_total(op)
    whole = op_cost(target, op, weights, basis=Basis.PHYSICAL)
    costs = [
        stripe_cost(target, op, a, min(a + step, rows), weights, nominal_rows=step)
        for a in range(0, rows, step)
    ]
    assert sum(c.macs for c in costs) == whole.macs
    written = sum(t.bytes_written for c in costs for t in c.transfers)
    assert written == sum(t.bytes_written for t in whole.transfers)
    const = target.roles.const
    reads = [t.bytes_read for c in costs for t in c.transfers if t.memory == const]
    assert sum(reads) >= len(costs) * weights.total


def test_interior_stripes_share_a_cost(u55: Target) -> None:
    """Equal heights and IFM rows give the same object: costs are remembered."""
    op = conv(u55, 40, 3, 1, 1)
    assert stripe_cost(u55, op, 4, 8) is stripe_cost(u55, op, 20, 24)
    assert stripe_cost(u55, op, 0, 4) is not stripe_cost(u55, op, 4, 8)


def test_one_stripe_is_the_whole_op(u55: Target) -> None:
    op = conv(u55, 20, 3, 1, 1)
    weights = WeightBytes(1000, 320)
    whole = op_cost(u55, op, weights, basis=Basis.PHYSICAL)
    assert stripe_cost(u55, op, 0, ofm_rows_total(op), weights) == whole
