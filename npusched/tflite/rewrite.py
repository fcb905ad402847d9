"""Editing a file: ops get other constants, results and activations, or go away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.errors import ModelError
from npusched.ir import ActivationKind, DataType
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from npusched.tflite.schema import TENSOR_TYPES
from npusched.tflite.write_options import ACTIVATION_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConstant:
    """A constant tensor to add; no scales: not quantised."""

    name: str
    dtype: DataType
    values: npt.NDArray[np.generic] = field(compare=False, repr=False)
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0


class OpEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Op ``op`` reads these weights and this bias (inputs 1 and 2) and writes ``output``."""

    op: int
    weights: NewConstant
    bias: NewConstant
    output: int
    activation: ActivationKind


def rewrite(
    content: bytes, subgraph: int, edits: Sequence[OpEdit], removed: Sequence[int]
) -> bytes:
    """Return the file with ops of one subgraph edited and removed; all else stays.

    ``content`` must have been read (verified) before. Raises ModelError for files whose data lies
    behind the flatbuffer (more than 2 GiB), because offsets would have to move.
    """
    root = decode(content)
    if any(b.integer("offset") > 1 for b in root.records("buffers")):
        raise ModelError(
            "cannot rewrite the model",
            "its constants lie behind the flatbuffer (a model of 2 GiB or more)",
            "convert it again without large buffers",
        )
    graph = root.records("subgraphs")[subgraph]
    buffers, tensors = list(root.records("buffers")), list(graph.records("tensors"))
    ops = list(graph.records("operators"))
    for edit in edits:
        op = ops[edit.op]
        inputs = [*op.ints("inputs"), -1, -1][: max(3, len(op.ints("inputs")))]
        for position, constant in ((1, edit.weights), (2, edit.bias)):
            inputs[position] = len(tensors)
            tensors.append(_tensor(constant, len(buffers)))
            buffers.append(Record("Buffer", {"data": constant.values.tobytes()}))
        ops[edit.op] = _with(
            op,
            inputs=tuple(inputs),
            outputs=(edit.output,),
            builtin_options=_activated(op, edit.activation),
        )
    kept = tuple(op for index, op in enumerate(ops) if index not in set(removed))
    graphs = list(root.records("subgraphs"))
    graphs[subgraph] = _with(graph, tensors=tuple(tensors), operators=kept)
    return encode(_with(root, subgraphs=tuple(graphs), buffers=tuple(buffers)))


def _tensor(constant: NewConstant, buffer: int) -> Record:
    values: dict[str, Value] = {
        "shape": tuple(int(size) for size in constant.values.shape),
        "type": TENSOR_TYPES.index(constant.dtype),
        "name": constant.name,
        "buffer": buffer,
        "has_rank": True,
    }
    if constant.scales:
        values["quantization"] = Record(
            "QuantizationParameters",
            {
                "scale": constant.scales,
                "zero_point": constant.zero_points,
                "quantized_dimension": constant.axis,
            },
        )
    return Record("Tensor", values)


def _activated(op: Record, activation: ActivationKind) -> Record:
    options = op.record("builtin_options")
    assert options is not None
    return _with(options, fused_activation_function=ACTIVATION_CODES[activation])


def _with(record: Record, **changes: Value) -> Record:
    return Record(record.table, {**record.values, **changes})
