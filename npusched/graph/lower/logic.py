"""SELECT, comparisons, logical ops, and the NPU's own form of booleans.

Inside the NPU a bool is an int8 of -1 or 0. Only U85 runs these ops. Source: LOWERING.md §5;
Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RewriteSelect, ConvertBool8Tensors),
``compiler/tflite_graph_optimiser.cpp`` (ConvertLess, ConvertQuantizationToExplicit).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower.common import NO_SCALE, add_kernel, quant, scalar, temporary, use
from npusched.graph.lower.scaling import UNIT, quantize_scale
from npusched.graph.shapes import pad_axes
from npusched.graph.types import KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, OpKind, Shape

COMPARISON_LEFT_SHIFT = 8
"""The reference compares inputs rescaled with this many bits more."""

_COMPARISONS = {
    OpKind.EQUAL: KernelKind.EQUAL,
    OpKind.NOT_EQUAL: KernelKind.NOT_EQUAL,
    OpKind.GREATER: KernelKind.GREATER,
    OpKind.GREATER_EQUAL: KernelKind.GREATER_EQUAL,
    OpKind.LESS: KernelKind.GREATER,
    OpKind.LESS_EQUAL: KernelKind.GREATER_EQUAL,
}
_LOGICAL = {
    OpKind.LOGICAL_AND: KernelKind.LOGICAL_AND,
    OpKind.LOGICAL_OR: KernelKind.LOGICAL_OR,
    OpKind.LOGICAL_NOT: KernelKind.LOGICAL_NOT,
}


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that all ``shapes`` broadcast to (equal or 1 per axis)."""
    rank = max(len(shape) for shape in shapes)
    padded = [pad_axes(shape, rank) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def lower_comparison(graph: WorkGraph, op: WorkOp) -> None:
    """EQUAL .. LESS_EQUAL: inputs are rescaled first; LESS(a, b) is GREATER(b, a)."""
    assert isinstance(op.kind, OpKind)
    ifms = [link.copy() for link in op.ifms]
    if op.kind in (OpKind.LESS, OpKind.LESS_EQUAL):
        ifms.reverse()
    added = add_kernel(graph, op, _COMPARISONS[op.kind], ifms, op.ofm, ofm_scale=UNIT)
    added.ofm.zero_point = 0
    if all(link.scale is not None for link in ifms):
        added.ifm_rescales = tuple(_comparison_rescale(link) for link in ifms)
    graph.remove(op)


def _comparison_rescale(link: Link) -> Rescale:
    scale = quantize_scale(link.scale or 1.0)
    return Rescale(
        multipliers=(scale.multiplier,),
        shifts=(scale.shift - COMPARISON_LEFT_SHIFT,),
        rounding=Rounding.DOUBLE,
    )


def lower_logical(graph: WorkGraph, op: WorkOp) -> None:
    """LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT: one kernel each."""
    assert isinstance(op.kind, OpKind)
    add_kernel(graph, op, _LOGICAL[op.kind], op.ifms, op.ofm, ofm_scale=UNIT)
    graph.remove(op)


def lower_select(graph: WorkGraph, op: WorkOp) -> None:
    """SELECT(c, a, b): (a & c) | (b & ~c), with c widened to the type of the result."""
    selector, first, second = op.ifms
    dtype = op.ofm.tensor.dtype
    if selector.tensor.dtype.bits != dtype.bits:
        wide = temporary(graph, op, "selector", selector.shape, dtype)
        zero = use(scalar(graph, "zero", 0, DataType.INT8))
        add_kernel(graph, op, KernelKind.ADD, [selector, zero], use(wide), ofm_scale=UNIT)
        selector = use(wide)
    how = quant(op.ofm)
    chosen = _bits(graph, op, KernelKind.AND, first, selector)
    other = _bits(graph, op, KernelKind.AND_NOT, second, selector)
    add_kernel(
        graph, op, KernelKind.OR, [use(chosen, how), use(other, how)], op.ofm, ofm_scale=UNIT
    )
    graph.remove(op)


def _bits(
    graph: WorkGraph, op: WorkOp, kind: KernelKind, value: Link, selector: Link
) -> WorkTensor:
    shape = broadcast_shape((value.shape, selector.shape))
    result = temporary(graph, op, kind.value, shape, op.ofm.tensor.dtype)
    ofm = use(result, quant(op.ofm))
    add_kernel(graph, op, kind, [value, selector], ofm, ofm_scale=UNIT)
    return result


# --- booleans at the edges -----------------------------------------------------------------


def convert_booleans(graph: WorkGraph) -> None:
    """Bring booleans into the NPU's form where NPU ops touch the graph's inputs and outputs.

    Constants become -1 and 0; an input is compared with 0 into a new tensor for its readers; an
    output is written by an And with 1 from a new tensor. Runs once, between steps 1 and 2.
    """
    for tensor in list(graph.tensors):
        if tensor.dtype is not DataType.BOOL or not (tensor.readers or tensor.writers):
            continue
        if tensor.data is not None:
            data = np.where(tensor.data == 0, 0, -1).astype(np.int8)
            data.flags.writeable = False
            tensor.data = data
        elif tensor.is_graph_input:
            _convert_input(graph, tensor)
        elif tensor.is_graph_output:
            _convert_output(graph, tensor)


def _inner(graph: WorkGraph, tensor: WorkTensor) -> WorkTensor:
    return graph.new_tensor(f"{tensor.name}_int8", tensor.shape, DataType.BOOL)


def _convert_input(graph: WorkGraph, tensor: WorkTensor) -> None:
    inner = _inner(graph, tensor)
    readers = list(dict.fromkeys(tensor.readers))
    for reader in readers:
        for position, link in enumerate(reader.ifms):
            if link.tensor is tensor:
                graph.replace_ifm(reader, position, replace(link, tensor=inner))
    sources = readers[0].source_ops if readers else ()
    _edge(graph, KernelKind.NOT_EQUAL, tensor, inner, 0, sources)


def _convert_output(graph: WorkGraph, tensor: WorkTensor) -> None:
    inner = _inner(graph, tensor)
    writers = list(dict.fromkeys(tensor.writers))
    for writer in writers:
        for position, link in enumerate(writer.ofms):
            if link.tensor is tensor:
                graph.replace_ofm(writer, replace(link, tensor=inner), position)
    sources = writers[0].source_ops if writers else ()
    _edge(graph, KernelKind.AND, inner, tensor, 1, sources)


def _edge(
    graph: WorkGraph,
    kind: KernelKind,
    source: WorkTensor,
    result: WorkTensor,
    value: int,
    sources: tuple[tuple[int, int], ...],
) -> None:
    constant = scalar(graph, "bool", value, DataType.BOOL)
    graph.add(
        WorkOp(
            kind=kind,
            source_ops=sources,
            ifms=[use(source, NO_SCALE), use(constant, NO_SCALE)],
            ofms=[use(result, NO_SCALE)],
            name=result.name,
        )
    )
