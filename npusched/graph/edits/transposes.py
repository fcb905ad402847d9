"""TRANSPOSE ops of a converter that cancel: (N)CHW islands in an NHWC network."""

from __future__ import annotations

import msgspec
import numpy as np

from npusched.graph.edits.uses import BINARY, UNARY, Uses
from npusched.ir import Model, Op, OpKind, Shape, Subgraph
from npusched.ir.options import ConcatOptions
from npusched.tflite.editor import Editor

Order = tuple[int, ...]


class Island(msgspec.Struct, frozen=True, kw_only=True):
    """Ops between TRANSPOSEs ``into`` (all by ``order``) and ``out_of`` (all by its inverse).

    ``tensors`` are those inside, ``constants`` those whose axes move with them, ``pads`` and
    ``concats`` the ops with axes of their own. ``entries`` and ``exits`` are edges of the graph
    that are transposed themselves: the model's inputs and outputs change their layout.
    """

    order: Order
    into: tuple[int, ...]
    out_of: tuple[int, ...]
    tensors: tuple[int, ...]
    constants: tuple[int, ...]
    pads: tuple[int, ...]
    concats: tuple[int, ...]
    ops: tuple[int, ...]


def transpose_islands(graph: Subgraph) -> list[Island]:
    """Every island whose TRANSPOSEs cancel."""
    uses, found, seen = Uses(graph), [], set[int]()
    for op in graph.ops:
        order = _order(uses, op)
        if order is None or op.index in seen or order == tuple(range(len(order))):
            continue
        island = _island(uses, op, order)
        if island is not None:
            seen.update(island.into)
            found.append(island)
    return found


def _order(uses: Uses, op: Op) -> Order | None:
    """The permutation of a TRANSPOSE of a computed tensor."""
    values = uses.tensor(op, 1) if op.kind is OpKind.TRANSPOSE else None
    if values is None or values.data is None or uses.graph.tensors[op.inputs[0]].is_constant:
        return None
    return tuple(int(v) for v in values.data.reshape(-1))


def _inverse(order: Order) -> Order:
    return tuple(order.index(axis) for axis in range(len(order)))


def _island(uses: Uses, start: Op, order: Order) -> Island | None:
    """What is reached from a TRANSPOSE through ops that do not care for the order of axes."""
    into, out_of, inside, ops = {start.index}, set[int](), set[int](), set[int]()
    constants, pads, concats = set[int](), set[int](), set[int]()
    pending = [start.outputs[0]]
    while pending:
        t = pending.pop()
        if t in inside:
            continue
        if t in uses.edges or not uses.readers.get(t):
            return None
        inside.add(t)
        writer = uses.writer.get(t)
        if writer is None:
            return None
        if writer.index not in ops and writer.index not in into:
            if _order(uses, writer) == order:
                into.add(writer.index)
            else:
                return None
        for op in uses.readers[t]:
            if op.index in ops or op.index in out_of:
                continue
            if _order(uses, op) == _inverse(order):
                out_of.add(op.index)
                continue
            more = _members(uses, op, len(order), constants, pads, concats)
            if more is None:
                return None
            ops.add(op.index)
            pending += more
    if not out_of:
        return None
    return Island(
        order=order,
        into=tuple(sorted(into)),
        out_of=tuple(sorted(out_of)),
        tensors=tuple(sorted(inside)),
        constants=tuple(sorted(constants)),
        pads=tuple(sorted(pads)),
        concats=tuple(sorted(concats)),
        ops=tuple(sorted(ops)),
    )


def _members(
    uses: Uses, op: Op, rank: int, constants: set[int], pads: set[int], concats: set[int]
) -> list[int] | None:
    """Tensors that belong to the island with ``op``; None if the op minds the order of axes."""
    if len(op.outputs) != 1 or len(uses.result(op).shape) != rank:
        return None
    if op.kind in UNARY:
        return [op.inputs[0], op.outputs[0]]
    if op.kind in BINARY:
        members = [op.outputs[0]]
        for t in op.inputs:
            tensor = uses.graph.tensors[t]
            if not tensor.is_constant:
                members.append(t)
            elif tensor.elements > 1:
                if not uses.own(t) or len(tensor.shape) > rank:
                    return None
                constants.add(t)
        return members
    if op.kind is OpKind.PAD:
        paddings = uses.tensor(op, 1)
        if paddings is None or paddings.data is None:
            return None
        pads.add(op.index)
        return [op.inputs[0], op.outputs[0]]
    if op.kind is OpKind.CONCATENATION and isinstance(op.options, ConcatOptions):
        if any(uses.graph.tensors[t].is_constant for t in op.inputs):
            return None
        concats.add(op.index)
        return [*op.inputs, op.outputs[0]]
    return None


def without_transposes(model: Model, subgraph: int, island: Island) -> bytes:
    """Return the file with an island in the order of its surroundings. Results stay the same."""
    editor = Editor(model, subgraph)
    graph = model.subgraphs[subgraph]
    back = _inverse(island.order)
    for t in island.tensors:
        editor.set_shape(t, _permuted(graph.tensors[t].shape, back))
    for t in island.constants:
        data = graph.tensors[t].data
        assert data is not None
        full = data.reshape((1,) * (len(back) - data.ndim) + data.shape)
        editor.set_constant(t, np.transpose(full, back))
    for op in island.pads:
        with editor.before(op):
            data = graph.tensors[graph.ops[op].inputs[1]].data
            assert data is not None
            moved = editor.const(data.reshape(-1, 2)[list(back)], "int32", name=f"pad_{op}")
        editor.set_inputs(op, [graph.ops[op].inputs[0], moved.index])
    for op in island.concats:
        options = graph.ops[op].options
        assert isinstance(options, ConcatOptions)
        axis = island.order[options.axis % len(back)]
        editor.set_options(op, ConcatOptions(axis=axis, activation=options.activation))
    editor.remove(*island.into, *island.out_of)
    for op in island.out_of:  # first the ends: an island may be nothing but its two ends
        source = graph.ops[op]
        _joined(editor, graph, source.outputs[0], source.inputs[0], island)
    for op in island.into:
        source = graph.ops[op]
        editor.rewire(source.outputs[0], source.inputs[0])
    return editor.content()


def _joined(editor: Editor, graph: Subgraph, result: int, inside: int, island: Island) -> None:
    """Readers of an island's result read what is inside; a graph output keeps its tensor."""
    writer = next((op for op in graph.ops if inside in op.outputs), None)
    if result in graph.outputs and writer is not None and writer.index in island.ops:
        editor.set_outputs(writer.index, [result])
        editor.rewire(inside, result)
    else:
        editor.rewire(result, inside)


def _permuted(shape: Shape, order: Order) -> Shape:
    return tuple(shape[axis] for axis in order)


def edge_transposes(graph: Subgraph) -> list[int]:
    """TRANSPOSEs that only turn a graph input, or whose result is only a graph output."""
    uses, found = Uses(graph), []
    for op in graph.ops:
        if _order(uses, op) is None:
            continue
        data, result = op.inputs[0], op.outputs[0]
        alone = len(uses.readers.get(data, ())) == 1 and data not in graph.outputs
        starts = data in graph.inputs and result not in graph.outputs
        ends = result in graph.outputs and not uses.readers.get(result) and data not in graph.inputs
        if alone and (starts or ends):
            found.append(op.index)
    return found


def turned_edge(model: Model, subgraph: int, op: int) -> bytes:
    """Return the file without such a TRANSPOSE: the host hands over the other order of axes."""
    editor = Editor(model, subgraph)
    source = model.subgraphs[subgraph].ops[op]
    data, result = source.inputs[0], source.outputs[0]
    if data in editor.inputs:
        editor.inputs = [result if t == data else t for t in editor.inputs]
    else:
        editor.outputs = [data if t == result else t for t in editor.outputs]
    editor.remove(op)
    return editor.content()
