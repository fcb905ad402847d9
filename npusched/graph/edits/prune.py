"""Weights with zeros, to see what their encoding would save."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from npusched.graph.edits.uses import Uses
from npusched.ir import Model, OpKind
from npusched.tflite.editor import Editor

_SLOTS = {
    OpKind.CONV_2D: 1,
    OpKind.DEPTHWISE_CONV_2D: 1,
    OpKind.FULLY_CONNECTED: 1,
    OpKind.TRANSPOSE_CONV: 1,
}


def pruned(model: Model, subgraph: int, ops: Collection[int], share: float) -> bytes | None:
    """Return the file in which the smallest ``share`` of each op's weights are zero.

    None if no op has weights to prune (or they are as sparse already). Accuracy would have to be
    regained by training with that sparsity.
    """
    graph = model.subgraphs[subgraph]
    uses, editor, changed = Uses(graph), Editor(model, subgraph), False
    for index in sorted(ops):
        op = graph.ops[index]
        tensor = uses.tensor(op, _SLOTS[op.kind]) if op.kind in _SLOTS else None
        if tensor is None or tensor.data is None or not tensor.dtype.is_integer:
            continue
        known = tensor.quantization
        zero = known.zero_points[0] if known is not None and known.zero_points else 0
        size = np.abs(tensor.data.astype(np.int64) - zero).reshape(-1)
        least = np.argsort(size, kind="stable")[: int(share * size.size)]
        if not size[least].any():
            continue
        values = tensor.data.copy().reshape(-1)
        values[least] = zero
        editor.set_constant(tensor.index, values.reshape(tensor.shape))
        changed = True
    return editor.content() if changed else None
