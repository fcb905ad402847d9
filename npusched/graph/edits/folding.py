"""Batch norms behind a linear op, folded into it: the file that ``npusched fold`` writes."""

from __future__ import annotations

from msgspec.structs import replace

from npusched.graph.fold import FoldedConstant, FoldedOp, fold_batch_norms
from npusched.ir import Model, Subgraph
from npusched.ir.options import ConvOptions, FullyConnectedOptions
from npusched.tflite import read_model
from npusched.tflite.editor import Editor


def fold_model(model: Model) -> tuple[bytes, int, tuple[str, ...]]:
    """Return (rewritten bytes, batch norms folded, reasons for those that stay).

    Raises ModelError if the file cannot be rewritten (see ``Editor``).
    """
    count, reasons = 0, []
    for index in range(len(model.subgraphs)):
        folded, left = fold_batch_norms(model.subgraphs[index])
        reasons += [f"ops {list(norm.ops)}: {why}" for norm, why in left]
        count += len(folded)
        if folded:
            editor = Editor(model, index)
            for item in folded:
                _apply(editor, model.subgraphs[index], item)
            model = read_model(editor.content(), model.name)
    return model.content, count, tuple(reasons)


def _apply(editor: Editor, graph: Subgraph, item: FoldedOp) -> None:
    op = graph.ops[item.op]
    with editor.before(item.op):
        weights = _constant(editor, f"folded_weights_{item.op}", item.weights)
        bias = _constant(editor, f"folded_bias_{item.op}", item.bias)
    editor.set_inputs(item.op, [op.inputs[0], weights, bias, *op.inputs[3:]])
    editor.set_outputs(item.op, [item.output])
    if isinstance(op.options, ConvOptions | FullyConnectedOptions):
        editor.set_options(item.op, replace(op.options, activation=item.activation))
    editor.remove(*item.removed)


def _constant(editor: Editor, name: str, constant: FoldedConstant) -> int:
    return editor.const(
        constant.values,
        constant.dtype,
        name=name,
        scale=constant.scales,
        zero_point=constant.zero_points,
        axis=constant.axis,
    ).index
