"""Block configuration search of Ethos-U55 and U65 (VELA_SPEC §2, VELA_SPEC_2 §3 and §8).

The NPU works through the OFM in blocks that must fit, double buffered with the IFM blocks that
feed them, into SHRAM. The search minimises bytes fetched per output element. It visits every
(depth, height, width) in order and keeps a strictly cheaper block, or an equally cheap small one
that covers more of the IFM. Costs are float32 and are evaluated here in the order of Vela 5.2.0
(``ArchEthosU55::FindBlockConfig``), because ties between blocks depend on the rounding; all
candidates are evaluated at once.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.cost.arith import ceil_div, round_up, unpermuted
from npusched.cost.kinds import Unit, unit_of
from npusched.cost.types import BlockConfig, CostOp, Traversal
from npusched.errors import TargetError
from npusched.graph.types import Kernel, KernelKind, Shape4, Upscale
from npusched.hardware.target import AcceleratorU55, Block

SUBKERNEL = 8
"""Largest height and width of the window that is processed at once (VELA_SPEC §1.1)."""

BANK_BYTES = 1024
"""Size of a SHRAM bank (VELA_SPEC §1.1)."""

DEPTH_SPLIT = 16
"""Granule in channels of OFM blocks below the full depth (VELA_SPEC §1.1)."""

_IntArray = npt.NDArray[np.int64]
_FloatArray = npt.NDArray[np.float32]


class _Query(msgspec.Struct, frozen=True):
    """What the search depends on: shapes (n, h, w, c), kernel, element widths."""

    unit: Unit
    ifm: Shape4
    ifm2: Shape4 | None
    ofm: Shape4
    ifm_bits: int
    kernel: Kernel
    upscale: Upscale = Upscale.NONE
    scaled: bool = True
    lut_bytes: int = 0


class _Grid(msgspec.Struct, frozen=True):
    """All candidates: OFM block axes, IFM block axes, fitted OFM height.

    Every array spans the axes (depth, height, width) that it depends on and has size 1 along the
    others, so the arrays combine by broadcasting; flattened, that is the search order.
    """

    h: _IntArray
    w: _IntArray
    c: _IntArray
    ifm_h: _IntArray
    ifm_w: _IntArray
    ifm_c: _IntArray
    fit_h: _IntArray


def find_block(accelerator: AcceleratorU55, op: CostOp) -> BlockConfig:
    """Return the block that Vela 5.2 chooses for ``op`` (its OFM may be a stripe).

    Raises TargetError if no block fits into SHRAM (never seen for kernels that are legal).
    """
    query = _query(accelerator, op)
    if op.kind is KernelKind.MATMUL:
        query = _matmul_sum_query(accelerator, query)
    return _search(accelerator, query)


def find_matmul_multiply_block(accelerator: AcceleratorU55, op: CostOp) -> BlockConfig:
    """Return the block of the hidden multiplication inside a MatMul (VELA_SPEC_2 §3)."""
    query = _query(accelerator, op)
    first = _matmul_fit(accelerator, query.ifm)
    second = (1, query.ofm[1], 1, (query.ifm2 or query.ifm)[3])
    multiply = replace(
        query, unit=Unit.ELEMENTWISE, ifm=first, ifm2=second, ofm=first, kernel=Kernel()
    )
    return _search(accelerator, multiply)


def uses_wide_accumulator(accelerator: AcceleratorU55, op: CostOp) -> bool:
    """True if the kernel accumulates in 40 bits (VELA_SPEC §1.1, VELA_SPEC_2 §3)."""
    unit = unit_of(accelerator, op.kind)
    if unit is Unit.MATMUL:
        return False
    return op.ifm.bits == 16 and unit is not Unit.POOL and op.scaled


def _query(accelerator: AcceleratorU55, op: CostOp) -> _Query:
    """Translate the op; 32- and 64-bit copies are searched as 16-bit ones of more channels."""
    ifm, ifm2, ofm, bits = op.ifm, op.ifm2, op.written.shape, op.ifm.bits
    ofm = unpermuted(ofm, op.transpose)
    ifm_shape = ifm.shape
    if op.kind is KernelKind.MEMORY_COPY and bits > 16:
        times = 2 if bits == 32 else 4
        ifm_shape, ofm, bits = _deepened(ifm.shape, times), _deepened(ofm, times), 16
    return _Query(
        unit=unit_of(accelerator, op.kind),
        ifm=ifm_shape,
        ifm2=ifm2.shape if ifm2 is not None else None,
        ofm=ofm,
        ifm_bits=bits,
        kernel=op.kernel,
        upscale=op.upscale,
        scaled=op.scaled,
        lut_bytes=2048 if op.lut_bytes else 0,
    )


def _deepened(shape: Shape4, times: int) -> Shape4:
    n, h, w, c = shape
    return (n, h, w, c * times)


def _matmul_fit(accelerator: AcceleratorU55, shape: Shape4) -> Shape4:
    """Split the longer axis so that consecutive blocks do not wait for each other."""
    n, h, w, c = shape
    limit = accelerator.max_ofm_block
    size, bound = (h, limit.h) if h > limit.h else (w, limit.w)
    if size <= bound:
        divider = 3 if size >= 12 else 2 if size >= 8 else 1
        size = ceil_div(size, divider)
    return (n, size, w, c) if h > limit.h else (n, h, size, c)


def _matmul_sum_query(accelerator: AcceleratorU55, query: _Query) -> _Query:
    """The reduction of a MatMul: 32-bit IFM, one output column."""
    h = query.ofm[1]
    return replace(
        query,
        unit=Unit.REDUCE_SUM,
        ifm=_matmul_fit(accelerator, query.ifm),
        ifm2=(1, h, 1, (query.ifm2 or query.ifm)[3]),
        ofm=_matmul_fit(accelerator, (1, h, query.ifm[2], 1)),
        ifm_bits=32,
        kernel=Kernel(),
    )


def legal_blocks(accelerator: AcceleratorU55, op: CostOp) -> tuple[BlockConfig, ...]:
    """Every block that fits ``op``; of those that cut its OFM into as many pieces the smallest.

    None for a MatMul, which has two blocks.
    """
    if op.kind is KernelKind.MATMUL:
        return ()
    query = _query(accelerator, op)
    grid, fits, traversal = _all_blocks(accelerator, query)
    _, ofm_h, ofm_w, _ = query.ofm
    found = []
    for h in smallest_per_count(grid.h[0, :, 0], ofm_h):
        for w in smallest_per_count(grid.w[0, 0, :], ofm_w):
            for d in range(len(grid.c)):
                if fits[d, h, w]:
                    blocks = _blocks_at(grid, d, h, w)
                    found.append(BlockConfig(*blocks, accelerator.ofm_ublock, traversal))
    return tuple(found)


def smallest_per_count(sizes: _IntArray, extent: int) -> list[int]:
    """Indices of rising block sizes: for each number of blocks in ``extent`` the first one."""
    counts = -(-extent // sizes)
    return [k for k in range(len(sizes)) if k == 0 or counts[k] != counts[k - 1]]


def _all_blocks(
    accelerator: AcceleratorU55, query: _Query
) -> tuple[_Grid, npt.NDArray[np.bool_], Traversal]:
    """All candidates, which of them fit, and the traversal that goes with them."""
    larger = _larger_ifm(query)
    part_kernel = query.unit is Unit.CONV and _prefers_part_kernel(
        larger[3], query.ifm_bits, query.kernel
    )
    grid = _candidates(accelerator, query, larger[3], part_kernel)
    if query.unit is Unit.DEPTHWISE:
        traversal = Traversal.DEPTHWISE
    else:
        traversal = Traversal.PART_KERNEL if part_kernel else Traversal.DEPTH_FIRST
    return grid, _fits(accelerator, query, grid), traversal


def _search(accelerator: AcceleratorU55, query: _Query) -> BlockConfig:
    """Evaluate all candidates and apply the tie rules."""
    larger = _larger_ifm(query)
    grid, fits, traversal = _all_blocks(accelerator, query)
    if not fits.any():
        raise TargetError(
            f"no block of {accelerator.name} fits a kernel",
            f"{query.unit.value}, IFM {query.ifm}, OFM {query.ofm}, {query.ifm_bits} bits",
            "report the model: this should not happen for kernels that the NPU supports",
        )
    cost = np.where(fits, _cost(query, grid, larger), np.float32(np.inf))
    ofm_block, ifm_block = _choose(grid, cost, larger)
    return BlockConfig(
        ofm_block=ofm_block,
        ifm_block=ifm_block,
        ofm_ublock=accelerator.ofm_ublock,
        traversal=traversal,
    )


def _larger_ifm(query: _Query) -> Shape4:
    """The input of more elements (the first on a tie)."""
    if query.ifm2 is not None and _volume(query.ifm2) > _volume(query.ifm):
        return query.ifm2
    return query.ifm


def _volume(shape: Shape4) -> int:
    n, h, w, c = shape
    return n * h * w * c


def _prefers_part_kernel(channels: int, ifm_bits: int, kernel: Kernel) -> bool:
    """True if walking part of the kernel uses the MACs at least as well as walking the depth."""
    if channels <= 8:
        return True
    taps = kernel.h * kernel.w
    depth_use = channels / round_up(channels, 32 if ifm_bits == 8 else 16)
    part_use = channels / round_up(channels, 8) * (taps / round_up(taps, 4 if ifm_bits == 8 else 2))
    return part_use >= depth_use


def _equal_depth(unit: Unit) -> bool:
    """True if IFM and OFM blocks have the same channels."""
    return unit in (Unit.DEPTHWISE, Unit.POOL, Unit.ELEMENTWISE)


@lru_cache(maxsize=4096)
def _depths(accelerator: AcceleratorU55, channels: int) -> _IntArray:
    """OFM block depths to try: multiples of 16 below the OFM's depth, micro-blocks from there."""
    step = accelerator.ofm_ublock.c
    end = round_up(min(channels, accelerator.max_ofm_block.c), step)
    depth = max(step, min(end, DEPTH_SPLIT))
    depths: list[int] = []
    while True:
        if depth < channels:
            depth = round_up(depth, DEPTH_SPLIT)
        if depth > end:
            return np.array(depths)
        depths.append(depth)
        depth += step


def _candidates(
    accelerator: AcceleratorU55, query: _Query, channels: int, part_kernel: bool
) -> _Grid:
    """List every block in search order (depth outermost, width innermost)."""
    ublock, limit = accelerator.ofm_ublock, accelerator.max_ofm_block
    _, ofm_h, ofm_w, ofm_c = query.ofm
    kernel, upscale = query.kernel, query.upscale
    heights, ifm_heights = _axis(
        min(ofm_h, limit.h), ublock.h, kernel.stride_h, kernel.dilated_h, upscale
    )
    widths, ifm_widths = _axis(
        min(ofm_w, limit.w), ublock.w, kernel.stride_w, kernel.dilated_w, upscale
    )
    c = _depths(accelerator, ofm_c)[:, None, None]
    h, ifm_h = heights[None, :, None], ifm_heights[None, :, None]
    w, ifm_w = widths[None, None, :], ifm_widths[None, None, :]
    ifm_c = (
        c
        if _equal_depth(query.unit)
        else np.full((1, 1, 1), _ifm_depth(accelerator, query, channels, part_kernel))
    )
    one_row = ofm_h == 1 and kernel.h == 1 and ublock.h == 2
    return _Grid(h, w, c, ifm_h, ifm_w, ifm_c, np.minimum(h, ofm_h) if one_row else h)


def _ifm_depth(accelerator: AcceleratorU55, query: _Query, channels: int, part_kernel: bool) -> int:
    """Channels of the IFM block where it does not follow the OFM block."""
    if query.ifm_bits == 16:
        return round_up(min(channels, 16), 4)
    return round_up(min(channels, 16 if part_kernel else 32), accelerator.ifm_ublock.c)


@lru_cache(maxsize=4096)
def _axis(
    limit: int, granule: int, stride: int, window: int, upscale: Upscale
) -> tuple[_IntArray, _IntArray]:
    """OFM block sizes along height or width, and the IFM's that feed them.

    Both are multiples of the micro-block (``granule``); the last OFM size covers ``limit``.
    """
    sizes = np.arange(granule, round_up(limit, granule) + 1, granule)
    rounding = 1 if upscale is Upscale.NEAREST else 0
    factor = 1 if upscale is Upscale.NONE else 2
    needed = (sizes - 1) * stride + min(window, SUBKERNEL) + rounding
    needed = -(-needed // factor)
    return sizes, -(-needed // granule) * granule


def _fits(accelerator: AcceleratorU55, query: _Query, grid: _Grid) -> npt.NDArray[np.bool_]:
    """True where two IFM blocks and two accumulator blocks (or both inputs) fit into SHRAM."""
    granules = accelerator.bank_granules
    elementwise = query.unit is Unit.ELEMENTWISE
    ifm_granule = {
        8: granules.ifm8_elementwise if elementwise else granules.ifm8,
        16: granules.ifm16_elementwise if elementwise else granules.ifm16,
        32: granules.ifm32,
    }[query.ifm_bits]
    lut_banks = max(ceil_div(query.lut_bytes, BANK_BYTES), accelerator.shram_reserved_end_banks)
    free = accelerator.shram_banks - lut_banks - accelerator.shram_reserved_output_banks
    ifm_bytes = grid.ifm_h * grid.ifm_w * (-(-grid.ifm_c * (query.ifm_bits // 8) // 8) * 8)
    ifm_banks = _banks(ifm_bytes, ifm_granule)
    if elementwise:
        scalar = (1, 1, 1, 1) in (query.ifm, query.ifm2) and query.ifm_bits <= 16
        return np.asarray(ifm_banks * (1 if scalar else 2) <= free)
    wide = query.ifm_bits == 16 and query.unit is not Unit.POOL and query.scaled
    acc_bits, acc_granule = (40, granules.acc40) if wide else (32, granules.acc32)
    acc_bytes = grid.fit_h * grid.w * (-(-grid.c // 8) * acc_bits)
    return np.asarray(ifm_banks + _banks(acc_bytes, acc_granule) <= free)


def _banks(size_bytes: _IntArray, granule: int) -> _IntArray:
    """Banks of a double buffer, rounded to the granule."""
    banks = 2 * ((size_bytes + BANK_BYTES - 1) // BANK_BYTES)
    return (banks + granule - 1) // granule * granule


def _cost(query: _Query, grid: _Grid, ifm: Shape4) -> _FloatArray:
    """Fetches per output element in float32, in Vela's order of operations."""
    n, ofm_h, ofm_w, ofm_c = query.ofm
    elements = np.float32(n * ofm_h * ofm_w * ofm_c)
    if query.unit is Unit.ELEMENTWISE:
        cost = elements / (grid.h * grid.w * grid.c).astype(np.float32)
    else:
        cost = (_ifm_fetch(query, grid, ifm) + _weight_fetch(query, grid, ifm)) / elements
    whole_ifm_resident = _volume(ifm) < 2 * grid.ifm_h * grid.ifm_w * grid.ifm_c
    return np.where(whole_ifm_resident, cost / np.float32(2), cost).astype(np.float32)


def _ifm_fetch(query: _Query, grid: _Grid, ifm: Shape4) -> _FloatArray:
    _, ofm_h, ofm_w, ofm_c = query.ofm
    kernel = query.kernel
    repeats = ceil_div(kernel.dilated_w, SUBKERNEL) * ceil_div(kernel.dilated_h, SUBKERNEL)
    fetch = (grid.ifm_h * grid.ifm_w * (ifm[3] * repeats)).astype(np.float32)
    fetch = fetch * (np.float32(ofm_w) / grid.w.astype(np.float32))
    fetch = fetch * (np.float32(ofm_h) / grid.fit_h.astype(np.float32))
    if not _equal_depth(query.unit):
        fetch = fetch * (-(-ofm_c // grid.c)).astype(np.float32)
    return fetch


def _weight_fetch(query: _Query, grid: _Grid, ifm: Shape4) -> _FloatArray:
    if query.unit not in (Unit.CONV, Unit.DEPTHWISE):
        return np.zeros((1, 1, 1), dtype=np.float32)
    _, ofm_h, ofm_w, ofm_c = query.ofm
    areas = -(-ofm_h // grid.fit_h) * -(-ofm_w // grid.w)
    fetch = (areas * (query.kernel.h * query.kernel.w * ifm[3])).astype(np.float32)
    if query.unit is Unit.CONV:
        depth = grid.c.astype(np.float32)
        fetch = fetch * ((np.float32(ofm_c) / depth) * depth)
    return fetch


def _choose(grid: _Grid, cost: _FloatArray, ifm: Shape4) -> tuple[Block, Block]:
    """OFM and IFM block of the first cheapest candidate.

    On ties the last small one (≤ 4x4) with the widest IFM coverage.
    """
    flat = cost.ravel()
    ties = np.flatnonzero(flat == flat.min())
    index = int(ties[0])
    if len(ties) > 1:
        _, rows, columns = np.unravel_index(ties[1:], cost.shape)
        small = (grid.h[0, rows, 0] <= 4) & (grid.w[0, 0, columns] <= 4)
        if small.any():
            rows, columns = rows[small], columns[small]
            ifm_h, ifm_w = grid.ifm_h[0, rows, 0], grid.ifm_w[0, 0, columns]
            covered = np.minimum(ifm_h, ifm[1]) * np.minimum(ifm_w, ifm[2])
            coverage = np.float32(ifm[1] * ifm[2]) / np.maximum(covered, 1).astype(np.float32)
            index = int(ties[1:][small][np.flatnonzero(coverage == coverage.min())[-1]])
    _, rows, columns = cost.shape
    return _blocks_at(grid, index // (rows * columns), index // columns % rows, index % columns)


def _blocks_at(grid: _Grid, d: int, h: int, w: int) -> tuple[Block, Block]:
    """OFM and IFM block at these indices of depth, height and width."""
    ifm_c = grid.ifm_c[min(d, len(grid.ifm_c) - 1), 0, 0]
    return (
        Block(int(grid.h[0, h, 0]), int(grid.w[0, 0, w]), int(grid.c[d, 0, 0])),
        Block(int(grid.ifm_h[0, h, 0]), int(grid.ifm_w[0, 0, w]), int(ifm_c)),
    )
