"""What every lowering needs: uses of tensors, constants, and kernels with explicit scaling.

A lowering states real scales and zero points on its links; ``add_kernel`` then derives the integer
multipliers as Vela 5.2 does in its ConvertZeroPoint and ConvertQuantizationToExplicit passes
(``compiler/tflite_graph_optimiser.cpp``; LOWERING.md §8).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.lower import scaling
from npusched.graph.lower.scaling import UNIT, Scale
from npusched.graph.types import Activation, Kernel, KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import DataType, OpKind, Shape

ELEMENTWISE_WITH_IFM_SCALES = (KernelKind.ADD, KernelKind.SUB)
RELU_KINDS = (
    KernelKind.RELU,
    KernelKind.RELU0_TO_1,
    KernelKind.RELU6,
    KernelKind.RELU_N1_TO_1,
)
_COPIES = (KernelKind.QUANTIZE, KernelKind.MEMORY_COPY)
_WITHOUT_ZERO_POINTS = (
    KernelKind.AVG_POOL,
    KernelKind.RESIZE,
    KernelKind.CLZ,
    KernelKind.SHL,
    KernelKind.DIV,
)
_NUMPY = {
    DataType.INT8: np.int8,
    DataType.UINT8: np.uint8,
    DataType.INT16: np.int16,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.BOOL: np.int8,
}


class Quant(msgspec.Struct, frozen=True):
    """Real scale (None = none stated: no scaling) and zero point that one side of an op applies."""

    scale: float | None = None
    zero_point: int = 0


NO_SCALE = Quant()
ONE = Quant(1.0)


def is_u85(graph: WorkGraph) -> bool:
    """Return True for the U85 architecture (U55 and U65 share the other)."""
    return graph.family is Family.U85


def quant(link: Link) -> Quant:
    """Return the quantisation of a link."""
    return Quant(link.scale, link.zero_point)


def use(tensor: WorkTensor, how: Quant = NO_SCALE, shape: Shape | None = None) -> Link:
    """Return a link to ``tensor``, seen as ``shape`` (default: its own)."""
    return Link(
        tensor=tensor,
        shape=tensor.shape if shape is None else shape,
        scale=how.scale,
        zero_point=how.zero_point,
    )


def requantised(link: Link, how: Quant) -> Link:
    """Return a copy of ``link`` with another quantisation."""
    return replace(link, scale=how.scale, zero_point=how.zero_point)


def scale_of(link: Link) -> float:
    """Return the scale of a link, 1.0 if it has none."""
    return 1.0 if link.scale is None else link.scale


def temporary(graph: WorkGraph, op: WorkOp, name: str, shape: Shape, dtype: DataType) -> WorkTensor:
    """Add a tensor between two kernels of ``op``, named after its result."""
    return graph.new_tensor(f"{op.ofm.tensor.name}/{name}", shape, dtype)


def like(graph: WorkGraph, link: Link, name: str) -> WorkTensor:
    """Add a temporary with the region's shape, the type and quantisation of ``link``."""
    tensor = graph.new_tensor(f"{link.tensor.name}/{name}", link.region, link.tensor.dtype)
    tensor.scales, tensor.zero_points = link.tensor.scales, link.tensor.zero_points
    return tensor


def scalar(graph: WorkGraph, name: str, value: int, dtype: DataType = DataType.INT32) -> WorkTensor:
    """Add a one-element constant."""
    return constant(graph, name, np.array([value]), dtype)


def constant(
    graph: WorkGraph, name: str, values: npt.NDArray[np.generic], dtype: DataType
) -> WorkTensor:
    """Add a constant of ``values``, stored as ``dtype`` (values wrap as C casts do)."""
    data = values.astype(np.int64).astype(_NUMPY[dtype])
    data.flags.writeable = False
    return graph.new_tensor(name, data.shape, dtype, data=data)


def add_kernel(
    graph: WorkGraph,
    op: WorkOp,
    kind: KernelKind,
    ifms: Sequence[Link],
    ofm: Link,
    *,
    rounding: Rounding = Rounding.DOUBLE,
    ofm_scale: Scale | None = None,
    kernel: Kernel | None = None,
    activation: Activation | None = None,
    weights: Link | None = None,
    bias: Link | None = None,
) -> WorkOp:
    """Add a kernel that ``op`` becomes part of, with explicit scaling.

    ``ofm_scale`` states the result's scale (and leaves the inputs unscaled); without it all
    scales follow from the links' real scales. Zero points that the reference does not apply are
    dropped from the links.
    """
    added = WorkOp(
        kind=kind,
        source_ops=op.source_ops,
        ifms=[replace(link) for link in ifms],
        ofms=[replace(ofm)],
        weights=weights,
        bias=bias,
        kernel=Kernel() if kernel is None else kernel,
        activation=activation,
        rounding=rounding,
        name=ofm.tensor.name,
    )
    clear_zero_points(added)
    if ofm_scale is None:
        derive_rescales(added, rounding)
    else:
        added.ofm_rescale = _rescale(ofm_scale, rounding, kind)
    return graph.add(added)


def view(graph: WorkGraph, op: WorkOp, source: Link, result: Link) -> WorkOp:
    """Add a view: ``result`` holds the bytes of ``source``."""
    return graph.add(
        WorkOp(
            kind=OpKind.RESHAPE,
            source_ops=op.source_ops,
            ifms=[source],
            ofms=[result],
            name=result.tensor.name,
        )
    )


def copy(
    graph: WorkGraph, op: WorkOp, source: Link, result: Link, rounding: Rounding = Rounding.NATURAL
) -> WorkOp:
    """Add a copy (slices and steps stand on the links)."""
    return add_kernel(graph, op, KernelKind.MEMORY_COPY, [source], result, rounding=rounding)


def clear_zero_points(op: WorkOp) -> None:
    """Drop the zero points that the reference does not apply (Vela's ConvertZeroPoint)."""
    everywhere = op.kind in _WITHOUT_ZERO_POINTS
    for link in op.ifms:
        if everywhere or link.tensor.dtype.bits >= 32:
            link.zero_point = 0
    if everywhere or op.kind is KernelKind.ARG_MAX:
        op.ofm.zero_point = 0


def derive_rescales(op: WorkOp, rounding: Rounding) -> None:
    """Set ``ofm_rescale`` and ``ifm_rescales`` of a kernel from its links' real scales."""
    ifm_scales, ofm_scale = _scales_of(op)
    if op.weights is not None:
        op.ofm_rescale = Rescale(
            multipliers=tuple(s.multiplier for s in ofm_scale),
            shifts=tuple(s.shift for s in ofm_scale),
            rounding=rounding,
        )
        return
    op.ofm_rescale = _rescale(ofm_scale[0], rounding, op.kind)
    if any(scale != UNIT for scale in ifm_scales):
        op.ifm_rescales = tuple(scale.rescale(rounding) for scale in ifm_scales)


def _rescale(scale: Scale, rounding: Rounding, kind: KernelKind | OpKind) -> Rescale | None:
    """Return None for no scaling at all; shifts by a tensor keep their rounding."""
    if scale == UNIT and kind is not KernelKind.ASR:
        return None
    return scale.rescale(rounding)


def _scales_of(op: WorkOp) -> tuple[tuple[Scale, ...], tuple[Scale, ...]]:
    """Return the scales of the inputs and of the result (several: per channel)."""
    if op.weights is not None:
        return (), _weighted_scales(op)
    none = (UNIT,) * len(op.ifms)
    links = [*op.ifms, op.ofm]
    scales = [link.scale for link in links if link.scale is not None]
    if len(scales) < len(links):
        return none, (UNIT,)
    first, result = op.ifms[0], scales[-1]
    bits = first.tensor.dtype.bits
    match op.kind:
        case KernelKind.ADD | KernelKind.SUB:
            both = scaling.add_sub_scales(scales[0], scales[1], result, bits)
            return (both.ifm, both.ifm2), (both.ofm,)
        case KernelKind.MUL:
            return none, (scaling.mul_scale(scales[0], scales[1], result),)
        case KernelKind.MATMUL:
            return none, (scaling.matmul_scale(scales[0], scales[1], result, bits),)
        case KernelKind.ABS | KernelKind.AVG_POOL | KernelKind.REDUCE_SUM:
            return none, (scaling.abs_scale(scales[0], result),)
        case KernelKind.LEAKY_RELU:
            return none, (UNIT,)
        case KernelKind.SIGMOID | KernelKind.TANH:
            is_tanh = op.kind is KernelKind.TANH
            return none, (scaling.sigmoid_tanh_scale(scales[0], tanh=is_tanh),)
    zero_points = first.zero_point, op.ofm.zero_point
    if op.kind in _COPIES:
        return none, (scaling.copy_scale(scales[0], result, *zero_points),)
    if op.kind in RELU_KINDS:
        return none, (scaling.relu_scale(scales[0], result, *zero_points),)
    return none, (UNIT,)


def _weighted_scales(op: WorkOp) -> tuple[Scale, ...]:
    """Return the per-channel (or one) output scales of a kernel with weights."""
    assert op.weights is not None
    weight_scales = op.weights.tensor.scales
    if op.ifm.scale is None or op.ofm.scale is None or not weight_scales:
        return (UNIT,)
    return scaling.conv_scales(
        ifm_scale=op.ifm.scale,
        weight_scales=weight_scales,
        ofm_scale=op.ofm.scale,
        ifm_dtype=op.ifm.tensor.dtype,
        bias_dtype=DataType.INT32 if op.bias is None else op.bias.tensor.dtype,
        fully_connected=op.kind is KernelKind.FULLY_CONNECTED,
    )
