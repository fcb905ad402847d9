"""Which Ethos-U85 micro-blocks may run a kernel, and which one does.

Source: VELA_SPEC §1.2 and VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp (SetupOfmUBlockToOpTable,
IsUBlockValid, FindUBlock, ChooseKernelFirst).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from npusched.cost.arith import round_up
from npusched.cost.u85_query import BlockQuery, BlockUnit
from npusched.hardware.target import AcceleratorU85, Block

U = BlockUnit

_ALL = frozenset(U) - {U.DMA}
_SUMS = frozenset({U.CONVOLUTION, U.MATMUL, U.REDUCE_SUM, U.ELEMENTWISE, U.RESIZE})
_AREAS = frozenset(
    {U.DEPTHWISE, U.POOLING, U.ELEMENTWISE, U.REDUCE_MIN_MAX, U.ARG_MAX, U.RESIZE},
)
_WORDS = frozenset({U.REDUCE_SUM, U.ELEMENTWISE, U.REDUCE_MIN_MAX, U.RESIZE})

# Who may use a micro-block, per IFM width (8, 16, 32 bits), by the class of its shape.
_NARROW = (_SUMS, _ALL, _WORDS)
_DEEP = (_AREAS, frozenset({U.CONVOLUTION, U.ELEMENTWISE, U.RESIZE}), {U.ELEMENTWISE, U.RESIZE})
_GENERAL = (_ALL, _ALL, _WORDS)
_WIDE = (*[frozenset({U.CONVOLUTION, U.MATMUL, U.ELEMENTWISE})] * 2, {U.ELEMENTWISE})
_TALL = (_ALL - {U.MATMUL}, _ALL - {U.MATMUL}, _WORDS)


def prefers_part_kernel(query: BlockQuery) -> bool:
    """True if a convolution walks the window before the depth (traversal PartKernel).

    Compares how well 16 channels x 5 taps, and 64 channels (2:4 sparse: 10 taps, 128 channels)
    fill the MAC array. Weights that come as a second IFM are always depth-first.
    """
    if query.unit is not U.CONVOLUTION or query.ifm2 is not None:
        return False
    taps = query.window.h * query.window.w
    step, least, deep = (10, 4, 128) if query.sparse else (5, 2, 64)
    channels = query.larger_ifm[3]
    padded_taps = taps // step * step + max(taps % step, least)
    part_kernel = channels / round_up(channels, 16) * (taps / padded_taps)
    return part_kernel >= channels / round_up(channels, deep)


def is_legal(accelerator: AcceleratorU85, ublock: Block, query: BlockQuery) -> bool:
    """True if ``ublock`` may run the kernel at its IFM width."""
    column = query.lookup_bits // 16
    if query.unit is U.DMA or column > 2:
        return False
    deep = accelerator.macs_per_cycle <= 256 and ublock.c == 16
    if deep and query.unit is U.CONVOLUTION and not _is_pointwise_depth_first(query):
        return False
    return query.unit in _legal_units(accelerator.macs_per_cycle, ublock)[column]


def choose_ublock(accelerator: AcceleratorU85, query: BlockQuery) -> Block | None:
    """Return the legal micro-block that rounds the OFM up least (the first of equals), or None."""
    _, h, w, c = query.ofm
    best: Block | None = None
    least = 0
    for ublock in accelerator.ofm_ublocks:
        if is_legal(accelerator, ublock, query):
            rounded = round_up(h, ublock.h) * round_up(w, ublock.w) * round_up(c, ublock.c)
            if best is None or rounded < least:
                best, least = ublock, rounded
    return best


def fixed_ifm_depth(accelerator: AcceleratorU85, ublock: Block, query: BlockQuery) -> int:
    """Channels of the IFM block of kernels that sum over channels (VELA_SPEC_2 §9)."""
    if prefers_part_kernel(query):
        return 16
    small = accelerator.macs_per_cycle <= 256 and ublock.c == 16
    if query.ifm_bits == 32 or (small and not query.sparse):
        return 32
    return 128 if query.sparse and query.ifm_bits == 8 else 64


def _is_pointwise_depth_first(query: BlockQuery) -> bool:
    return query.window.h == query.window.w == 1 and not prefers_part_kernel(query)


def _legal_units(macs: int, ublock: Block) -> tuple[AbstractSet[BlockUnit], ...]:
    """Legal units of a micro-block per IFM width column."""
    match macs:
        case 128 | 256:
            return _DEEP if ublock.c == 16 else _NARROW
        case 512:
            return _GENERAL
        case _:
            return _TALL if ublock.c == 16 else _WIDE
