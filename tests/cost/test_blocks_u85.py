"""Block choice on Ethos-U85: hand-worked examples and blocks that Vela 5.2.0 chose."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from npusched.cost.blocks_u85 import find_block
from npusched.cost.types import BlockConfig, CostFm, CostOp, CostSub, Traversal
from npusched.cost.u85_query import Window, allocation_unit, ifm_block
from npusched.errors import TargetError
from npusched.graph.types import Kernel, KernelKind, Reverse
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU85, Block

K = KernelKind


def u85(macs: int) -> AcceleratorU85:
    found = load_target(f"ethos-u85-{macs}").accelerator
    assert isinstance(found, AcceleratorU85)
    return found


def fm(*shape: int, bits: int = 8, brick: bool = True) -> CostFm:
    n, h, w, c = (1,) * (4 - len(shape)) + shape
    return CostFm((n, h, w, c), bits, brick, None)


def test_elementwise_spends_the_output_buffer() -> None:
    """Add of two 8x40x24 on U85-256.

    OFM rounded to 1x2x16: 8*40*32 = 10240 elements; to 1x4x8 and 2x2x8: 8*40*24 = 7680; so the
    first of the two, 1x4x8, and steps of 1x4x16. The output buffer of 2048 bytes has
    2048 / 16 = 128 columns; the 40 of a row fit min(128 // 40, 32 // 16) = 2 times, so depth
    16*2 = 32 and width 128 // 2 = 64. All 8 rows.
    """
    op = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(8, 40, 24))
    block = Block(8, 64, 32)
    assert find_block(u85(256), op) == BlockConfig(
        block, block, Block(1, 4, 8), Traversal.DEPTH_FIRST
    )


def test_elementwise_broadcast_in_depth_is_held_in_a_chain_slot() -> None:
    """The same with a second input of one channel.

    A slot is 1536 / 6 = 256 bytes = 16 bricks of 16, so width 16; depth all 32; only the depth is
    broadcast, so rows share what a row of 40 leaves of 16 columns: nothing, one row.
    """
    op = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(8, 40, 1))
    assert find_block(u85(256), op).ofm_block == Block(1, 16, 32)


def test_elementwise_broadcast_in_height() -> None:
    """A second input of one row: width 16 (a slot), which one row of 40 cannot share; depth 16."""
    op = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(1, 40, 24))
    assert find_block(u85(256), op).ofm_block == Block(8, 16, 16)


def test_scalar_and_width_broadcasts_change_nothing() -> None:
    """A scalar, or an input of one column, leaves the block of the plain Add."""
    plain = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(8, 40, 24))
    scalar = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(1, 1, 1))
    column = CostOp(K.ADD, fm(8, 40, 24), fm(8, 40, 24), fm(8, 1, 24))
    u = u85(256)
    assert find_block(u, plain) == find_block(u, scalar) == find_block(u, column)


def test_fully_connected_takes_the_largest_block() -> None:
    """64 -> 40 channels on U85-512; the window covers the whole 1x1 IFM, so volume decides.

    Depth-first: 64/64 * 1/2 < 64/64. Both micro-blocks round 40 to 48; 2x2x16 rounds 1x1 to 4
    pixels as does 1x4x16, so the first. Depths 16, 32, 48: 2*2*48 is the largest. IFM: 64 channels
    of 8 bits are stored in units of 1x1x64, 2x2x64.
    """
    op = CostOp(K.FULLY_CONNECTED, fm(1, 1, 64), fm(1, 1, 40), has_scales=True)
    assert find_block(u85(512), op) == BlockConfig(
        Block(2, 2, 48), Block(2, 2, 64), Block(2, 2, 16), Traversal.DEPTH_FIRST
    )


def test_one_block_in_the_input_buffer_must_do_if_two_do_not_fit() -> None:
    """6x6 stride 3, 64 -> 64 channels of 16 bits on U85-128 (micro-block 1x2x8, 8192 bytes).

    Depth-first, as 36 taps fill 37 of a walk in fives: 36/37 < 1. The least block, 1x2, needs
    6 x 9 x 64 x 2 = 6912 bytes, so only one fits; 1x4 would need 6*15*128 = 11520. Of the depths,
    64 reads the IFM once.
    """
    op = CostOp(
        K.CONV2D,
        fm(60, 60, 64, bits=16),
        fm(19, 19, 64, bits=16),
        kernel=Kernel(h=6, w=6, stride_h=3, stride_w=3),
    )
    block = find_block(u85(128), op)
    assert (block.ofm_block, block.ifm_block) == (Block(1, 2, 64), Block(6, 9, 64))


def test_pool_that_fits_is_one_block() -> None:
    """8x8x16 -> 4x4x16, 2x2 stride 2, on U85-128: only 1x1x16 pools 8 bits.

    2048 accumulators of 32 bits / 16 deep = 128 pixels >= 4*4; IFM (4-1)*2+2 = 8 square, in units
    of 1x2x16: 8*8*16 = 1024 of 8192 bytes. The block is the OFM.
    """
    op = CostOp(
        K.MAX_POOL, fm(8, 8, 16), fm(4, 4, 16), kernel=Kernel(h=2, w=2, stride_h=2, stride_w=2)
    )
    assert find_block(u85(128), op) == BlockConfig(
        Block(4, 4, 16), Block(8, 8, 16), Block(1, 1, 16), Traversal.DEPTH_FIRST
    )


def test_pool_leaves_room_for_a_row_of_ifm() -> None:
    """128x128x16 -> 64x64x16, 2x2 stride 2, on U85-256 (micro-block 1x2x16).

    4096 accumulators / 16 deep = 256 pixels = 16x16, whose IFM of 32x32x16 = 16384 bytes fills the
    input buffer. One more row granule needs 2x32x16 = 1024 bytes: one row less, 30x32x16 = 15360,
    leaves exactly that.
    """
    op = CostOp(
        K.MAX_POOL,
        fm(128, 128, 16),
        fm(64, 64, 16),
        kernel=Kernel(h=2, w=2, stride_h=2, stride_w=2),
    )
    block = find_block(u85(256), op)
    assert (block.ofm_block, block.ifm_block) == (Block(15, 16, 16), Block(30, 32, 16))


def test_resize_is_one_row_as_wide_as_a_chain_slot_allows() -> None:
    """4x4 -> 8x8, 16 channels, half-pixel centres (scale 4/2), on U85-256.

    A slot holds 16 bricks: ceil(((16 - 2) * 4 + 1) / 2) = 29 columns, in steps of 2: 28. The
    micro-block is the first, as all divide the OFM. IFM units are 2x2x16: 2x28x16.
    """
    op = CostOp(K.RESIZE, fm(4, 4, 16), fm(8, 8, 16))
    explicit = CostOp(K.RESIZE, fm(4, 4, 16), fm(8, 8, 16), resize=(4, 2, 4, 2))
    block = find_block(u85(256), op)
    assert (block.ofm_block, block.ifm_block) == (Block(1, 28, 16), Block(2, 28, 16))
    assert find_block(u85(256), explicit) == block


def test_resize_scale_decides_the_width() -> None:
    """The same with aligned corners, 7x7 from 4x4 (scale 6/3 = 2/1): ceil(14 * 2 + 1) = 29 -> 28.

    And 13x13 from 4x4, 12/3 = 4/1: 14 * 4 + 1 = 57 -> 56.
    """

    def width(out: int, scale: tuple[int, int]) -> int:
        op = CostOp(K.RESIZE, fm(4, 4, 16), fm(out, out, 16), resize=scale * 2)
        return find_block(u85(256), op).ofm_block.w

    assert width(7, (2, 1)) == 28
    assert width(13, (4, 1)) == 56


@pytest.mark.parametrize(
    ("channels", "taps", "sparse", "expected"),
    [
        (3, 3, False, Traversal.PART_KERNEL),  # 3/16 * 9/9 >= 3/64
        (64, 3, False, Traversal.PART_KERNEL),  # 1 * 9/9 >= 1: a tie
        (64, 1, False, Traversal.DEPTH_FIRST),  # 1 * 1/2 < 1
        (8, 1, False, Traversal.PART_KERNEL),  # 8/16 * 1/2 >= 8/64
        (65, 1, False, Traversal.DEPTH_FIRST),  # 65/80 * 1/2 < 65/128
        (65, 1, True, Traversal.DEPTH_FIRST),  # 65/80 * 1/4 < 65/128
        (16, 1, True, Traversal.PART_KERNEL),  # 1 * 1/4 >= 16/128
    ],
)
def test_part_kernel_fills_the_macs_better(
    channels: int, taps: int, sparse: bool, expected: Traversal
) -> None:
    """Each case's comparison is in its comment (VELA_SPEC §2)."""
    op = CostOp(
        K.CONV2D,
        fm(16, 16, channels),
        fm(16, 16, 32),
        kernel=Kernel(h=taps, w=taps, pad_top=taps // 2, pad_left=taps // 2),
        sparse=sparse,
    )
    assert find_block(u85(512), op).traversal is expected


def test_axis_that_becomes_brick_channels_is_blocked_by_16() -> None:
    """A fused NCHW (stored c from w): bricks need 16 columns per block; NHWC does not."""

    def width(brick: bool) -> int:
        stored = fm(24, 20, 20, brick=brick)  # h from c, w from h, c from w
        op = CostOp(
            K.CONV2D,
            fm(20, 20, 64),
            fm(20, 20, 24),
            subs=(CostSub(K.TRANSPOSE, 8, stored, transpose=(2, 0, 1)),),
        )
        return find_block(u85(128), op).ofm_block.w

    assert width(True) % 16 == 0
    assert width(False) % 16 != 0


def test_reversed_channels_are_blocked_16_deep() -> None:
    """Backwards channels: depth 16 at most; 64-channel micro-blocks cannot do that at all."""
    op = CostOp(K.CONV2D, fm(1, 16, 512), fm(1, 16, 256), reverse=Reverse.C)
    assert find_block(u85(256), op).ofm_block.c == 16
    with pytest.raises(TargetError) as caught:
        find_block(u85(2048), op)
    assert caught.value.values["accelerator"] == "ethos-u85-2048"


def test_no_micro_block_takes_32_bit_convolutions() -> None:
    op = CostOp(K.CONV2D, fm(8, 8, 16, bits=32), fm(8, 8, 16, bits=32))
    with pytest.raises(TargetError, match="32-bit"):
        find_block(u85(512), op)


def test_dma_kernels_have_unit_blocks_and_cpu_ops_none() -> None:
    gather = CostOp(K.GATHER, fm(1, 64, 16), fm(1, 4, 16), fm(1, 1, 4, bits=32))
    assert find_block(u85(128), gather).ofm_block == Block(1, 1, 1)
    with pytest.raises(ValueError, match="no block config"):
        find_block(u85(128), CostOp(K.CPU, fm(1, 1, 1), fm(1, 1, 1)))


def test_memories_padding_and_tables_do_not_matter() -> None:
    """Kernels that differ in them share one search (the same object)."""
    bare = CostOp(K.CONV2D, fm(9, 9, 40), fm(9, 9, 40), kernel=Kernel(h=3, w=3))
    other = CostOp(
        K.CONV2D,
        CostFm((1, 9, 9, 40), 8, True, "sram"),
        CostFm((1, 9, 9, 40), 8, False, "dram"),
        kernel=Kernel(h=3, w=3, pad_top=1, pad_left=1),
        has_scales=True,
        lut_bytes=256,
    )
    assert find_block(u85(128), bare) is find_block(u85(128), other)


def test_only_fused_followers_change_the_block() -> None:
    """A 64-bit result of a fused op selects wide accumulators; of a chained op it does not.

    64x64x16 on U85-512: 32768 bytes / 4 / 16 deep = 512 pixels, a square of 22.6, so 22x22 in
    steps of 2; with 8 bytes each 256 pixels, 16x16.
    """
    plain = CostOp(K.QUANTIZE, fm(64, 64, 16), fm(64, 64, 16))
    wide = fm(64, 64, 16, bits=64)
    fused = CostOp(K.QUANTIZE, plain.ifm, plain.ofm, subs=(CostSub(K.CLAMP, 8, wide),))
    chained = CostOp(
        K.QUANTIZE, plain.ifm, plain.ofm, subs=(CostSub(K.ADD, 8, wide, chained=True),)
    )
    u = u85(512)
    assert find_block(u, plain).ofm_block == Block(22, 22, 16)
    assert find_block(u, chained).ofm_block == Block(22, 22, 16)
    assert find_block(u, fused).ofm_block == Block(16, 16, 16)


@pytest.mark.parametrize(
    ("macs", "ublock", "depth", "bits", "expected"),
    [
        (128, (1, 1, 16), 16, 8, (1, 2, 16)),
        (128, (1, 2, 8), 17, 8, (1, 1, 32)),
        (256, (1, 4, 8), 16, 8, (1, 4, 16)),
        (256, (2, 2, 8), 64, 8, (1, 1, 64)),
        (512, (2, 2, 16), 16, 16, (1, 2, 16)),
        (1024, (1, 4, 32), 32, 8, (1, 4, 32)),
        (2048, (1, 4, 64), 64, 8, (1, 4, 64)),
        (2048, (4, 4, 16), 8, 32, (2, 4, 8)),
    ],
)
def test_allocation_units(
    macs: int, ublock: tuple[int, int, int], depth: int, bits: int, expected: tuple[int, int, int]
) -> None:
    """Rows of the table in VELA_SPEC_2 §9; depths are 128-bit units / element width."""
    assert allocation_unit(u85(macs), Block(*ublock), depth, bits) == Block(*expected)


def test_ifm_block_counts_at_most_eight_taps() -> None:
    """5 rows, stride 2, 11 taps: (5-1)*2 + 8 = 16; 6 columns, 3 taps: 8; 20 channels: 32."""
    window = Window(11, 3, 2, 1, 11, 3)
    assert ifm_block(window, Block(5, 6, 20), Block(2, 4, 16), 0) == Block(16, 8, 32)
    assert ifm_block(window, Block(5, 6, 20), Block(2, 4, 16), 64) == Block(16, 8, 64)


def golden_rows() -> list[dict[str, str]]:
    """Rows of blocks_u85.csv: what Vela 5.2.0 (regor core) chose for generated one- to three-op
    models (its tables perf_debug and perf_debug_main), one row per kind of query.
    """
    with (Path(__file__).parent / "blocks_u85.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def axes3(text: str) -> tuple[int, int, int]:
    first, second, third = numbers(text)
    return first, second, third


def axes4(text: str) -> tuple[int, int, int, int]:
    first, second, third, fourth = numbers(text)
    return first, second, third, fourth


def golden_op(row: dict[str, str]) -> CostOp:
    bits = int(row["ifm_bits"])
    (h, w), (stride_h, stride_w) = numbers(row["kernel"]), numbers(row["stride"])
    dilation_h, dilation_w = numbers(row["dilation"])
    return CostOp(
        K(row["kind"]),
        CostFm(axes4(row["ifm"]), bits, True, None),
        CostFm(axes4(row["ofm"]), int(row["ofm_bits"]), row["brick"] == "1", None),
        CostFm(axes4(row["ifm2"]), bits, True, None) if row["ifm2"] else None,
        Kernel(
            h=h,
            w=w,
            stride_h=stride_h,
            stride_w=stride_w,
            dilation_h=dilation_h,
            dilation_w=dilation_w,
        ),
        sparse=row["sparse"] == "1",
        transpose=axes3(row["transpose"]) if row["transpose"] else None,
        reverse=Reverse(row["reverse"]),
        resize=axes4(row["resize"]) if row["resize"] else None,
    )


def test_blocks_that_vela_chose() -> None:
    rows = golden_rows()
    assert len(rows) > 100
    for row in rows:
        expected = BlockConfig(
            Block(*axes3(row["ofm_block"])),
            Block(*axes3(row["ifm_block"])),
            Block(*axes3(row["ublock"])),
            Traversal(row["traversal"]),
        )
        assert find_block(u85(int(row["macs"])), golden_op(row)) == expected, row
