"""A scheduled op and the memories of its feature maps, as the cost functions see them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from npusched.cost.kinds import ACTIVATIONS
from npusched.cost.types import CostFm, CostOp, CostSub
from npusched.graph.types import (
    Access,
    Activation,
    FeatureMap,
    KernelKind,
    Layout,
    ScheduledOp,
    SubOp,
)

_TABLE_KERNELS = frozenset({KernelKind.LUT, KernelKind.SIGMOID, KernelKind.TANH})
"""Kernels whose own table Vela loads by a visible DMA (VELA_SPEC_2 §5)."""

_WORDS_16_BIT = 512


def cost_op(
    op: ScheduledOp,
    feature_maps: Mapping[int, FeatureMap],
    memory_of: Mapping[int, str],
    *,
    const_memory: str | None = None,
    sparse: bool = False,
    fast_weights: bool = False,
) -> CostOp:
    """Describe one piece of an NPU op to the cost functions.

    ``memory_of`` maps ids of feature maps to names of the target's memories; what it does not list
    counts as arena, constants as ``const_memory``. ``sparse`` and ``fast_weights``: weight formats
    of the U85, which its encoder chooses (``weights.is_sparse``). A result that never reaches
    memory counts as bricks, as Vela lays it out. Raises ValueError for a CPU op.
    """
    if op.kind is KernelKind.CPU:
        raise ValueError(f"op {op.id} ({op.name}) runs on the CPU")

    def seen(access: Access) -> CostFm:
        stored = feature_maps.get(access.tensor)
        memory = memory_of.get(access.tensor)
        if memory is None and stored is not None and stored.is_constant:
            memory = const_memory
        brick = stored is None or stored.layout is Layout.NHCWB16
        return CostFm(access.shape, access.dtype.bits, brick, memory)

    def whole(access: Access) -> CostFm:
        return replace(seen(access), shape=access.view)

    subs: list[CostSub] = []
    received = op.ofm.dtype.bits
    for sub in op.sub_ops:
        external = iter(seen(access) for access in sub.ifms)
        first = None if sub.chain_input == 0 else next(external, None)
        subs.append(
            CostSub(
                kind=sub.kind,
                ifm_bits=received,
                ofm=seen(sub.ofm),
                chained=sub.chained,
                ifm=first,
                ifm2=next(external, None),
                transpose=sub.transpose,
                reverse=sub.reverse,
                vela_ofm=whole(sub.ofm) if sub.kind in ACTIVATIONS and sub.ofm.is_slice else None,
            )
        )
        received = sub.ofm.dtype.bits
    own_table = table_bytes(op.activation) if op.kind in _TABLE_KERNELS else 0
    return CostOp(
        kind=op.kind,
        ifm=seen(op.ifms[0]),
        ofm=seen(op.ofm),
        ifm2=seen(op.ifms[1]) if len(op.ifms) > 1 else None,
        kernel=op.kernel,
        upscale=op.upscale,
        scaled=op.accumulator_scaled,
        has_scales=op.has_scales,
        sparse=sparse,
        fast_weights=fast_weights,
        lut_bytes=max([own_table, *map(_sub_table_bytes, op.sub_ops)]),
        lut_is_primary=own_table > 0,
        transpose=op.transpose,
        reverse=op.reverse,
        resize=op.resize,
        ifm_step=(op.ifms[0].step_h, op.ifms[0].step_w),
        subs=tuple(subs),
    )


def table_bytes(activation: Activation | None) -> int:
    """Size of a look-up table in memory; 0 if there is none (16-bit tables have 512 words)."""
    if activation is None or activation.lut is None:
        return 0
    if len(activation.lut) == _WORDS_16_BIT:
        return 4 * _WORDS_16_BIT
    bits = 8 if activation.lut_dtype is None else activation.lut_dtype.bits
    return len(activation.lut) * bits // 8


def _sub_table_bytes(sub: SubOp) -> int:
    return table_bytes(sub.activation)
