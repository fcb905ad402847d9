"""How many bytes a memory moves for a number of elements: burst inflation, U85 channels, DMA time.

Sources: VELA_SPEC §3.1 and §3.4, VELA_SPEC_2 §2 and §4; Vela 5.2.0 ``EstimateMemoryTransfer``,
``MinimumIfmCycles``, ``MinimumOfmCycles``, ``ChannelBW`` and ``MemToMemCycles``.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from npusched.cost.arith import bandwidth, float32, transfer_cycles
from npusched.cost.types import Basis, BlockConfig, CostFm, CostOp
from npusched.hardware.target import (
    Accelerator,
    AcceleratorU55,
    AcceleratorU85,
    Block,
    Memory,
    Target,
)

LUT_BANDWIDTH_BYTES_PER_CYCLE = 1
"""Write speed of SHRAM or LUT RAM by DMA, no latency (Vela 5.2.0, ``ApplyConfig``)."""

_LONGEST_NHWC_WRITE_BITS = 512


class Channel(StrEnum):
    """AXI channels of the U85; U55 and U65 share one rate."""

    MEM2MEM = "mem2mem"
    IFM = "ifm"
    IFM_STREAM = "ifm_stream"
    WEIGHTS = "weights"
    FAST_WEIGHTS = "fast_weights"
    SCALES = "scales"
    WRITE = "write"


def fm_memory(target: Target, fm: CostFm) -> Memory:
    """Memory of a feature map; one that never reaches memory counts as arena (VELA_SPEC_2 §1)."""
    return target.arena if fm.memory is None else target.memory(fm.memory)


def inflated_bytes(
    accelerator: Accelerator, memory: Memory, fm: CostFm, block: Block, elements: int, *, read: bool
) -> int:
    """Bytes that ``elements`` of ``fm`` cost when bursts shorter than the memory's are wasted."""
    burst = max(min(memory.burst_bytes, _burst_bits(accelerator, fm, block, read) // 8), 1)
    return elements * fm.bits // 8 * memory.burst_bytes // burst


def _burst_bits(accelerator: Accelerator, fm: CostFm, block: Block, read: bool) -> int:
    """Contiguous bits of one block row, by layout and direction."""
    _, _, w, c = fm.shape
    bits = fm.bits
    cores = accelerator.cores if isinstance(accelerator, AcceleratorU55) and not read else 1
    if fm.brick:
        if w * bits * 16 // 8 == block.c:
            return bits * block.w * block.c
        return 16 * bits * block.w * cores
    whole_rows = c * bits // 8 == block.c
    if read:
        return bits * block.w * block.c if whole_rows else bits * block.c
    if block.c <= 16 and whole_rows:
        return bits * block.w * block.c
    return min(_LONGEST_NHWC_WRITE_BITS, 16 * bits * cores, block.c * bits)


def clipped_elements(fm: CostFm, block: Block) -> int:
    """Elements of the part of a block that lies inside the feature map (batch 1)."""
    _, h, w, c = fm.shape
    return min(h, block.h) * min(w, block.w) * min(c, block.c)


def fill_cycles(target: Target, op: CostOp, block: BlockConfig, basis: Basis) -> int:
    """Cycles until the first IFM block has arrived; both inputs count with IFM0's width."""
    assert target.accelerator is not None
    slowest = 0
    for fm in (op.ifm, op.ifm2):
        if fm is None:
            continue
        memory = fm_memory(target, fm)
        fm = CostFm(fm.shape, op.ifm.bits, fm.brick, fm.memory)
        size = inflated_bytes(
            target.accelerator,
            memory,
            fm,
            block.ifm_block,
            clipped_elements(fm, block.ifm_block),
            read=True,
        )
        cycles = memory.read_latency_cycles + transfer_cycles(size, bandwidth(memory, basis))
        slowest = max(slowest, cycles)
    return slowest


def drain_cycles(target: Target, ofm: CostFm, block: BlockConfig, basis: Basis) -> int:
    """Cycles to write the last OFM block."""
    assert target.accelerator is not None
    memory = fm_memory(target, ofm)
    elements = clipped_elements(ofm, block.ofm_block)
    size = inflated_bytes(target.accelerator, memory, ofm, block.ofm_block, elements, read=False)
    return memory.write_latency_cycles + transfer_cycles(size, bandwidth(memory, basis))


@lru_cache(maxsize=4096)
def channel_bandwidth(
    accelerator: Accelerator, memory: Memory, channel: Channel, basis: Basis
) -> float:
    """Bytes per cycle that one channel gets from ``memory``, in float32 (VELA_SPEC §3.4)."""
    full = float32(bandwidth(memory, basis))
    if not isinstance(accelerator, AcceleratorU85):
        return full
    if channel is Channel.WRITE:
        in_flight = float32(memory.max_writes * memory.ports * 0.8)
        latency = memory.write_latency_cycles
    else:
        words: int = getattr(accelerator.read_buffers, channel.value)
        limit = float32(words / max(memory.burst_bytes // 16, 1))
        in_flight = min(limit, float32(memory.max_reads * memory.ports * 0.8))
        latency = memory.read_latency_cycles
    if latency == 0:
        return full
    per_latency = float32(float32(memory.burst_bytes * in_flight) / latency)
    return min(full, float32(per_latency * 0.8))


def dma_cycles(
    target: Target, size_bytes: int, *, source: Memory, destination: Memory, basis: Basis
) -> int:
    """Cycles of one memory-to-memory DMA: the slower of its read and its write side."""
    assert target.accelerator is not None
    accelerator = target.accelerator
    reads = channel_bandwidth(accelerator, source, Channel.MEM2MEM, basis)
    writes = channel_bandwidth(accelerator, destination, Channel.WRITE, basis)
    return max(
        transfer_cycles(size_bytes, reads) + source.read_latency_cycles,
        transfer_cycles(size_bytes, writes) + destination.write_latency_cycles,
    )


def lut_dma_cycles(target: Target, size_bytes: int, *, source: Memory, basis: Basis) -> int:
    """Cycles to load a look-up table into the NPU (0 bytes cost nothing)."""
    if size_bytes == 0:
        return 0
    assert target.accelerator is not None
    reads = channel_bandwidth(target.accelerator, source, Channel.MEM2MEM, basis)
    return max(
        transfer_cycles(size_bytes, reads) + source.read_latency_cycles,
        size_bytes // LUT_BANDWIDTH_BYTES_PER_CYCLE,
    )
