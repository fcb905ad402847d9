"""How the SHRAM is divided for a block that is not the template's (EMIT.md §4 "SHRAM")."""

from __future__ import annotations

from dataclasses import replace

from npusched.errors import EmitError
from npusched.hardware.target import AcceleratorU55, Block
from npusched.sim.program import LUT_BYTES
from npusched.sim.shram import BANK_BYTES, accumulator_banks, ifm_banks
from npusched.sim.state import KernelState
from npusched.vela.stream import Register, StreamOpKind


def shram_registers(
    state: KernelState, block: Block, accelerator: AcceleratorU55, rows: int | None = None
) -> dict[int, int]:
    """Return IB_END, AB_START and IFM2_IB_START of a kernel with another OFM block.

    ``rows``: of the stripe (a single one needs fewer accumulators), None = all. Raises EmitError
    if the block does not fit.
    """
    ofm = state.ofm if rows is None else replace(state.ofm, h=rows)
    state = replace(state, block=block, ofm=ofm)
    tables = -(-LUT_BYTES // BANK_BYTES) if state.table is not None else 0
    top = accelerator.shram_banks - max(tables, accelerator.shram_reserved_end_banks)
    first = accelerator.shram_reserved_output_banks
    banks = ifm_banks(state, accelerator)
    if state.kind is StreamOpKind.ELEMENTWISE:
        needs_two = state.ifm2 is not None or state.ifm.dtype.itemsize > 2
        second = first + banks
        if second + (banks if needs_two else 0) > top:
            raise _too_large(state, block, second + banks, top)
        found = {int(Register.IFM_IB_END): top, int(Register.AB_START): top}
        if state.is_binary:
            found[Register.IFM2_IB_START] = second
        return found
    end = first + banks
    start = top - accumulator_banks(state, accelerator)
    if end > start:
        raise _too_large(state, block, end, start)
    return {int(Register.IFM_IB_END): end, int(Register.AB_START): start}


def _too_large(state: KernelState, block: Block, need: int, have: int) -> EmitError:
    return EmitError(
        f"cannot emit the plan: the block of {state.label} does not fit",
        f"{block.h} x {block.w} x {block.c} needs {need} banks of SHRAM, {have} are free",
        "plan without --allow block-choice",
    )
