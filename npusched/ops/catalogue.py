"""The op catalogue: one ``OpSpec`` per TFLite operator kind."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from npusched.hardware.target import Family
from npusched.ir import OpKind
from npusched.ops.constraint import Constraint
from npusched.ops.limits import limits_of


class Category(StrEnum):
    """What sort of work an op is."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    PRODUCT = "product"
    POOL = "pool"
    ELEMENTWISE = "elementwise"
    ACTIVATION = "activation"
    LUT = "lut"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    QUANTIZE = "quantize"
    MOVEMENT = "movement"
    VIEW = "view"
    RESIZE = "resize"
    RECURRENT = "recurrent"
    GATHER = "gather"
    SORT = "sort"
    VARIABLE = "variable"
    CONTROL = "control"
    OTHER = "other"


class CostClass(StrEnum):
    """Key into the tables of ``HostCpu``: per MAC for the first six, per element for the rest."""

    CONV = "conv"
    POINTWISE_CONV = "pointwise_conv"
    DEPTHWISE = "depthwise"
    FULLY_CONNECTED = "fully_connected"
    BATCH_MATMUL = "batch_matmul"
    RECURRENT = "recurrent"
    POOL = "pool"
    ELEMENTWISE = "elementwise"
    DIVIDE = "divide"
    ACTIVATION = "activation"
    LUT = "lut"
    SOFTMAX = "softmax"
    QUANTIZE = "quantize"
    REDUCE = "reduce"
    COPY = "copy"
    PERMUTE = "permute"
    GATHER = "gather"
    RESIZE = "resize"
    SORT = "sort"
    CONTROL = "control"
    OTHER = "other"

    @property
    def per_mac(self) -> bool:
        """True if the class is costed per MAC, False if per element."""
        return self in _PER_MAC


_PER_MAC = frozenset(
    {
        CostClass.CONV,
        CostClass.POINTWISE_CONV,
        CostClass.DEPTHWISE,
        CostClass.FULLY_CONNECTED,
        CostClass.BATCH_MATMUL,
        CostClass.RECURRENT,
    }
)


class OpSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an op kind without looking at an op.

    ``is_view``: its result is its input under another shape, so that no bytes need to move.
    ``row_local``: result rows [a, b) need the same input rows only (windows: see ``ifm_rows``).
    ``counts_inputs``: host work grows with the inputs, not with the results.
    """

    kind: OpKind
    category: Category
    cost_class: CostClass
    is_view: bool = False
    row_local: bool = False
    counts_inputs: bool = False

    def limits(self, family: Family) -> tuple[Constraint, ...] | None:
        """Return the limits under which ``family`` runs the kind, None if it never does."""
        return limits_of(self.kind, family)


_GROUPS: tuple[tuple[Category, CostClass, str], ...] = (
    (Category.CONVOLUTION, CostClass.CONV, "CONV_2D TRANSPOSE_CONV CONV_3D CONV_3D_TRANSPOSE"),
    (Category.CONVOLUTION, CostClass.CONV, "STABLEHLO_CONVOLUTION"),
    (Category.DEPTHWISE, CostClass.DEPTHWISE, "DEPTHWISE_CONV_2D"),
    (Category.PRODUCT, CostClass.FULLY_CONNECTED, "FULLY_CONNECTED"),
    (Category.PRODUCT, CostClass.BATCH_MATMUL, "BATCH_MATMUL STABLEHLO_DOT_GENERAL"),
    (Category.POOL, CostClass.POOL, "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D"),
    (Category.POOL, CostClass.POOL, "REDUCE_WINDOW STABLEHLO_REDUCE_WINDOW"),
    (
        Category.ELEMENTWISE,
        CostClass.ELEMENTWISE,
        "ADD SUB MUL MAXIMUM MINIMUM ABS NEG ADD_N SQUARED_DIFFERENCE SQUARE SIGN FLOOR CEIL ROUND "
        "LESS GREATER GREATER_EQUAL LESS_EQUAL EQUAL NOT_EQUAL SELECT SELECT_V2 "
        "LOGICAL_OR LOGICAL_AND LOGICAL_NOT BITWISE_XOR RIGHT_SHIFT BITCAST COMPLEX_ABS REAL IMAG "
        "STABLEHLO_ADD STABLEHLO_SUBTRACT STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_MINIMUM "
        "STABLEHLO_ABS STABLEHLO_NEGATE STABLEHLO_AND STABLEHLO_OR STABLEHLO_COMPARE "
        "STABLEHLO_SELECT STABLEHLO_FLOOR STABLEHLO_SHIFT_LEFT STABLEHLO_CLAMP",
    ),
    (
        Category.ELEMENTWISE,
        CostClass.DIVIDE,
        "DIV FLOOR_DIV FLOOR_MOD POW SQRT ATAN2 STABLEHLO_DIVIDE STABLEHLO_POWER "
        "STABLEHLO_REMAINDER STABLEHLO_CBRT",
    ),
    (
        Category.ACTIVATION,
        CostClass.ACTIVATION,
        "RELU RELU_N1_TO_1 RELU6 RELU_0_TO_1 PRELU LEAKY_RELU",
    ),
    (
        Category.LUT,
        CostClass.LUT,
        "LOGISTIC TANH HARD_SWISH EXP LOG GELU ELU RSQRT SIN COS STABLEHLO_LOGISTIC STABLEHLO_TANH "
        "STABLEHLO_EXPONENTIAL STABLEHLO_LOG STABLEHLO_COSINE STABLEHLO_RSQRT",
    ),
    (
        Category.SOFTMAX,
        CostClass.SOFTMAX,
        "SOFTMAX LOG_SOFTMAX L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION",
    ),
    (
        Category.REDUCTION,
        CostClass.REDUCE,
        "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN CUMSUM "
        "SEGMENT_SUM UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM "
        "UNSORTED_SEGMENT_MIN STABLEHLO_REDUCE",
    ),
    (
        Category.QUANTIZE,
        CostClass.QUANTIZE,
        "QUANTIZE DEQUANTIZE CAST FAKE_QUANT DENSIFY STABLEHLO_CONVERT",
    ),
    (Category.VIEW, CostClass.COPY, "RESHAPE SQUEEZE EXPAND_DIMS STABLEHLO_RESHAPE"),
    (
        Category.MOVEMENT,
        CostClass.COPY,
        "CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE STRIDED_SLICE PAD PADV2 MIRROR_PAD TILE "
        "FILL ZEROS_LIKE BROADCAST_TO BROADCAST_ARGS RANGE DYNAMIC_UPDATE_SLICE DILATE "
        "CONCAT_EMBEDDINGS MATRIX_DIAG MATRIX_SET_DIAG STABLEHLO_CONCATENATE "
        "STABLEHLO_BROADCAST_IN_DIM STABLEHLO_SLICE STABLEHLO_DYNAMIC_SLICE "
        "STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA",
    ),
    (
        Category.MOVEMENT,
        CostClass.PERMUTE,
        "TRANSPOSE SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND REVERSE_V2 "
        "REVERSE_SEQUENCE STABLEHLO_TRANSPOSE",
    ),
    (Category.RESIZE, CostClass.RESIZE, "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR"),
    (
        Category.RECURRENT,
        CostClass.RECURRENT,
        "LSTM UNIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_LSTM RNN "
        "UNIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_RNN",
    ),
    (Category.RECURRENT, CostClass.FULLY_CONNECTED, "SVDF"),
    (
        Category.GATHER,
        CostClass.GATHER,
        "GATHER GATHER_ND SCATTER_ND EMBEDDING_LOOKUP EMBEDDING_LOOKUP_SPARSE HASHTABLE_LOOKUP "
        "HASHTABLE_FIND ONE_HOT SPARSE_TO_DENSE STABLEHLO_GATHER STABLEHLO_SCATTER",
    ),
    (
        Category.SORT,
        CostClass.SORT,
        "TOPK_V2 UNIQUE WHERE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 BUCKETIZE "
        "STABLEHLO_SORT",
    ),
    (Category.VARIABLE, CostClass.COPY, "READ_VARIABLE ASSIGN_VARIABLE"),
    (Category.VARIABLE, CostClass.CONTROL, "VAR_HANDLE HASHTABLE HASHTABLE_SIZE HASHTABLE_IMPORT"),
    (
        Category.CONTROL,
        CostClass.CONTROL,
        "IF WHILE CALL CALL_ONCE SHAPE RANK DELEGATE PLACEHOLDER_FOR_GREATER_OP_CODES "
        "STABLEHLO_WHILE STABLEHLO_COMPOSITE STABLEHLO_CUSTOM_CALL",
    ),
    (
        Category.OTHER,
        CostClass.OTHER,
        "CUSTOM UNKNOWN LSH_PROJECTION SKIP_GRAM RFFT2D RANDOM_STANDARD_NORMAL RANDOM_UNIFORM "
        "MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR",
    ),
)

_ROW_LOCAL = frozenset(
    {Category.ELEMENTWISE, Category.ACTIVATION, Category.LUT, Category.SOFTMAX, Category.QUANTIZE}
)
_COUNTS_INPUTS = frozenset({Category.REDUCTION, Category.SORT})


def _build() -> dict[OpKind, OpSpec]:
    specs: dict[OpKind, OpSpec] = {}
    for category, cost_class, kinds in _GROUPS:
        for name in kinds.split():
            kind = OpKind(name)
            if kind in specs:
                raise ValueError(f"{name} is listed twice in the op catalogue")
            specs[kind] = OpSpec(
                kind=kind,
                category=category,
                cost_class=cost_class,
                is_view=category is Category.VIEW,
                row_local=category in _ROW_LOCAL,
                counts_inputs=category in _COUNTS_INPUTS,
            )
    return specs


SPECS: dict[OpKind, OpSpec] = _build()
"""Every op kind of the file format."""


def spec(kind: OpKind) -> OpSpec:
    """Return the catalogue entry of ``kind``."""
    return SPECS[kind]
