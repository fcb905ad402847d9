"""Option tables of the file -> the typed options of ``ir``, checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from npusched.errors import ModelError
from npusched.ir import ActivationKind, OpKind, Options, Padding
from npusched.ir import options as ir
from npusched.tflite.records import Record

MAX_STEP: Final = 1 << 20
"""Largest stride, dilation or filter size taken as meant (a sanity limit, not the hardware's)."""

MAX_REAL: Final = 1e9
"""Largest factor (softmax beta, leaky alpha) taken as meant."""

_PADDING: Final = (Padding.SAME, Padding.VALID)
_ACTIVATIONS: Final = (
    ActivationKind.NONE,
    ActivationKind.RELU,
    ActivationKind.RELU_N1_TO_1,
    ActivationKind.RELU6,
    ActivationKind.TANH,
    ActivationKind.SIGN_BIT,
)


def bad_option(where: str, name: str, value: object, wanted: str) -> ModelError:
    """Return the error for an option value that cannot be meant."""
    return ModelError(
        f"cannot use the model: {where} has an impossible option",
        f"{name} is {value}, expected {wanted}",
        "the file is damaged or its converter is faulty: convert the model again",
    )


class _Source:
    """One option table being read; every accessor checks what it returns."""

    def __init__(self, record: Record, where: str) -> None:
        self.record = record
        self.where = where

    def activation(self) -> ActivationKind:
        """Fused activation."""
        code = self.record.integer("fused_activation_function")
        if 0 <= code < len(_ACTIVATIONS):
            return _ACTIVATIONS[code]
        raise bad_option(self.where, "fused_activation_function", code, "0 to 5")

    def padding(self) -> Padding:
        """Padding scheme."""
        code = self.record.integer("padding")
        if 0 <= code < len(_PADDING):
            return _PADDING[code]
        raise bad_option(self.where, "padding", code, "0 (SAME) or 1 (VALID)")

    def step(self, name: str, least: int = 1) -> int:
        """A stride, dilation or size of at least ``least``."""
        value = self.record.integer(name)
        if least <= value <= MAX_STEP:
            return value
        raise bad_option(self.where, name, value, f"{least} to {MAX_STEP}")

    def real(self, name: str, limit: float = MAX_REAL) -> float:
        """A finite number, of at most ``limit`` either way."""
        value = self.record.real(name)
        if abs(value) <= limit:
            return value
        raise bad_option(self.where, name, value, f"a number of at most {limit}")

    def integer(self, name: str) -> int:
        """Any integer."""
        return self.record.integer(name)

    def flag(self, name: str) -> bool:
        """Any boolean."""
        return self.record.flag(name)


def _conv(s: _Source) -> Options:
    return ir.ConvOptions(
        padding=s.padding(),
        stride_h=s.step("stride_h"),
        stride_w=s.step("stride_w"),
        dilation_h=s.step("dilation_h_factor"),
        dilation_w=s.step("dilation_w_factor"),
        activation=s.activation(),
    )


def _depthwise(s: _Source) -> Options:
    return ir.ConvOptions(
        padding=s.padding(),
        stride_h=s.step("stride_h"),
        stride_w=s.step("stride_w"),
        dilation_h=s.step("dilation_h_factor"),
        dilation_w=s.step("dilation_w_factor"),
        depth_multiplier=s.step("depth_multiplier", least=0),
        activation=s.activation(),
    )


def _transpose_conv(s: _Source) -> Options:
    return ir.ConvOptions(
        padding=s.padding(),
        stride_h=s.step("stride_h"),
        stride_w=s.step("stride_w"),
        activation=s.activation(),
    )


def _pool(s: _Source) -> Options:
    return ir.PoolOptions(
        padding=s.padding(),
        stride_h=s.step("stride_h"),
        stride_w=s.step("stride_w"),
        filter_h=s.step("filter_height"),
        filter_w=s.step("filter_width"),
        activation=s.activation(),
    )


def _fully_connected(s: _Source) -> Options:
    return ir.FullyConnectedOptions(
        activation=s.activation(),
        keep_num_dims=s.flag("keep_num_dims"),
        asymmetric_quantize_inputs=s.flag("asymmetric_quantize_inputs"),
        shuffled_weights=s.integer("weights_format") == 1,
    )


def _add(s: _Source) -> Options:
    return ir.BinaryOptions(activation=s.activation(), pot_scale_int16=s.flag("pot_scale_int16"))


def _mul(s: _Source) -> Options:
    return ir.BinaryOptions(activation=s.activation())


def _concat(s: _Source) -> Options:
    return ir.ConcatOptions(axis=s.integer("axis"), activation=s.activation())


def _lstm(s: _Source) -> Options:
    return ir.LstmOptions(
        activation=s.activation(),
        cell_clip=s.real("cell_clip", sys.float_info.max),
        proj_clip=s.real("proj_clip", sys.float_info.max),
        time_major=s.record.table == "UnidirectionalSequenceLSTMOptions" and s.flag("time_major"),
        asymmetric_quantize_inputs=s.flag("asymmetric_quantize_inputs"),
    )


def _strided_slice(s: _Source) -> Options:
    return ir.StridedSliceOptions(
        begin_mask=s.integer("begin_mask"),
        end_mask=s.integer("end_mask"),
        ellipsis_mask=s.integer("ellipsis_mask"),
        new_axis_mask=s.integer("new_axis_mask"),
        shrink_axis_mask=s.integer("shrink_axis_mask"),
        offset=s.flag("offset"),
    )


def _resize(s: _Source) -> Options:
    return ir.ResizeOptions(
        align_corners=s.flag("align_corners"), half_pixel_centers=s.flag("half_pixel_centers")
    )


def _reduce(s: _Source) -> Options:
    return ir.ReduceOptions(keep_dims=s.flag("keep_dims"))


def _composite(s: _Source) -> Options:
    return ir.CallOptions(
        subgraphs=(s.integer("decomposition_subgraph_index"),), name=s.record.text("name")
    )


def _mirror(s: _Source) -> Options:
    mode = s.integer("mode")
    if mode not in (0, 1):
        raise bad_option(s.where, "mode", mode, "0 (REFLECT) or 1 (SYMMETRIC)")
    return ir.MirrorPadOptions(symmetric=mode == 1)


_READERS: Final[dict[OpKind, tuple[str, Callable[[_Source], Options]]]] = {
    OpKind.CONV_2D: ("Conv2DOptions", _conv),
    OpKind.DEPTHWISE_CONV_2D: ("DepthwiseConv2DOptions", _depthwise),
    OpKind.TRANSPOSE_CONV: ("TransposeConvOptions", _transpose_conv),
    OpKind.AVERAGE_POOL_2D: ("Pool2DOptions", _pool),
    OpKind.MAX_POOL_2D: ("Pool2DOptions", _pool),
    OpKind.L2_POOL_2D: ("Pool2DOptions", _pool),
    OpKind.FULLY_CONNECTED: ("FullyConnectedOptions", _fully_connected),
    OpKind.ADD: ("AddOptions", _add),
    OpKind.SUB: ("SubOptions", _add),
    OpKind.MUL: ("MulOptions", _mul),
    OpKind.DIV: ("DivOptions", _mul),
    OpKind.CONCATENATION: ("ConcatenationOptions", _concat),
    OpKind.PACK: (
        "PackOptions",
        lambda s: ir.AxisOptions(axis=s.integer("axis"), count=s.integer("values_count")),
    ),
    OpKind.UNPACK: (
        "UnpackOptions",
        lambda s: ir.AxisOptions(axis=s.integer("axis"), count=s.integer("num")),
    ),
    OpKind.SPLIT: ("SplitOptions", lambda s: ir.AxisOptions(count=s.integer("num_splits"))),
    OpKind.SPLIT_V: ("SplitVOptions", lambda s: ir.AxisOptions(count=s.integer("num_splits"))),
    OpKind.GATHER: (
        "GatherOptions",
        lambda s: ir.AxisOptions(axis=s.integer("axis"), batch_dims=s.integer("batch_dims")),
    ),
    OpKind.SOFTMAX: ("SoftmaxOptions", lambda s: ir.SoftmaxOptions(beta=s.real("beta"))),
    OpKind.MEAN: ("ReducerOptions", _reduce),
    OpKind.SUM: ("ReducerOptions", _reduce),
    OpKind.REDUCE_MAX: ("ReducerOptions", _reduce),
    OpKind.REDUCE_MIN: ("ReducerOptions", _reduce),
    OpKind.REDUCE_PROD: ("ReducerOptions", _reduce),
    OpKind.REDUCE_ANY: ("ReducerOptions", _reduce),
    OpKind.REDUCE_ALL: ("ReducerOptions", _reduce),
    OpKind.RESHAPE: (
        "ReshapeOptions",
        lambda s: ir.ReshapeOptions(new_shape=s.record.ints("new_shape")),
    ),
    OpKind.SQUEEZE: (
        "SqueezeOptions",
        lambda s: ir.SqueezeOptions(squeeze_dims=s.record.ints("squeeze_dims")),
    ),
    OpKind.STRIDED_SLICE: ("StridedSliceOptions", _strided_slice),
    OpKind.RESIZE_BILINEAR: ("ResizeBilinearOptions", _resize),
    OpKind.RESIZE_NEAREST_NEIGHBOR: ("ResizeNearestNeighborOptions", _resize),
    OpKind.LEAKY_RELU: ("LeakyReluOptions", lambda s: ir.LeakyReluOptions(alpha=s.real("alpha"))),
    OpKind.GELU: ("GeluOptions", lambda s: ir.GeluOptions(approximate=s.flag("approximate"))),
    OpKind.BATCH_MATMUL: (
        "BatchMatMulOptions",
        lambda s: ir.BatchMatMulOptions(adj_x=s.flag("adj_x"), adj_y=s.flag("adj_y")),
    ),
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: ("UnidirectionalSequenceLSTMOptions", _lstm),
    OpKind.LSTM: ("LSTMOptions", _lstm),
    OpKind.SVDF: (
        "SVDFOptions",
        lambda s: ir.SvdfOptions(rank=s.step("rank"), activation=s.activation()),
    ),
    OpKind.MIRROR_PAD: ("MirrorPadOptions", _mirror),
    OpKind.CALL_ONCE: (
        "CallOnceOptions",
        lambda s: ir.CallOptions(subgraphs=(s.integer("init_subgraph_index"),)),
    ),
    OpKind.CALL: ("CallOptions", lambda s: ir.CallOptions(subgraphs=(s.integer("subgraph"),))),
    OpKind.IF: (
        "IfOptions",
        lambda s: ir.CallOptions(
            subgraphs=(s.integer("then_subgraph_index"), s.integer("else_subgraph_index"))
        ),
    ),
    OpKind.WHILE: (
        "WhileOptions",
        lambda s: ir.CallOptions(
            subgraphs=(s.integer("cond_subgraph_index"), s.integer("body_subgraph_index"))
        ),
    ),
    OpKind.STABLEHLO_WHILE: (
        "StablehloWhileOptions",
        lambda s: ir.CallOptions(
            subgraphs=(s.integer("cond_subgraph_index"), s.integer("body_subgraph_index"))
        ),
    ),
    OpKind.STABLEHLO_COMPOSITE: ("StableHLOCompositeOptions", _composite),
    OpKind.VAR_HANDLE: (
        "VarHandleOptions",
        lambda s: ir.VarHandleOptions(
            container=s.record.text("container"), shared_name=s.record.text("shared_name")
        ),
    ),
}

OPTION_TABLES: Final = {kind: table for kind, (table, _) in _READERS.items()}
"""The option table of each kind whose options are read."""


def read_options(kind: OpKind, record: Record | None, where: str) -> Options:
    """Return the options of an op of ``kind`` from its option table.

    ``record`` None means that the file has none: the schema's defaults count, which an op that
    needs a stride or filter cannot have. ``where`` names the op in messages. Raises ModelError
    for another kind's table and for values that cannot be meant (stride 0, NaN, ...).
    """
    if kind not in _READERS:
        return ir.NoOptions()
    table, read = _READERS[kind]
    if record is None:
        record = Record(table, {})
    if record.table != table:
        raise bad_option(where, "the option table", record.table, table)
    return read(_Source(record, where))
