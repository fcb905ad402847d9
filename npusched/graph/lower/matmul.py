"""BATCH_MATMUL and FULLY_CONNECTED with computed weights.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp`` (RewriteBatchMatMul,
RewriteFullyConnectDynamic), ``compiler/graphir_optimiser.cpp`` (RewriteMatmul),
``compiler/scheduler_decompose.cpp`` (DecomposeMatmul).
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from npusched.graph.lower.basic_kernels import lower_fully_connected
from npusched.graph.lower.common import (
    NO_SCALE,
    add_kernel,
    is_u85,
    quant,
    temporary,
    use,
)
from npusched.graph.lower.tile import tile_copies
from npusched.graph.lower.transpose import add_transpose
from npusched.graph.shapes import pad_axes
from npusched.graph.split import replace_by
from npusched.graph.types import KernelKind, Pieces, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.ir import DataType, Shape
from npusched.ir.options import BatchMatMulOptions


def lower_batch_matmul(graph: WorkGraph, op: WorkOp) -> None:
    """BATCH_MATMUL: one matrix product on (1, n*h, w, c).

    The hardware wants the second input with w and c exchanged, so it is transposed unless
    ``adj_y`` already is (two transposes cancel). Broadcast leading axes are tiled.
    """
    options = op.options
    adj_x = isinstance(options, BatchMatMulOptions) and options.adj_x
    adj_y = isinstance(options, BatchMatMulOptions) and options.adj_y
    result = pad_axes(op.ofm.shape, 4)
    first = _operand(graph, op, op.ifms[0], result, transpose=adj_x)
    second = _operand(graph, op, op.ifms[1], result, transpose=adj_y)
    ofm = use(op.ofm.tensor, quant(op.ofm), _rows(result))
    _product(graph, op, first, second, ofm, rounding=_rounding(op))
    graph.remove(op)


def lower_fully_connected_any(graph: WorkGraph, op: WorkOp) -> None:
    """FULLY_CONNECTED: a 1x1 convolution, or a matrix product where the weights are computed."""
    weights = op.weights
    if weights is None or weights.tensor.is_constant:
        lower_fully_connected(graph, op)
        return
    outputs, inputs = weights.shape[0], weights.shape[-1]
    how = quant(weights)
    matrix = use(weights.tensor, NO_SCALE, (1, 1, outputs, inputs))
    transposed = _exchanged(graph, op, matrix, may_view=True)
    ifm = replace(op.ifm, shape=_rows(op.ifm.shape))
    ofm = replace(op.ofm, shape=_rows(op.ofm.shape))
    second = replace(transposed, scale=how.scale, zero_point=how.zero_point)
    _product(graph, op, ifm, second, ofm, rounding=_rounding(op))
    graph.remove(op)


def _rounding(op: WorkOp) -> Rounding:
    sixteen = op.ifm.tensor.dtype is DataType.INT16
    return Rounding.NATURAL if sixteen else Rounding.DOUBLE


def _rows(shape: Shape) -> Shape:
    """Fold all axes but the last two into h."""
    padded = pad_axes(shape, 4)
    return (1, prod(padded[:-2]), *padded[-2:])


def _operand(graph: WorkGraph, op: WorkOp, link: Link, result: Shape, *, transpose: bool) -> Link:
    """Return an input as (1, n, w, c), tiled to the result's leading axes, transposed if asked."""
    shape = pad_axes(link.shape, len(result))
    tensor = link.tensor
    if shape[:-2] != result[:-2]:
        tiled = (*result[:-2], *shape[-2:])
        tensor = temporary(graph, op, f"{tensor.name}_tiled", tiled, tensor.dtype)
        tensor.scales, tensor.zero_points = link.tensor.scales, link.tensor.zero_points
        tile_copies(graph, op, replace(link, shape=shape), use(tensor, quant(link)))
    flat = use(tensor, quant(link), (1, prod(result[:-2]), *shape[-2:]))
    return _exchanged(graph, op, flat, may_view=True) if transpose else flat


def _exchanged(graph: WorkGraph, op: WorkOp, link: Link, *, may_view: bool) -> Link:
    """Add a transpose that exchanges w and c (``may_view``: or a view, if one of them is 1).

    Vela makes the one behind ``adj_x``, ``adj_y`` or computed weights before it removes views, and
    the one that every matrix product needs later.
    """
    _, height, width, depth = link.shape
    name = f"{link.tensor.name}_transposed"
    moved = temporary(graph, op, name, (1, height, depth, width), link.tensor.dtype)
    source = use(link.tensor, NO_SCALE, link.shape)
    if may_view:
        added = add_transpose(graph, op, source, use(moved), (0, 1, 3, 2))
    else:
        added = add_kernel(graph, op, KernelKind.TRANSPOSE, [source], use(moved))
        added.perm = (0, 1, 3, 2)
    added.accumulator_scaled = False
    return use(moved, quant(link))


def _product(
    graph: WorkGraph, op: WorkOp, first: Link, second: Link, ofm: Link, rounding: Rounding
) -> None:
    """Add the product; its second input is read with w and c exchanged."""
    add_kernel(
        graph,
        op,
        KernelKind.MATMUL,
        [first, _exchanged(graph, op, second, may_view=False)],
        ofm,
        rounding=rounding,
    )


def decompose_matmul(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: U85 multiplies one (w, c) matrix at a time: equal pieces along the rows of h."""
    count = op.ofm.region[-3]
    if not is_u85(graph) or count == 1:
        return
    piece = op.clone()
    for link in (*piece.ifms, *piece.ofms):
        shape = link.region
        offset = (0,) * len(shape) if link.slice_offset is None else link.slice_offset
        link.slice_offset, link.slice_shape = offset, (*shape[:-3], 1, *shape[-2:])
    step = (0, 1, 0, 0)
    piece.pieces = Pieces(grid=(1, count, 1, 1), ifm_steps=(step, step), ofm_step=step)
    replace_by(graph, op, [piece])
