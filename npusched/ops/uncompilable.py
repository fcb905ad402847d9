"""What Vela 5.2.0 gives to the NPU and then fails to compile, so that there is no file at all.

Such an op keeps all limits of its kind, but the architecture has no operation for it and Vela stops
("could not run on NPU") or crashes. We plan the op on the CPU and say so. The table was measured by
compiling one-op models of every kind and type on u55-128 and u85-256; it follows the type tables of
ethos_u85_constraints.cpp where Vela gets that far.
"""

from __future__ import annotations

from npusched.hardware.target import Family
from npusched.ir import ActivationKind, DataType, OpKind
from npusched.ops.constraint import RULES_VERSION, Reason, family_label, named
from npusched.ops.operands import Operand, Operands
from npusched.ops.roles import Role
from npusched.ops.window import axis

_WIDE = frozenset({DataType.INT32, DataType.INT64})
_WIDE_OR_BOOL = _WIDE | {DataType.BOOL}
_INT64 = frozenset({DataType.INT64})

_FAILING_INPUTS_U85: dict[OpKind, frozenset[DataType]] = {
    **dict.fromkeys(
        (
            OpKind.CONV_2D,
            OpKind.DEPTHWISE_CONV_2D,
            OpKind.TRANSPOSE_CONV,
            OpKind.FULLY_CONNECTED,
            OpKind.BATCH_MATMUL,
            OpKind.RESIZE_BILINEAR,
            OpKind.RESIZE_NEAREST_NEIGHBOR,
            OpKind.SOFTMAX,
            OpKind.EXP,
            OpKind.PRELU,
            OpKind.LOGISTIC,
            OpKind.TANH,
        ),
        _WIDE_OR_BOOL,
    ),
    **dict.fromkeys((OpKind.AVERAGE_POOL_2D, OpKind.MAX_POOL_2D, OpKind.QUANTIZE), _WIDE),
    **dict.fromkeys(
        (
            OpKind.ABS,
            OpKind.ADD,
            OpKind.SUB,
            OpKind.MUL,
            OpKind.DIV,
            OpKind.MINIMUM,
            OpKind.MAXIMUM,
            OpKind.EQUAL,
            OpKind.NOT_EQUAL,
            OpKind.GREATER,
            OpKind.GREATER_EQUAL,
            OpKind.LESS,
            OpKind.LESS_EQUAL,
            OpKind.LEAKY_RELU,
            OpKind.LOGICAL_AND,
            OpKind.LOGICAL_OR,
            OpKind.LOGICAL_NOT,
            OpKind.CAST,
            OpKind.REDUCE_MAX,
            OpKind.REDUCE_MIN,
            OpKind.REDUCE_ANY,
            OpKind.REDUCE_ALL,
            OpKind.RELU,
            OpKind.RELU6,
            OpKind.RELU_N1_TO_1,
            OpKind.RELU_0_TO_1,
        ),
        _INT64,
    ),
    **dict.fromkeys((OpKind.NEG, OpKind.SUM, OpKind.SQUARED_DIFFERENCE), _INT64 | {DataType.BOOL}),
    **dict.fromkeys((OpKind.SELECT, OpKind.SELECT_V2), _INT64 | {DataType.UINT8}),
}
_FAILING_INPUTS_U55: dict[OpKind, frozenset[DataType]] = {
    OpKind.FULLY_CONNECTED: frozenset({DataType.INT32}),
}
_VALUE_SLOT = {OpKind.SELECT: 1, OpKind.SELECT_V2: 1}
"""Kinds whose values are not the first feature map."""

_CLAMPS = frozenset({OpKind.RELU, OpKind.RELU6, OpKind.RELU_N1_TO_1, OpKind.RELU_0_TO_1})
_RESIZES = frozenset({OpKind.RESIZE_BILINEAR, OpKind.RESIZE_NEAREST_NEIGHBOR})
_ONE_INPUT_TYPE = frozenset(
    {
        OpKind.DIV,
        OpKind.MINIMUM,
        OpKind.MAXIMUM,
        OpKind.EQUAL,
        OpKind.NOT_EQUAL,
        OpKind.GREATER,
        OpKind.GREATER_EQUAL,
        OpKind.LESS,
        OpKind.LESS_EQUAL,
    }
)
_TABLES = frozenset({OpKind.LOGISTIC, OpKind.TANH})


def uncompilable(operands: Operands, family: Family) -> Reason | None:
    """Return why ``operands``, although within all limits, cannot be compiled for ``family``."""
    is_u85 = family is Family.U85
    found = _input_type(operands, _FAILING_INPUTS_U85 if is_u85 else _FAILING_INPUTS_U55)
    if found is None:
        found = _scaled_clamp(operands) if is_u85 else _batched_argmax(operands)
    if found is None:
        found = _sign_bit(operands) or _mixed_types(operands, tables=is_u85)
    if found is None:
        return None
    limit, value, fix = found
    text = (
        f"Vela {RULES_VERSION} refuses the whole file: it gives {operands.kind} {value} to the NPU "
        f"and then cannot compile it, as {family_label(family)} has no operation for it"
    )
    return Reason(limit=limit, value=value, text=text, fix=fix)


def bool_edge(operand: Operand, family: Family) -> Reason:
    """Return the reason for a graph input or output of type bool on a family without bool."""
    value = named(operand, "bool")
    text = (
        f"Vela {RULES_VERSION} refuses the whole file: a graph input or output is {value}, and "
        f"{family_label(family)} cannot convert bool"
    )
    fix = "let the model take and give int8 instead of bool"
    return Reason(limit="bool_graph_tensor", value=value, text=text, fix=fix)


_Found = tuple[str, str, str]
"""(limit, value, fix)"""


def _input_type(operands: Operands, failing: dict[OpKind, frozenset[DataType]]) -> _Found | None:
    ifm = operands.get(Role.IFM, _VALUE_SLOT.get(operands.kind, 0))
    if ifm is None or ifm.tensor.dtype not in failing.get(operands.kind, ()):
        return None
    if operands.kind in _RESIZES and operands.ifm_shape() == operands.ofm_shape:
        return None  # a copy
    value = named(ifm, ifm.tensor.dtype.label)
    return "uncompilable_type", value, "quantise the input to int8 or int16"


def _scaled_clamp(operands: Operands) -> _Found | None:
    """A clamp of scaled int32 values: the clamp limits have no fixed-point form (crash)."""
    ifm = operands.get(Role.IFM)
    if ifm is None or operands.kind not in _CLAMPS or ifm.tensor.dtype is not DataType.INT32:
        return None
    if ifm.tensor.quantization is None or not ifm.tensor.quantization.scales:
        return None
    return "uncompilable_type", named(ifm, "scaled int32"), "requantise to int8 before the clamp"


def _mixed_types(operands: Operands, *, tables: bool) -> _Found | None:
    """Tables that change the type (endless loop), comparisons and such of unequal inputs."""
    ifm = operands.get(Role.IFM)
    is_table = tables and operands.kind in _TABLES
    other = operands.get(Role.OFM) if is_table else operands.get(Role.IFM, 1)
    if ifm is None or other is None or not (is_table or operands.kind in _ONE_INPUT_TYPE):
        return None
    types = (ifm.tensor.dtype.label, other.tensor.dtype.label)
    if types[0] == types[1] or set(types) == {"int8", "bool"}:
        return None
    value = f"from {types[0]} to {types[1]}" if is_table else f"of {types[0]} and {types[1]}"
    return "uncompilable_type", value, "use one type for all inputs and the result"


def _sign_bit(operands: Operands) -> _Found | None:
    kind = getattr(operands.op.options, "activation", ActivationKind.NONE)
    if kind is not ActivationKind.SIGN_BIT:
        return None
    fix = "use RELU, RELU6, RELU_N1_TO_1 or TANH"
    return "fused_activation", f"with fused {kind.value}", fix


def _batched_argmax(operands: Operands) -> _Found | None:
    shape = operands.ifm_shape()
    outer = [s for s in shape[:-3] if s != 1]
    if operands.kind is not OpKind.ARG_MAX or not outer:
        return None
    batch = axis(shape, 3) if len(shape) == 4 else outer[0]
    return "uncompilable_batch", f"batch {batch}", "run the model with batch 1"
