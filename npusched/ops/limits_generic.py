"""Limits that apply to (nearly) every op: types, shapes, quantisation, weights and biases.

Facts: LOWERING §2.2; Vela 5.2.0, tflite_supported_operators.cpp, _u55.cpp and _u85.cpp.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from npusched.ir import DataType, OpKind
from npusched.ops.constraint import Constraint, named, shape_text
from npusched.ops.operands import Operand, Operands
from npusched.ops.roles import Role

_ZeroPoints: TypeAlias = Mapping[DataType, tuple[Container[int], ...]]

MAX_SCALE = 2.0**32
"""Smallest quantisation scale whose fixed-point form needs a left shift of more than one bit."""

_INTEGER_FIX = "quantise the model to full integers (int8), with a representative dataset"
_EXPORT_FIX = "export the model with fixed shapes"
_REQUANTISE_FIX = "quantise the tensor again with the standard int8 scheme"


def _dynamic_axis(operands: Operands) -> str | None:
    for operand in operands.all:
        for axis in operand.tensor.dynamic_axes:
            if axis > 0:
                return named(operand, f"axis {axis}")
    return None


DYNAMIC_AXIS = Constraint(
    limit="dynamic_axis",
    what="unknown size of",
    allowed="ops whose only unknown axis is the batch",
    fix=_EXPORT_FIX,
    find=_dynamic_axis,
    gate=True,
)


def feature_map_types(types: tuple[DataType, ...]) -> Constraint:
    """Return the limit that feature maps (inputs and results) have one of ``types``."""

    def find(operands: Operands) -> str | None:
        for operand in operands.feature_maps():
            if operand.tensor.dtype not in types:
                return named(operand, operand.tensor.dtype.label)
        return None

    return Constraint(
        limit="feature_map_type",
        what="type",
        allowed=", ".join(t.label for t in types),
        fix=_INTEGER_FIX,
        find=find,
        gate=True,
    )


def feature_map_bits(rejected: DataType) -> Constraint:
    """Return the limit that no feature map has the width of ``rejected`` (int32 or int64)."""

    def find(operands: Operands) -> str | None:
        for operand in operands.feature_maps():
            if operand.tensor.dtype.bits == rejected.bits:
                return named(operand, operand.tensor.dtype.label)
        return None

    return Constraint(
        limit=f"feature_map_{rejected.bits}bit",
        what="type",
        allowed=f"this op only on feature maps narrower than {rejected.bits} bits",
        fix="compute on int8 or int16 feature maps",
        find=find,
    )


def _shapeless(operands: Operands) -> str | None:
    return next((named(o, "unknown") for o in operands.all if not o.known), None)


KNOWN_SHAPES = Constraint(
    limit="known_shape",
    what="shape",
    allowed="tensors whose shape is stored in the file (a scalar result has none)",
    fix="keep at least one axis (keep_dims, or an explicit reshape to [1])",
    find=_shapeless,
    gate=True,
)


def _no_input(operands: Operands) -> str | None:
    return None if operands.get(Role.IFM) is not None else "none"


def _no_output(operands: Operands) -> str | None:
    return None if operands.outputs else "none"


HAS_INPUT = Constraint(
    limit="input",
    what="feature-map input",
    allowed="ops with at least one",
    fix="connect the op's input",
    find=_no_input,
    gate=True,
)
HAS_OUTPUT = Constraint(
    limit="output",
    what="result",
    allowed="ops with at least one",
    fix="connect the op's output",
    find=_no_output,
    gate=True,
)


def _unquantised(operands: Operands) -> str | None:
    for operand in operands.all:
        dtype = operand.tensor.dtype
        is_map = operand.role in (Role.IFM, Role.OFM)
        if dtype in (DataType.INT64, DataType.BOOL):
            continue
        needs = is_map and (dtype is not DataType.INT32 or operands.kind is OpKind.QUANTIZE)
        needs = needs or (operand.role is Role.WEIGHTS and operand.slot == 0)
        quantization = operand.tensor.quantization
        missing = quantization is None or not quantization.scales or not quantization.zero_points
        if needs and missing:
            return named(operand, "missing")
    return None


QUANTISED = Constraint(
    limit="quantisation",
    what="scale and zero point",
    allowed="ops whose inputs, results and weights all have them",
    fix=_INTEGER_FIX,
    find=_unquantised,
)


def _large_scale(operands: Operands) -> str | None:
    for operand in operands.all:
        quantization = operand.tensor.quantization
        for scale in quantization.scales if quantization is not None else ():
            if scale >= MAX_SCALE:
                return named(operand, f"{scale:g}")
    return None


SCALE_RANGE = Constraint(
    limit="scale_range",
    what="quantisation scale",
    allowed=f"scales below {MAX_SCALE:g}",
    fix=_REQUANTISE_FIX,
    find=_large_scale,
)


def _per_axis(operands: Operands) -> str | None:
    for operand in operands.all:
        quantization = operand.tensor.quantization
        if quantization is None:
            continue
        count = max(len(quantization.scales), len(quantization.zero_points))
        if count > 1:
            return named(operand, f"{count} scales")
    return None


PER_TENSOR = Constraint(
    limit="per_axis_quantisation",
    what="per-axis quantisation",
    allowed="per-axis quantisation only in convolutions and fully connected ops",
    fix="quantise this tensor with one scale",
    find=_per_axis,
)


def _weight_bits(operands: Operands) -> str | None:
    weights = operands.weights
    if weights is None:
        return "none"
    return None if weights.tensor.dtype.bits == 8 else named(weights, weights.tensor.dtype.label)


WEIGHT_TYPE = Constraint(
    limit="weight_type",
    what="weight type",
    allowed="8-bit weights",
    fix="quantise the weights to int8",
    find=_weight_bits,
    gate=True,
)


def _ohwi(weights: Operand, kind: OpKind) -> npt.NDArray[np.generic] | None:
    """Return constant 8-bit weights as (out channels, everything else), None if not possible."""
    data = weights.tensor.data
    shape = weights.shape
    if (
        data is None
        or data.size == 0
        or data.dtype.itemsize != 1
        or data.size != weights.tensor.elements
    ):
        return None
    if kind is OpKind.DEPTHWISE_CONV_2D:
        return data.reshape(-1, shape[-1]).T
    return data.reshape(shape[0], -1) if shape else None


def largest_weight_sum(operands: Operands, limit: int) -> int | None:
    """Return the largest sum |w - zero_point| of an output channel, None if below ``limit``."""
    weights = operands.weights
    rows = None if weights is None else _ohwi(weights, operands.kind)
    if weights is None or rows is None or 255 * rows.shape[1] < limit:
        return None
    quantization = weights.tensor.quantization
    zero_points = quantization.zero_points if quantization is not None else ()
    zeros = np.zeros(1, np.int64) if not zero_points else np.asarray(zero_points, np.int64)
    if zeros.size > 1 and zeros.size != rows.shape[0]:
        zeros = zeros[:1]
    return int(np.abs(rows.astype(np.int64) - zeros[:, None]).sum(axis=1).max())


def weight_sum(maximum_8bit: int, maximum_wide: int) -> Constraint:
    """Return the limit on sum |w - zero point| of an output channel (8-bit IFM, wider IFM)."""

    def find(operands: Operands) -> str | None:
        ifm = operands.get(Role.IFM)
        if ifm is None:
            return None
        limit = maximum_8bit if ifm.tensor.dtype.bits == 8 else maximum_wide
        value = largest_weight_sum(operands, limit)
        return None if value is None or value <= limit else str(value)

    return Constraint(
        limit="weight_sum",
        what="sum of absolute weights of an output channel",
        allowed=f"at most {maximum_8bit} (8-bit input) or {maximum_wide} (wider input)",
        fix="use a smaller kernel or fewer input channels",
        find=find,
    )


def _bias_shape(operands: Operands) -> str | None:
    bias = operands.bias
    if bias is None or not bias.shape or bias.tensor.elements <= bias.shape[-1]:
        return None
    return shape_text(bias.shape)


BIAS_SHAPE = Constraint(
    limit="bias_shape",
    what="bias shape",
    allowed="one bias per output channel, in the last axis",
    fix="store the bias as a vector",
    find=_bias_shape,
)


def _dynamic_bias(operands: Operands) -> str | None:
    bias = operands.bias
    return None if bias is None or bias.tensor.is_constant else named(bias, "computed")


BIAS_CONSTANT = Constraint(
    limit="bias_constant",
    what="bias",
    allowed="constant biases",
    fix="add the computed bias with a separate ADD",
    find=_dynamic_bias,
)


def _bias_type(operands: Operands) -> str | None:
    bias = operands.bias
    if bias is None or bias.tensor.dtype in (DataType.INT32, DataType.INT64):
        return None
    return bias.tensor.dtype.label


BIAS_TYPE = Constraint(
    limit="bias_type",
    what="bias type",
    allowed="int32 and int64 biases",
    fix=_INTEGER_FIX,
    find=_bias_type,
)


def bias_range(bits: int) -> Constraint:
    """Return the limit that int64 biases are below 2**bits."""
    maximum = (1 << bits) - 1

    def find(operands: Operands) -> str | None:
        bias = operands.bias
        if bias is None or bias.tensor.dtype is not DataType.INT64:
            return None
        values = bias.values
        return str(max(values)) if values and max(values) > maximum else None

    return Constraint(
        limit="bias_range",
        what="int64 bias",
        allowed=f"at most {maximum}",
        fix="use int32 biases",
        find=find,
    )


def _zero_point(operands: Operands, allowed: Mapping[Role, _ZeroPoints]) -> str | None:
    for operand in operands.feature_maps():
        quantization = operand.tensor.quantization
        ranges = allowed[operand.role].get(operand.tensor.dtype)
        if quantization is None or ranges is None:
            continue
        for value in quantization.zero_points:
            if not any(value in part for part in ranges):
                return named(operand, f"{value} of {operand.tensor.dtype.label}")
    return None


_FAR = 1 << 63
_NON_NEGATIVE = (range(_FAR),)
_U55_ZERO_POINTS: _ZeroPoints = {
    DataType.INT32: ((0,),),
    DataType.UINT8: _NON_NEGATIVE,
    DataType.BOOL: _NON_NEGATIVE,
}

ZERO_POINTS_U55 = Constraint(
    limit="zero_point",
    what="zero point",
    allowed="0 for int32 and non-negative values for unsigned types",
    fix=_REQUANTISE_FIX,
    find=lambda operands: _zero_point(
        operands, {Role.IFM: _U55_ZERO_POINTS, Role.OFM: _U55_ZERO_POINTS}
    ),
)

_ZERO = ((0,),)
_SIGNED_BYTE = (range(-128, 128),)
_UNSIGNED_BYTE = (range(256), (32768,))
_U85_IFM_ZERO_POINTS: _ZeroPoints = {
    DataType.INT8: _SIGNED_BYTE,
    DataType.UINT8: (range(256),),
    DataType.INT16: _ZERO,
    DataType.INT32: _ZERO,
    DataType.INT64: _ZERO,
    DataType.BOOL: _ZERO,
}
_U85_OFM_ZERO_POINTS: _ZeroPoints = {
    DataType.INT8: _SIGNED_BYTE,
    DataType.INT16: _SIGNED_BYTE,
    DataType.INT32: _SIGNED_BYTE,
    DataType.INT64: _SIGNED_BYTE,
    DataType.UINT8: _UNSIGNED_BYTE,
    DataType.BOOL: _UNSIGNED_BYTE,
}

ZERO_POINTS_U85 = Constraint(
    limit="zero_point",
    what="zero point",
    allowed="inputs with -128..127 (int8), 0..255 (uint8) or 0 (wider), and results with "
    "-128..127 (signed) or 0..255 and 32768 (unsigned)",
    fix=_REQUANTISE_FIX,
    find=lambda operands: _zero_point(
        operands, {Role.IFM: _U85_IFM_ZERO_POINTS, Role.OFM: _U85_OFM_ZERO_POINTS}
    ),
)


def _computed_parameter(operands: Operands) -> str | None:
    for operand in operands.inputs:
        if operand.role is Role.PARAMS and not operand.tensor.is_constant:
            return named(operand, "computed")
    return None


CONSTANT_PARAMETERS = Constraint(
    limit="constant_parameters",
    what="parameter",
    allowed="constant parameters (axes, shapes, paddings, permutations)",
    fix="make the parameter a constant of the model",
    find=_computed_parameter,
    gate=True,
)
