"""SQUARED_DIFFERENCE as the reference computes it, on int32.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp``
(RewriteSquaredDifference).
"""

from __future__ import annotations

from npusched.graph.lower.cast import copy_to_int32
from npusched.graph.lower.common import NO_SCALE, add_kernel, scalar, scale_of, temporary, use
from npusched.graph.lower.logic import broadcast_shape
from npusched.graph.lower.scaling import UNIT, Scale, quantize_scale
from npusched.graph.types import KernelKind
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType


def lower_squared_difference(graph: WorkGraph, op: WorkOp) -> None:
    """SQUARED_DIFFERENCE: both inputs to int32 in units of twice the larger scale, then (a-b)^2.

    8-bit inputs are shifted left by 7 bits first. 32-bit products apply only a shift, so the
    multipliers are constants.
    """
    first, second = op.ifms
    scales = scale_of(first), scale_of(second)
    twice_max = 2.0 * max(scales)
    left = 0 if first.tensor.dtype is DataType.INT16 else 7
    output = (twice_max * twice_max) / ((1 << (2 * left)) * scale_of(op.ofm))
    a = _scaled(graph, op, first, scales[0] / twice_max, left)
    b = _scaled(graph, op, second, scales[1] / twice_max, left)
    shape = broadcast_shape((a.shape, b.shape))
    difference = temporary(graph, op, "difference", shape, DataType.INT32)
    add_kernel(graph, op, KernelKind.SUB, [use(a), use(b)], use(difference), ofm_scale=UNIT)
    square = temporary(graph, op, "square", shape, DataType.INT32)
    both = [use(difference), use(difference)]
    add_kernel(graph, op, KernelKind.MUL, both, use(square), ofm_scale=UNIT)
    factor = _at_least_one(quantize_scale(output))
    add_kernel(
        graph,
        op,
        KernelKind.MUL,
        [use(square), _constant(graph, factor)],
        op.ofm,
        ofm_scale=Scale(1, factor.shift),
    )
    graph.remove(op)


def _scaled(graph: WorkGraph, op: WorkOp, link: Link, factor: float, left: int) -> WorkTensor:
    """Return ``(x - zero point) * 2**left * factor`` as int32."""
    wide = copy_to_int32(graph, op, link, left)
    scale = _at_least_one(quantize_scale(factor))
    result = temporary(graph, op, f"{link.tensor.name}_scaled", wide.shape, DataType.INT32)
    add_kernel(
        graph,
        op,
        KernelKind.MUL,
        [use(wide), _constant(graph, scale)],
        use(result),
        ofm_scale=Scale(1, scale.shift),
    )
    return result


def _constant(graph: WorkGraph, scale: Scale) -> Link:
    return use(scalar(graph, "multiplier", scale.multiplier), NO_SCALE)


def _at_least_one(scale: Scale) -> Scale:
    return Scale(max(scale.multiplier, 1), scale.shift)
