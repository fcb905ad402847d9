"""Cases around limits that models seldom meet: LSTM variants, scatters, unknown axes, odd ranks."""

from __future__ import annotations

from collections.abc import Iterator

from npusched.ir import OpKind
from npusched.ir.options import (
    AxisOptions,
    BatchMatMulOptions,
    LstmOptions,
    MirrorPadOptions,
    StridedSliceOptions,
)
from tests.ops.boundary_case import Boundary, one, same
from tests.ops.one_op import Node, T, ints, model_of

BATCH, STEPS, INPUTS, UNITS = 1, 3, 4, 8


def lstm(
    *,
    dtype: str = "int8",
    missing: int | None = None,
    peephole: bool = False,
    projection: bool = False,
    normalisation: bool = False,
    rank: int = 3,
    intermediates: int = 5,
) -> Node:
    """Return an LSTM of 3 steps, 4 inputs and 8 units (input 20 is the first normalisation)."""
    gates: list[T | None] = [T((UNITS, INPUTS), scale=0.1, values=1) for _ in range(4)]
    gates += [T((UNITS, UNITS), scale=0.1, values=1) for _ in range(4)]
    if missing is not None:
        gates[missing] = None
    vector = T((UNITS,), "int16", 0.1, values=1) if peephole else None
    biases = [T((UNITS,), "int32", 0.01, values=0) for _ in range(4)]
    projected = T((UNITS, UNITS), scale=0.1, values=1) if projection else None
    norm = T((UNITS,), "int16", 0.1, values=1) if normalisation else None
    states = (
        T((BATCH, UNITS), dtype, 0.0078125, variable=True),
        T((BATCH, UNITS), "int16", 2**-12, variable=True),
    )
    shape = (BATCH, STEPS, INPUTS)[-rank:]
    inputs = (
        T(shape, dtype, 0.05),
        *gates,
        *(vector,) * 3,
        *biases,
        projected,
        None,
        *states,
        *(norm,) * 4,
    )
    scratch = tuple(T((1,), "int16", 2**-12) for _ in range(intermediates - 1))
    result = T((BATCH, STEPS, UNITS)[-rank:], dtype, 0.0078125)
    middle = (*scratch, T((1,), dtype, 0.0078125))
    return Node(
        OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM,
        inputs,
        (result,),
        LstmOptions(time_major=False),
        middle,
    )


def lstms() -> Iterator[Boundary]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM (LOWERING §2.1, §2.4)."""
    for name, node, both in (
        ("plain", lstm(), ""),
        ("int16", lstm(dtype="int16"), ""),
        ("without input gate", lstm(missing=0), "lstm_gates"),
        ("with peephole", lstm(peephole=True), "lstm_peephole"),
        ("with projection", lstm(projection=True), "lstm_projection"),
        ("with normalisation", lstm(normalisation=True), "lstm_normalisation"),
        ("uint8", lstm(dtype="uint8"), "lstm_input"),
        ("rank 2", lstm(rank=2), "lstm_form"),
        ("four intermediates", lstm(intermediates=4), "lstm_form"),
    ):
        yield Boundary(f"lstm {name}", model_of(node), both, both)


def scatters() -> Iterator[Boundary]:
    """SCATTER_ND (LOWERING §2.3; Vela 5.2.0, tflite_supported_operators_u85.cpp)."""
    for name, indices, shape, u85 in (
        ("plain", T((2, 1), "int32", None, values=(1, 3)), ints(4, 8), ""),
        ("repeated", T((2, 1), "int32", None, values=(1, 1)), ints(4, 8), "scatter_unique"),
        ("computed", T((2, 1), "int32", None), ints(4, 8), "scatter_indices"),
        (
            "computed shape",
            T((2, 1), "int32", None, values=(1, 3)),
            T((2,), "int32"),
            "scatter_shape",
        ),
    ):
        inputs = (indices, T((2, 8)), shape)
        yield one(f"scatter {name}", OpKind.SCATTER_ND, inputs, T((4, 8)), u55="op_kind", u85=u85)
    deep = T((2, 2), "int32", None, values=(0, 1, 2, 3))
    inputs = (deep, T((2,)), ints(4, 8))
    limit = "scatter_index_depth"
    yield one("scatter deep", OpKind.SCATTER_ND, inputs, T((4, 8)), u55="op_kind", u85=limit)


def oddities() -> Iterator[Boundary]:
    """Everything else."""
    shape = (1, 4, 4, 8)
    yield same("unknown height", OpKind.RELU, T(shape, unknown=(1,)), both="dynamic_axis")
    yield same("unknown batch", OpKind.RELU, T(shape, unknown=(0,)), T(shape, unknown=(0,)))
    t = T(shape, scale=(0.5,) * 8, axis=3)
    yield same("per-channel feature map", OpKind.RELU, t, both="per_axis_quantisation")
    yield same("scale 2**31", OpKind.RELU, T(shape, scale=2.0**31))
    yield same("scale 2**32", OpKind.RELU, T(shape, scale=2.0**32), both="scale_range")
    pads = T((4, 2), "int16", None, values=(0, 0, 1, 1, 1, 1, 0, 0))
    yield one(
        "mirror pad by int16",
        OpKind.MIRROR_PAD,
        (T(shape), pads),
        T((1, 6, 6, 8)),
        MirrorPadOptions(),
        both="padding_type",
    )
    order = (0, 1, 2, 3, 4, 5, 6, 8, 7)
    sizes = (1, 1, 1, 1, 1, 1, 1, 2, 3)
    swapped = tuple(sizes[i] for i in order)
    yield one(
        "transpose rank 9", OpKind.TRANSPOSE, (T(sizes), ints(*order)), T(swapped), both="rank"
    )
    thirds = tuple(T((1, 4, 4, 2)) for _ in range(3))
    yield one(
        "split with a result too many",
        OpKind.SPLIT,
        (ints(3), T((1, 4, 4, 6))),
        thirds,
        AxisOptions(count=2),
        both="split_count",
    )
    yield one(
        "empty slice",
        OpKind.STRIDED_SLICE,
        (T((16,)), ints(5), ints(3), ints(1)),
        T((1,)),
        StridedSliceOptions(),
        both="slice_size",
    )
    pair = (T((1, 1, 2)), T((1, 2, 65537)))
    yield one(
        "matmul of 65537 columns",
        OpKind.BATCH_MATMUL,
        pair,
        T((1, 1, 65537)),
        BatchMatMulOptions(),
        u55="result_depth",
    )
    pair = (T((1, 1, 65537)), T((1, 65537, 1)))
    yield one(
        "matmul over 65537",
        OpKind.BATCH_MATMUL,
        pair,
        T((1, 1, 1)),
        BatchMatMulOptions(),
        u55="reduced_axis",
    )
