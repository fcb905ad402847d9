"""Helpers of the tests of emit: a compiled file as parts, and files compared field by field."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from npusched.api.options import PlanOptions
from npusched.api.planning import Planned, make_plan
from npusched.emission.container import ALLOCATION, npu_operators
from npusched.emission.parts import Emitted, Stream
from npusched.hardware import load_target
from npusched.tflite import Builder
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
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
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


@lru_cache
def chain() -> bytes:
    """Maps that are large beside their weights, planned in stripes; then weights worth copying."""
    b = Builder("chain")
    x = b.input("x", (1, 32, 32, 8))
    for depth, kernel in ((16, 3), (16, 3), (8, 3)):
        x = b.conv2d(x, depth, kernel)
    x = b.max_pool2d(x, 4)
    for depth in (64, 64):
        x = b.conv2d(x, depth, 3)
    b.output(x)
    return b.build()


@lru_cache
def planned_chain(config: str) -> tuple[bytes, Planned]:
    """``chain`` with its plan in little SRAM."""
    options = PlanOptions(sram=20 << 10, candidates="none", use_cache=False)
    target = load_target(config)
    return chain(), make_plan(chain(), name="chain", target=target, options=options)
