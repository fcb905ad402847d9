"""The typed options of ``ir`` -> option tables of the file (the inverse of ``options``)."""

from __future__ import annotations

from typing import Final

from npusched.ir import ActivationKind, OpKind, Options, Padding
from npusched.ir import options as ir
from npusched.tflite.options import OPTION_TABLES
from npusched.tflite.records import Record, Value

ACTIVATION_CODES: Final = {
    ActivationKind.NONE: 0,
    ActivationKind.RELU: 1,
    ActivationKind.RELU_N1_TO_1: 2,
    ActivationKind.RELU6: 3,
    ActivationKind.TANH: 4,
    ActivationKind.SIGN_BIT: 5,
}
_PADDING_CODES: Final = {Padding.SAME: 0, Padding.VALID: 1}

_PLAIN_TABLES: Final = {
    OpKind.PAD: "PadOptions",
    OpKind.PADV2: "PadV2Options",
    OpKind.MAXIMUM: "MaximumMinimumOptions",
    OpKind.MINIMUM: "MaximumMinimumOptions",
    OpKind.SQUARED_DIFFERENCE: "SquaredDifferenceOptions",
    OpKind.TRANSPOSE: "TransposeOptions",
    OpKind.SLICE: "SliceOptions",
    OpKind.TILE: "TileOptions",
    OpKind.EXPAND_DIMS: "ExpandDimsOptions",
    OpKind.QUANTIZE: "QuantizeOptions",
    OpKind.DEQUANTIZE: "DequantizeOptions",
    OpKind.ABS: "AbsOptions",
    OpKind.NEG: "NegOptions",
    OpKind.EXP: "ExpOptions",
    OpKind.HARD_SWISH: "HardSwishOptions",
    OpKind.CAST: "CastOptions",
    OpKind.ARG_MAX: "ArgMaxOptions",
    OpKind.SHAPE: "ShapeOptions",
    OpKind.READ_VARIABLE: "ReadVariableOptions",
    OpKind.ASSIGN_VARIABLE: "AssignVariableOptions",
}


def write_options(kind: OpKind, options: Options) -> Record | None:
    """Return the option table of an op of ``kind``; None if it has none (or is a custom op)."""
    if isinstance(options, ir.NoOptions | ir.CustomOptions):
        return Record(_PLAIN_TABLES[kind], {}) if kind in _PLAIN_TABLES else None
    table = OPTION_TABLES[kind]
    values = _values(kind, options)
    activation = getattr(options, "activation", None)
    if isinstance(activation, ActivationKind):
        values["fused_activation_function"] = ACTIVATION_CODES[activation]
    return Record(table, values)


def _values(kind: OpKind, options: Options) -> dict[str, Value]:
    match options:
        case ir.ConvOptions():
            return _conv(kind, options)
        case ir.PoolOptions():
            return {
                "padding": _PADDING_CODES[options.padding],
                "stride_w": options.stride_w,
                "stride_h": options.stride_h,
                "filter_width": options.filter_w,
                "filter_height": options.filter_h,
            }
        case ir.FullyConnectedOptions():
            return {
                "weights_format": int(options.shuffled_weights),
                "keep_num_dims": options.keep_num_dims,
                "asymmetric_quantize_inputs": options.asymmetric_quantize_inputs,
            }
        case ir.BinaryOptions():
            signed = kind in (OpKind.ADD, OpKind.SUB)
            return {"pot_scale_int16": options.pot_scale_int16} if signed else {}
        case ir.ConcatOptions():
            return {"axis": options.axis}
        case ir.AxisOptions():
            return _axis(kind, options)
        case ir.SoftmaxOptions():
            return {"beta": options.beta}
        case ir.ReduceOptions():
            return {"keep_dims": options.keep_dims}
        case ir.ReshapeOptions():
            return {"new_shape": options.new_shape}
        case ir.SqueezeOptions():
            return {"squeeze_dims": options.squeeze_dims}
        case ir.StridedSliceOptions():
            return {
                "begin_mask": options.begin_mask,
                "end_mask": options.end_mask,
                "ellipsis_mask": options.ellipsis_mask,
                "new_axis_mask": options.new_axis_mask,
                "shrink_axis_mask": options.shrink_axis_mask,
                "offset": options.offset,
            }
        case ir.ResizeOptions():
            return {
                "align_corners": options.align_corners,
                "half_pixel_centers": options.half_pixel_centers,
            }
        case ir.LeakyReluOptions():
            return {"alpha": options.alpha}
        case ir.GeluOptions():
            return {"approximate": options.approximate}
        case ir.BatchMatMulOptions():
            return {"adj_x": options.adj_x, "adj_y": options.adj_y}
        case ir.LstmOptions():
            return _lstm(kind, options)
        case ir.SvdfOptions():
            return {"rank": options.rank}
        case ir.MirrorPadOptions():
            return {"mode": int(options.symmetric)}
        case ir.VarHandleOptions():
            return {"container": options.container, "shared_name": options.shared_name}
        case ir.CallOptions():
            return _call(kind, options)
        case ir.NoOptions() | ir.CustomOptions():
            return {}


def _conv(kind: OpKind, options: ir.ConvOptions) -> dict[str, Value]:
    values: dict[str, Value] = {
        "padding": _PADDING_CODES[options.padding],
        "stride_w": options.stride_w,
        "stride_h": options.stride_h,
    }
    if kind is not OpKind.TRANSPOSE_CONV:
        values["dilation_w_factor"] = options.dilation_w
        values["dilation_h_factor"] = options.dilation_h
    if kind is OpKind.DEPTHWISE_CONV_2D:
        values["depth_multiplier"] = options.depth_multiplier
    return values


def _axis(kind: OpKind, options: ir.AxisOptions) -> dict[str, Value]:
    if kind is OpKind.PACK:
        return {"values_count": options.count, "axis": options.axis}
    if kind is OpKind.UNPACK:
        return {"num": options.count, "axis": options.axis}
    if kind is OpKind.GATHER:
        return {"axis": options.axis, "batch_dims": options.batch_dims}
    return {"num_splits": options.count}


def _lstm(kind: OpKind, options: ir.LstmOptions) -> dict[str, Value]:
    values: dict[str, Value] = {
        "cell_clip": options.cell_clip,
        "proj_clip": options.proj_clip,
        "asymmetric_quantize_inputs": options.asymmetric_quantize_inputs,
    }
    if kind is OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM:
        values["time_major"] = options.time_major
    return values


def _call(kind: OpKind, options: ir.CallOptions) -> dict[str, Value]:
    names = {
        OpKind.CALL_ONCE: ("init_subgraph_index",),
        OpKind.CALL: ("subgraph",),
        OpKind.IF: ("then_subgraph_index", "else_subgraph_index"),
        OpKind.WHILE: ("cond_subgraph_index", "body_subgraph_index"),
        OpKind.STABLEHLO_WHILE: ("cond_subgraph_index", "body_subgraph_index"),
        OpKind.STABLEHLO_COMPOSITE: ("decomposition_subgraph_index",),
    }[kind]
    values: dict[str, Value] = dict(zip(names, options.subgraphs, strict=True))
    if kind is OpKind.STABLEHLO_COMPOSITE:
        values["name"] = options.name
    return values
