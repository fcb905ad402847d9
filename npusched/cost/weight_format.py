"""Which format Vela gives the weights of a U85 kernel: plain or 2:4 sparse, normal or fast.

All formats that fit are encoded; the one whose decoding and execution take the fewest cycles wins.
Sources: Vela 5.2.0, ``EncodeBestWeightFormat``, ``ChooseBestWeightFormat``, ``UseFastDecoder``
(scheduler.cpp), ``WeightDecodeCycles`` (ethos_u85_performance.cpp), mlw_encode_fwd.cpp. The
strategy is that of ``--optimise Performance``.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from npusched.cost.arith import float32, round_up, transfer_cycles
from npusched.cost.blocks import find_block
from npusched.cost.bursts import Channel, channel_bandwidth
from npusched.cost.op_cost import slack_of
from npusched.cost.types import Basis, BlockConfig, CostOp
from npusched.cost.weight_coding import CodedStream, code_stream
from npusched.cost.weight_stream import Values, core_streams
from npusched.cost.weight_values import centred, is_sparse
from npusched.errors import TargetError
from npusched.graph.types import KernelKind, ScheduledOp
from npusched.hardware.target import AcceleratorU85, Target

_FAST_HEADER_BYTES = 32
_FORMAT_KINDS = frozenset({KernelKind.CONV2D, KernelKind.FULLY_CONNECTED})


class WeightFormat(msgspec.Struct, frozen=True):
    """``sparse``: 2:4; ``fast``: fixed-length codes that decode faster."""

    sparse: bool = False
    fast: bool = False


class FormatChoice(msgspec.Struct, frozen=True):
    """The chosen format, and the size of the whole encoding for the block of the whole OFM.

    ``block`` None: there was nothing to choose, so nothing was encoded.
    """

    form: WeightFormat
    block: BlockConfig | None = None
    size_bytes: int = 0


_PLAIN = FormatChoice(WeightFormat())


class _Encoding(msgspec.Struct, frozen=True):
    """One encoding of all weights: stream elements, bytes, zeros coded as runs, distinct values."""

    elements: int
    size_bytes: int
    run_zeros: int
    distinct: int


def choose_format(target: Target, op: ScheduledOp, kernel: CostOp) -> FormatChoice:
    """Return the format of the weights of ``op``; ``kernel`` describes it with plain weights.

    Everything but a U85 convolution with known weights is plain and normal.
    """
    accelerator = target.accelerator
    if not isinstance(accelerator, AcceleratorU85) or op.kind not in _FORMAT_KINDS:
        return _PLAIN
    values = None if op.weights is None else centred(op.weights)
    if values is None or op.weights is None:
        return _PLAIN
    variants = {False: _variant(target, kernel, sparse=False)}
    if is_sparse(op.weights):
        sparse = _variant(target, kernel, sparse=True)
        plain = variants[False]
        if sparse is not None and plain is not None and sparse[1] <= plain[1]:
            variants[True] = sparse
    bits = op.ifms[0].dtype.bits
    best, best_cycles, fast_allowed = _PLAIN, None, True
    for candidate in (
        WeightFormat(sparse=True),
        WeightFormat(),
        WeightFormat(sparse=True, fast=True),
        WeightFormat(fast=True),
    ):
        variant = variants.get(candidate.sparse)
        if variant is None or (candidate.fast and not fast_allowed):
            continue
        block, cycles = variant
        streams = core_streams(accelerator, values, op.kernel, block, bits, sparse=candidate.sparse)
        encoding = _encode(streams, candidate)
        if not candidate.fast:
            fast_allowed = fast_allowed and _fast_decodes_sooner(target, encoding)
        total = cycles + _decode_cycles(target, encoding, fast=candidate.fast)
        if best_cycles is None or total < best_cycles:
            best = FormatChoice(candidate, block, encoding.size_bytes)
            best_cycles = total
    return best


def fast_bytes(streams: list[Values], *, sparse: bool) -> int:
    """Bytes of the fast format: a header of 32, then 2, 4 or 8 bits per value, in 32-byte units.

    Up to 4 (16) distinct values need 2 (4) bits; sparse weights always take 8.
    """
    elements = sum(len(stream) for stream in streams)
    distinct = _distinct(streams)
    bits = 8 if sparse or distinct > 16 else 4 if distinct > 4 else 2
    return round_up(_FAST_HEADER_BYTES + (elements * bits + 7) // 8, 32)


def _variant(target: Target, kernel: CostOp, *, sparse: bool) -> tuple[BlockConfig, int] | None:
    """Block and cycles at scheduling time; None if no block fits."""
    assert target.accelerator is not None
    kernel = replace(kernel, sparse=sparse)
    try:
        block = find_block(target.accelerator, kernel)
    except TargetError:
        return None
    cycles = slack_of(target, kernel, basis=Basis.VELA, block=block, keep_sparse=True)
    return block, cycles


def _encode(streams: list[Values], candidate: WeightFormat) -> _Encoding:
    elements = sum(len(stream) for stream in streams)
    if candidate.fast:
        return _Encoding(elements, fast_bytes(streams, sparse=candidate.sparse), 0, 0)
    coded: list[CodedStream] = [code_stream(stream) for stream in streams]
    return _Encoding(
        elements,
        sum(stream.size_bytes for stream in coded),
        sum(stream.run_zeros for stream in coded),
        _distinct(streams),
    )


def _distinct(streams: list[Values]) -> int:
    return len(np.unique(np.concatenate(streams)))


def _fast_decodes_sooner(target: Target, encoding: _Encoding) -> bool:
    """Vela's forecast from a normal encoding, whether the fast one takes fewer cycles."""
    divisor = 1
    if 0 < encoding.distinct <= 16:
        divisor = 4 if encoding.distinct <= 4 else 2
    forecast = replace(encoding, size_bytes=_FAST_HEADER_BYTES + encoding.elements // divisor)
    return _decode_cycles(target, forecast, fast=True) < _decode_cycles(
        target, encoding, fast=False
    )


def _decode_cycles(target: Target, encoding: _Encoding, *, fast: bool) -> int:
    """Cycles until all weights are decoded: the decoder's or the memory's."""
    accelerator = target.accelerator
    assert isinstance(accelerator, AcceleratorU85)
    if fast:
        per_cycle = 64 if encoding.distinct < 16 else 32
    else:
        zero_rate = max(min(float32(encoding.run_zeros / encoding.elements), float32(0.9)), 0.5)
        per_cycle = int(8 + (zero_rate - 0.5) * (32 - 8) / 0.4) * accelerator.cores
    channel = Channel.FAST_WEIGHTS if fast else Channel.WEIGHTS
    rate = channel_bandwidth(accelerator, target.const, channel, Basis.VELA)
    read = transfer_cycles(encoding.size_bytes, rate) + target.const.read_latency_cycles
    return max(encoding.elements // per_cycle, read)
