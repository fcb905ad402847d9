"""Block configuration of a kernel on any family, memoised.

A block depends on the accelerator, shapes, widths and layouts, never on memories, so ops that
differ only in their memories share one search.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from npusched.cost import blocks_u55
from npusched.cost.kinds import Unit, unit_of
from npusched.cost.types import BlockConfig, CostFm, CostOp, CostSub, Traversal
from npusched.hardware.target import Accelerator, AcceleratorU55, Block

_UNIT_BLOCK = Block(1, 1, 1)


@lru_cache(maxsize=65536)
def find_block(accelerator: Accelerator, op: CostOp) -> BlockConfig:
    """Return the block config that Vela 5.2 chooses for ``op``; its OFM may be a stripe.

    Kernels without a block (DMA ones such as Gather) get a block of one element. Raises TargetError
    if nothing fits into the accelerator's internal memory.
    """
    if unit_of(accelerator, op.kind) is Unit.DMA:
        return BlockConfig(_UNIT_BLOCK, _UNIT_BLOCK, _UNIT_BLOCK, Traversal.DEPTH_FIRST)
    return _search(accelerator, _without_memories(op))


@lru_cache(maxsize=16384)
def legal_blocks(accelerator: Accelerator, op: CostOp) -> tuple[BlockConfig, ...]:
    """Blocks that ``op`` may have, where they can be enumerated (see the families' modules)."""
    if unit_of(accelerator, op.kind) is Unit.DMA:
        return ()
    if isinstance(accelerator, AcceleratorU55):
        return blocks_u55.legal_blocks(accelerator, op)
    from npusched.cost import blocks_u85

    return blocks_u85.legal_blocks(accelerator, op)


@lru_cache(maxsize=65536)
def find_matmul_multiply_block(accelerator: AcceleratorU55, op: CostOp) -> BlockConfig:
    """Return the block of the multiplication hidden in a U55/U65 MatMul (VELA_SPEC_2 §3)."""
    return blocks_u55.find_matmul_multiply_block(accelerator, op)


@lru_cache(maxsize=65536)
def _search(accelerator: Accelerator, op: CostOp) -> BlockConfig:
    if isinstance(accelerator, AcceleratorU55):
        return blocks_u55.find_block(accelerator, op)
    from npusched.cost import blocks_u85

    return blocks_u85.find_block(accelerator, op)


def _without_memories(op: CostOp) -> CostOp:
    return replace(
        op,
        ifm=_forget(op.ifm),
        ifm2=None if op.ifm2 is None else _forget(op.ifm2),
        ofm=_forget(op.ofm),
        subs=tuple(_forget_sub(sub) for sub in op.subs),
    )


def _forget(fm: CostFm) -> CostFm:
    return replace(fm, memory=None)


def _forget_sub(sub: CostSub) -> CostSub:
    return replace(
        sub,
        ofm=_forget(sub.ofm),
        ifm=None if sub.ifm is None else _forget(sub.ifm),
        ifm2=None if sub.ifm2 is None else _forget(sub.ifm2),
        vela_ofm=None,
    )
