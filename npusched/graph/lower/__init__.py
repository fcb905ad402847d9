"""How each TFLite op that is not a plain kernel becomes NPU kernels, as Vela 5.2 does it.

``LOWERINGS`` (step 1, by TFLite op), ``DECOMPOSITIONS`` (step 3, by kernel) and the passes
``convert_booleans`` and ``merge_transposes`` between them; ``npusched.graph.work`` has the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from npusched.graph.lower import (
    activations,
    arg_max,
    cast,
    conv,
    gather,
    logic,
    lstm,
    matmul,
    reduce,
    resize,
    softmax,
    squared_difference,
    tile,
    transpose,
    transpose_conv,
)
from npusched.graph.lower.logic import convert_booleans
from npusched.graph.lower.transpose import merge_transposes
from npusched.graph.types import KernelKind
from npusched.graph.work import WorkGraph, WorkOp
from npusched.ir import OpKind

Lowering: TypeAlias = Callable[[WorkGraph, WorkOp], None]

LOWERINGS: Mapping[OpKind, Lowering] = {
    OpKind.ARG_MAX: arg_max.lower_arg_max,
    OpKind.ASSIGN_VARIABLE: gather.lower_assign_variable,
    OpKind.BATCH_MATMUL: matmul.lower_batch_matmul,
    OpKind.CAST: cast.lower_cast,
    OpKind.CONV_2D: conv.lower_convolution,
    OpKind.ELU: activations.lower_elu,
    OpKind.EQUAL: logic.lower_comparison,
    OpKind.EXP: activations.lower_exp,
    OpKind.FULLY_CONNECTED: matmul.lower_fully_connected_any,
    OpKind.GATHER: gather.lower_gather,
    OpKind.GELU: activations.lower_gelu,
    OpKind.GREATER: logic.lower_comparison,
    OpKind.GREATER_EQUAL: logic.lower_comparison,
    OpKind.HARD_SWISH: activations.lower_hard_swish,
    OpKind.LEAKY_RELU: activations.lower_leaky_relu,
    OpKind.LESS: logic.lower_comparison,
    OpKind.LESS_EQUAL: logic.lower_comparison,
    OpKind.LOG: activations.lower_log,
    OpKind.LOGICAL_AND: logic.lower_logical,
    OpKind.LOGICAL_NOT: logic.lower_logical,
    OpKind.LOGICAL_OR: logic.lower_logical,
    OpKind.LOGISTIC: activations.lower_logistic,
    OpKind.MEAN: reduce.lower_mean,
    OpKind.MIRROR_PAD: tile.lower_mirror_pad,
    OpKind.NOT_EQUAL: logic.lower_comparison,
    OpKind.PRELU: activations.lower_prelu,
    OpKind.READ_VARIABLE: gather.lower_read_variable,
    OpKind.REDUCE_ALL: reduce.lower_reduction,
    OpKind.REDUCE_ANY: reduce.lower_reduction,
    OpKind.REDUCE_MAX: reduce.lower_reduction,
    OpKind.REDUCE_MIN: reduce.lower_reduction,
    OpKind.RESIZE_BILINEAR: resize.lower_resize,
    OpKind.RESIZE_NEAREST_NEIGHBOR: resize.lower_resize,
    OpKind.REVERSE_V2: tile.lower_reverse,
    OpKind.RSQRT: activations.lower_rsqrt,
    OpKind.SCATTER_ND: gather.lower_scatter,
    OpKind.SELECT: logic.lower_select,
    OpKind.SELECT_V2: logic.lower_select,
    OpKind.SOFTMAX: softmax.lower_softmax,
    OpKind.SQUARED_DIFFERENCE: squared_difference.lower_squared_difference,
    OpKind.SUM: reduce.lower_sum,
    OpKind.TANH: activations.lower_tanh,
    OpKind.TILE: tile.lower_tile,
    OpKind.TRANSPOSE: transpose.lower_transpose,
    OpKind.TRANSPOSE_CONV: transpose_conv.lower_transpose_conv,
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: lstm.lower_lstm,
    OpKind.VAR_HANDLE: gather.lower_var_handle,
}
"""Step 1, by TFLite op."""

DECOMPOSITIONS: Mapping[OpKind | KernelKind, Lowering] = {
    KernelKind.ARG_MAX: reduce.decompose_reduction,
    KernelKind.DEPTHWISE: conv.decompose_depthwise,
    KernelKind.MATMUL: matmul.decompose_matmul,
    KernelKind.REDUCE_ALL: reduce.decompose_reduction,
    KernelKind.REDUCE_ANY: reduce.decompose_reduction,
    KernelKind.REDUCE_MAX: reduce.decompose_reduction,
    KernelKind.REDUCE_MIN: reduce.decompose_reduction,
    KernelKind.REDUCE_SUM: reduce.decompose_reduction,
    KernelKind.RESIZE: resize.decompose_resize,
    KernelKind.TRANSPOSE: transpose.decompose_transpose,
    OpKind.TRANSPOSE_CONV: transpose_conv.decompose_transpose_conv,
}
"""Step 3, by kernel; each also cuts batches and large axes where that is due."""

__all__ = ["DECOMPOSITIONS", "LOWERINGS", "Lowering", "convert_booleans", "merge_transposes"]
