"""Triggers of the errors of model files: containers, structure, constants, shapes, edits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusched.demos import demo
from npusched.ir import OpKind
from npusched.tflite import Builder, container, read_model
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record
from npusched.tflite.rewrite import rewrite
from tests.errors.place import PLAIN, Place, Table, Trigger, built
from tests.tflite import test_checks as damaged
from tests.tflite.test_sparse import _csr

ODD = "x\n\x1b[2J\u202e" + "n" * 300
"""A name as an attacker would choose it."""


def _plan(make: Callable[[Builder], None], *options: str) -> Trigger:
    """Plan a model that a maker builds."""
    return lambda place: place.cli(
        "plan", place.file("model.tflite", built(make)), *PLAIN, *options
    )


def _content(content: bytes) -> Trigger:
    return lambda place: place.cli("plan", place.file("model.tflite", content), *PLAIN)


def _dynamic(builder: Builder) -> None:
    x = builder.input("image", (1, 1, 1, 8), shape_signature=(1, -1, -1, 8))
    builder.output(builder.conv2d(x, 8, 3))


def _mystery(builder: Builder) -> None:
    x, y = builder.input("x", (1, 4)), builder.tensor("y", (1, 4), "int8")
    builder.custom("Mys\ntery", [x], [y])
    builder.output(y)


def _no_stride(builder: Builder) -> None:
    x, y = builder.input("x", (1, 4, 4, 1)), builder.tensor("y", (1, 4, 4, 1), "int8")
    builder.op(OpKind.CONV_2D, [x, builder.const(np.ones((1, 1, 1, 1)), "int8", scale=1.0)], [y])
    builder.output(y)


def _bad_scale(builder: Builder) -> None:
    builder.output(builder.input(ODD, (1, 4), scale=float("nan"), zero_point=0))


def _wrong_size(builder: Builder) -> None:
    builder.output(builder.tensor(ODD, (2,), "int32", data=bytes(7)))


def _bomb(builder: Builder) -> None:
    levels = (
        Record("DimensionMetadata", {"dense_size": 1 << 20}),
        Record("DimensionMetadata", {"format": 1}),
    )
    values = Record("SparsityParameters", {"traversal_order": (0, 1), "dim_metadata": levels})
    builder.output(builder.tensor(ODD, (1 << 20, 2048), "int8", data=bytes(8), sparsity=values))


def _malformed(builder: Builder) -> None:
    values = _csr((0, 1), (1, 0, 3))
    builder.output(builder.tensor(ODD, (2, 4), "int8", data=bytes([5, 7, 9]), sparsity=values))


def _negative_axis(builder: Builder) -> None:
    builder.output(builder.relu(builder.input("x", (1, -7, 4))))


def _without_graph(place: Place) -> None:
    root = decode(demo("chain:2"))
    content = encode(Record("Model", {**root.values, "subgraphs": ()}))
    place.cli("plan", place.file("model.tflite", content), *PLAIN)


def _no_such_buffer(place: Place) -> None:
    """The first tensor names a buffer that is not there."""
    root = decode(demo("chain:2"))
    graph = root.records("subgraphs")[0]
    first, *others = graph.records("tensors")
    tensors = (Record("Tensor", {**first.values, "buffer": 999}), *others)
    graphs = (Record("SubGraph", {**graph.values, "tensors": tensors}),)
    content = encode(Record("Model", {**root.values, "subgraphs": graphs}))
    place.cli("plan", place.file("model.tflite", content), *PLAIN)


def _behind(builder: Builder) -> None:
    builder.output(builder.const([1, 2, 3, 4], "int16"))


def _outside() -> bytes:
    """A constant that lies behind the flatbuffer, in a file that ends too early."""
    root = decode(built(_behind))
    buffers = (Record("Buffer", {}), Record("Buffer", {"offset": 1 << 20, "size": 8}))
    return encode(Record("Model", {**root.values, "buffers": buffers}))


def _large_file(place: Place) -> None:
    place.patch.setattr(container, "MAX_FILE_BYTES", 16)
    place.cli("plan", place.file("large.tflite", bytes(17)), *PLAIN)


FILES: Table = {
    "tflite.checks:check_size": _plan(damaged._too_large),
    "tflite.checks:_check_order": _plan(damaged._written_twice),
    "tflite.checks:_check_order#2": _plan(damaged._cycle),
    "tflite.checks:_check_empty": _plan(damaged._empty_activation),
    "tflite.checks:_missing": _plan(damaged._never_made),
    "tflite.checks:_check_calls": _plan(damaged._no_such_subgraph),
    "tflite.checks:_check_calls#2": _plan(damaged._recursive),
    "tflite.constants:Constants._take": _plan(_bomb),
    "tflite.constants:_wrong_size": _plan(_wrong_size),
    "tflite.container:read_file": lambda place: place.cli("plan", str(place.folder), *PLAIN),
    "tflite.container:read_file#2": lambda place: place.cli("plan", "absent\n.tflite", *PLAIN),
    "tflite.container:read_file#3": _large_file,
    "tflite.container:read_file#4": lambda place: place.cli("plan", "x" * 5000, *PLAIN),
    "tflite.container:check_identifier": _content(b""),
    "tflite.container:check_identifier#2": _content(bytes(range(256))),
    "tflite.decode:corrupt": _content(demo("chain:2")[:600]),
    "tflite.dynamic:_by_tensor": _plan(_dynamic, "--input-shape", "na\x1bme=1,2"),
    "tflite.dynamic:_by_tensor#2": _plan(_dynamic, "--input-shape", "image=1,2"),
    "tflite.dynamic:_settle": _plan(_dynamic),
    "tflite.options:bad_option": _plan(_no_stride),
    "tflite.reader:_assemble": _without_graph,
    "tflite.reader:_in_range": _no_such_buffer,
    "tflite.reader:_File.external": _content(_outside()),
    "tflite.reader:_File.tensor": _plan(damaged._constant_written),
    "tflite.reader:_shape": _plan(_negative_axis),
    "tflite.reader:_quantization": _plan(_bad_scale),
    "tflite.rewrite:rewrite": lambda _: rewrite(_outside(), 0, [], []),
    "tflite.shapes:check_shapes": _plan(damaged._wrong_shape),
    "tflite.shapes:_reshaped": _plan(_dynamic, "--input-shape", "image=1,8,8,9"),
    "tflite.shapes:_reshaped#2": lambda _: read_model(
        built(_mystery), "m", input_shapes={"x": (1, 8)}
    ),
    "tflite.sparse:_malformed": _plan(_malformed),
}
