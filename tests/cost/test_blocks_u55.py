"""Block search of U55/U65: golden blocks, an independent fit check, and a slow oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.cost.arith import unpermuted
from npusched.cost.blocks import find_block
from npusched.cost.types import BlockConfig, CostFm, CostOp, CostSub, Traversal
from npusched.graph.types import Kernel, KernelKind, Upscale
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55, Block

NAMES = [
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
]


def accelerator(name: str) -> AcceleratorU55:
    found = load_target(name).accelerator
    assert isinstance(found, AcceleratorU55)
    return found


def fm(h: int, w: int, c: int, bits: int = 8, *, n: int = 1) -> CostFm:
    return CostFm((n, h, w, c), bits, True, None)


@dataclass(frozen=True)
class Golden:
    """A block that Vela 5.2.0 chose (debug database, table perf_debug_main)."""

    name: str
    op: CostOp
    block: BlockConfig


def vww_first_conv() -> CostOp:
    """First convolution of mlpt_vww: 96x96x3 -> 48x48x8, 3x3, stride 2, Relu fused."""
    return CostOp(
        KernelKind.CONV2D,
        CostFm((1, 96, 96, 3), 8, False, None),
        fm(48, 48, 8),
        kernel=Kernel(h=3, w=3, stride_h=2, stride_w=2, pad_bottom=1, pad_right=1),
        has_scales=True,
        subs=(CostSub(KernelKind.RELU, 8, fm(48, 48, 8)),),
    )


def test_vww_first_conv_block() -> None:
    """VELA_SPEC §3.2 "worked": block 8x16x8, IFM block 17x34x8, part-kernel, on U55-128."""
    block = find_block(accelerator("ethos-u55-128"), vww_first_conv())
    assert block.ofm_block == Block(8, 16, 8)
    assert block.ifm_block == Block(17, 34, 8)
    assert block.traversal is Traversal.PART_KERNEL


def test_depthwise_traversal_and_equal_depth() -> None:
    """A depthwise block has as many IFM as OFM channels (VELA_SPEC §2)."""
    op = CostOp(
        KernelKind.DEPTHWISE, fm(24, 24, 32), fm(24, 24, 32), kernel=Kernel(h=3, w=3, pad_top=1)
    )
    block = find_block(accelerator("ethos-u55-256"), op)
    assert block.traversal is Traversal.DEPTHWISE
    assert block.ifm_block.c == block.ofm_block.c


def test_part_kernel_choice() -> None:
    """Few channels walk the kernel; 32 channels fill the depth (VELA_SPEC §2).

    C=8: part-kernel always. C=32, 3x3: depth use 32/32 = 1, part use 32/32 * 9/12 = 0.75 < 1.
    C=16, 1x1: depth use 16/32 = 0.5, part use 16/16 * 1/4 = 0.25 < 0.5.
    C=16, 4x4: part use 16/16 * 16/16 = 1 >= 0.5.
    """

    def traversal(c: int, k: int) -> Traversal:
        op = CostOp(KernelKind.CONV2D, fm(16, 16, c), fm(16, 16, 16), kernel=Kernel(h=k, w=k))
        return find_block(accelerator("ethos-u55-128"), op).traversal

    assert traversal(8, 3) is Traversal.PART_KERNEL
    assert traversal(32, 3) is Traversal.DEPTH_FIRST
    assert traversal(16, 1) is Traversal.DEPTH_FIRST
    assert traversal(16, 4) is Traversal.PART_KERNEL


def test_memories_do_not_matter() -> None:
    """The block of an op does not depend on where its feature maps lie."""
    op = vww_first_conv()
    elsewhere = CostOp(
        op.kind,
        CostFm(op.ifm.shape, 8, False, "sram"),
        CostFm(op.ofm.shape, 8, True, "sram"),
        kernel=op.kernel,
        has_scales=True,
        subs=op.subs,
    )
    u55 = accelerator("ethos-u55-64")
    assert find_block(u55, op) is find_block(u55, elsewhere)


def test_unpermuted_inverts_a_transpose() -> None:
    """Stored axis i shows axis transpose[i]: (2, 3, 4) stored by (2, 0, 1) is (4, 2, 3)."""
    assert unpermuted((1, 4, 2, 3), (2, 0, 1)) == (1, 2, 3, 4)
    assert unpermuted((1, 4, 2, 3), None) == (1, 4, 2, 3)


KINDS = [
    KernelKind.CONV2D,
    KernelKind.DEPTHWISE,
    KernelKind.MAX_POOL,
    KernelKind.ADD,
    KernelKind.REDUCE_SUM,
    KernelKind.FULLY_CONNECTED,
]


@st.composite
def ops(draw: st.DrawFn) -> CostOp:
    """Legal kernels of all units, plain and odd sizes."""
    kind = draw(st.sampled_from(KINDS))
    h, w = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    c_in, c_out = draw(st.integers(1, 160)), draw(st.integers(1, 300))
    bits = draw(st.sampled_from([8, 16]))
    k_h, k_w = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    stride = draw(st.integers(1, 3))
    if kind in (KernelKind.ADD, KernelKind.REDUCE_SUM, KernelKind.FULLY_CONNECTED):
        k_h = k_w = stride = 1
    if kind in (KernelKind.DEPTHWISE, KernelKind.MAX_POOL, KernelKind.ADD):
        c_out = c_in
    if kind is KernelKind.REDUCE_SUM:
        c_out = 1
    second = None
    if kind is KernelKind.ADD:
        bits = draw(st.sampled_from([8, 16, 32]))
        shape = draw(st.sampled_from([(h, w, c_in), (1, 1, 1), (1, w, c_in), (1, 1, c_in)]))
        second = fm(*shape, bits)
    upscale = Upscale.NONE
    if kind is KernelKind.CONV2D and stride == 1:
        upscale = draw(st.sampled_from([Upscale.NONE, Upscale.ZEROS]))
    factor = 1 if upscale is Upscale.NONE else 2
    ifm = fm(
        max(((h - 1) * stride + k_h) // factor, 1),
        max(((w - 1) * stride + k_w) // factor, 1),
        c_in,
        bits,
    )
    lut = draw(st.booleans()) and kind is not KernelKind.REDUCE_SUM
    return CostOp(
        kind,
        ifm if kind is not KernelKind.ADD else fm(h, w, c_in, bits),
        fm(h, w, c_out, bits),
        second,
        Kernel(h=k_h, w=k_w, stride_h=stride, stride_w=stride),
        upscale,
        scaled=draw(st.booleans()),
        lut_bytes=256 if lut else 0,
    )


def shram_kib_needed(u55: AcceleratorU55, op: CostOp, block: BlockConfig) -> int:
    """SHRAM that a block takes, in banks, straight from the layout of VELA_SPEC §1.1 and §2.

    Output area, two IFM blocks (two per input of an element-wise op without a small scalar), two
    accumulator blocks, table or reserved end; each part in whole granules.
    """

    def granules(size_bytes: int, granule: int) -> int:
        banks = 2 * ((size_bytes + 1023) // 1024)
        while banks % granule:
            banks += 1
        return banks

    g = u55.bank_granules
    b_in, b_out = block.ifm_block, block.ofm_block
    elementwise = op.kind is KernelKind.ADD
    ifm_granule = {8: g.ifm8, 16: g.ifm16, 32: g.ifm32}[op.ifm.bits]
    if elementwise:
        ifm_granule = {8: g.ifm8_elementwise, 16: g.ifm16_elementwise, 32: g.ifm32}[op.ifm.bits]
    row_bytes = b_in.c * op.ifm.bits // 8
    row_bytes += -row_bytes % 8
    ifm = granules(b_in.h * b_in.w * row_bytes, ifm_granule)
    end = max(2 if op.lut_bytes else 0, u55.shram_reserved_end_banks)
    need = u55.shram_reserved_output_banks + ifm + end
    if elementwise:
        small = (
            op.ifm.bits <= 16 and op.ifm2 is not None and (op.ifm2.is_scalar or op.ifm.is_scalar)
        )
        return need + (0 if small else ifm)
    wide = op.ifm.bits == 16 and op.scaled and op.kind is not KernelKind.MAX_POOL
    rows = b_out.h
    if op.ofm.shape[1] == 1 and op.kernel.h == 1 and u55.ofm_ublock.h == 2:
        rows = min(rows, 1)
    depth = b_out.c + -b_out.c % 8
    acc = rows * b_out.w * depth * (40 if wide else 32) // 8
    return need + granules(acc, g.acc40 if wide else g.acc32)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), ops())
def test_every_block_fits_and_is_aligned(name: str, op: CostOp) -> None:
    """A chosen block fits SHRAM, is whole micro-blocks, and does not exceed the limits."""
    u55 = accelerator(name)
    block = find_block(u55, op)
    assert shram_kib_needed(u55, op, block) <= u55.shram_banks
    micro, ofm = u55.ofm_ublock, block.ofm_block
    assert (ofm.h % micro.h, ofm.w % micro.w, ofm.c % micro.c) == (0, 0, 0)
    assert ofm.h <= 32
    assert ofm.w <= 64
    assert ofm.c <= 128
    assert ofm.c % 16 == 0 or ofm.c >= op.ofm.shape[3]


def slow_search(u55: AcceleratorU55, op: CostOp) -> tuple[int, int, int]:
    """The search of VELA_SPEC §2 as plain loops, in float32, for conv, depthwise and max pool."""
    f = np.float32
    _, out_h, out_w, out_c = op.ofm.shape
    _, in_h, in_w, in_c = op.ifm.shape
    bits, k, micro = op.ifm.bits, op.kernel, u55.ofm_ublock
    conv = op.kind in (KernelKind.CONV2D, KernelKind.FULLY_CONNECTED)
    taps = k.h * k.w

    def rup(value: int, step: int) -> int:
        return (value + step - 1) // step * step

    part = conv and (
        in_c <= 8
        or in_c / rup(in_c, 8) * (taps / rup(taps, 4 if bits == 8 else 2))
        >= in_c / rup(in_c, 32 if bits == 8 else 16)
    )
    if bits == 16:
        fixed = rup(min(in_c, 16), 4)
    else:
        fixed = rup(min(in_c, 16 if part else 32), u55.ifm_ublock.c)
    best, best_cost, best_cover = (0, 0, 0), f(np.inf), f(np.inf)
    depth = max(micro.c, min(rup(min(out_c, 128), micro.c), 16))
    if depth < out_c:
        depth = rup(depth, 16)
    up = 1 if op.upscale is Upscale.NONE else 2
    while depth <= rup(min(out_c, 128), micro.c):
        for h in range(micro.h, rup(min(out_h, 32), micro.h) + 1, micro.h):
            for w in range(micro.w, rup(min(out_w, 64), micro.w) + 1, micro.w):
                b_h = rup(-(-((h - 1) * k.stride_h + min(k.dilated_h, 8)) // up), micro.h)
                b_w = rup(-(-((w - 1) * k.stride_w + min(k.dilated_w, 8)) // up), micro.w)
                b_c = fixed if conv else depth
                real = min(h, 1) if out_h == 1 and k.h == 1 and micro.h == 2 else h
                trial = BlockConfig(
                    Block(h, w, depth), Block(b_h, b_w, b_c), micro, Traversal.DEPTH_FIRST
                )
                if shram_kib_needed(u55, op, trial) > u55.shram_banks:
                    continue
                repeats = -(-k.dilated_h // 8) * -(-k.dilated_w // 8)
                ifm = f(b_h * b_w * in_c * repeats) * (f(out_w) / f(w)) * (f(out_h) / f(real))
                if conv:
                    ifm = ifm * f(-(-out_c // depth))
                weights = f(0)
                if op.kind is not KernelKind.MAX_POOL:
                    weights = f(taps * in_c * -(-out_h // real) * -(-out_w // w))
                if conv:
                    weights = weights * ((f(out_c) / f(depth)) * f(depth))
                cost = (ifm + weights) / f(out_h * out_w * out_c)
                if in_h * in_w * in_c < 2 * b_h * b_w * b_c:
                    cost = cost / f(2)
                if cost > best_cost:
                    continue
                if cost < best_cost:
                    best, best_cost, best_cover = (h, w, depth), cost, f(np.inf)
                elif h <= 4 and w <= 4:
                    cover = f(in_h * in_w) / f(min(in_h, b_h) * min(in_w, b_w))
                    if cover <= best_cover:
                        best, best_cover = (h, w, depth), cover
        depth += micro.c
        if depth < out_c:
            depth = rup(depth, 16)
    return best


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), ops().filter(lambda op: op.kind in KINDS[:3]))
def test_search_equals_plain_loops(name: str, op: CostOp) -> None:
    """The vectorised search and the loops choose the same block, ties included."""
    u55 = accelerator(name)
    block = find_block(u55, op).ofm_block
    assert (block.h, block.w, block.c) == slow_search(u55, op)


@pytest.mark.parametrize("bits", [32, 64])
def test_wide_copies_are_searched_as_16_bit(bits: int) -> None:
    """A 32-bit copy of C channels gets the block of a 16-bit one of 2C (64 bit: 4C)."""
    u55 = accelerator("ethos-u55-128")
    wide = CostOp(KernelKind.MEMORY_COPY, fm(8, 8, 24, bits), fm(8, 8, 24, bits))
    times = bits // 16
    narrow = CostOp(KernelKind.MEMORY_COPY, fm(8, 8, 24 * times, 16), fm(8, 8, 24 * times, 16))
    assert find_block(u55, wide) == find_block(u55, narrow)
