"""Cost of a whole kernel: NPU cycles with visible DMA, access cycles, bytes (VELA_SPEC §3.4, §3.5).

``op_cost`` reproduces a row of Vela's report from explicit facts: where things lie, whether weights
are staged and how, how many cycles the previous op lends to DMA (*slack*). ``slack_of`` says how
many cycles an op lends to the next one. VELA_SPEC_2 §5 has the rules and their validation.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from npusched.cost.arith import ceil_div
from npusched.cost.blocks import find_block
from npusched.cost.bursts import Channel, dma_cycles, lut_dma_cycles
from npusched.cost.cycles import macs_of, npu_op_cycles
from npusched.cost.transfers import (
    Flow,
    access_cycles,
    feature_map_flows,
    feature_map_transfers,
    weight_refetches,
)
from npusched.cost.types import (
    Basis,
    BlockConfig,
    CostFm,
    CostOp,
    OpCost,
    Purpose,
    Transfer,
    WeightBytes,
)
from npusched.graph.types import Shape4, Upscale
from npusched.hardware.target import Target


class Staging(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about weights that DMA copies to the staging memory (Vela's weight buffering).

    ``full_dma_bytes``: the un-sliced encoding with its scales. ``first_dma_bytes``: slice 0 without
    scale padding (10 bytes per channel and its weights). ``pre_buffered_bytes``: slice 0 with
    padding if it is copied under the previous op, else 0. ``self_slack_cycles``: cycles of the last
    slice (``staged_slack_of``), which the DMA of this op's slices cannot use.
    """

    full_dma_bytes: int = 0
    first_dma_bytes: int
    pre_buffered_bytes: int = 0
    self_slack_cycles: int = 0


def op_cost(
    target: Target,
    op: CostOp,
    weights: WeightBytes | None = None,
    *,
    basis: Basis,
    block: BlockConfig | None = None,
    staging: Staging | None = None,
    slack_cycles: int = 0,
    weights_memory: str | None = None,
    scales_memory: str | None = None,
) -> OpCost:
    """Cost of one run of ``op`` over its whole OFM.

    ``weights`` are the encoded bytes (of all slices). ``weights_memory`` holds them (default: the
    constants' memory), ``scales_memory`` the scales (default: the same). With ``staging`` they are
    copied to the target's cache and read there; Vela then still books the scales' reads to
    ``scales_memory``, which only ``Basis.VELA`` follows. ``slack_cycles`` hide DMA. Raises
    TargetError if no block fits.
    """
    assert target.accelerator is not None
    if block is None:
        block = find_block(target.accelerator, op)
    weights = weights or WeightBytes()
    source = weights_memory or target.roles.const
    scales = scales_memory or source
    cycles = npu_op_cycles(
        target,
        op,
        block,
        basis=basis,
        bias_memory=target.roles.cache if staging is not None else scales,
    )
    lut = lut_dma_cycles(
        target, op.lut_bytes if op.lut_is_primary else 0, source=target.const, basis=basis
    )
    if staging is None:
        npu = cycles + max(lut - slack_cycles, 0)
    else:
        npu = _staged_cycles(target, cycles, staging, slack_cycles, source, basis) + lut

    maps = feature_map_flows(target, op, block)
    refetches = weight_refetches(target, op, block)
    reads = _weight_flows(target, op, weights, refetches, staging, source, scales, basis)
    return OpCost(
        block=block,
        npu_cycles=npu,
        memory_cycles=access_cycles(target, (*maps, *reads), basis),
        transfers=(
            *feature_map_transfers(target, op, block),
            *_constant_transfers(target, op, weights, refetches, staging, source, scales),
        ),
        macs=macs_of(target.accelerator, op),
    )


def _staged_cycles(
    target: Target, cycles: int, staging: Staging, slack: int, source: str, basis: Basis
) -> int:
    """NPU cycles with the DMA that the previous op and the op itself cannot hide."""
    memory, cache = target.memory(source), target.cache
    whole = dma_cycles(
        target, staging.full_dma_bytes, source=memory, destination=cache, basis=basis
    )
    first = dma_cycles(
        target, staging.first_dma_bytes, source=memory, destination=cache, basis=basis
    )
    return max(whole - slack + staging.self_slack_cycles, cycles + max(first - slack, 0))


def _weight_flows(
    target: Target,
    op: CostOp,
    weights: WeightBytes,
    refetches: int,
    staging: Staging | None,
    source: str,
    scales: str,
    basis: Basis,
) -> tuple[Flow, ...]:
    """Streams of weights and scales that keep memories busy."""
    weight_bytes, scale_bytes = refetches * weights.weights, refetches * weights.scales
    if staging is None:
        return (
            _plain(source, Purpose.WEIGHTS, Channel.WEIGHTS, weight_bytes),
            _plain(scales, Purpose.SCALES, Channel.SCALES, scale_bytes),
        )
    cache = target.roles.cache
    copied = max(weights.weights - staging.pre_buffered_bytes, 0)
    channel = Channel.FAST_WEIGHTS if op.fast_weights else Channel.WEIGHTS
    return (
        _plain(source, Purpose.WEIGHTS, Channel.MEM2MEM, copied),
        _plain(cache, Purpose.WEIGHTS, Channel.WRITE, copied),
        _plain(cache, Purpose.WEIGHTS, channel, weight_bytes),
        _plain(
            scales if basis is Basis.VELA else cache, Purpose.SCALES, Channel.SCALES, scale_bytes
        ),
    )


def _plain(memory: str, purpose: Purpose, channel: Channel, size_bytes: int) -> Flow:
    return Flow(memory, purpose, channel, size_bytes, size_bytes, size_bytes)


def _constant_transfers(
    target: Target,
    op: CostOp,
    weights: WeightBytes,
    refetches: int,
    staging: Staging | None,
    source: str,
    scales: str,
) -> tuple[Transfer, ...]:
    """Bytes of weights, scales and look-up tables, booked where they move."""
    weight_bytes, scale_bytes = refetches * weights.weights, refetches * weights.scales
    moves = []
    if staging is not None:
        total, cache = weights.total, target.roles.cache
        moves.append(Transfer(source, Purpose.WEIGHTS, bytes_read=total, inflated_read=total))
        copied = Transfer(
            cache,
            Purpose.WEIGHTS,
            bytes_read=weight_bytes,
            bytes_written=total,
            inflated_read=weight_bytes,
            inflated_written=total,
        )
        moves.append(copied)
        source = scales = cache
    else:
        moves.append(
            Transfer(source, Purpose.WEIGHTS, bytes_read=weight_bytes, inflated_read=weight_bytes)
        )
    moves.append(
        Transfer(scales, Purpose.SCALES, bytes_read=scale_bytes, inflated_read=scale_bytes)
    )
    vela_lut = op.lut_bytes if op.lut_is_primary else 0
    moves.append(
        Transfer(target.roles.const, Purpose.LUT, bytes_read=op.lut_bytes, inflated_read=vela_lut)
    )
    return tuple(move for move in moves if move.bytes_read or move.bytes_written)


def slack_of(
    target: Target,
    op: CostOp,
    *,
    basis: Basis,
    block: BlockConfig | None = None,
    ifm_staged: bool = False,
    ofm_staged: bool = False,
    keep_sparse: bool = False,
) -> int:
    """Cycles that an op with unstaged weights lends to the next op's DMA.

    Vela takes them from scheduling time: every feature map in the arena, biases in the constants'
    memory, weights not sparse. Only copies that Vela inserts to stage a graph input write the
    staging memory already then (``ofm_staged``), and their readers read it (``ifm_staged``)
    (VELA_SPEC_2 §5). ``keep_sparse``: count 2:4 weights as such. With the physical basis, every
    feature map counts where it lies.
    """
    assert target.accelerator is not None
    if block is None:
        block = find_block(target.accelerator, op)
    if basis is Basis.PHYSICAL:
        return npu_op_cycles(target, op, block, basis=basis)
    scheduled = as_scheduled(target, op, keep_sparse=keep_sparse)
    if ifm_staged:
        scheduled = replace(scheduled, ifm=_moved(scheduled.ifm, target.roles.cache))
    if ofm_staged:
        scheduled = replace(scheduled, ofm=_moved(scheduled.ofm, target.roles.cache))
    return npu_op_cycles(target, scheduled, block, basis=basis)


def staged_slack_of(
    target: Target,
    op: CostOp,
    *,
    depth: int,
    basis: Basis,
    block: BlockConfig | None = None,
    rows: int | None = None,
    slices: int = 1,
    ifm_staged: bool = False,
) -> int:
    """Cycles of the last depth slice of an op with staged weights (its slack and self slack).

    ``depth``: channels of that slice; ``rows``: OFM rows of the stripe (None = all); ``slices``:
    how many there are (a single one is first and last). ``ifm_staged``: the op is in a cascade and
    not its first. A fused transpose keeps the full depth before transposition (VELA_SPEC_2 §5).
    With the physical basis, every feature map counts where it lies.
    """
    assert target.accelerator is not None
    if block is None:
        block = find_block(target.accelerator, op)
    _, ofm_h, ofm_w, _ = op.written.shape
    stripe = (1, min(rows or ofm_h, ofm_h), ofm_w, depth)
    is_vela = basis is Basis.VELA
    seen = as_scheduled(target, op, keep_sparse=True) if is_vela else op
    scheduled = reshaped(seen, ifm=receptive_field(op, stripe), ofm=stripe)
    if is_vela and ifm_staged:
        scheduled = replace(scheduled, ifm=_moved(scheduled.ifm, target.roles.cache))
    return npu_op_cycles(
        target,
        scheduled,
        block,
        basis=basis,
        first=slices == 1,
        last=True,
        bias_memory=target.roles.cache,
    )


def reshaped(op: CostOp, *, ifm: Shape4, ofm: Shape4, ifm2: Shape4 | None = None) -> CostOp:
    """Return ``op`` with other feature map shapes; followers' results get the OFM's."""
    second = op.ifm2
    if second is not None and ifm2 is not None:
        second = replace(second, shape=ifm2)
    return replace(
        op,
        ifm=replace(op.ifm, shape=ifm),
        ifm2=second,
        ofm=replace(op.ofm, shape=ofm),
        subs=tuple(replace(sub, ofm=replace(sub.ofm, shape=ofm)) for sub in op.subs),
    )


def receptive_field(op: CostOp, ofm: Shape4) -> Shape4:
    """IFM that an OFM area of one batch needs, at most the IFM's area (VELA_SPEC_2 §6).

    A step of the IFM widens the stride, not the window (Vela 5.2.0, GetStripeInputRequirement).
    """
    _, ifm_h, ifm_w, ifm_c = op.ifm.shape
    kernel = op.kernel
    factor = 1 if op.upscale is Upscale.NONE else 2
    rounding = 1 if op.upscale is Upscale.NEAREST else 0
    stride_h, stride_w = kernel.stride_h * op.ifm_step[0], kernel.stride_w * op.ifm_step[1]
    rows = ceil_div((ofm[1] - 1) * stride_h + kernel.dilated_h + rounding, factor)
    columns = ceil_div((ofm[2] - 1) * stride_w + kernel.dilated_w + rounding, factor)
    return (1, min(rows, ifm_h), min(columns, ifm_w), ifm_c)


def as_scheduled(target: Target, op: CostOp, *, keep_sparse: bool = False) -> CostOp:
    """The op as Vela's scheduler sees it: all feature maps but constants in the arena."""
    return replace(
        op,
        ifm=_in_arena(target, op.ifm),
        ifm2=None if op.ifm2 is None else _in_arena(target, op.ifm2),
        ofm=_in_arena(target, op.ofm),
        sparse=op.sparse and keep_sparse,
        subs=tuple(replace(sub, ofm=_in_arena(target, sub.ofm)) for sub in op.subs),
    )


def _in_arena(target: Target, fm: CostFm) -> CostFm:
    return fm if fm.memory == target.roles.const else _moved(fm, target.roles.arena)


def _moved(fm: CostFm, memory: str) -> CostFm:
    return replace(fm, memory=memory)
