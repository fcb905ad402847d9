"""Whether a kernel's blocks fit the SHRAM as its registers divide it (EMIT.md §4 "SHRAM").

The SHRAM holds, in banks of 1 KiB: 2 banks for output, two IFM blocks, two accumulator blocks and
the tables. Banks are given out in granules that depend on the data width (VELA_SPEC §1.1).
"""

from __future__ import annotations

from npusched.graph.types import Upscale
from npusched.hardware.target import AcceleratorU55, Block
from npusched.sim.hazards import Hazard, HazardKind
from npusched.sim.program import LUT_BYTES, LoadedKernel, Program
from npusched.sim.state import KernelState
from npusched.sim.views import Pool
from npusched.vela.stream import StreamOpKind

BANK_BYTES = 1024
SUB_KERNEL = 8

_ACCUMULATOR_BITS = {0: 32, 1: 40}


def check_shram(program: Program, accelerator: AcceleratorU55) -> tuple[Hazard, ...]:
    """Return the kernels whose blocks are illegal or do not fit."""
    found = []
    for kernel in program.kernels:
        state = kernel.state
        why = _illegal(state, accelerator) or _misfit(kernel, accelerator)
        if why:
            found.append(
                Hazard(
                    kind=HazardKind.SHRAM,
                    offset_bytes=state.offset_bytes,
                    where=state.label,
                    why=why,
                )
            )
    return tuple(found)


def _illegal(state: KernelState, accelerator: AcceleratorU55) -> str:
    """Return why the OFM block is not one the hardware can do, "" if it is."""
    block, limit, ublock = state.block, accelerator.max_ofm_block, accelerator.ofm_ublock
    name = f"OFM block {block.h} x {block.w} x {block.c}"
    if block.h > limit.h or block.w > limit.w or block.c > limit.c:
        return f"{name} exceeds {limit.h} x {limit.w} x {limit.c}"
    if block.h % ublock.h or block.w % ublock.w or block.c % ublock.c:
        return f"{name} is no multiple of the micro-block {ublock.h} x {ublock.w} x {ublock.c}"
    if block.c % 16 and block.c < state.ofm.c:
        return f"{name} splits the depth at no multiple of 16"
    return ""


def _misfit(kernel: LoadedKernel, accelerator: AcceleratorU55) -> str:
    """Return what does not fit, "" if all does."""
    state = kernel.state
    ib_end, ab_start, second = state.shram
    tables = -(-LUT_BYTES // BANK_BYTES) if state.table is not None else 0
    top = accelerator.shram_banks - max(tables, accelerator.shram_reserved_end_banks)
    first = accelerator.shram_reserved_output_banks
    ifm = ifm_banks(state, accelerator)
    if state.kind is StreamOpKind.ELEMENTWISE:
        start = first
        if state.ifm2 is not None:
            if second < first + ifm:
                return f"the IFM needs {ifm} banks, {second - first} are set aside"
            start = second
        if ib_end < start + ifm:
            return f"an IFM needs {ifm} banks, {ib_end - start} are set aside"
        return f"IFMs end at bank {ib_end}, {top} are free" if ib_end > top else ""
    if ib_end < first + ifm:
        return f"the IFM needs {ifm} banks, {ib_end - first} are set aside"
    accumulators = accumulator_banks(state, accelerator)
    if ab_start < ib_end:
        return f"accumulators begin at bank {ab_start}, in front of the IFM's end {ib_end}"
    if ab_start + accumulators > top:
        return f"accumulators need {accumulators} banks from {ab_start}, {top} are free"
    return ""


def ifm_banks(state: KernelState, accelerator: AcceleratorU55) -> int:
    """Return the banks of two IFM blocks."""
    granules, size = accelerator.bank_granules, state.ifm.dtype.itemsize
    elementwise = state.kind is StreamOpKind.ELEMENTWISE
    granule = {
        1: granules.ifm8_elementwise if elementwise else granules.ifm8,
        2: granules.ifm16_elementwise if elementwise else granules.ifm16,
        4: granules.ifm32,
    }[size]
    block = ifm_block(state, accelerator)
    bytes_ = block.h * block.w * _round_up(block.c * size, 8)
    return _round_up(2 * -(-bytes_ // BANK_BYTES), granule)


def ifm_block(state: KernelState, accelerator: AcceleratorU55) -> Block:
    """Return the IFM block that feeds an OFM block (rows, columns, channels)."""
    window, ublock = state.window, accelerator.ifm_ublock
    oh = _round_up(state.block.h, accelerator.ofm_ublock.h)
    h = _extent(oh, window.stride_h, window.dilated_h, state.upscale, ublock.h)
    w = _extent(state.block.w, window.stride_w, window.dilated_w, state.upscale, ublock.w)
    return Block(h, w, _ifm_depth(state))


def _ifm_depth(state: KernelState) -> int:
    """Channels of an IFM block."""
    if state.kind is not StreamOpKind.CONV and state.function is not Pool.REDUCE_SUM:
        return state.block.c
    wide = state.ifm.dtype.itemsize == 2
    depth = min(state.ifm.c, 16 if state.is_part_kernel or wide else 32)
    return _round_up(depth, 4 if wide else 8)


def _extent(ofm: int, stride: int, kernel: int, upscale: Upscale, granule: int) -> int:
    """Rows or columns of an IFM block."""
    needed = (ofm - 1) * stride + min(kernel, SUB_KERNEL)
    if upscale is not Upscale.NONE:
        needed = -(-(needed + (upscale is Upscale.NEAREST)) // 2)
    return _round_up(needed, granule)


def accumulator_banks(state: KernelState, accelerator: AcceleratorU55) -> int:
    """Return the banks of two accumulator blocks."""
    granules, block = accelerator.bank_granules, state.block
    bits = _ACCUMULATOR_BITS[state.accumulator]
    h = min(block.h, state.ofm.h) if state.ofm.h == 1 and state.window.h == 1 else block.h
    bytes_ = h * block.w * _round_up(block.c, 8) * bits // 8
    granule = granules.acc40 if bits == 40 else granules.acc32
    return _round_up(2 * -(-bytes_ // BANK_BYTES), granule)


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
