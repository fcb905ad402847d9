"""ARG_MAX: a unit of its own on U85, packed indices on U55 and U65.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RewriteArgmax).
"""

from __future__ import annotations

import numpy as np

from npusched.graph.lower import lut
from npusched.graph.lower.cast import convert
from npusched.graph.lower.common import (
    NO_SCALE,
    ONE,
    add_kernel,
    constant,
    is_u85,
    quant,
    temporary,
    use,
)
from npusched.graph.lower.reduce import axes_of
from npusched.graph.lower.scaling import UNIT
from npusched.graph.shapes import around_axis, pad_axes, with_axis
from npusched.graph.types import Activation, Kernel, KernelKind, Rounding
from npusched.graph.work import WorkGraph, WorkOp
from npusched.ir import DataType


def lower_arg_max(graph: WorkGraph, op: WorkOp) -> None:
    """ARG_MAX: one kernel on U85; on U55/U65 over channels by packing the index into the value."""
    axis = axes_of(op)[0]
    shape = op.ifm.shape
    if is_u85(graph):
        folded = around_axis(shape, axis)
        result = use(op.ofm.tensor, NO_SCALE, with_axis(folded, 1, 1))
        added = add_kernel(
            graph,
            op,
            KernelKind.ARG_MAX,
            [use(op.ifm.tensor, quant(op.ifm), folded)],
            result,
            rounding=Rounding.TRUNCATE_LOWER,
            ofm_scale=UNIT,
            kernel=Kernel(w=folded[1]),
        )
        added.axis = -2
    else:
        _arg_max_by_pool(graph, op)
    graph.remove(op)


def _arg_max_by_pool(graph: WorkGraph, op: WorkOp) -> None:
    """Maximum of ``value * 128 + (depth - 1 - index)``, whose low 7 bits a table turns back."""
    height, width, depth = pad_axes(op.ifm.shape, 3)[-3:]
    weights = constant(
        graph, f"arg_max_shift_{depth}", np.full((depth, 1, 1, 1), 128), DataType.UINT8
    )
    weights.scales, weights.zero_points = (1.0,), (0,)
    bias = constant(graph, f"arg_max_index_{depth}", np.arange(depth)[::-1], DataType.INT64)
    packed = temporary(graph, op, "arg_max_packed", (1, height, width, depth), DataType.INT16)
    add_kernel(
        graph,
        op,
        KernelKind.DEPTHWISE,
        [use(op.ifm.tensor, NO_SCALE, packed.shape)],
        use(packed),
        weights=use(weights, ONE),
        bias=use(bias),
        ofm_scale=UNIT,
    )
    rows = height * width
    shape = (1, height, width, 1)
    highest = temporary(graph, op, "arg_max_highest", shape, DataType.INT16)
    add_kernel(
        graph,
        op,
        KernelKind.MAX_POOL,
        [use(packed, NO_SCALE, (1, rows, depth, 1))],
        use(highest, NO_SCALE, (1, rows, 1, 1)),
        kernel=Kernel(w=depth),
    )
    index = temporary(graph, op, "arg_max_index", shape, DataType.INT16)
    add_kernel(
        graph,
        op,
        KernelKind.LUT,
        [use(highest)],
        use(index),
        activation=Activation(
            lut=lut.arg_max16(depth), lut_dtype=DataType.INT32, function="arg_max"
        ),
    )
    convert(graph, op, use(index), use(op.ofm.tensor, NO_SCALE, shape))
