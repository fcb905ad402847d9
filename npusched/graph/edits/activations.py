"""SiLU (x times its sigmoid) written as two ops: HARD_SWISH is one, and reads a table."""

from __future__ import annotations

import msgspec

from npusched.graph.edits.uses import Uses
from npusched.ir import ActivationKind, DataType, Model, OpKind, Subgraph
from npusched.ir.options import BinaryOptions
from npusched.tflite.editor import Editor


class Silu(msgspec.Struct, frozen=True):
    """LOGISTIC ``sigmoid``, and the MUL ``product`` of its input and its result."""

    sigmoid: int
    product: int


def silus(graph: Subgraph) -> list[Silu]:
    """Every SiLU of int8 values."""
    uses, found = Uses(graph), []
    for op in graph.ops:
        if op.kind is not OpKind.LOGISTIC or not uses.own(op.outputs[0]):
            continue
        reader = uses.readers[op.outputs[0]][0]
        options = reader.options
        plain = isinstance(options, BinaryOptions) and options.activation is ActivationKind.NONE
        both = set(reader.inputs) == {op.inputs[0], op.outputs[0]}
        int8 = graph.tensors[op.inputs[0]].dtype is DataType.INT8
        if reader.kind is OpKind.MUL and plain and both and int8:
            found.append(Silu(op.index, reader.index))
    return found


def as_hard_swish(model: Model, subgraph: int, found: list[Silu]) -> bytes:
    """Return the file with HARD_SWISH for each: a similar function, so train a little more."""
    editor = Editor(model, subgraph)
    graph = model.subgraphs[subgraph]
    for silu in found:
        data, result = graph.ops[silu.sigmoid].inputs[0], graph.ops[silu.product].outputs[0]
        with editor.before(silu.product):
            editor.op(OpKind.HARD_SWISH, [editor.ref(data)], [editor.ref(result)])
        editor.remove(silu.sigmoid, silu.product)
    return editor.content()
