"""Cycles that the MAC array needs per OFM block (VELA_SPEC §3.2; VELA_SPEC_2 §3, §4).

Sources: Vela 5.2.0, ``EstimateMacCyclesPerBlock`` of both families.
"""

from __future__ import annotations

from npusched.cost.arith import ceil_div
from npusched.cost.blocks_u55 import SUBKERNEL, uses_wide_accumulator
from npusched.cost.kinds import Unit, unit_of
from npusched.cost.types import BlockConfig, CostFm, CostOp, Traversal
from npusched.hardware.target import Accelerator, AcceleratorU55, AcceleratorU85, Block

_SMALLEST_MACS = 32
"""MACs per cycle of the U55-32, whose pipeline has its own delays (VELA_SPEC §3.2)."""


def ofm_micro_block(accelerator: Accelerator, op: CostOp, ofm: CostFm, block: BlockConfig) -> Block:
    """Micro-block in use: U55/U65 stretch theirs to 1x4 for one-row convolutions."""
    micro = block.ofm_ublock
    if not isinstance(accelerator, AcceleratorU55):
        return micro
    one_row = ofm.shape[1] == 1 and ofm.shape[2] % 2 == 0 and op.kernel.h == 1
    if micro.h == 2 and one_row and unit_of(accelerator, op.kind) is Unit.CONV:
        return Block(1, 4, micro.c)
    return micro


def mac_cycles_per_block(
    accelerator: Accelerator, op: CostOp, ofm: CostFm, block: BlockConfig
) -> int:
    """MAC cycles of one OFM block, clipped to the feature maps."""
    unit = unit_of(accelerator, op.kind)
    micro = ofm_micro_block(accelerator, op, ofm, block)
    n_h = ceil_div(min(ofm.shape[1], block.ofm_block.h), micro.h)
    n_w = ceil_div(min(ofm.shape[2], block.ofm_block.w), micro.w)
    n_c = ceil_div(min(ofm.shape[3], block.ofm_block.c), micro.c)
    ifm_depth = min(op.ifm.shape[3], block.ifm_block.c)
    cycles = 0
    for taps in sub_kernels(op):
        steps = _kernel_steps(unit, op, block, taps)
        cycles += _work_cycles(accelerator, op, block, unit, taps, steps, n_h * n_w, n_c, ifm_depth)
        delay = _delay_cycles(accelerator, op, steps, n_h, n_w, n_c)
        if unit is Unit.CONV and block.traversal is Traversal.PART_KERNEL:
            delay *= ceil_div(ifm_depth, 8)
        cycles += delay
    if unit in (Unit.CONV, Unit.REDUCE_SUM):
        cycles *= ceil_div(op.ifm.shape[3], ifm_depth)
    return cycles // accelerator.cores if isinstance(accelerator, AcceleratorU55) else cycles


def sub_kernels(op: CostOp) -> list[int]:
    """Taps of each 8x8 part of the kernel."""
    kernel = op.kernel
    return [
        min(kernel.h - y, SUBKERNEL) * min(kernel.w - x, SUBKERNEL)
        for x in range(0, kernel.w, SUBKERNEL)
        for y in range(0, kernel.h, SUBKERNEL)
    ]


def _kernel_steps(unit: Unit, op: CostOp, block: BlockConfig, taps: int) -> int:
    """Passes over the block that one sub-kernel takes."""
    if unit is Unit.POOL:
        return 1
    if unit is Unit.DEPTHWISE:
        return ceil_div(taps, 4)
    if unit is Unit.CONV and block.traversal is Traversal.PART_KERNEL:
        return ceil_div(taps, 2 if op.ifm.bits == 16 else 4)
    return taps


def _work_cycles(
    accelerator: Accelerator,
    op: CostOp,
    block: BlockConfig,
    unit: Unit,
    taps: int,
    steps: int,
    n_hw: int,
    n_c: int,
    ifm_depth: int,
) -> int:
    """MAC cycles of one sub-kernel over one block, pipeline delays apart."""
    bits = op.ifm.bits
    u55 = isinstance(accelerator, AcceleratorU55)
    decode = 32 * block.ofm_ublock.c // (8 if u55 else 8 * accelerator.cores)
    if unit is Unit.POOL:
        per_tap = 1 if u55 and accelerator.macs_per_cycle == _SMALLEST_MACS else bits // 2
        return max(4, taps) * n_hw * n_c * per_tap
    if unit is Unit.DEPTHWISE:
        return max(decode, 4 * n_hw * (bits // 8)) * steps * n_c
    if unit is Unit.CONV and block.traversal is Traversal.PART_KERNEL:
        cycles = max(decode, 4 * n_hw) * steps * n_c * ceil_div(ifm_depth, 8)
    elif u55:
        cycles = max(decode, 4 * n_hw) * steps * n_c
    else:
        cycles = max(decode, ifm_depth // 8 * n_hw) * steps * n_c * (bits // 8)
    return cycles // 2 if op.sparse else cycles


def _delay_cycles(
    accelerator: Accelerator, op: CostOp, steps: int, n_h: int, n_w: int, n_c: int
) -> int:
    """Pipeline bubbles of blocks that are a single micro-block in area."""
    wide = _wide(accelerator, op)
    smallest = (
        isinstance(accelerator, AcceleratorU55) and accelerator.macs_per_cycle == _SMALLEST_MACS
    )
    if smallest:
        delay = 7 if wide else 3
    else:
        delay = 3 if wide and accelerator.macs_per_cycle <= 128 else 2
    cycles = 0
    if n_h * n_w == 1:
        if n_c == 1:
            cycles = delay * steps
        elif steps > 1:
            cycles = delay * (steps - 1) * n_c
    if smallest and wide and n_c > 1 and 1 in (n_h, n_w):
        cycles += delay * n_c
    return cycles


def _wide(accelerator: Accelerator, op: CostOp) -> bool:
    """40-bit (U55/U65) or 48-bit (U85) accumulators."""
    if isinstance(accelerator, AcceleratorU55):
        return uses_wide_accumulator(accelerator, op)
    return uses_wide_accumulator_u85(accelerator, op)


def uses_wide_accumulator_u85(accelerator: AcceleratorU85, op: CostOp) -> bool:
    """True if a U85 kernel accumulates in 48 bits (VELA_SPEC_2 §9)."""
    if op.ifm.bits > 32 or op.written.bits > 32:
        return True
    pooling = unit_of(accelerator, op.kind) in (Unit.POOL, Unit.REDUCE_SUM)
    return op.ifm.bits == 16 and op.scaled and not pooling
