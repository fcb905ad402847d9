"""What an Ethos-U85 block search depends on, and the fixed facts of the architecture it uses.

A ``CostOp`` is first reduced to a ``BlockQuery``, so that kernels that differ only in what the
search does not see (memories, padding, tables) share one memoised result. Source of the rules and
tables: VELA_SPEC §1.2, §2 and VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp and scheduler.cpp
(``GetOpConfig``).
"""

from __future__ import annotations

from enum import StrEnum
from math import gcd

import msgspec

from npusched.cost.arith import round_up, unpermuted
from npusched.cost.kinds import ACTIVATIONS, ELEMENTWISE
from npusched.cost.types import CostFm, CostOp
from npusched.graph.types import KernelKind, Reverse, Shape4, Upscale
from npusched.hardware.target import AcceleratorU85, Block

ACC_DEPTH_GRANULE = 16
"""Accumulators are allocated in depths of 16 (VELA_SPEC §1.2)."""

SUBKERNEL_SIZE = 8
"""A window is applied in parts of at most 8 x 8 taps (VELA_SPEC §1.1)."""

CHAIN_BUFFER_SLOTS = 6
"""The chain buffer is shared by six slots (VELA_SPEC §1.2)."""

BRICK_ELEMENTS = 16
"""Elements of a brick row in the chain buffer (VELA_SPEC_2 §9)."""


class BlockUnit(StrEnum):
    """Who runs a kernel, as fine as micro-blocks are legal (finer than ``kinds.Unit``)."""

    CONVOLUTION = "convolution"
    MATMUL = "matmul"
    DEPTHWISE = "depthwise"
    POOLING = "pooling"
    REDUCE_SUM = "reduce_sum"
    REDUCE_MIN_MAX = "reduce_min_max"
    ARG_MAX = "arg_max"
    ELEMENTWISE = "elementwise"
    RESIZE = "resize"
    DMA = "dma"


_UNITS: dict[KernelKind, BlockUnit] = {
    **dict.fromkeys(ELEMENTWISE, BlockUnit.ELEMENTWISE),
    **dict.fromkeys(ACTIVATIONS, BlockUnit.POOLING),
    KernelKind.CONV2D: BlockUnit.CONVOLUTION,
    KernelKind.FULLY_CONNECTED: BlockUnit.CONVOLUTION,
    KernelKind.MATMUL: BlockUnit.MATMUL,
    KernelKind.DEPTHWISE: BlockUnit.DEPTHWISE,
    KernelKind.AVG_POOL: BlockUnit.POOLING,
    KernelKind.SUM_POOL: BlockUnit.POOLING,
    KernelKind.MAX_POOL: BlockUnit.POOLING,
    KernelKind.QUANTIZE: BlockUnit.POOLING,
    KernelKind.RESCALE: BlockUnit.POOLING,
    KernelKind.MEMORY_COPY: BlockUnit.POOLING,
    KernelKind.TRANSPOSE: BlockUnit.POOLING,
    KernelKind.REVERSE: BlockUnit.POOLING,
    KernelKind.REDUCE_SUM: BlockUnit.REDUCE_SUM,
    KernelKind.REDUCE_MIN: BlockUnit.REDUCE_MIN_MAX,
    KernelKind.REDUCE_MAX: BlockUnit.REDUCE_MIN_MAX,
    KernelKind.REDUCE_ANY: BlockUnit.REDUCE_MIN_MAX,
    KernelKind.REDUCE_ALL: BlockUnit.REDUCE_MIN_MAX,
    KernelKind.ARG_MAX: BlockUnit.ARG_MAX,
    KernelKind.RESIZE: BlockUnit.RESIZE,
    KernelKind.GATHER: BlockUnit.DMA,
    KernelKind.SCATTER: BlockUnit.DMA,
}

_WIDE_COPIES = frozenset(
    {KernelKind.MEMORY_COPY, KernelKind.RESCALE, KernelKind.TRANSPOSE, KernelKind.REVERSE}
)


def block_unit(kind: KernelKind) -> BlockUnit:
    """Return who runs ``kind``. Raises ValueError for a kind that the NPU does not run."""
    if kind not in _UNITS:
        raise ValueError(f"{kind} has no block config")
    return _UNITS[kind]


class Window(msgspec.Struct, frozen=True):
    """The part of a kernel window that a block search sees (taps and IFM elements)."""

    h: int
    w: int
    stride_h: int
    stride_w: int
    dilated_h: int
    dilated_w: int


class BlockQuery(msgspec.Struct, frozen=True):
    """Everything a U85 block search depends on. Shapes are (n, h, w, c), elements.

    ``ofm`` is the result before a fused transpose; ``transpose[i]`` the axis of it that axis i of
    the stored result shows. ``brick`` tells whether that stored result is NHCWB16 (kept only for
    transposes, the one case in which it matters). ``ofm_bits`` is the width after fused followers.
    ``resize_w`` is (numerator, denominator) of the horizontal scale.
    """

    kind: KernelKind
    unit: BlockUnit
    ofm: Shape4
    ofm_bits: int
    ifm: Shape4
    ifm2: Shape4 | None
    ifm_bits: int
    window: Window
    upscale: Upscale
    scaled: bool
    sparse: bool
    transpose: tuple[int, int, int]
    brick: bool
    reverse_c: bool
    resize_w: tuple[int, int]

    @property
    def larger_ifm(self) -> Shape4:
        """The input with more elements; the first on a tie."""
        if self.ifm2 is not None and volume(self.ifm2) > volume(self.ifm):
            return self.ifm2
        return self.ifm

    @property
    def pool_like(self) -> bool:
        """True for pools and everything that runs as one, minima and maxima included."""
        return self.unit in {BlockUnit.POOLING, BlockUnit.REDUCE_MIN_MAX, BlockUnit.ARG_MAX}

    @property
    def accumulator_bits(self) -> int:
        """Stored width of an accumulator: 64 for the 48-bit one, else 32 (VELA_SPEC_2 §9)."""
        wide_type = self.ifm_bits > 32 or self.ofm_bits > 32
        summed = not self.pool_like and self.unit is not BlockUnit.REDUCE_SUM
        return 64 if wide_type or (self.ifm_bits == 16 and summed and self.scaled) else 32

    @property
    def lookup_bits(self) -> int:
        """IFM width as the micro-block table sees it: copies of >= 32 bits count as 8."""
        return 8 if self.kind in _WIDE_COPIES and self.ifm_bits >= 32 else self.ifm_bits


def query_of(op: CostOp) -> BlockQuery:
    """Reduce a kernel to what its block search depends on.

    The result seen by the search is the one of the last follower fused directly into the primary
    (Vela replaces the primary's OFM by it); chained followers do not change it.
    """
    ofm, transpose, reverse = _fused_result(op)
    order = transpose or (0, 1, 2)
    kernel = op.kernel
    _, _, in_w, _ = op.ifm.shape
    _, _, out_w, _ = op.ofm.shape
    resize = op.resize[2:] if op.resize is not None else _half_pixel_scale(out_w, in_w)
    return BlockQuery(
        kind=op.kind,
        unit=block_unit(op.kind),
        ofm=unpermuted(ofm.shape, transpose),
        ofm_bits=ofm.bits,
        ifm=op.ifm.shape,
        ifm2=None if op.ifm2 is None else op.ifm2.shape,
        ifm_bits=op.ifm.bits,
        window=Window(
            kernel.h,
            kernel.w,
            kernel.stride_h,
            kernel.stride_w,
            kernel.dilated_h,
            kernel.dilated_w,
        ),
        upscale=op.upscale,
        scaled=op.scaled,
        sparse=op.sparse,
        transpose=order,
        brick=ofm.brick and order != (0, 1, 2),
        reverse_c=reverse is Reverse.C,
        resize_w=resize if op.kind is KernelKind.RESIZE else (1, 1),
    )


def volume(shape: Shape4) -> int:
    """Elements of a feature map, batch included."""
    n, h, w, c = shape
    return n * h * w * c


def allocation_unit(accelerator: AcceleratorU85, ublock: Block, depth: int, bits: int) -> Block:
    """Return the granule (elements) in which the input buffer stores an IFM block.

    ``depth`` (channels) and ``bits`` select one of three shapes: up to 128 bits of depth, up to
    256, more. They depend on the micro-block only for the flat ones (four columns, fewer rows).
    Source: VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp SetupOfmUBlockToIfmAuTable, CalcIfmAUSize.
    """
    column = 0 if depth * bits <= 128 else 1 if depth * bits <= 256 else 2
    h, w, units = _allocation_table(
        accelerator.macs_per_cycle, flat=(ublock.h, ublock.w) == (1, 4)
    )[column]
    return Block(h, w, units * 128 // bits)


def _allocation_table(macs: int, *, flat: bool) -> tuple[tuple[int, int, int], ...]:
    """Rows, columns and 128-bit units of the three allocation shapes."""
    match macs:
        case 128:
            return (1, 2, 1), (1, 1, 2), (1, 1, 2)
        case 256 | 512:
            return (1 if flat else 2, 4 if flat else 2, 1), (1, 2, 2), (1, 1, 4)
        case 1024:
            return (2, 4, 1), (1, 4, 2) if flat else (2, 2, 2), (1, 2, 4)
        case _:
            return (4, 4, 1), (2, 4, 2), (1, 4, 4) if flat else (2, 2, 4)


def ifm_block(window: Window, block: Block, unit: Block, fixed_depth: int) -> Block:
    """Return the IFM block (elements) that an OFM ``block`` needs, rounded up to ``unit``.

    ``fixed_depth`` 0 = as deep as the OFM block. The window counts at most 8 taps per axis, as a
    larger one is applied in parts. Source: VELA_SPEC_2 §9; Vela 5.2.0, GetArchIFMBlockSize.
    """
    h = (block.h - 1) * window.stride_h + min(window.dilated_h, SUBKERNEL_SIZE)
    w = (block.w - 1) * window.stride_w + min(window.dilated_w, SUBKERNEL_SIZE)
    depth = fixed_depth or block.c
    return Block(round_up(h, unit.h), round_up(w, unit.w), round_up(depth, unit.c))


def _fused_result(op: CostOp) -> tuple[CostFm, tuple[int, int, int] | None, Reverse]:
    """The primary's OFM after the followers fused into it, with their transpose and reverse."""
    ofm, transpose, reverse = op.ofm, op.transpose, op.reverse
    for sub in op.subs:
        if sub.chained:
            break
        ofm = sub.ofm
        transpose = sub.transpose if sub.transpose is not None else transpose
        reverse = sub.reverse if sub.reverse is not Reverse.NONE else reverse
    return ofm, transpose, reverse


def _half_pixel_scale(out: int, into: int) -> tuple[int, int]:
    """Reduced output/input ratio with both sides doubled (half-pixel centres)."""
    divisor = gcd(out, into)
    return 2 * out // divisor, 2 * into // divisor
