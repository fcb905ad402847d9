"""Bytes that a kernel moves, per memory and purpose, and the cycles its memories are busy.

Three byte counts are kept apart. *Transferred* bytes include brick padding and re-reads. *Burst*
bytes count every burst shorter than the memory's longest one as a whole one: they keep the memory
busy, so access cycles follow them. *Vela* bytes are the burst bytes that Vela 5.2 counts: it
leaves some streams out (a chained op's write beside an external input, the second input beside a
wide scalar, three quarters of a MatMul's scratch).
Sources: VELA_SPEC §3.4; VELA_SPEC_2 §3, §4; Vela 5.2.0 ``MeasureElementAccess``,
``ElementTransferToBytes``, ``MeasureAccessCycles``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from npusched.cost.arith import bandwidth, ceil_div, round_up, transfer_cycles
from npusched.cost.blocks_u55 import SUBKERNEL
from npusched.cost.bursts import Channel, channel_bandwidth, fm_memory, inflated_bytes
from npusched.cost.cycles import pipeline_ofm
from npusched.cost.kinds import ELEMENTWISE, MAC_UNITS, Unit, unit_of
from npusched.cost.types import Basis, BlockConfig, CostFm, CostOp, CostSub, Purpose, Transfer
from npusched.graph.types import BRICK_CHANNELS, KernelKind
from npusched.hardware.target import AcceleratorU55, AcceleratorU85, Block, Memory, Target


class Flow(msgspec.Struct, frozen=True):
    """One stream between a memory (by name) and the NPU."""

    memory: str
    purpose: Purpose
    channel: Channel
    transferred_bytes: int
    burst_bytes: int
    vela_bytes: int

    @property
    def is_write(self) -> bool:
        """True if the memory is written."""
        return self.channel is Channel.WRITE


@lru_cache(maxsize=65536)
def feature_map_flows(target: Target, op: CostOp, block: BlockConfig) -> tuple[Flow, ...]:
    """Streams of all feature maps of ``op``: inputs, result, scratch, chained ops' own maps."""
    assert target.accelerator is not None
    if isinstance(target.accelerator, AcceleratorU55):
        return _flows_u55(target, op, block)
    return _flows_u85(target, target.accelerator, op, block)


def weight_refetches(target: Target, op: CostOp, block: BlockConfig) -> int:
    """How often all weights are read: once per block row and column (0 = no weights)."""
    assert target.accelerator is not None
    if unit_of(target.accelerator, op.kind) not in (Unit.CONV, Unit.DEPTHWISE):
        return 0
    _, h, w, _ = pipeline_ofm(op).shape
    return ceil_div(h, block.ofm_block.h) * ceil_div(w, block.ofm_block.w)


def access_cycles(
    target: Target, flows: Sequence[Flow], basis: Basis
) -> tuple[tuple[str, int], ...]:
    """Cycles each memory is busy, by name in the target's order; memories without traffic: none.

    U85: also at least as long as its busiest AXI channel (VELA_SPEC_2 §4).
    """
    assert target.accelerator is not None
    vela = basis is Basis.VELA
    sizes: dict[str, int] = {}
    for flow in flows:
        size_bytes = flow.vela_bytes if vela else flow.burst_bytes
        sizes[flow.memory] = sizes.get(flow.memory, 0) + size_bytes
    result = []
    for memory in target.memories:
        if memory.name not in sizes:
            continue
        cycles = transfer_cycles(sizes[memory.name], bandwidth(memory, basis))
        if isinstance(target.accelerator, AcceleratorU85):
            cycles = max(cycles, _busiest_channel(target.accelerator, memory, flows, basis))
        result.append((memory.name, cycles))
    return tuple(result)


def _busiest_channel(
    accelerator: AcceleratorU85, memory: Memory, flows: Sequence[Flow], basis: Basis
) -> int:
    """Cycles of the busiest channel; what one carries for different purposes is timed apart."""
    streams: dict[tuple[Channel, Purpose], int] = defaultdict(int)
    for flow in flows:
        if flow.memory == memory.name:
            size_bytes = flow.vela_bytes if basis is Basis.VELA else flow.burst_bytes
            streams[flow.channel, flow.purpose] += size_bytes
    per_channel: dict[Channel, int] = defaultdict(int)
    for (channel, _), size_bytes in streams.items():
        rate = channel_bandwidth(accelerator, memory, channel, basis)
        per_channel[channel] += transfer_cycles(size_bytes, rate)
    return max(per_channel.values())


@lru_cache(maxsize=65536)
def feature_map_transfers(target: Target, op: CostOp, block: BlockConfig) -> tuple[Transfer, ...]:
    """Bytes of all feature maps of ``op``, by memory."""
    return as_transfers(feature_map_flows(target, op, block))


def as_transfers(flows: Iterable[Flow]) -> tuple[Transfer, ...]:
    """Sum flows by memory and purpose (order of first appearance); empty ones are left out."""
    sums: dict[tuple[str, Purpose], list[int]] = {}
    for flow in flows:
        entry = sums.setdefault((flow.memory, flow.purpose), [0, 0, 0, 0])
        side = 1 if flow.is_write else 0
        entry[side] += flow.transferred_bytes
        entry[2 + side] += flow.vela_bytes
    return tuple(
        Transfer(
            memory=memory,
            purpose=purpose,
            bytes_read=entry[0],
            bytes_written=entry[1],
            inflated_read=entry[2],
            inflated_written=entry[3],
        )
        for (memory, purpose), entry in sums.items()
        if any(entry)
    )


def _flow(
    target: Target,
    fm: CostFm,
    block: Block,
    elements: int,
    channel: Channel,
    *,
    vela_elements: int | None = None,
) -> Flow:
    """Make the stream of ``elements`` of a feature map, of which Vela counts ``vela_elements``."""
    assert target.accelerator is not None
    memory = fm_memory(target, fm)
    read = channel is not Channel.WRITE
    burst = inflated_bytes(target.accelerator, memory, fm, block, elements, read=read)
    vela = burst
    if vela_elements is not None and vela_elements != elements:
        vela = inflated_bytes(target.accelerator, memory, fm, block, vela_elements, read=read)
    return Flow(
        memory=memory.name,
        purpose=Purpose.FEATURE_MAP,
        channel=channel,
        transferred_bytes=elements * fm.bits // 8,
        burst_bytes=burst,
        vela_bytes=vela,
    )


def _flows_u55(target: Target, op: CostOp, block: BlockConfig) -> tuple[Flow, ...]:
    accelerator = target.accelerator
    assert isinstance(accelerator, AcceleratorU55)
    unit = unit_of(accelerator, op.kind)
    ofm = pipeline_ofm(op)
    first = second = 0
    vela_second: int | None = None
    scratch: tuple[Flow, ...] = ()
    if unit in MAC_UNITS:
        first = _mac_ifm_elements(op, ofm, block, unit, batch_blocks=True)
    elif unit is Unit.ELEMENTWISE:
        first, second, vela_second = _elementwise_elements_u55(op, ofm)
    elif unit is Unit.TRANSPOSE:
        first = op.ifm.elements
    elif unit is Unit.MATMUL and op.ifm2 is not None:
        first = op.ifm.elements * op.ifm2.shape[2]
        second = op.ifm2.elements
        scratch = _scratch_flows(target.roles.arena, first)
    flows = [_flow(target, op.ifm, block.ifm_block, first, Channel.IFM)]
    if op.ifm2 is not None:
        second_flow = _flow(
            target, op.ifm2, block.ifm_block, second, Channel.IFM, vela_elements=vela_second
        )
        flows.append(second_flow)
    flows.append(_flow(target, ofm, block.ofm_block, ofm.padded_elements, Channel.WRITE))
    return (*flows, *scratch)


def _scratch_flows(memory: str, elements: int) -> tuple[Flow, ...]:
    """Products of a compound MatMul: 32-bit words, which Vela counts as bytes (VELA_SPEC_2 §3)."""
    return tuple(
        Flow(memory, Purpose.FEATURE_MAP, channel, elements * 4, elements * 4, elements)
        for channel in (Channel.IFM_STREAM, Channel.WRITE)
    )


def _mac_ifm_elements(
    op: CostOp, ofm: CostFm, block: BlockConfig, unit: Unit, *, batch_blocks: bool
) -> int:
    """IFM elements read: one IFM block of full depth per OFM block and sub-kernel."""
    n, ofm_h, ofm_w, ofm_c = ofm.shape
    _, ifm_h, ifm_w, ifm_c = op.ifm.shape
    blocks = ceil_div(ofm_h, block.ofm_block.h) * ceil_div(ofm_w, block.ofm_block.w)
    if unit not in (Unit.DEPTHWISE, Unit.POOL):
        blocks *= ceil_div(ofm_c, block.ofm_block.c)
    if batch_blocks:
        blocks *= n
    kernel = op.kernel
    parts = ceil_div(kernel.h, SUBKERNEL) * ceil_div(kernel.w, SUBKERNEL)
    depth = round_up(ifm_c, BRICK_CHANNELS) if op.ifm.brick else ifm_c
    return min(ifm_h, block.ifm_block.h) * min(ifm_w, block.ifm_block.w) * depth * parts * blocks


def _padded(shape: tuple[int, int, int, int], *, brick: bool) -> int:
    return CostFm(shape, 8, brick, None).padded_elements


def _elementwise_elements_u55(op: CostOp, ofm: CostFm) -> tuple[int, int, int]:
    """Elements read of IFM0 and IFM1, and what Vela counts for IFM1 (VELA_SPEC_2 §3).

    Padding follows IFM0's layout. A broadcast input is read as often as the OFM has elements; an
    8-bit scalar is a constant in the command. Vela forgets IFM1 beside a wider scalar IFM0.
    """
    brick = op.ifm.brick
    whole = _padded(ofm.shape, brick=brick)
    if op.ifm.elements == 1:
        second = whole if op.ifm2 is not None else 0
        if op.ifm.bits > 8:
            return _padded(op.ifm.shape, brick=brick), second, 0
        return 0, second, second
    if op.ifm2 is None:
        return whole, 0, 0
    if op.ifm2.elements > 1:
        return whole, whole, whole
    second = _padded(op.ifm2.shape, brick=brick) if op.ifm2.bits > 8 else 0
    return whole, second, second


def _flows_u85(
    target: Target, accelerator: AcceleratorU85, op: CostOp, block: BlockConfig
) -> tuple[Flow, ...]:
    unit = unit_of(accelerator, op.kind)
    ofm = pipeline_ofm(op)
    first, second = _ifm_elements_u85(op, ofm, block, unit)
    streams = op.kind in ELEMENTWISE or op.kind is KernelKind.RESIZE
    flows = [
        _flow(
            target, op.ifm, block.ifm_block, first, Channel.IFM_STREAM if streams else Channel.IFM
        )
    ]
    if op.ifm2 is not None:
        streams = streams or op.kind is KernelKind.MATMUL
        channel = Channel.IFM_STREAM if streams else Channel.IFM
        flows.append(_flow(target, op.ifm2, block.ifm_block, second, channel))
    if not op.subs and unit is not Unit.NONE:
        flows.append(_flow(target, ofm, block.ofm_block, ofm.padded_elements, Channel.WRITE))
    for position, sub in enumerate(op.subs):
        flows.extend(_sub_flows(target, sub, block, last=position == len(op.subs) - 1))
    return tuple(flows)


def _ifm_elements_u85(op: CostOp, ofm: CostFm, block: BlockConfig, unit: Unit) -> tuple[int, int]:
    """Elements read of both inputs; padding follows IFM0's layout (VELA_SPEC_2 §4)."""
    brick = op.ifm.brick
    if unit in MAC_UNITS:
        batched = unit is Unit.CONV or op.kind is KernelKind.MEMORY_COPY
        return _mac_ifm_elements(op, ofm, block, unit, batch_blocks=batched), 0
    if unit is Unit.RESIZE:
        return op.ifm.padded_elements, 0
    if op.kind is KernelKind.GATHER and op.ifm2 is not None:
        positions = _padded(op.ifm2.shape, brick=brick)
        return positions, positions
    if unit is Unit.ELEMENTWISE:
        return _elementwise_elements_u85(op, brick=brick)
    return 0, 0


def _elementwise_elements_u85(op: CostOp, *, brick: bool) -> tuple[int, int]:
    """Every input is read once; the first scalar is encoded in the command, so it is free."""
    counts = [0, 0]
    scalar_seen = False
    for position, fm in enumerate((op.ifm, op.ifm2)):
        if fm is None:
            continue
        if fm.elements > 1 or scalar_seen:
            counts[position] = _padded(fm.shape, brick=brick)
        else:
            scalar_seen = True
    return counts[0], counts[1]


def _sub_flows(target: Target, sub: CostSub, block: BlockConfig, *, last: bool) -> list[Flow]:
    """Feature maps of a follower: its external inputs and, if it is the last, the result.

    Vela counts only the first of IFM0, IFM1, OFM that exists (VELA_SPEC_2 §4), so a chained op with
    an external input does not pay for its write. Scalars are free. A fused activation that writes
    a slice pays for the whole tensor (``CostSub.vela_ofm``).
    """
    streams = sub.kind in ELEMENTWISE or sub.kind is KernelKind.RESIZE
    channel = Channel.IFM_STREAM if streams else Channel.IFM
    maps = [(fm, block.ifm_block, channel) for fm in (sub.ifm, sub.ifm2) if fm is not None]
    if last:
        maps.append((sub.ofm, block.ofm_block, Channel.WRITE))
    flows = []
    for position, (fm, fm_block, fm_channel) in enumerate(maps):
        free = fm.elements == 1 and fm_channel is not Channel.WRITE
        elements = 0 if free else fm.padded_elements
        counted = elements if position == 0 else 0
        flow = _flow(target, fm, fm_block, elements, fm_channel, vela_elements=counted)
        if counted and fm_channel is Channel.WRITE and sub.vela_ofm is not None:
            whole = sub.vela_ofm
            charged = _flow(target, whole, fm_block, whole.padded_elements, fm_channel)
            flow = replace(flow, vela_bytes=charged.vela_bytes)
        flows.append(flow)
    return flows
