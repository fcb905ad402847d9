"""All lowerings: what each TFLite op becomes, and how large or rare kernels are cut.

``npusched.graph.work`` has the order of work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from npusched.graph.lower import (
    activations,
    arg_max,
    basic_kernels,
    basic_moves,
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
from npusched.graph.types import KernelKind
from npusched.graph.work import WorkGraph, WorkOp
from npusched.ir import OpKind

Lowering: TypeAlias = Callable[[WorkGraph, WorkOp], None]
"""Rewrites one op in place."""

LOWERINGS: Mapping[OpKind, Lowering] = {
    OpKind.ABS: basic_kernels.lower_abs,
    OpKind.ADD: basic_kernels.lower_binary,
    OpKind.ARG_MAX: arg_max.lower_arg_max,
    OpKind.ASSIGN_VARIABLE: gather.lower_assign_variable,
    OpKind.AVERAGE_POOL_2D: basic_kernels.lower_pool,
    OpKind.BATCH_MATMUL: matmul.lower_batch_matmul,
    OpKind.CAST: cast.lower_cast,
    OpKind.CONCATENATION: basic_moves.lower_concat,
    OpKind.CONV_2D: conv.lower_convolution,
    OpKind.DEPTHWISE_CONV_2D: basic_kernels.lower_depthwise,
    OpKind.DIV: basic_kernels.lower_binary,
    OpKind.ELU: activations.lower_elu,
    OpKind.EQUAL: logic.lower_comparison,
    OpKind.EXP: activations.lower_exp,
    OpKind.EXPAND_DIMS: basic_moves.lower_view,
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
    OpKind.MAXIMUM: basic_kernels.lower_binary,
    OpKind.MAX_POOL_2D: basic_kernels.lower_pool,
    OpKind.MEAN: reduce.lower_mean,
    OpKind.MINIMUM: basic_kernels.lower_binary,
    OpKind.MIRROR_PAD: tile.lower_mirror_pad,
    OpKind.MUL: basic_kernels.lower_binary,
    OpKind.NEG: basic_kernels.lower_neg,
    OpKind.NOT_EQUAL: logic.lower_comparison,
    OpKind.PACK: basic_moves.lower_pack,
    OpKind.PAD: basic_moves.lower_pad,
    OpKind.PADV2: basic_moves.lower_pad,
    OpKind.PRELU: activations.lower_prelu,
    OpKind.QUANTIZE: basic_kernels.lower_quantize,
    OpKind.READ_VARIABLE: gather.lower_read_variable,
    OpKind.REDUCE_ALL: reduce.lower_reduction,
    OpKind.REDUCE_ANY: reduce.lower_reduction,
    OpKind.REDUCE_MAX: reduce.lower_reduction,
    OpKind.REDUCE_MIN: reduce.lower_reduction,
    OpKind.RELU: basic_kernels.lower_relu,
    OpKind.RELU6: basic_kernels.lower_relu,
    OpKind.RELU_0_TO_1: basic_kernels.lower_relu,
    OpKind.RELU_N1_TO_1: basic_kernels.lower_relu,
    OpKind.RESHAPE: basic_moves.lower_view,
    OpKind.RESIZE_BILINEAR: resize.lower_resize,
    OpKind.RESIZE_NEAREST_NEIGHBOR: resize.lower_resize,
    OpKind.REVERSE_V2: tile.lower_reverse,
    OpKind.RSQRT: activations.lower_rsqrt,
    OpKind.SCATTER_ND: gather.lower_scatter,
    OpKind.SELECT: logic.lower_select,
    OpKind.SELECT_V2: logic.lower_select,
    OpKind.SLICE: basic_moves.lower_slice,
    OpKind.SOFTMAX: softmax.lower_softmax,
    OpKind.SPLIT: basic_moves.lower_split,
    OpKind.SPLIT_V: basic_moves.lower_split,
    OpKind.SQUARED_DIFFERENCE: squared_difference.lower_squared_difference,
    OpKind.SQUEEZE: basic_moves.lower_view,
    OpKind.STRIDED_SLICE: basic_moves.lower_strided_slice,
    OpKind.SUB: basic_kernels.lower_binary,
    OpKind.SUM: reduce.lower_sum,
    OpKind.TANH: activations.lower_tanh,
    OpKind.TILE: tile.lower_tile,
    OpKind.TRANSPOSE: transpose.lower_transpose,
    OpKind.TRANSPOSE_CONV: transpose_conv.lower_transpose_conv,
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: lstm.lower_lstm,
    OpKind.UNPACK: basic_moves.lower_split,
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
