"""Which family runs which kind under which limits: the tables that the catalogue hands out.

A kind that is missing from a family's table has no hardware path there. The lists and the order of
the limits are facts of Vela 5.2.0 (tflite_supported_operators*.cpp); see LOWERING §2.
"""

from __future__ import annotations

from npusched.hardware.target import Family
from npusched.ir import DataType, OpKind
from npusched.ops import limits_generic as generic
from npusched.ops import limits_index as index
from npusched.ops import limits_ops as ops
from npusched.ops import limits_shapes as shapes
from npusched.ops import limits_window as window
from npusched.ops.constraint import Constraint

_INTEGERS = (DataType.UINT8, DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64)
TYPES_U55 = generic.feature_map_types(_INTEGERS)
TYPES_U85 = generic.feature_map_types((*_INTEGERS, DataType.BOOL))
NOT_32_BIT = generic.feature_map_bits(DataType.INT32)
NOT_64_BIT = generic.feature_map_bits(DataType.INT64)

BOTH = frozenset(
    {
        OpKind.ADD,
        OpKind.AVERAGE_POOL_2D,
        OpKind.BATCH_MATMUL,
        OpKind.CONCATENATION,
        OpKind.CONV_2D,
        OpKind.DEPTHWISE_CONV_2D,
        OpKind.FULLY_CONNECTED,
        OpKind.LOGISTIC,
        OpKind.MAX_POOL_2D,
        OpKind.MUL,
        OpKind.RELU,
        OpKind.RELU_0_TO_1,
        OpKind.RELU6,
        OpKind.RELU_N1_TO_1,
        OpKind.RESHAPE,
        OpKind.REVERSE_V2,
        OpKind.SOFTMAX,
        OpKind.TANH,
        OpKind.PAD,
        OpKind.TRANSPOSE,
        OpKind.MEAN,
        OpKind.SUB,
        OpKind.SQUEEZE,
        OpKind.STRIDED_SLICE,
        OpKind.EXP,
        OpKind.SPLIT,
        OpKind.PRELU,
        OpKind.MAXIMUM,
        OpKind.ARG_MAX,
        OpKind.MINIMUM,
        OpKind.PADV2,
        OpKind.SLICE,
        OpKind.TRANSPOSE_CONV,
        OpKind.TILE,
        OpKind.EXPAND_DIMS,
        OpKind.SUM,
        OpKind.REDUCE_MAX,
        OpKind.REDUCE_MIN,
        OpKind.RESIZE_BILINEAR,
        OpKind.RESIZE_NEAREST_NEIGHBOR,
        OpKind.RSQRT,
        OpKind.PACK,
        OpKind.UNPACK,
        OpKind.GELU,
        OpKind.ELU,
        OpKind.LEAKY_RELU,
        OpKind.SQUARED_DIFFERENCE,
        OpKind.MIRROR_PAD,
        OpKind.ABS,
        OpKind.SPLIT_V,
        OpKind.QUANTIZE,
        OpKind.HARD_SWISH,
        OpKind.LOG,
        OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM,
        OpKind.NEG,
    }
)
"""Kinds that every family runs, within limits."""

U85_ONLY = frozenset(
    {
        OpKind.GATHER,
        OpKind.DIV,
        OpKind.CAST,
        OpKind.SELECT,
        OpKind.SELECT_V2,
        OpKind.GREATER,
        OpKind.GREATER_EQUAL,
        OpKind.LESS,
        OpKind.LESS_EQUAL,
        OpKind.EQUAL,
        OpKind.NOT_EQUAL,
        OpKind.REDUCE_ANY,
        OpKind.REDUCE_ALL,
        OpKind.LOGICAL_OR,
        OpKind.LOGICAL_AND,
        OpKind.LOGICAL_NOT,
        OpKind.SCATTER_ND,
        OpKind.READ_VARIABLE,
        OpKind.ASSIGN_VARIABLE,
    }
)
"""Kinds that only Ethos-U85 runs, within limits."""

_VARIABLE_KINDS = frozenset({OpKind.READ_VARIABLE, OpKind.ASSIGN_VARIABLE})
_UNQUANTISED_KINDS = _VARIABLE_KINDS | {
    OpKind.ARG_MAX,
    OpKind.MIRROR_PAD,
    OpKind.QUANTIZE,
    OpKind.TRANSPOSE,
    OpKind.GATHER,
    OpKind.SELECT,
    OpKind.SELECT_V2,
    OpKind.SCATTER_ND,
    OpKind.PAD,
    OpKind.PADV2,
    OpKind.REDUCE_ALL,
    OpKind.REDUCE_ANY,
    OpKind.EXPAND_DIMS,
}
_WEIGHTED_KINDS = frozenset(
    {
        OpKind.CONV_2D,
        OpKind.DEPTHWISE_CONV_2D,
        OpKind.TRANSPOSE_CONV,
        OpKind.FULLY_CONNECTED,
    }
)
_INT32_KINDS_U55 = frozenset(
    {
        OpKind.SUM,
        OpKind.ARG_MAX,
        OpKind.TRANSPOSE,
        OpKind.MIRROR_PAD,
        OpKind.ADD,
        OpKind.MUL,
        OpKind.SUB,
        OpKind.BATCH_MATMUL,
        OpKind.FULLY_CONNECTED,
        OpKind.RESHAPE,
        OpKind.SQUEEZE,
        OpKind.EXPAND_DIMS,
        OpKind.NEG,
    }
)
_INT64_KINDS_U55 = frozenset({OpKind.ARG_MAX})
_ANY_ZERO_POINT = frozenset(
    {
        OpKind.AVERAGE_POOL_2D,
        OpKind.RESIZE_BILINEAR,
        OpKind.RESIZE_NEAREST_NEIGHBOR,
        OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM,
    }
)
"""Kinds whose reference ignores zero points, and so does the check of them."""

_CONSTANT = (generic.CONSTANT_PARAMETERS,)

_SHARED: dict[OpKind, tuple[Constraint, ...]] = {
    OpKind.SLICE: _CONSTANT,
    OpKind.STRIDED_SLICE: (*_CONSTANT, *ops.STRIDED_SLICE_LIMITS),
    OpKind.MEAN: (*_CONSTANT, *ops.MEAN_LIMITS),
    OpKind.PAD: (*_CONSTANT, ops.PAD_TYPE),
    OpKind.PADV2: (*_CONSTANT, ops.PAD_TYPE),
    OpKind.MIRROR_PAD: (*_CONSTANT, ops.PAD_TYPE),
    OpKind.TRANSPOSE: (*_CONSTANT, ops.TRANSPOSE_RANK),
    OpKind.MINIMUM: (ops.SAME_QUANTISATION,),
    OpKind.MAXIMUM: (ops.SAME_QUANTISATION,),
    OpKind.FULLY_CONNECTED: (window.FULLY_CONNECTED_WEIGHTS,),
    OpKind.AVERAGE_POOL_2D: (
        window.POOL_KERNEL,
        window.AVERAGE_HEIGHT,
        window.AVERAGE_AREA,
        window.PADDED_AVERAGE,
    ),
    OpKind.MAX_POOL_2D: (window.POOL_KERNEL, window.POOL_HEIGHT, window.POOL_AREA),
    OpKind.TRANSPOSE_CONV: (window.TRANSPOSE_CONV_SHAPE,),
    OpKind.RSQRT: (ops.RSQRT_TYPES,),
    OpKind.SOFTMAX: (ops.SOFTMAX_ROWS,),
    OpKind.GELU: ops.GELU_LIMITS,
    OpKind.ELU: ops.ELU_LIMITS,
    OpKind.LOG: ops.LOG_LIMITS,
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: index.LSTM_LIMITS,
    OpKind.SPLIT: (index.SPLIT_COUNT,),
    OpKind.SPLIT_V: (index.SPLIT_COUNT,),
}

_PRODUCT_U55 = (window.PRODUCT_REDUCED_AXIS, window.PRODUCT_DEPTH, window.PRODUCT_TYPE)

_OWN_U55: dict[OpKind, tuple[Constraint, ...]] = {
    OpKind.CONV_2D: (window.UNROLLABLE_STRIDE,),
    OpKind.AVERAGE_POOL_2D: (window.UNROLLABLE_STRIDE,),
    OpKind.MAX_POOL_2D: (window.UNROLLABLE_STRIDE,),
    OpKind.DEPTHWISE_CONV_2D: (window.STRIDE,),
    OpKind.TRANSPOSE_CONV: (window.TRANSPOSE_CONV_STRIDE,),
    OpKind.FULLY_CONNECTED: _PRODUCT_U55,
    OpKind.BATCH_MATMUL: _PRODUCT_U55,
    OpKind.REVERSE_V2: (index.REVERSE_NOTHING_U55,),
    OpKind.ARG_MAX: index.ARGMAX_LIMITS_U55,
    OpKind.TRANSPOSE: (shapes.TRANSPOSE_INT32_U55, shapes.TRANSPOSE_NARROW_U55),
    OpKind.RESIZE_BILINEAR: (shapes.RESIZE_U55,),
    OpKind.RESIZE_NEAREST_NEIGHBOR: (shapes.RESIZE_U55,),
}

_OWN_U85: dict[OpKind, tuple[Constraint, ...]] = {
    OpKind.GATHER: (index.GATHER_AXIS,),
    OpKind.SCATTER_ND: index.SCATTER_LIMITS,
    OpKind.RESIZE_BILINEAR: shapes.RESIZE_BILINEAR_LIMITS_U85,
    OpKind.RESIZE_NEAREST_NEIGHBOR: shapes.RESIZE_LIMITS_U85,
}

_SUM_8BIT = 127 * (1 << 16)
_WEIGHTED_U55 = (generic.weight_sum(_SUM_8BIT, _SUM_8BIT), generic.bias_range(40))
_WEIGHTED_U85 = (generic.weight_sum(_SUM_8BIT, 127 * (1 << 24)), generic.bias_range(48))


def _generic(
    kind: OpKind, types: Constraint, weighted: tuple[Constraint, Constraint]
) -> list[Constraint]:
    """Return the limits that come before those of the kind itself."""
    limits = [generic.DYNAMIC_AXIS, types]
    if kind not in _VARIABLE_KINDS:
        limits.append(generic.KNOWN_SHAPES)
    if kind is not OpKind.READ_VARIABLE:
        limits.append(generic.HAS_INPUT)
    if kind is not OpKind.ASSIGN_VARIABLE:
        limits.append(generic.HAS_OUTPUT)
    if kind not in _UNQUANTISED_KINDS:
        limits += [generic.QUANTISED, generic.SCALE_RANGE]
    if kind not in _WEIGHTED_KINDS:
        return [*limits, generic.PER_TENSOR]
    total, range_ = weighted
    return [
        *limits,
        generic.WEIGHT_TYPE,
        total,
        generic.BIAS_SHAPE,
        generic.BIAS_CONSTANT,
        generic.BIAS_TYPE,
        range_,
    ]


def _u55(kind: OpKind) -> tuple[Constraint, ...]:
    limits = _generic(kind, TYPES_U55, _WEIGHTED_U55)
    limits += _SHARED.get(kind, ())
    if kind not in _ANY_ZERO_POINT:
        limits.append(generic.ZERO_POINTS_U55)
    if kind not in _INT32_KINDS_U55:
        limits.append(NOT_32_BIT)
    if kind not in _INT64_KINDS_U55:
        limits.append(NOT_64_BIT)
    return (*limits, *_OWN_U55.get(kind, ()))


def _u85(kind: OpKind) -> tuple[Constraint, ...]:
    limits = _generic(kind, TYPES_U85, _WEIGHTED_U85)
    limits += _SHARED.get(kind, ())
    if kind not in _ANY_ZERO_POINT and kind is not OpKind.DIV:
        limits.append(generic.ZERO_POINTS_U85)
    return (*limits, *_OWN_U85.get(kind, ()))


_U55_LIMITS = {kind: _u55(kind) for kind in BOTH}
_U85_LIMITS = {kind: _u85(kind) for kind in BOTH | U85_ONLY}


def limits_of(kind: OpKind, family: Family) -> tuple[Constraint, ...] | None:
    """Return the limits under which ``family`` runs ``kind``, None if it has no path for it.

    Ethos-U55 and Ethos-U65 share one table (Vela 5.2.0, MakeSupportedOpsChecker).
    """
    return (_U85_LIMITS if family is Family.U85 else _U55_LIMITS).get(kind)
