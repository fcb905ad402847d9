"""Block configuration of a kernel on Ethos-U85.

Three searches, as Vela does them (VELA_SPEC §2, VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp):
elementwise kernels have a closed form (here), depthwise and pool-like ones an area fit
(``u85_areafit``), the others an exhaustive search (``u85_exhaustive``). Results are memoised.
"""

from __future__ import annotations

from functools import lru_cache

from npusched.cost.arith import round_up, unpermuted
from npusched.cost.types import BlockConfig, CostOp, Traversal
from npusched.cost.u85_areafit import AreaProblem, fit_area
from npusched.cost.u85_exhaustive import every_block, search
from npusched.cost.u85_query import (
    ACC_DEPTH_GRANULE,
    BRICK_ELEMENTS,
    CHAIN_BUFFER_SLOTS,
    BlockQuery,
    BlockUnit,
    query_of,
)
from npusched.cost.u85_ublocks import choose_ublock, fixed_ifm_depth, prefers_part_kernel
from npusched.errors import TargetError
from npusched.graph.types import KernelKind, Shape4
from npusched.hardware.target import AcceleratorU85, Block

_ONE = Block(1, 1, 1)


def find_block(accelerator: AcceleratorU85, op: CostOp) -> BlockConfig:
    """Return the block config that Vela 5.2 chooses for ``op`` (or for a stripe of it).

    Blocks are (h, w, c) in elements, the OFM block in the axes of the result before a fused
    transpose. Gather and scatter run on the DMA engine and have 1 x 1 x 1 blocks. Raises
    TargetError if the accelerator has no micro-block or no block for the kernel, ValueError for a
    CPU op.
    """
    return _find(accelerator, query_of(op))


@lru_cache(maxsize=65536)
def _find(accelerator: AcceleratorU85, query: BlockQuery) -> BlockConfig:
    if query.unit is BlockUnit.DMA:
        return BlockConfig(_ONE, _ONE, _ONE, Traversal.DEPTH_FIRST)
    ublock = choose_ublock(accelerator, query)
    if ublock is None:
        raise _impossible(accelerator, query, "no micro-block of it takes this type")
    granule = _granule(query, ublock)
    limit = _block_limit(accelerator, query)
    if query.unit is BlockUnit.ELEMENTWISE:
        block = _elementwise_block(accelerator, query, ublock, granule, limit)
        return BlockConfig(block, block, ublock, Traversal.DEPTH_FIRST)
    depth = fixed_ifm_depth(accelerator, ublock, query)
    if _fits_area(query):
        problem = _area_problem(accelerator, query, ublock, granule, limit, depth)
        blocks = fit_area(problem)
    else:
        blocks = search(accelerator, query, ublock, granule, limit, depth)
    if blocks is None:
        raise _impossible(accelerator, query, "no block fits its buffers")
    return BlockConfig(*blocks, ublock, _traversal(query))


def legal_blocks(accelerator: AcceleratorU85, op: CostOp) -> tuple[BlockConfig, ...]:
    """Every block of a kernel that Vela searches exhaustively; none for the others.

    Of blocks that cut the OFM into as many pieces the smallest stands for all.
    """
    query = query_of(op)
    ublock = None if query.unit is BlockUnit.DMA else choose_ublock(accelerator, query)
    if ublock is None or query.unit is BlockUnit.ELEMENTWISE or _fits_area(query):
        return ()
    granule, limit = _granule(query, ublock), _block_limit(accelerator, query)
    depth = fixed_ifm_depth(accelerator, ublock, query)
    found = every_block(accelerator, query, ublock, granule, limit, depth)
    return tuple(BlockConfig(*blocks, ublock, _traversal(query)) for blocks in found)


def _traversal(query: BlockQuery) -> Traversal:
    if query.unit is BlockUnit.DEPTHWISE:
        return Traversal.DEPTHWISE
    return Traversal.PART_KERNEL if prefers_part_kernel(query) else Traversal.DEPTH_FIRST


def _granule(query: BlockQuery, ublock: Block) -> Block:
    """Steps of a block: the micro-block, 16 deep; 16 in the axis that becomes brick channels."""
    becomes_channels = query.transpose[2] if query.brick else 2
    return Block(
        16 if becomes_channels == 0 else ublock.h,
        16 if becomes_channels == 1 else ublock.w,
        ACC_DEPTH_GRANULE,
    )


def _block_limit(accelerator: AcceleratorU85, query: BlockQuery) -> Block:
    """Largest block, in the axes of the result before a transpose."""
    most = accelerator.max_ofm_block
    return Block(*unpermuted((1, most.h, most.w, most.c), query.transpose)[1:])


def _fits_area(query: BlockQuery) -> bool:
    """True if the kernel is blocked by the area fit."""
    if query.unit in {BlockUnit.DEPTHWISE, BlockUnit.REDUCE_SUM}:
        return True
    return query.pool_like and query.kind is not KernelKind.MEMORY_COPY


def _area_problem(
    accelerator: AcceleratorU85,
    query: BlockQuery,
    ublock: Block,
    granule: Block,
    limit: Block,
    depth: int,
) -> AreaProblem:
    ofm = _rounded(query.ofm, granule)
    most_c = granule.c if query.reverse_c else limit.c
    return AreaProblem(
        accelerator=accelerator,
        ublock=ublock,
        granule=granule,
        ofm=ofm,
        limit=Block(min(ofm.h, limit.h), min(ofm.w, limit.w), min(ofm.c, most_c)),
        ifm=Block(*query.ifm[1:]),
        window=query.window,
        ifm_bits=query.ifm_bits,
        fixed_depth=depth if query.unit is BlockUnit.REDUCE_SUM else 0,
        accumulators=accelerator.accumulator_buffer_bytes * 8 // query.accumulator_bits,
        inputs=accelerator.input_buffer_bytes * 8 // query.ifm_bits,
    )


def _elementwise_block(
    accelerator: AcceleratorU85, query: BlockQuery, ublock: Block, granule: Block, limit: Block
) -> Block:
    """Closed form: what the output buffer holds, or the chain buffer if an input is broadcast.

    Source: VELA_SPEC_2 §9; Vela 5.2.0, ethos_u85.cpp FindElementwiseConfig.
    """
    ofm = _rounded(query.ofm, granule)
    most = Block(
        min(ofm.h, limit.h),
        min(ofm.w, limit.w),
        min(ofm.c, granule.c if query.reverse_c else limit.c),
    )
    columns = accelerator.output_buffer_bytes * 8 // query.ifm_bits // granule.c
    slot_bytes = accelerator.chain_buffer_bytes // CHAIN_BUFFER_SLOTS
    chain_columns = slot_bytes // (BRICK_ELEMENTS * (query.ifm_bits // 8)) // ublock.h
    least_w = max(_tile(ofm.w, granule.w, min(columns, most.w)), granule.w)
    h = _tile(ofm.h, granule.h, most.h)
    c, w = _share(granule.c, most.c, columns, least_w)
    broadcast = _broadcast_axes(query)
    if "c" in broadcast:
        c, w = _tile(ofm.c, granule.c, most.c), chain_columns
        if broadcast == {"c"}:
            h, w = _share(ublock.h, most.h, chain_columns, least_w)
    elif "h" in broadcast:
        c, w = _share(BRICK_ELEMENTS, most.c, chain_columns, least_w)
    return Block(round_up(h, granule.h), round_up(w, granule.w), round_up(c, granule.c))


def _broadcast_axes(query: BlockQuery) -> set[str]:
    """Axes in which an input of a binary kernel is shorter than the OFM; none with a scalar."""
    if query.ifm2 is None or query.ifm == (1, 1, 1, 1) or query.ifm2 == (1, 1, 1, 1):
        return set()
    extents = zip("nhwc", query.ofm, query.ifm, query.ifm2, strict=True)
    return {axis for axis, out, first, second in extents if min(first, second) < out}


def _tile(extent: int, granule: int, tile: int) -> int:
    """``tile`` if it divides ``extent``, else the even share of one tile more, in granules."""
    if extent % tile == 0:
        return tile
    return max(round_up(extent // (extent // tile + 1), granule), granule)


def _share(value: int, most: int, available: int, needed: int) -> tuple[int, int]:
    """Spend what is available beyond ``needed`` on a multiple of ``value``; (value, left)."""
    factor = min(available // needed, most // value)
    return (value * factor, available // factor) if factor >= 2 else (value, available)


def _rounded(ofm: Shape4, granule: Block) -> Block:
    _, h, w, c = ofm
    return Block(round_up(h, granule.h), round_up(w, granule.w), round_up(c, granule.c))


def _impossible(accelerator: AcceleratorU85, query: BlockQuery, why: str) -> TargetError:
    return TargetError(
        f"{accelerator.name} cannot run {query.kind} on {query.ifm_bits}-bit data",
        f"{why}: IFM {query.ifm}, OFM {query.ofm}, {query.window}",
        "leave this op on the CPU, or change its type or shape",
        accelerator=accelerator.name,
        kernel=str(query.kind),
        ifm_bits=query.ifm_bits,
    )
