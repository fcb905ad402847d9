"""NPU cycles, transfers and whole-op costs against hand arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.cost.arith import float32, transfer_cycles
from npusched.cost.blocks import find_block
from npusched.cost.bursts import Channel, channel_bandwidth, dma_cycles, inflated_bytes
from npusched.cost.cycles import macs_of, npu_cycles, npu_op_cycles
from npusched.cost.op_cost import Staging, op_cost, slack_of, staged_slack_of
from npusched.cost.types import (
    Basis,
    BlockConfig,
    CostFm,
    CostOp,
    CostSub,
    Purpose,
    Traversal,
    WeightBytes,
)
from npusched.graph.types import Kernel, KernelKind
from npusched.hardware import load_target
from npusched.hardware.target import Block, Target


@pytest.fixture(scope="module")
def u55() -> Target:
    """U55-128, Ethos_U55_High_End_Embedded, Shared_Sram."""
    return load_target("ethos-u55-128")


@pytest.fixture(scope="module")
def u85() -> Target:
    """U85-256, Ethos_U85_SYS_DRAM_Mid, Dedicated_Sram."""
    return load_target(
        "ethos-u85-256",
        system_config="Ethos_U85_SYS_DRAM_Mid",
        memory_mode="Dedicated_Sram_384KB",
    )


def sram(target: Target, h: int, w: int, c: int, bits: int = 8, *, brick: bool = True) -> CostFm:
    return CostFm((1, h, w, c), bits, brick, target.roles.arena)


def vww_first_conv(target: Target) -> CostOp:
    """mlpt_vww's first convolution (VELA_SPEC §3.2 "worked")."""
    return CostOp(
        KernelKind.CONV2D,
        sram(target, 96, 96, 3, brick=False),
        sram(target, 48, 48, 8),
        kernel=Kernel(h=3, w=3, stride_h=2, stride_w=2, pad_bottom=1, pad_right=1),
        has_scales=True,
        subs=(CostSub(KernelKind.RELU, 8, sram(target, 48, 48, 8)),),
    )


VWW_WEIGHTS = WeightBytes(320, 80, exact=True)


def test_vww_first_conv_cycles(u55: Target) -> None:
    """Block 8x16x8, micro-block 1x2x8: 64 micro-blocks in area, one in depth; 48*24/64 = 18 blocks.

    MACs: ceil(9/4) = 3 steps x max(32, 4*64) x ceil(8/8) = 768. Output: max(0.5, Relu 0.5) x 1024
    = 512. Fill: 17*34*3 = 1734 bytes in bursts of 8 of 32 -> 6936 bytes / 8 + 32 = 899. Drain:
    1024 bytes / 8 + 32 = 160. Total: 768*18 + 512 + 160 + 899 = 15395.
    """
    op = vww_first_conv(u55)
    assert u55.accelerator is not None
    block = find_block(u55.accelerator, op)
    parts = npu_cycles(u55, op, block, basis=Basis.VELA)
    assert (parts.total, parts.fill, parts.drain) == (15395, 899, 160)
    assert macs_of(u55.accelerator, op) == 48 * 48 * 8 * 9 * 3
    middle = npu_op_cycles(u55, op, block, basis=Basis.VELA, first=False, last=False)
    assert middle == 768 * 18


def test_vww_first_conv_whole_row(u55: Target) -> None:
    """The row that Vela 5.2 reports: NPU 15859, SRAM 20974, flash 1760 cycles, total 20974.

    DMA: 400 bytes of weights and scales at 1 byte/cycle + 64 = 464, nothing hides it: 15395 + 464.
    SRAM: IFM 17*34*3*18 = 31212 elements x 4 (bursts) = 124848; OFM padded to 16 channels 36864;
    weights copied 320 and read 18 x 320 = 5760: 167792 / 8 = 20974. Flash: 320 copied, and Vela
    books the 18 x 80 bytes of scales here: 1760.
    """
    op = vww_first_conv(u55)
    staging = Staging(
        full_dma_bytes=400,
        first_dma_bytes=400,
        self_slack_cycles=staged_slack_of(u55, op, depth=8, basis=Basis.VELA),
    )
    cost = op_cost(u55, op, VWW_WEIGHTS, basis=Basis.VELA, staging=staging)
    assert cost.npu_cycles == 15859
    assert dict(cost.memory_cycles) == {u55.roles.arena: 20974, u55.roles.const: 1760}
    assert cost.cycles == 20974
    maps = next(t for t in cost.transfers if t.purpose is Purpose.FEATURE_MAP)
    assert (maps.bytes_read, maps.bytes_written) == (31212, 36864)
    assert (maps.inflated_read, maps.inflated_written) == (124848, 36864)


def test_physical_basis_reads_staged_scales_in_the_cache(u55: Target) -> None:
    """Scales that were copied are read where they are: 18 x 80 bytes move from flash to SRAM."""
    op = vww_first_conv(u55)
    staging = Staging(full_dma_bytes=400, first_dma_bytes=400)
    cost = op_cost(u55, op, VWW_WEIGHTS, basis=Basis.PHYSICAL, staging=staging)
    busy = dict(cost.memory_cycles)
    assert busy[u55.roles.const] == 320
    assert busy[u55.roles.arena] == (167792 + 1440) // 8


def test_max_pool_by_hand(u55: Target) -> None:
    """2x2 pool, 8x8x16 -> 4x4x16 in one block, micro-block 1x2x8.

    MACs: max(4, 4) x (4*2*2) micro-blocks x 8/2 = 256. Output: 0.25 x 256 = 64. Issue: (256 + 64)
    / 4 = 80, which outlasts the output stage at the end. Fill: 1024 bytes / 8 + 32 = 160; drain:
    256 / 8 + 32 = 64. Total: 256 + 80 + 64 + 160 = 560.
    """
    op = CostOp(
        KernelKind.MAX_POOL,
        sram(u55, 8, 8, 16),
        sram(u55, 4, 4, 16),
        kernel=Kernel(h=2, w=2, stride_h=2, stride_w=2),
    )
    block = BlockConfig(Block(4, 4, 16), Block(8, 8, 16), Block(1, 2, 8), Traversal.DEPTH_FIRST)
    assert npu_op_cycles(u55, op, block, basis=Basis.VELA) == 560


def test_add_by_hand(u55: Target) -> None:
    """4x4x16 + 4x4x16, int8: 1.5 cycles x 256 elements = 384.

    Issue: fill and drain are 32 + 256/8 = 64 cycles; (64/256 + 1.5) / 4 x 256 = 112 < 384.
    Both inputs and the output move 256 bytes each: 768 / 8 = 96 cycles of SRAM.
    """
    op = CostOp(KernelKind.ADD, sram(u55, 4, 4, 16), sram(u55, 4, 4, 16), sram(u55, 4, 4, 16))
    cost = op_cost(u55, op, basis=Basis.VELA)
    assert cost.npu_cycles == 384
    assert dict(cost.memory_cycles)[u55.roles.arena] == 96


def test_scalar_operands(u55: Target) -> None:
    """An 8-bit scalar costs no read, a 16-bit one reads itself (padded to a brick of 16).

    Vela forgets the other input beside a wide scalar IFM0; the transferred bytes do not.
    """
    one8 = CostFm((1, 1, 1, 1), 8, True, u55.roles.arena)
    op = CostOp(KernelKind.MUL, sram(u55, 4, 4, 16), sram(u55, 4, 4, 16), one8)
    (maps,) = op_cost(u55, op, basis=Basis.VELA).transfers
    assert maps.bytes_read == 256
    one16 = CostFm((1, 1, 1, 1), 16, True, u55.roles.arena)
    op = CostOp(KernelKind.MUL, one16, sram(u55, 4, 4, 16, 16), sram(u55, 4, 4, 16, 16))
    (maps,) = op_cost(u55, op, basis=Basis.VELA).transfers
    assert maps.bytes_read == 32 + 512
    assert maps.inflated_read == 32


def test_lut_dma_and_slack(u55: Target) -> None:
    """A table of 256 bytes takes 256/1 + 64 = 320 cycles from flash; the op before hides 200."""
    op = CostOp(
        KernelKind.LUT,
        sram(u55, 4, 4, 16),
        sram(u55, 4, 4, 16),
        lut_bytes=256,
        lut_is_primary=True,
    )
    bare = op_cost(u55, op, basis=Basis.VELA, slack_cycles=10**6).npu_cycles
    assert op_cost(u55, op, basis=Basis.VELA).npu_cycles == bare + 320
    assert op_cost(u55, op, basis=Basis.VELA, slack_cycles=200).npu_cycles == bare + 120


def test_fused_lut_costs_no_dma(u55: Target) -> None:
    """Only a primary op's own table is charged (VELA_SPEC_2 §5)."""
    plain = CostOp(
        KernelKind.ADD,
        sram(u55, 4, 4, 16),
        sram(u55, 4, 4, 16),
        sram(u55, 4, 4, 16),
        lut_bytes=256,
        subs=(CostSub(KernelKind.LUT, 8, sram(u55, 4, 4, 16)),),
    )
    cost = op_cost(u55, plain, basis=Basis.VELA)
    assert cost.npu_cycles == 384
    tables = [t for t in cost.transfers if t.purpose is Purpose.LUT]
    assert [(t.bytes_read, t.inflated_read) for t in tables] == [(256, 0)]


def test_slack_of_an_op_in_dedicated_sram_uses_the_arena() -> None:
    """At scheduling time every feature map is in DRAM: more latency, so more slack."""
    u65 = load_target("ethos-u65-256", memory_mode="Dedicated_Sram_384KB")
    cached = CostFm((1, 16, 16, 32), 8, True, u65.roles.cache)
    op = CostOp(KernelKind.MAX_POOL, cached, cached)
    in_dram = CostFm((1, 16, 16, 32), 8, True, u65.roles.arena)
    assert u65.accelerator is not None
    placed = op_cost(u65, op, basis=Basis.VELA).npu_cycles
    slack = slack_of(u65, op, basis=Basis.VELA)
    assert slack > placed
    moved = CostOp(KernelKind.MAX_POOL, in_dram, in_dram)
    assert slack == op_cost(u65, moved, basis=Basis.VELA).npu_cycles


def test_u85_channels(u85: Target) -> None:
    """VELA_SPEC §3.4, U85-256 with SYS_DRAM_Mid.

    SRAM (32 B/cycle, latency 32, burst 64, 8 reads on 2 ports): weights min(128/4, 12.8) = 12.8
    bursts in flight: 64 * 12.8 / 32 * 0.8 = 20.48; scales 16/4 = 4: 64 * 4 / 32 * 0.8 = 6.4.
    DRAM (12 B/cycle, latency 500, burst 128): DMA reads 104/8 = 13: 128 * 13 / 500 * 0.8 = 2.6624.
    """
    assert u85.accelerator is not None

    def rate(memory: str, channel: Channel) -> float:
        assert u85.accelerator is not None
        return channel_bandwidth(u85.accelerator, u85.memory(memory), channel, Basis.VELA)

    cache, const = u85.roles.cache, u85.roles.const
    assert rate(cache, Channel.WEIGHTS) == pytest.approx(20.48, rel=1e-6)
    assert rate(cache, Channel.SCALES) == pytest.approx(6.4, rel=1e-6)
    assert rate(const, Channel.MEM2MEM) == pytest.approx(2.6624, rel=1e-6)
    cycles = dma_cycles(u85, 26624, source=u85.const, destination=u85.cache, basis=Basis.VELA)
    assert cycles == 10000 + 500


def test_chained_ops_write_once_and_read_their_own_inputs(u85: Target) -> None:
    """conv -> chained Add with an external input: Vela counts that input, not the write."""
    fm = sram(u85, 8, 8, 32)
    chain = CostSub(KernelKind.ADD, 8, fm, chained=True, ifm2=fm)
    op = CostOp(
        KernelKind.CONV2D, fm, CostFm(fm.shape, 8, True, None), has_scales=True, subs=(chain,)
    )
    maps = [
        t for t in op_cost(u85, op, basis=Basis.VELA).transfers if t.purpose is Purpose.FEATURE_MAP
    ]
    assert sum(t.bytes_written for t in maps) == 8 * 8 * 32
    assert sum(t.inflated_written for t in maps) == 0
    assert sum(t.bytes_read for t in maps) >= 2 * 8 * 8 * 32


def test_short_bursts_are_inflated(u55: Target) -> None:
    """NHWC reads of an 8-channel block of a 3-channel map: bursts of 8 bytes of 32, so x4."""
    assert u55.accelerator is not None
    rgb = sram(u55, 96, 96, 3, brick=False)
    size = inflated_bytes(u55.accelerator, u55.arena, rgb, Block(17, 34, 8), 300, read=True)
    assert size == 1200


@given(st.integers(0, 1 << 40), st.floats(0.25, 64.0))
def test_transfer_cycles_are_close_to_the_quotient(size: int, rate: float) -> None:
    """float32 rounding moves a quotient by at most two parts in 2^23, plus the truncation."""
    exact = size / float32(rate)
    assert abs(transfer_cycles(size, rate) - exact) <= 1 + exact * 2**-22


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["ethos-u55-32", "ethos-u55-256", "ethos-u65-512", "ethos-u85-512"]),
    st.integers(5, 48),
    st.integers(1, 40),
    st.integers(1, 80),
    st.sampled_from([1, 3, 5]),
)
def test_more_rows_are_never_cheaper(name: str, h: int, w: int, c: int, k: int) -> None:
    """With one block, one more OFM row (and IFM row) never lowers cycles or bytes.

    Heights of one micro-block (at most 4 rows) are left out: there the formula adds bubbles of the
    MAC pipeline that a second micro-block fills, so one row may cost more than two.
    """
    target = load_target(name)
    assert target.accelerator is not None

    def op(rows: int) -> CostOp:
        return CostOp(
            KernelKind.CONV2D,
            sram(target, rows + k - 1, w, c),
            sram(target, rows, w, c),
            kernel=Kernel(h=k, w=k),
            has_scales=True,
        )

    block = find_block(target.accelerator, op(h + 1))
    weights = WeightBytes(c * c * k * k, 16 * c)
    less = op_cost(target, op(h), weights, basis=Basis.PHYSICAL, block=block)
    more = op_cost(target, op(h + 1), weights, basis=Basis.PHYSICAL, block=block)
    assert more.macs > less.macs
    assert more.npu_cycles >= less.npu_cycles
    for (name_less, cycles_less), (name_more, cycles_more) in zip(
        less.memory_cycles, more.memory_cycles, strict=True
    ):
        assert name_less == name_more
        assert cycles_more >= cycles_less
