"""A file with other constants, shapes and metadata, all else as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from npusched.errors import ModelError
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value


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
    Raises ModelError as ``decode_to_write`` does, for content of a tensor that has no buffer or
    shares it, and for metadata that is not there.
    """
    root = decode_to_write(content, keeps_text=True)
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


def decode_to_write(content: bytes, *, keeps_text: bool = False) -> Record:
    """Decode a verified file that is to be written again; ``keeps_text`` as ``decode`` has it.

    Raises ModelError for files whose data lies behind the flatbuffer (2 GiB or more), because
    offsets would have to move.
    """
    root = decode(content, keeps_text=keeps_text)
    if any(b.integer("offset") > 1 for b in root.records("buffers")):
        raise ModelError(
            "cannot rewrite the model",
            "its constants lie behind the flatbuffer (a model of 2 GiB or more)",
            "convert it again without large buffers",
        )
    return root


def _with(record: Record, **changes: Value) -> Record:
    return Record(record.table, {**record.values, **changes})
