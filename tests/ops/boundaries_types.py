"""Cases around the limits of types, quantisation and whole files."""

from __future__ import annotations

from collections.abc import Iterator

from npusched.ir import ActivationKind, OpKind
from npusched.ir.options import (
    AxisOptions,
    BinaryOptions,
    ConcatOptions,
    GeluOptions,
    LeakyReluOptions,
    PoolOptions,
    ResizeOptions,
    SoftmaxOptions,
)
from tests.ops.boundary_case import VALID, Boundary, conv, one, pool, same
from tests.ops.one_op import T, ints


def types() -> Iterator[Boundary]:
    """Feature-map types per kind (LOWERING §2.2, §2.3)."""
    wide = {"int8", "uint8", "int16"}
    shape = (1, 4, 4, 8)
    for kind in (OpKind.ADD, OpKind.SUB, OpKind.MUL):
        for dtype in ("int8", "uint8", "int16", "int32", "int64", "float32"):
            pair = (T(shape, dtype), T(shape, dtype))
            u55 = {"int64": "feature_map_64bit", "float32": "feature_map_type"}.get(dtype, "")
            u85 = {"int64": "uncompilable_type", "float32": "feature_map_type"}.get(dtype, "")
            yield one(
                f"{kind} {dtype}", kind, pair, T(shape, dtype), BinaryOptions(), u55=u55, u85=u85
            )
    for kind in (OpKind.MINIMUM, OpKind.MAXIMUM):
        for dtype in ("int8", "uint8", "int16", "int32"):
            pair = (T(shape, dtype), T(shape, dtype))
            u55 = "" if dtype in wide else "feature_map_32bit"
            yield one(f"{kind} {dtype}", kind, pair, T(shape, dtype), u55=u55)
    yield one(
        "minimum other scale",
        OpKind.MINIMUM,
        (T(shape), T(shape, scale=0.25)),
        T(shape),
        both="matching_quantisation",
    )
    yield one(
        "maximum other zero point",
        OpKind.MAXIMUM,
        (T(shape), T(shape)),
        T(shape, zero=1),
        both="matching_quantisation",
    )
    for kind in (
        OpKind.RELU,
        OpKind.RELU6,
        OpKind.RELU_N1_TO_1,
        OpKind.RELU_0_TO_1,
        OpKind.LOGISTIC,
        OpKind.TANH,
    ):
        for dtype in ("int8", "uint8", "int16"):
            yield same(f"{kind} {dtype}", kind, T(shape, dtype))
        t = T(shape, "int32", 1.0)
        yield same(f"{kind} int32", kind, t, u55="feature_map_32bit", u85="uncompilable_type")
    for kind, ok in (
        (OpKind.GELU, {"int8", "uint8"}),
        (OpKind.ELU, {"int8"}),
        (OpKind.LOG, {"int8", "int16"}),
        (OpKind.RSQRT, {"int8", "int16"}),
        (OpKind.EXP, {"int8", "int16"}),
    ):
        options = GeluOptions() if kind is OpKind.GELU else None
        for dtype in ("int8", "uint8", "int16"):
            if kind is OpKind.EXP and dtype == "uint8":
                continue
            limit = "" if dtype in ok else "input_type"
            yield same(f"{kind} {dtype}", kind, T(shape, dtype), None, options, both=limit)
    yield same("log to int16", OpKind.LOG, T(shape), T(shape, "int16"), both="result_type")
    for dtype in ("int8", "uint8", "int16"):
        yield same(
            f"leaky {dtype}", OpKind.LEAKY_RELU, T(shape, dtype), None, LeakyReluOptions(alpha=0.1)
        )
        yield same(f"abs {dtype}", OpKind.ABS, T(shape, dtype))
    yield same("hard swish int16", OpKind.HARD_SWISH, T(shape, "int16"), both="input_8bit")
    yield same("hard swish", OpKind.HARD_SWISH, T(shape))
    yield same("exp to int16", OpKind.EXP, T(shape), T(shape, "int16"), both="same_type")
    yield same(
        "softmax", OpKind.SOFTMAX, T(shape), T(shape, scale=1 / 256, zero=-128), SoftmaxOptions()
    )
    yield same(
        "softmax to int16", OpKind.SOFTMAX, T(shape), T(shape, "int16", 1 / 32768), SoftmaxOptions()
    )
    yield same(
        "softmax to int16 shifted",
        OpKind.SOFTMAX,
        T(shape),
        T(shape, "int16", 1 / 65536, -32768),
        SoftmaxOptions(),
        u85="zero_point",
    )
    yield same(
        "softmax int16",
        OpKind.SOFTMAX,
        T(shape, "int16"),
        T(shape, "int16", 1 / 32768),
        SoftmaxOptions(),
    )
    yield same(
        "softmax int16 to int8",
        OpKind.SOFTMAX,
        T(shape, "int16"),
        T(shape),
        SoftmaxOptions(),
        both="softmax_types",
    )
    yield same(
        "softmax 65536 rows",
        OpKind.SOFTMAX,
        T((1, 256, 256, 2)),
        T((1, 256, 256, 2), scale=1 / 256, zero=-128),
        SoftmaxOptions(),
    )
    yield same(
        "softmax 65792 rows",
        OpKind.SOFTMAX,
        T((1, 257, 256, 2)),
        T((1, 257, 256, 2), scale=1 / 256, zero=-128),
        SoftmaxOptions(),
        both="softmax_rows",
    )
    yield same(
        "softmax negative beta",
        OpKind.SOFTMAX,
        T(shape),
        None,
        SoftmaxOptions(beta=-1.0),
        both="softmax_beta",
    )
    for before, after, u55, u85 in (
        ("int8", "int8", "", ""),
        ("uint8", "int8", "", ""),
        ("int16", "int8", "", ""),
        ("int8", "int16", "", ""),
        ("int8", "int32", "feature_map_32bit", ""),
        ("int32", "int8", "feature_map_32bit", "uncompilable_type"),
        ("float32", "int8", "feature_map_type", "feature_map_type"),
    ):
        yield same(
            f"quantize {before} to {after}",
            OpKind.QUANTIZE,
            T(shape, before, 0.5),
            T(shape, after, 0.25),
            u55=u55,
            u85=u85,
        )
    yield same("dequantize", OpKind.DEQUANTIZE, T(shape), T(shape, "float32"), both="op_kind")
    yield one(
        "concat int32",
        OpKind.CONCATENATION,
        (T(shape, "int32"), T(shape, "int32")),
        T((1, 4, 4, 16), "int32"),
        ConcatOptions(axis=3),
        u55="feature_map_32bit",
    )
    yield one(
        "concat int8",
        OpKind.CONCATENATION,
        (T(shape), T(shape, scale=0.25)),
        T((1, 4, 4, 16)),
        ConcatOptions(axis=-1),
    )
    yield same("cast int8 to int32", OpKind.CAST, T(shape), T(shape, "int32"), u55="op_kind")
    yield same(
        "cast int8 to int32, unquantised",
        OpKind.CAST,
        T(shape, "int8", None),
        T(shape, "int32"),
        u55="op_kind",
        u85="quantisation",
    )
    yield same("neg int32", OpKind.NEG, T(shape, "int32"))
    yield same("neg int8", OpKind.NEG, T(shape))
    yield same("relu without quantisation", OpKind.RELU, T(shape, scale=None), both="quantisation")
    yield same(
        "uint16 result",
        OpKind.RELU,
        T(shape, "int16", 0.5, 0),
        T(shape, "uint16", 0.5, 0),
        both="feature_map_type",
    )


def zero_points() -> Iterator[Boundary]:
    """Zero points per family and type (LOWERING §2.2)."""
    shape = (1, 4, 4, 8)
    for t, u55, u85 in (
        (T(shape, "int8", 0.5, -128), "", ""),
        (T(shape, "uint8", 0.5, 255), "", ""),
        (T(shape, "int16", 0.5, 0), "", ""),
        (T(shape, "int16", 0.5, 1), "", "zero_point"),
        (T(shape, "int16", 0.5, -7), "", "zero_point"),
        (T(shape, "int32", 0.5, 0), "", ""),
        (T(shape, "int32", 0.5, 3), "zero_point", "zero_point"),
        (T(shape, "uint8", 0.5, -1), "zero_point", "zero_point"),
    ):
        yield one(
            f"add {t.dtype} zero point {t.zero}",
            OpKind.ADD,
            (t, t),
            T(shape, t.dtype),
            BinaryOptions(),
            u55=u55,
            u85=u85,
        )
    yield pool("average int16", OpKind.AVERAGE_POOL_2D, (8, 8), (2, 2), (2, 2), dtype="int16")
    yield same(
        "resize int16 with a zero point",
        OpKind.RESIZE_BILINEAR,
        T((1, 4, 4, 8), "int16", 0.5, 3),
        T((1, 8, 8, 8), "int16", 0.5, 3),
        ResizeOptions(),
    )


def comparisons() -> Iterator[Boundary]:
    """Kinds that only U85 has, and kinds that none has (LOWERING §2.3)."""
    shape = (1, 4, 4, 8)
    for kind in (
        OpKind.LESS,
        OpKind.GREATER,
        OpKind.EQUAL,
        OpKind.NOT_EQUAL,
        OpKind.LESS_EQUAL,
        OpKind.GREATER_EQUAL,
    ):
        yield one(f"{kind}", kind, (T(shape), T(shape)), T(shape, "bool"), u55="bool_graph_tensor")
    for kind in (OpKind.LOGICAL_AND, OpKind.LOGICAL_OR):
        yield one(
            f"{kind}",
            kind,
            (T(shape, "bool"), T(shape, "bool")),
            T(shape, "bool"),
            u55="bool_graph_tensor",
        )
    yield same("logical not", OpKind.LOGICAL_NOT, T(shape, "bool"), u55="bool_graph_tensor")
    yield one(
        "select",
        OpKind.SELECT_V2,
        (T(shape, "bool"), T(shape), T(shape)),
        T(shape),
        u55="bool_graph_tensor",
    )
    yield one(
        "select uint8",
        OpKind.SELECT,
        (T(shape, "bool"), T(shape, "uint8"), T(shape, "uint8")),
        T(shape, "uint8"),
        u55="bool_graph_tensor",
        u85="uncompilable_type",
    )
    yield one(
        "div int32",
        OpKind.DIV,
        (T(shape, "int32"), T(shape, "int32")),
        T(shape, "int32"),
        BinaryOptions(),
        u55="op_kind",
    )
    for kind in (
        OpKind.SQRT,
        OpKind.SQUARE,
        OpKind.LOG_SOFTMAX,
        OpKind.SIN,
        OpKind.COS,
        OpKind.CEIL,
        OpKind.FLOOR,
    ):
        yield same(f"{kind}", kind, T(shape), both="op_kind")
    yield one("floor div", OpKind.FLOOR_DIV, (T(shape), T(shape)), T(shape), both="op_kind")
    yield one(
        "space to depth", OpKind.SPACE_TO_DEPTH, (T(shape),), T((1, 2, 2, 32)), both="op_kind"
    )


def refusals() -> Iterator[Boundary]:
    """Ops that make Vela refuse the whole file (LOWERING §2.1)."""
    shape = (1, 4, 4, 8)
    yield one(
        "add mixes types",
        OpKind.ADD,
        (T(shape), T(shape, "int16")),
        T(shape),
        BinaryOptions(),
        both="arithmetic_types",
    )
    yield one(
        "add int8 to uint8",
        OpKind.ADD,
        (T(shape), T(shape)),
        T(shape, "uint8"),
        BinaryOptions(),
        both="arithmetic_types",
    )
    yield one(
        "add does not broadcast",
        OpKind.ADD,
        (T(shape), T((1, 4, 4, 3))),
        T((1, 4, 4, 9)),
        BinaryOptions(),
        both="broadcast",
    )
    yield one(
        "pool changes type",
        OpKind.MAX_POOL_2D,
        (T(shape),),
        T((1, 2, 2, 8), "uint8"),
        PoolOptions(padding=VALID, stride_h=2, stride_w=2, filter_h=2, filter_w=2),
        both="same_type",
    )
    yield conv(
        "conv of uneven groups", depth=(6, 8), weights=T((8, 3, 3, 4), values=1), both="conv_groups"
    )
    yield conv("conv of two groups", depth=(8, 8), weights=T((8, 3, 3, 4), values=1))
    yield one(
        "concat gap",
        OpKind.CONCATENATION,
        (T(shape), T(shape)),
        T((1, 4, 4, 17)),
        ConcatOptions(axis=3),
        both="concat_shapes",
    )
    yield one(
        "split uneven",
        OpKind.SPLIT,
        (ints(3), T(shape)),
        (T((1, 4, 4, 3)), T((1, 4, 4, 3)), T((1, 4, 4, 2))),
        AxisOptions(count=3),
        both="split",
    )


def activations() -> Iterator[Boundary]:
    """Fused activations are ops of their own and can drag their op along."""
    shape = (1, 4, 4, 8)
    for kind in (
        ActivationKind.RELU,
        ActivationKind.RELU6,
        ActivationKind.RELU_N1_TO_1,
        ActivationKind.TANH,
    ):
        yield conv(f"conv fused {kind}", activation=kind)
    yield conv("conv fused sign bit", activation=ActivationKind.SIGN_BIT, both="fused_activation")
    for dtype, scale, u55, u85 in (
        ("int8", 1.0, "", ""),
        ("int32", None, "feature_map_32bit", ""),
        ("int32", 1.0, "feature_map_32bit", "uncompilable_type"),
    ):
        t = T(shape, dtype, scale)
        options = BinaryOptions(activation=ActivationKind.RELU)
        name = f"add {dtype} {scale} fused relu"
        yield one(
            name,
            OpKind.ADD,
            (t, T(shape, dtype, scale)),
            T(shape, dtype, scale),
            options,
            u55=u55,
            u85=u85,
        )
