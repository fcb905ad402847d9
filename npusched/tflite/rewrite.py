"""Editing a file: ops get other constants, results and activations, or go away.

Also a file with other constants, shapes and metadata, all else as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    root = _decode(content)
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


class TensorValues(msgspec.Struct, frozen=True):
    """New shape and, if not None, new content of a tensor."""

    shape: tuple[int, ...]
    data: bytes | None = None


def replace_values(
    content: bytes,
    tensors: Mapping[int, TensorValues],
    metadata: Mapping[str, bytes],
    subgraph: int = 0,
) -> bytes:
    """Return the file with tensors of one subgraph and metadata (by name) replaced; all else stays.

    ``content`` must have been read (verified) before. Buffers begin at multiples of 16 bytes.
    Raises ModelError as ``rewrite`` does, for content of a tensor that has no buffer or shares it,
    and for metadata that is not there.
    """
    root = _decode(content)
    graphs, buffers = list(root.records("subgraphs")), list(root.records("buffers"))
    graph = graphs[subgraph]
    written = list(graph.records("tensors"))
    users = Counter(t.integer("buffer") for g in graphs for t in g.records("tensors"))
    for index, values in tensors.items():
        tensor = written[index]
        written[index] = _with(tensor, shape=values.shape)
        if values.data is None:
            continue
        buffer = tensor.integer("buffer")
        if buffer == 0 and not values.data:
            continue
        if users[buffer] > 1 or not 0 < buffer < len(buffers):
            raise _no_buffer(tensor.text("name"), f"buffer {buffer} has {users[buffer]} users")
        buffers[buffer] = _with(buffers[buffer], data=values.data)
    places = {m.text("name"): m.integer("buffer") for m in root.records("metadata")}
    for name, data in metadata.items():
        if not 0 < places.get(name, 0) < len(buffers):
            raise _no_buffer(name, f"the file has metadata {', '.join(places) or 'none'}")
        buffers[places[name]] = _with(buffers[places[name]], data=data)
    graphs[subgraph] = _with(graph, tensors=tuple(written))
    return encode(_with(root, subgraphs=tuple(graphs), buffers=tuple(buffers)))


def _no_buffer(name: str, why: str) -> ModelError:
    return ModelError(f"cannot replace the content of {name}", why, "compile the model again")


def _decode(content: bytes) -> Record:
    """Decode a file that is to be written again."""
    root = decode(content, keeps_text=True)
    if any(b.integer("offset") > 1 for b in root.records("buffers")):
        raise ModelError(
            "cannot rewrite the model",
            "its constants lie behind the flatbuffer (a model of 2 GiB or more)",
            "convert it again without large buffers",
        )
    return root


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
