"""Cycles per output element of the output and activation stage ("AO").

Sources: VELA_SPEC §1.1, §1.2; VELA_SPEC_2 §3, §4; Vela 5.2.0 ``EstimateAOCyclesPerElement``.
"""

from __future__ import annotations

from npusched.cost.blocks_u55 import uses_wide_accumulator
from npusched.cost.kinds import (
    ACTIVATIONS,
    BINARY_ELEMENTWISE,
    RELU_LIKE,
    TABLE_LIKE,
    Unit,
    unit_of,
)
from npusched.cost.types import CostFm, CostOp
from npusched.graph.types import KernelKind, Reverse
from npusched.hardware.target import AcceleratorU55, AcceleratorU85

_DIV_CYCLES_PER_ELEMENT = 33.0
"""Vela 5.2.0, ``GetOutputCyclesPerElement``."""

_HALF_RATE_TRANSPOSES = ((1, 0, 2), (1, 2, 0), (2, 1, 0))
"""NWHC, NWCH and NCWH: transposes that exchange H and W take the slow activation column."""


def output_cycles_per_element_u55(accelerator: AcceleratorU55, op: CostOp, ofm: CostFm) -> float:
    """Cycles per element written on U55/U65: the slower of output stage and activation.

    ``ofm`` is what is written. Only the second op of the group selects the activation column;
    a Clamp costs nothing (VELA_SPEC_2 §3).
    """
    output = accelerator.output_cycles_per_element[_output_index_u55(accelerator, op, ofm)]
    column = 2
    if op.subs:
        follower = op.subs[0].kind
        column = 0 if follower in TABLE_LIKE else 1 if follower in RELU_LIKE else 2
    return max(output, accelerator.activation_cycles_per_element[column])


def _output_index_u55(accelerator: AcceleratorU55, op: CostOp, ofm: CostFm) -> int:
    elementwise = unit_of(accelerator, op.kind) is Unit.ELEMENTWISE
    if elementwise and op.ifm.bits == 32:
        return 1 if op.ifm2 is not None else 0
    if op.kind is KernelKind.MUL:
        return 2 if ofm.bits == 32 else 3
    if not elementwise and uses_wide_accumulator(accelerator, op):
        return 3
    if op.kind in (KernelKind.ADD, KernelKind.SUB):
        return 5
    return 6 if op.kind is KernelKind.MAX_POOL else 7


def output_cycles_per_element_u85(accelerator: AcceleratorU85, op: CostOp) -> float:
    """Cycles per element on U85: every chained op is a stage, activations share its stage.

    Stages add up; within a stage the slowest counts. A result that is fused or chained goes to the
    chain buffer (VELA_SPEC_2 §4).
    """
    widths = [sub.ifm_bits for sub in op.subs] + [op.written.bits]
    if _shares_stage(op.kind):
        stage = _activation_cycles(accelerator, op.transpose, op.reverse)
    else:
        stage = _stage_cycles(
            accelerator,
            op.kind,
            op.ifm,
            ofm_bits=widths[0] if op.subs else op.ofm.bits,
            ofm=op.ofm,
            to_chain=bool(op.subs),
        )
    total = 0.0
    for position, sub in enumerate(op.subs):
        last = position == len(op.subs) - 1
        if _shares_stage(sub.kind):
            stage = max(stage, _activation_cycles(accelerator, sub.transpose, sub.reverse))
            continue
        total += stage
        first_input = sub.ifm or CostFm(sub.ofm.shape, sub.ifm_bits, sub.ofm.brick, None)
        stage = _stage_cycles(
            accelerator,
            sub.kind,
            first_input,
            ofm_bits=widths[position + 1],
            ofm=sub.ofm,
            to_chain=not last,
        )
    return total + stage


def _shares_stage(kind: KernelKind) -> bool:
    return kind in ACTIVATIONS or kind in (KernelKind.REVERSE, KernelKind.TRANSPOSE)


def _activation_cycles(
    accelerator: AcceleratorU85, transpose: tuple[int, int, int] | None, reverse: Reverse
) -> float:
    slow = transpose in _HALF_RATE_TRANSPOSES or reverse is Reverse.W
    return accelerator.activation_cycles_per_element[1 if slow else 0]


def _stage_cycles(
    accelerator: AcceleratorU85,
    kind: KernelKind,
    ifm: CostFm,
    *,
    ofm_bits: int,
    ofm: CostFm,
    to_chain: bool,
) -> float:
    """Output cost of one non-activation op."""
    if kind is KernelKind.DIV:
        return _DIV_CYCLES_PER_ELEMENT
    if kind is KernelKind.RESIZE:
        return _resize_cycles(accelerator, ifm, ofm)
    table = accelerator.output_cycles_per_element
    if to_chain and 32 in (ifm.bits, ofm_bits):
        return table[4]
    if ofm_bits == 64:
        return table[3]
    if kind in BINARY_ELEMENTWISE and ifm.bits == 32:
        return table[5 if ofm_bits == 32 else 4]
    return table[{32: 2, 16: 1}.get(ofm_bits, 0)]


def _resize_cycles(accelerator: AcceleratorU85, ifm: CostFm, ofm: CostFm) -> float:
    """Wide enough upscaling reaches the fast rate (VELA_SPEC_2 §4)."""
    ratio = min((o + i // 2) // i for i, o in zip(ifm.shape[1:3], ofm.shape[1:3], strict=True))
    column = 0 if ifm.bits == 8 else 1
    if ratio >= accelerator.macs_per_cycle // 512:
        return accelerator.resize_high_cycles_per_element[column]
    return accelerator.resize_low_cycles_per_element[column]
