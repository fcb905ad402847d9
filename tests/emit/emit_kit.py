"""Helpers of the tests of emit: a compiled file as parts, and files compared field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from npusched.emit.container import ALLOCATION, npu_operators
from npusched.emit.parts import Emitted, Stream
from npusched.tflite.decode import decode
from npusched.tflite.records import Record
from npusched.vela.stream import decode_stream


class Parts:
    """A compiled file, decoded."""

    def __init__(self, content: bytes) -> None:
        self.root = decode(content)
        self.graph = self.root.records("subgraphs")[0]
        self.tensors = self.graph.records("tensors")
        self.operators = npu_operators(self.root)

    def data(self, tensor: int) -> bytes:
        """Content of a tensor."""
        buffers = self.root.records("buffers")
        return bytes(buffers[self.tensors[tensor].integer("buffer")].blob("data"))

    @property
    def allocation_record(self) -> Record:
        """The buffer of the allocation."""
        entries = self.root.records("metadata")
        entry = next(each for each in entries if each.text("name") == ALLOCATION)
        return self.root.records("buffers")[entry.integer("buffer")]

    @property
    def allocation(self) -> list[int]:
        """Words of the allocation."""
        words: list[int] = np.frombuffer(self.allocation_record.blob("data"), "<i4").tolist()
        return words

    def memories(self) -> tuple[int, int, int]:
        """Tensors that are read-only, scratch and scratch_fast."""
        read_only, scratch, fast = self.operators[0].ints("inputs")[1:4]
        return read_only, scratch, fast


def emitted_of(content: bytes) -> Emitted:
    """Take a compiled file apart: what writes it again."""
    parts = Parts(content)
    read_only, scratch, fast = parts.memories()
    return Emitted(
        template=content,
        streams=tuple(
            Stream(decode_stream(parts.data(op.ints("inputs")[0])).words, number, ())
            for number, op in enumerate(parts.operators)
        ),
        read_only=parts.data(read_only),
        arena_bytes=parts.tensors[scratch].ints("shape")[0],
        fast_bytes=parts.tensors[fast].ints("shape")[0] if fast != scratch else None,
        addresses=dict(enumerate(parts.allocation[3 : 3 + len(parts.tensors)])),
    )


def fields(content: bytes) -> object:
    """All fields of a file, read by TFLite's own schema classes."""
    return _plain(schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0)))


def _plain(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "__dict__"):
        return {name: _plain(each) for name, each in vars(value).items()}
    return value


def differences(first: object, second: object, path: str = "") -> list[tuple[str, object, object]]:
    """Fields that differ: (path, value, other value)."""
    if type(first) is not type(second):
        return [(path, first, second)]
    if isinstance(first, dict) and isinstance(second, dict):
        return [
            found
            for name in first
            for found in differences(first[name], second[name], f"{path}.{name}")
        ]
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return [(path, len(first), len(second))]
        pairs = enumerate(zip(first, second, strict=True))
        return [found for i, (a, b) in pairs for found in differences(a, b, f"{path}[{i}]")]
    return [] if first == second else [(path, first, second)]
