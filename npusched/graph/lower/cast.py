"""CAST and other changes of the element type that keep the values.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RewriteCast),
``compiler/tflite_graph_optimiser.cpp`` (CreateCastToInt32).
"""

from __future__ import annotations

from msgspec.structs import replace

from npusched.graph.lower.common import NO_SCALE, add_kernel, scalar, temporary, use
from npusched.graph.lower.scaling import UNIT, Scale, dtype_range
from npusched.graph.shapes import pad_axes
from npusched.graph.types import Activation, KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType

UNCLIPPED = Activation(minimum=-(1 << 63), maximum=(1 << 63) - 1, function="unclipped")
"""Results wrap: the clamp spans more than the result's type."""


def lower_cast(graph: WorkGraph, op: WorkOp) -> None:
    """CAST: quantisation plays no part; bool is -1 or 0 inside the NPU, 1 or 0 outside."""
    ifm = use(op.ifm.tensor, NO_SCALE, op.ifm.shape)
    convert(graph, op, ifm, use(op.ofm.tensor, NO_SCALE, op.ofm.shape))
    graph.remove(op)


def convert(graph: WorkGraph, op: WorkOp, ifm: Link, ofm: Link) -> None:
    """Add the kernels that write the values of ``ifm`` in the type of ``ofm``.

    bool to integer: And with 1. Integer to bool: NotEqual 0. Else Add 0, unclipped where values
    may not fit. 64-bit results take two steps through a 16-bit reading of the 32-bit result.
    """
    source, target = ifm.element_type, ofm.element_type
    if target in (DataType.INT64, DataType.UINT64):
        _convert_to_64(graph, op, ifm, ofm)
    elif source is DataType.BOOL and target.is_integer:
        one = use(scalar(graph, "one", 1, DataType.INT8))
        _clipped(add_kernel(graph, op, KernelKind.AND, [ifm, one], ofm, ofm_scale=UNIT))
    elif source.is_integer and target is DataType.BOOL:
        zero = use(scalar(graph, "zero", 0, source))
        _clipped(add_kernel(graph, op, KernelKind.NOT_EQUAL, [ifm, zero], ofm, ofm_scale=UNIT))
    else:
        zero = use(scalar(graph, "zero", 0, source))
        _clipped(add_kernel(graph, op, KernelKind.ADD, [ifm, zero], ofm, ofm_scale=UNIT))


def _clipped(op: WorkOp) -> None:
    """Disable clipping if the input's range exceeds the result's."""
    low, high = dtype_range(op.ifm.element_type)
    lowest, highest = dtype_range(op.ofm.element_type)
    if low < lowest or high > highest:
        op.activation = UNCLIPPED


def _convert_to_64(graph: WorkGraph, op: WorkOp, ifm: Link, ofm: Link) -> None:
    """Widen to int32, read that as int16 pairs (value, sign) and widen them: int64."""
    narrow = temporary(graph, op, "int32", ifm.shape, DataType.INT32)
    convert(graph, op, ifm, use(narrow))
    pairs = (*ifm.shape[:-1], 2 * ifm.shape[-1])
    halves = replace(use(narrow, NO_SCALE, pairs), dtype=DataType.INT16)
    convert(graph, op, halves, replace(ofm, shape=pairs, dtype=DataType.INT32))


def copy_to_int32(graph: WorkGraph, op: WorkOp, ifm: Link, left_shift: int) -> WorkTensor:
    """Add a copy of ``(x - zero point) << left_shift`` as int32 (4 axes) and return it."""
    shape = pad_axes(ifm.region, 4)
    result = temporary(graph, op, f"{ifm.tensor.name}_int32", shape, DataType.INT32)
    add_kernel(
        graph,
        op,
        KernelKind.MEMORY_COPY,
        [ifm],
        use(result),
        rounding=Rounding.NATURAL,
        ofm_scale=Scale(1 << left_shift, 0),
    )
    return result
