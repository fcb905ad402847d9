"""Typed builtin options of the ops whose options change what we compute.

An op whose options do not matter (or that has none) carries ``NoOptions``. Every field has the
name of the TFLite schema in snake case; values are as in the file, with enum values as names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Padding(StrEnum):
    """TFLite padding scheme."""

    SAME = "SAME"
    VALID = "VALID"


class ActivationKind(StrEnum):
    """Fused activation of the file format."""

    NONE = "NONE"
    RELU = "RELU"
    RELU_N1_TO_1 = "RELU_N1_TO_1"
    RELU6 = "RELU6"
    TANH = "TANH"
    SIGN_BIT = "SIGN_BIT"


class NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The op has no options that we use."""


class ConvOptions(msgspec.Struct, frozen=True, kw_only=True):
    """CONV_2D, DEPTHWISE_CONV_2D (with ``depth_multiplier``) and TRANSPOSE_CONV (dilation 1)."""

    padding: Padding
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    depth_multiplier: int = 1
    activation: ActivationKind = ActivationKind.NONE


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

    padding: Padding
    stride_h: int
    stride_w: int
    filter_h: int
    filter_w: int
    activation: ActivationKind = ActivationKind.NONE


class FullyConnectedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """FULLY_CONNECTED. ``shuffled_weights``: weights in the SHUFFLED4x16INT8 layout."""

    activation: ActivationKind = ActivationKind.NONE
    keep_num_dims: bool = False
    asymmetric_quantize_inputs: bool = False
    shuffled_weights: bool = False


class BinaryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """ADD, SUB, MUL, DIV."""

    activation: ActivationKind = ActivationKind.NONE
    pot_scale_int16: bool = True


class ConcatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """CONCATENATION."""

    axis: int
    activation: ActivationKind = ActivationKind.NONE


class AxisOptions(msgspec.Struct, frozen=True, kw_only=True):
    """PACK (values_count), UNPACK (num), SPLIT and SPLIT_V (num_splits), GATHER (batch_dims)."""

    axis: int = 0
    count: int = 0
    batch_dims: int = 0


class SoftmaxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """SOFTMAX."""

    beta: float = 1.0


class ReduceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL."""

    keep_dims: bool = False


class ReshapeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """RESHAPE: the shape from the options (may be empty; the shape tensor wins)."""

    new_shape: tuple[int, ...] = ()


class SqueezeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """SQUEEZE."""

    squeeze_dims: tuple[int, ...] = ()


class StridedSliceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """STRIDED_SLICE bit masks."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False


class ResizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

    align_corners: bool = False
    half_pixel_centers: bool = False


class LeakyReluOptions(msgspec.Struct, frozen=True, kw_only=True):
    """LEAKY_RELU."""

    alpha: float = 0.0


class GeluOptions(msgspec.Struct, frozen=True, kw_only=True):
    """GELU: ``approximate`` selects the tanh form."""

    approximate: bool = False


class BatchMatMulOptions(msgspec.Struct, frozen=True, kw_only=True):
    """BATCH_MATMUL: transpose the last two axes of x or y."""

    adj_x: bool = False
    adj_y: bool = False


class LstmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """UNIDIRECTIONAL_SEQUENCE_LSTM (and LSTM)."""

    activation: ActivationKind = ActivationKind.NONE
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    time_major: bool = False
    asymmetric_quantize_inputs: bool = False


class SvdfOptions(msgspec.Struct, frozen=True, kw_only=True):
    """SVDF."""

    rank: int = 1
    activation: ActivationKind = ActivationKind.NONE


class MirrorPadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """MIRROR_PAD: ``symmetric`` repeats the edge, otherwise REFLECT."""

    symmetric: bool = False


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """CALL_ONCE, CALL, STABLEHLO_COMPOSITE, IF, WHILE: the subgraphs that the op runs."""

    subgraphs: tuple[int, ...] = ()
    name: str = ""


class VarHandleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """VAR_HANDLE: the variable's identity."""

    container: str = ""
    shared_name: str = ""


class CustomOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A custom op: its registered name and its raw option bytes."""

    code: str
    data: bytes = b""


Options: TypeAlias = (
    NoOptions
    | ConvOptions
    | PoolOptions
    | FullyConnectedOptions
    | BinaryOptions
    | ConcatOptions
    | AxisOptions
    | SoftmaxOptions
    | ReduceOptions
    | ReshapeOptions
    | SqueezeOptions
    | StridedSliceOptions
    | ResizeOptions
    | LeakyReluOptions
    | GeluOptions
    | BatchMatMulOptions
    | LstmOptions
    | SvdfOptions
    | MirrorPadOptions
    | CallOptions
    | VarHandleOptions
    | CustomOptions
)
