"""Folding a batch norm into the linear op before it: new weights and bias, in numbers.

With y = a * (W x + b) + b0 per output channel, W' = a W and b' = a b + b0. Integer weights stay as
they are where scales may differ per channel: only their scale becomes |a| times as large, and the
sign moves into the values. The rounding of the op's result to int8 before the batch norm goes
away, so results may differ by some LSB from the unfolded network.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.graph.batchnorm import BatchNorm, find_batch_norms
from npusched.ir import ActivationKind, DataType, OpKind, Subgraph, Tensor
from npusched.ir.options import BinaryOptions

_BIAS_LIMIT = {DataType.INT32: 2**31 - 1, DataType.INT64: 2**40 - 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedConstant:
    """A new constant: stored values and their quantisation (no scales: not quantised)."""

    dtype: DataType
    values: npt.NDArray[np.generic] = field(compare=False, repr=False)
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0


class FoldedOp(msgspec.Struct, frozen=True, kw_only=True):
    """What replaces linear op ``op`` and the batch norm ``removed`` after it.

    ``output``: tensor that the op writes now. ``activation``: its fused activation.
    """

    op: int
    removed: tuple[int, ...]
    weights: FoldedConstant
    bias: FoldedConstant
    output: int
    activation: ActivationKind


def fold_batch_norms(subgraph: Subgraph) -> tuple[list[FoldedOp], list[tuple[BatchNorm, str]]]:
    """Return (what to replace, batch norms that cannot be folded with the reason why)."""
    folded: list[FoldedOp] = []
    left: list[tuple[BatchNorm, str]] = []
    for norm in find_batch_norms(subgraph):
        if norm.linear is None:
            left.append((norm, norm.blocker))
            continue
        result = _fold(subgraph, norm, norm.linear)
        if isinstance(result, str):
            left.append((norm, result))
        else:
            folded.append(result)
    return folded, left


def _fold(subgraph: Subgraph, norm: BatchNorm, linear: int) -> FoldedOp | str:
    op = subgraph.ops[linear]
    weights = subgraph.tensors[op.inputs[1]]
    axis = weights.quantization.axis if weights.quantization is not None else None
    channel_axis = 3 if op.kind is OpKind.DEPTHWISE_CONV_2D else 0
    if axis is not None and axis != channel_axis:
        return f"weights of op {linear} are quantised along axis {axis}"
    channels = weights.shape[channel_axis]
    factor = np.broadcast_to(norm.factor, (channels,))
    offset = np.broadcast_to(norm.offset, (channels,))
    last = subgraph.ops[norm.ops[-1]]
    activation = ActivationKind.NONE
    if isinstance(last.options, BinaryOptions):
        activation = last.options.activation
    parts = _constants(subgraph, linear, weights, channel_axis, factor, offset)
    if isinstance(parts, str):
        return parts
    return FoldedOp(
        op=linear,
        removed=norm.ops,
        weights=parts[0],
        bias=parts[1],
        output=last.outputs[0],
        activation=activation,
    )


def _constants(
    subgraph: Subgraph,
    linear: int,
    weights: Tensor,
    axis: int,
    factor: npt.NDArray[np.float64],
    offset: npt.NDArray[np.float64],
) -> tuple[FoldedConstant, FoldedConstant] | str:
    op = subgraph.ops[linear]
    ifm = subgraph.tensors[op.inputs[0]]
    has_bias = len(op.inputs) > 2 and op.inputs[2] >= 0
    bias = subgraph.tensors[op.inputs[2]] if has_bias else None
    if bias is not None and not bias.is_constant:
        return f"the bias of op {linear} is not constant"
    if weights.dtype.is_float:
        return _float_constants(weights, bias, axis, factor, offset)
    if weights.quantization is None or ifm.quantization is None:
        return f"op {linear} is not quantised"
    if weights.dtype not in (DataType.INT8, DataType.UINT8) or ifm.dtype.is_float:
        return f"op {linear} has {weights.dtype.label} weights on {ifm.dtype.label} data"
    old_scales = np.broadcast_to(weights.quantization.scales, factor.shape).astype(np.float64)
    per_channel = weights.dtype is DataType.INT8 and op.kind is not OpKind.FULLY_CONNECTED
    new_weights = _rescaled(weights, axis, factor, old_scales, per_channel=per_channel)
    ifm_scale = ifm.quantization.scales[0]
    new_scales = np.broadcast_to(new_weights.scales, factor.shape).astype(np.float64)
    old_bias = np.zeros(factor.shape) if bias is None else _integers(bias)
    real = factor * old_bias * ifm_scale * old_scales + offset
    dtype = DataType.INT64 if ifm.dtype is DataType.INT16 else DataType.INT32
    if bias is not None:
        dtype = bias.dtype
    stored = np.round(real / (ifm_scale * new_scales))
    limit = _BIAS_LIMIT.get(dtype, 2**31 - 1)
    if np.max(np.abs(stored), initial=0.0) > limit:
        return f"the folded bias of op {linear} exceeds {dtype.label}"
    kind = np.int64 if dtype is DataType.INT64 else np.int32
    scales = tuple(float(np.float32(s)) for s in ifm_scale * np.asarray(new_weights.scales))
    return new_weights, FoldedConstant(
        dtype=dtype,
        values=stored.astype(kind),
        scales=scales,
        zero_points=(0,) * len(scales),
        axis=0,
    )


def _rescaled(
    weights: Tensor,
    axis: int,
    factor: npt.NDArray[np.float64],
    old_scales: npt.NDArray[np.float64],
    *,
    per_channel: bool,
) -> FoldedConstant:
    """Weights times ``factor``: the same integers where every channel may have its own scale."""
    assert weights.quantization is not None
    assert weights.data is not None
    shape = [1, 1, 1, 1][: len(weights.shape)]
    shape[axis] = -1
    zeros = np.broadcast_to(weights.quantization.zero_points, factor.shape)
    centred = weights.data.astype(np.int64) - zeros.reshape(shape)
    if per_channel:
        signed = centred * np.where(factor < 0, -1, 1).reshape(shape)
        signed = np.where(factor.reshape(shape) == 0, 0, signed)
        scales = np.where(factor == 0, old_scales, old_scales * np.abs(factor))
        return FoldedConstant(
            dtype=DataType.INT8,
            values=np.clip(signed, -127, 127).astype(np.int8),
            scales=tuple(float(np.float32(s)) for s in scales),
            zero_points=(0,) * len(scales),
            axis=axis,
        )
    real = centred * (old_scales * factor).reshape(shape)
    scale = float(np.float32(max(np.max(np.abs(real), initial=0.0), 1e-12) / 127))
    values = np.clip(np.round(real / scale), -127, 127)
    zero = 0
    kind: type[np.int8] | type[np.uint8] = np.int8
    if weights.dtype is DataType.UINT8:
        zero, kind = 128, np.uint8
    return FoldedConstant(
        dtype=weights.dtype,
        values=(values + zero).astype(kind),
        scales=(scale,),
        zero_points=(zero,),
    )


def _float_constants(
    weights: Tensor,
    bias: Tensor | None,
    axis: int,
    factor: npt.NDArray[np.float64],
    offset: npt.NDArray[np.float64],
) -> tuple[FoldedConstant, FoldedConstant]:
    assert weights.data is not None
    shape = [1, 1, 1, 1][: len(weights.shape)]
    shape[axis] = -1
    old = np.zeros(factor.shape) if bias is None else _integers(bias)
    kind = weights.data.dtype
    return (
        FoldedConstant(
            dtype=weights.dtype,
            values=(weights.data.astype(np.float64) * factor.reshape(shape)).astype(kind),
        ),
        FoldedConstant(dtype=weights.dtype, values=(factor * old + offset).astype(kind)),
    )


def _integers(tensor: Tensor) -> npt.NDArray[np.float64]:
    assert tensor.data is not None
    return tensor.data.astype(np.float64).reshape(-1)
