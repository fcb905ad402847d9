"""All lowerings in one place: plain kernels and data movement here, the rest from the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from npusched.graph import lower
from npusched.graph.lower import basic_kernels as kernels
from npusched.graph.lower import basic_moves as data
from npusched.graph.types import KernelKind
from npusched.graph.work import WorkGraph, WorkOp
from npusched.ir import OpKind

Lowering = Callable[[WorkGraph, WorkOp], None]
"""Rewrites one op in place; see ``npusched.graph.work`` for the order of work."""

_PLAIN: dict[OpKind, Lowering] = {
    OpKind.CONV_2D: kernels.lower_conv2d,
    OpKind.DEPTHWISE_CONV_2D: kernels.lower_depthwise,
    OpKind.FULLY_CONNECTED: kernels.lower_fully_connected,
    OpKind.AVERAGE_POOL_2D: kernels.lower_pool,
    OpKind.MAX_POOL_2D: kernels.lower_pool,
    OpKind.ADD: kernels.lower_binary,
    OpKind.SUB: kernels.lower_binary,
    OpKind.MUL: kernels.lower_binary,
    OpKind.DIV: kernels.lower_binary,
    OpKind.MINIMUM: kernels.lower_binary,
    OpKind.MAXIMUM: kernels.lower_binary,
    OpKind.ABS: kernels.lower_abs,
    OpKind.NEG: kernels.lower_neg,
    OpKind.RELU: kernels.lower_relu,
    OpKind.RELU6: kernels.lower_relu,
    OpKind.RELU_N1_TO_1: kernels.lower_relu,
    OpKind.RELU_0_TO_1: kernels.lower_relu,
    OpKind.QUANTIZE: kernels.lower_quantize,
    OpKind.RESHAPE: data.lower_view,
    OpKind.SQUEEZE: data.lower_view,
    OpKind.EXPAND_DIMS: data.lower_view,
    OpKind.CONCATENATION: data.lower_concat,
    OpKind.PACK: data.lower_pack,
    OpKind.SPLIT: data.lower_split,
    OpKind.SPLIT_V: data.lower_split,
    OpKind.UNPACK: data.lower_split,
    OpKind.SLICE: data.lower_slice,
    OpKind.STRIDED_SLICE: data.lower_strided_slice,
    OpKind.PAD: data.lower_pad,
    OpKind.PADV2: data.lower_pad,
}


LOWERINGS: Mapping[OpKind, Lowering] = {**_PLAIN, **lower.LOWERINGS}
"""Step 1, by TFLite op; the package's own lowerings call the plain ones where those suffice."""

DECOMPOSITIONS: Mapping[OpKind | KernelKind, Lowering] = lower.DECOMPOSITIONS
"""Step 3, by kernel; ``graph.split`` then cuts batches and large axes."""
