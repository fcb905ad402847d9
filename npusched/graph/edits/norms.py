"""Batch norms that stand before a convolution: folded into the op behind them."""

from __future__ import annotations

import msgspec
import numpy as np

from npusched.graph.batchnorm import BatchNorm, find_batch_norms
from npusched.graph.edits.uses import Uses
from npusched.ir import ActivationKind, Model, Op, OpKind, Padding, Subgraph
from npusched.ir.options import BinaryOptions, ConvOptions
from npusched.tflite.editor import Editor
from npusched.tflite.quantize import quantize_weights


class Forward(msgspec.Struct, frozen=True):
    """A batch norm and the linear op that can take it."""

    norm: BatchNorm
    linear: int


def forward_norms(graph: Subgraph) -> list[Forward]:
    """Batch norms that no op before them takes, and whose only reader is a linear op.

    The reader must not pad: padded pixels would have to be what the norm makes of them.
    """
    uses, found = Uses(graph), []
    for norm in find_batch_norms(graph):
        last = graph.ops[norm.ops[-1]]
        if norm.linear is not None or not uses.own(last.outputs[0]):
            continue
        if isinstance(last.options, BinaryOptions) and last.options.activation is not (
            ActivationKind.NONE
        ):
            continue
        reader = uses.readers[last.outputs[0]][0]
        if _takes(uses, reader, last.outputs[0]):
            found.append(Forward(norm, reader.index))
    return found


def _takes(uses: Uses, op: Op, data: int) -> bool:
    weights, bias = uses.tensor(op, 1), uses.tensor(op, 2)
    if op.inputs[0] != data or weights is None or weights.data is None:
        return False
    quantized = weights.quantization
    if quantized is None or bias is None or bias.data is None or not uses.own(weights.index):
        return False
    if uses.graph.tensors[data].quantization is None or not uses.own(bias.index):
        return False
    if op.kind is OpKind.FULLY_CONNECTED:
        return weights.shape[-1] == uses.graph.tensors[data].shape[-1]
    options = op.options
    return (
        op.kind is OpKind.CONV_2D
        and isinstance(options, ConvOptions)
        and weights.shape[3] == uses.graph.tensors[data].shape[3]
        and (options.padding is Padding.VALID or weights.shape[1:3] == (1, 1))
    )


def folded_forward(model: Model, subgraph: int, found: Forward) -> bytes:
    """Return the file with the batch norm in the weights and the bias of the op behind it.

    Weights are quantised again, per channel as before: results may move by some steps.
    """
    graph = model.subgraphs[subgraph]
    uses, op = Uses(graph), graph.ops[found.linear]
    first = graph.ops[found.norm.ops[0]]
    data = next(t for t in first.inputs if not graph.tensors[t].is_constant)
    ifm, weights, bias = graph.tensors[data], uses.tensor(op, 1), uses.tensor(op, 2)
    assert weights is not None
    assert weights.data is not None
    assert bias is not None
    assert bias.data is not None
    known, before = weights.quantization, uses.graph.tensors[op.inputs[0]].quantization
    assert known is not None
    assert before is not None
    assert ifm.quantization is not None
    shape = (-1,) + (1,) * (weights.data.ndim - 1)
    scales = np.asarray(known.scales).reshape(shape if len(known.scales) > 1 else ())
    zeros = np.asarray(known.zero_points).reshape(shape if len(known.scales) > 1 else ())
    real = (weights.data.astype(np.float64) - zeros) * scales
    axis = 0 if len(known.scales) > 1 else None
    over = tuple(range(1, real.ndim))
    stored, new_scales, new_zeros = quantize_weights(real * found.norm.factor, weights.dtype, axis)
    old_scale = before.scales[0] * np.asarray(known.scales)
    real_bias = bias.data.astype(np.float64) * old_scale + (real * found.norm.offset).sum(axis=over)
    bias_scales = ifm.quantization.scales[0] * np.asarray(new_scales)
    editor = Editor(model, subgraph)
    editor.set_constant(weights.index, stored, scales=new_scales, zero_points=new_zeros)
    editor.set_constant(
        bias.index,
        np.rint(real_bias / bias_scales),
        scales=tuple(float(s) for s in bias_scales),
    )
    editor.remove(*found.norm.ops)
    editor.set_inputs(op.index, [data, *op.inputs[1:]])
    return editor.content()
