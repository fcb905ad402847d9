"""SOFTMAX: in pieces where its 32-bit temporaries make the peak, or left to the host at the end."""

from __future__ import annotations

from itertools import pairwise

from npusched.graph.edits.uses import Uses
from npusched.ir import Model, OpKind, Subgraph
from npusched.ir.options import ConcatOptions
from npusched.tflite.editor import Editor


def final_softmaxes(graph: Subgraph) -> list[int]:
    """SOFTMAX ops whose results are graph outputs that nothing in the model reads."""
    uses = Uses(graph)
    return [
        op.index
        for op in graph.ops
        if op.kind is OpKind.SOFTMAX
        and op.outputs[0] in graph.outputs
        and op.outputs[0] not in uses.readers
        and op.inputs[0] in uses.writer
        and op.inputs[0] not in graph.outputs
    ]


def without_final_softmax(model: Model, subgraph: int, op: int) -> bytes:
    """Return the file that ends in the logits: the largest one stays the largest."""
    editor = Editor(model, subgraph)
    source = model.subgraphs[subgraph].ops[op]
    editor.outputs = [source.inputs[0] if t == source.outputs[0] else t for t in editor.outputs]
    editor.remove(op)
    return editor.content()


def softmax_in_pieces(model: Model, subgraph: int, op: int, pieces: int) -> bytes | None:
    """Return the file with a SOFTMAX of ``pieces`` equal parts along its largest outer axis.

    None if no outer axis can be cut so. Every row is computed as before: results stay the same.
    """
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    data, result = graph.tensors[source.inputs[0]], graph.tensors[source.outputs[0]]
    fitting = [axis for axis, size in enumerate(data.shape[:-1]) if size >= pieces]
    if not fitting:
        return None
    whole = [axis for axis in fitting if data.shape[axis] % pieces == 0]
    axis = max(whole or fitting, key=lambda each: (data.shape[each], -each))
    borders = [data.shape[axis] * k // pieces for k in range(pieces + 1)]
    editor = Editor(model, subgraph)
    with editor.before(op):
        x, out = editor.ref(data.index), editor.ref(result.index)
        parts = []
        for low, high in pairwise(borders):
            begin = [low if a == axis else 0 for a in range(len(data.shape))]
            extent = [high - low if a == axis else s for a, s in enumerate(data.shape)]
            piece = editor.slice(x, begin, extent, name=f"softmax_{op}_rows_{low}")
            parts.append(
                editor.apply(
                    OpKind.SOFTMAX,
                    [piece],
                    source.options,
                    name=f"softmax_{op}_of_{low}",
                    scale=out.scale,
                    zero_point=out.zero_point,
                )
            )
        editor.op(OpKind.CONCATENATION, parts, [out], ConcatOptions(axis=axis))
    editor.remove(op)
    return editor.content()
