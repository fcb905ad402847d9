"""What each input of a TFLite op is for: feature map, weights, bias, parameter or state.

Limits of the NPU are stated per role ("feature maps must be ...", "parameters must be constant"),
so every check depends on this table. Source of the roles: the operands that Vela 5.2.0 gives its
internal ops (tflite_mapping.cpp, input tensor table); inputs beyond a kind's list, and all inputs
of kinds without a list, are feature maps.
"""

from __future__ import annotations

from enum import StrEnum

from npusched.ir import OpKind


class Role(StrEnum):
    """The use that an op makes of one of its tensors."""

    IFM = "ifm"
    WEIGHTS = "weights"
    BIAS = "bias"
    PARAMS = "params"
    STATE = "state"
    SCRATCH = "scratch"
    OFM = "ofm"


_I, _W, _B, _P, _S = Role.IFM, Role.WEIGHTS, Role.BIAS, Role.PARAMS, Role.STATE

_CONVOLUTION = (_I, _W, _B)
_ONE_PARAMETER = (_I, _P)
_TWO_PARAMETERS = (_I, _P, _P)
_LSTM_TENSORS = (_I, *(_W,) * 11, *(_B,) * 4, _W, _B, _S, _S, *(_B,) * 4)

INPUT_ROLES: dict[OpKind, tuple[Role, ...]] = {
    OpKind.CONV_2D: _CONVOLUTION,
    OpKind.DEPTHWISE_CONV_2D: _CONVOLUTION,
    OpKind.FULLY_CONNECTED: _CONVOLUTION,
    OpKind.CONV_3D: _CONVOLUTION,
    OpKind.TRANSPOSE_CONV: (_P, _W, _I, _B),
    OpKind.CONV_3D_TRANSPOSE: (_P, _W, _I, _B),
    OpKind.SVDF: (_I, _W, _W, _B, _S),
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: _LSTM_TENSORS,
    OpKind.LSTM: _LSTM_TENSORS,
    OpKind.SPLIT: (_P, _I),
    OpKind.SPLIT_V: _TWO_PARAMETERS,
    OpKind.SLICE: _TWO_PARAMETERS,
    OpKind.STRIDED_SLICE: (_I, _P, _P, _P),
    OpKind.PADV2: _TWO_PARAMETERS,
    OpKind.BATCH_TO_SPACE_ND: _TWO_PARAMETERS,
    OpKind.SPACE_TO_BATCH_ND: _TWO_PARAMETERS,
    OpKind.ONE_HOT: _ONE_PARAMETER,
    OpKind.PAD: _ONE_PARAMETER,
    OpKind.MIRROR_PAD: _ONE_PARAMETER,
    OpKind.PRELU: _ONE_PARAMETER,
    OpKind.RESHAPE: _ONE_PARAMETER,
    OpKind.RESIZE_BILINEAR: _ONE_PARAMETER,
    OpKind.RESIZE_NEAREST_NEIGHBOR: _ONE_PARAMETER,
    OpKind.REVERSE_V2: _ONE_PARAMETER,
    OpKind.REVERSE_SEQUENCE: _ONE_PARAMETER,
    OpKind.TILE: _ONE_PARAMETER,
    OpKind.TOPK_V2: _ONE_PARAMETER,
    OpKind.TRANSPOSE: _ONE_PARAMETER,
    OpKind.MEAN: _ONE_PARAMETER,
    OpKind.SUM: _ONE_PARAMETER,
    OpKind.REDUCE_MAX: _ONE_PARAMETER,
    OpKind.REDUCE_MIN: _ONE_PARAMETER,
    OpKind.REDUCE_ANY: _ONE_PARAMETER,
    OpKind.REDUCE_ALL: _ONE_PARAMETER,
    OpKind.REDUCE_PROD: _ONE_PARAMETER,
    OpKind.ARG_MAX: _ONE_PARAMETER,
    OpKind.ARG_MIN: _ONE_PARAMETER,
    OpKind.SEGMENT_SUM: _ONE_PARAMETER,
    OpKind.SCATTER_ND: (_I, _I, _P),
    OpKind.NON_MAX_SUPPRESSION_V4: (_I, _I, _P, _P, _P),
    OpKind.NON_MAX_SUPPRESSION_V5: (_I, _I, _P, _P, _P, _P),
    OpKind.ASSIGN_VARIABLE: (_P, _I),
    OpKind.READ_VARIABLE: (_P,),
}


def input_role(kind: OpKind, position: int) -> Role:
    """Return the role of input ``position`` (0-based, absent inputs counted) of ``kind``."""
    roles = INPUT_ROLES.get(kind, ())
    return roles[position] if position < len(roles) else Role.IFM
