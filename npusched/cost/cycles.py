"""NPU cycles of one kernel, memories apart: MAC work, output stage, edges (VELA_SPEC §3.1-3.3).

An op runs as a pipeline of OFM blocks: while the MACs work on one block, the output stage finishes
the one before. The slower of the two sets the pace; the other shows once, at the end. The first
IFM block's arrival and the last OFM block's departure are added when the op is the first or the
last of a back-to-back sequence. Sources: VELA_SPEC_2 §2-§4; Vela 5.2.0 ``EstimateMacOpCycles``,
``EstimateElementwiseCycles``, ``EstimateMatMulCycles``.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from npusched.cost.arith import bandwidth, ceil_div, transfer_cycles
from npusched.cost.blocks import find_matmul_multiply_block
from npusched.cost.bursts import drain_cycles, fill_cycles, fm_memory, inflated_bytes
from npusched.cost.kinds import MAC_UNITS, Unit, unit_of
from npusched.cost.macs import mac_cycles_per_block, ofm_micro_block
from npusched.cost.output import output_cycles_per_element_u55, output_cycles_per_element_u85
from npusched.cost.types import Basis, BlockConfig, CostFm, CostOp
from npusched.graph.types import KernelKind
from npusched.hardware.target import Accelerator, AcceleratorU55, Memory, Target

_SCALE_BYTES = 10
"""Encoded bias, scale and shift of one output channel (VELA_SPEC §5)."""


class NpuCycles(msgspec.Struct, frozen=True):
    """Parts of an op's NPU cycles. ``mac``, ``output``: totals of each pipeline stage."""

    total: int
    mac: int
    output: int
    fill: int
    drain: int


def npu_op_cycles(
    target: Target,
    op: CostOp,
    block: BlockConfig,
    *,
    basis: Basis,
    first: bool = True,
    last: bool = True,
    bias_memory: str | None = None,
) -> int:
    """NPU cycles of ``op`` with ``block``, DMA and memory limits apart.

    ``first``/``last``: charge the fill of the first block and the drain of the last one (depth
    slices run back to back). ``bias_memory`` supplies biases and scales; default: the constants'.
    """
    return npu_cycles(
        target, op, block, basis=basis, first=first, last=last, bias_memory=bias_memory
    ).total


def npu_cycles(
    target: Target,
    op: CostOp,
    block: BlockConfig,
    *,
    basis: Basis,
    first: bool = True,
    last: bool = True,
    bias_memory: str | None = None,
) -> NpuCycles:
    """Like ``npu_op_cycles``, with the parts that explain the total."""
    accelerator = _accelerator(target)
    unit = unit_of(accelerator, op.kind)
    if unit in MAC_UNITS:
        memory = target.const if bias_memory is None else target.memory(bias_memory)
        return _mac_op(target, op, block, basis, first=first, last=last, bias=memory)
    if unit in (Unit.ELEMENTWISE, Unit.RESIZE):
        return _elementwise_op(target, op, block, basis)
    if unit is Unit.MATMUL:
        return _matmul_op(target, op, block, basis)
    if unit is Unit.TRANSPOSE:
        return _transpose_op(target, op, block, basis)
    return NpuCycles(0, 0, 0, 0, 0)


def macs_of(accelerator: Accelerator, op: CostOp) -> int:
    """Multiply-accumulates as the hardware issues them (halved for 2:4 sparse weights)."""
    unit = unit_of(accelerator, op.kind)
    taps = op.kernel.h * op.kernel.w
    if unit is Unit.MATMUL:
        return op.ifm.elements * (op.ifm2 or op.ifm).shape[2]
    if unit not in MAC_UNITS:
        return 0
    macs = taps * pipeline_ofm(op).elements
    if unit in (Unit.CONV, Unit.REDUCE_SUM):
        macs *= op.ifm.shape[3]
    return macs // 2 if op.sparse else macs


def pipeline_ofm(op: CostOp) -> CostFm:
    """What the output stage produces: the OFM after fused followers, before chained ones."""
    ofm = op.ofm
    for sub in op.subs:
        if sub.chained:
            break
        ofm = sub.ofm
    return ofm


def _accelerator(target: Target) -> Accelerator:
    if target.accelerator is None:
        raise ValueError(f"{target.name} has no NPU")
    return target.accelerator


def _output_cycles(accelerator: Accelerator, op: CostOp, ofm: CostFm) -> float:
    if isinstance(accelerator, AcceleratorU55):
        return output_cycles_per_element_u55(accelerator, op, ofm)
    return output_cycles_per_element_u85(accelerator, op)


class _Pipeline(msgspec.Struct, frozen=True):
    """What a MAC op's cycles are made of: per block, except ``fill`` and ``drain``.

    ``scale_channels``: channels of a block whose scales are read, 0 if the op has none.
    """

    blocks: float
    mac: float
    output: float
    fill: int
    drain: int
    scale_channels: int


def _mac_op(
    target: Target,
    op: CostOp,
    block: BlockConfig,
    basis: Basis,
    *,
    first: bool,
    last: bool,
    bias: Memory,
) -> NpuCycles:
    """Pipeline of MACs and output stage over a fractional number of blocks."""
    parts = _pipeline(target, op, block, basis)
    blocks, mac, compute = parts.blocks, parts.mac, parts.output
    fill, drain = parts.fill, parts.drain
    output = compute
    if parts.scale_channels:
        reads = float(_SCALE_BYTES) * parts.scale_channels * bias.read_latency_cycles / 256
        output = max(compute, reads)
    exposed = abs(drain - fill) if blocks > 1 else 0
    issue = (exposed + mac + output) / 4
    paced_mac, paced_output = max(mac, issue), max(output, issue)
    if paced_mac > paced_output:
        total = int(paced_mac * blocks)
        if last:
            total += int(paced_output)
    else:
        total = int(paced_output * blocks + paced_mac)
    total += drain if last else 0
    total += fill if first else 0
    return NpuCycles(
        total=total,
        mac=int(mac * blocks + output),
        output=int(compute * blocks + mac),
        fill=fill,
        drain=drain,
    )


@lru_cache(maxsize=65536)
def _pipeline(target: Target, op: CostOp, block: BlockConfig, basis: Basis) -> _Pipeline:
    """What does not depend on who supplies the scales and what runs before and after."""
    accelerator = _accelerator(target)
    ofm = pipeline_ofm(op)
    n, ofm_h, ofm_w, ofm_c = ofm.shape
    ofm_block = block.ofm_block
    h, w, c = min(ofm_h, ofm_block.h), min(ofm_w, ofm_block.w), min(ofm_c, ofm_block.c)
    micro = ofm_micro_block(accelerator, op, ofm, block)
    in_block = ceil_div(h, micro.h) * ceil_div(w, micro.w) * ceil_div(c, micro.c)
    in_ofm = ceil_div(ofm_h, micro.h) * ceil_div(ofm_w, micro.w) * ceil_div(ofm_c, micro.c)
    if micro != block.ofm_ublock:
        in_ofm *= n  # the 1x4 micro-block has a batch axis in Vela, the others have none
    scaled = op.has_scales and unit_of(accelerator, op.kind) in (Unit.CONV, Unit.DEPTHWISE)
    return _Pipeline(
        blocks=in_ofm / in_block,
        mac=float(mac_cycles_per_block(accelerator, op, ofm, block)),
        output=float(math.ceil(_output_cycles(accelerator, op, ofm) * (h * w * c))),
        fill=fill_cycles(target, op, block, basis),
        drain=drain_cycles(target, ofm, block, basis),
        scale_channels=c if scaled else 0,
    )


def _elementwise_op(target: Target, op: CostOp, block: BlockConfig, basis: Basis) -> NpuCycles:
    """Output-stage bound, or bound by issuing blocks whose data must arrive."""
    accelerator = _accelerator(target)
    ofm = pipeline_ofm(op)
    elements = ofm.padded_elements
    per_element = _output_cycles(accelerator, op, ofm)
    output = math.ceil(per_element * elements)
    fill = fill_cycles(target, op, block, basis)
    drain = drain_cycles(target, ofm, block, basis)
    ofm_block = block.ofm_block
    volume = ofm_block.h * ofm_block.w * ofm_block.c
    issue = math.ceil((float(max(drain, fill)) / volume + per_element) / 4.0 * elements)
    return NpuCycles(max(issue, output), 0, output, fill, drain)


def _transpose_op(target: Target, op: CostOp, block: BlockConfig, basis: Basis) -> NpuCycles:
    """U55/U65 transposes: bound by memory alone (VELA_SPEC_2 §3)."""
    accelerator = _accelerator(target)
    ofm = pipeline_ofm(op)
    source, sink = fm_memory(target, op.ifm), fm_memory(target, ofm)
    read = inflated_bytes(accelerator, source, op.ifm, block.ifm_block, op.ifm.elements, read=True)
    written = inflated_bytes(
        accelerator, sink, ofm, block.ofm_block, ofm.padded_elements, read=False
    )
    cycles = max(
        transfer_cycles(read, bandwidth(source, basis)) + source.read_latency_cycles,
        transfer_cycles(written, bandwidth(sink, basis)) + sink.write_latency_cycles,
    )
    return NpuCycles(cycles, 0, 0, 0, 0)


def _matmul_op(target: Target, op: CostOp, block: BlockConfig, basis: Basis) -> NpuCycles:
    """U55/U65 MatMul: per column of IFM2 one multiplication and one sum (VELA_SPEC_2 §3)."""
    accelerator = _accelerator(target)
    if not isinstance(accelerator, AcceleratorU55) or op.ifm2 is None:
        raise ValueError("a compound MatMul needs two inputs and a U55 or U65")
    ofm = pipeline_ofm(op)
    columns = op.ifm2.shape[2]
    scratch = target.roles.arena
    n, h, w, _ = op.ifm.shape
    product = replace(
        op,
        kind=KernelKind.MUL,
        ifm2=replace(op.ifm2, shape=op.ifm.shape),
        ofm=CostFm(op.ifm.shape, 32, ofm.brick, scratch),
        subs=(),
    )
    total = replace(
        op,
        kind=KernelKind.REDUCE_SUM,
        ifm=replace(op.ifm, memory=scratch),
        ifm2=None,
        ofm=replace(ofm, shape=(n, h, w, 1)),
        scaled=False,  # summed in 32 bits
        subs=(),
    )
    multiply = _elementwise_op(target, product, find_matmul_multiply_block(accelerator, op), basis)
    reduce = _mac_op(target, total, block, basis, first=True, last=True, bias=target.const)
    return NpuCycles(
        total=(multiply.total + reduce.total) * columns,
        mac=(multiply.mac + reduce.mac) * columns,
        output=(multiply.output + reduce.output) * columns,
        fill=reduce.fill,
        drain=reduce.drain,
    )
