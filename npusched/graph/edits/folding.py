"""Batch norms behind a linear op, folded into it: the file that ``npusched fold`` writes."""

from __future__ import annotations

from npusched.graph.fold import FoldedConstant, FoldedOp, fold_batch_norms
from npusched.ir import Model
from npusched.tflite.rewrite import NewConstant, OpEdit, rewrite


def fold_model(model: Model) -> tuple[bytes, int, tuple[str, ...]]:
    """Return (rewritten bytes, batch norms folded, reasons for those that stay)."""
    content, count, reasons = model.content, 0, []
    for subgraph in model.subgraphs:
        folded, left = fold_batch_norms(subgraph)
        reasons += [f"ops {list(norm.ops)}: {why}" for norm, why in left]
        count += len(folded)
        if folded:
            removed = [op for item in folded for op in item.removed]
            content = rewrite(content, subgraph.index, [_edit(item) for item in folded], removed)
    return content, count, tuple(reasons)


def _edit(item: FoldedOp) -> OpEdit:
    return OpEdit(
        op=item.op,
        weights=_constant(f"folded_weights_{item.op}", item.weights),
        bias=_constant(f"folded_bias_{item.op}", item.bias),
        output=item.output,
        activation=item.activation,
    )


def _constant(name: str, constant: FoldedConstant) -> NewConstant:
    return NewConstant(
        name=name,
        dtype=constant.dtype,
        values=constant.values,
        scales=constant.scales,
        zero_points=constant.zero_points,
        axis=constant.axis,
    )
