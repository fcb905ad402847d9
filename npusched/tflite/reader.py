"""TFLite bytes -> ``ir.Model``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from npusched.errors import ModelError
from npusched.ir import (
    DataType,
    Model,
    Op,
    OpKind,
    Quantization,
    Shape,
    Signature,
    Subgraph,
    Tensor,
)
from npusched.ir.options import CustomOptions, Options
from npusched.tflite.checks import check_model, check_size
from npusched.tflite.constants import NUMPY_TYPES, Array, Constants
from npusched.tflite.container import check_identifier, read_file
from npusched.tflite.decode import decode
from npusched.tflite.dynamic import resolve_shapes
from npusched.tflite.options import read_options
from npusched.tflite.records import Record
from npusched.tflite.schema import OPERATORS, TENSOR_TYPES

MIN_SCALE: Final = 1e-20
MAX_SCALE: Final = 1e9
"""Scales taken as meant: products and quotients of three stay within float32. Scales per channel
may be smaller, down to 0: channels whose weights vanish have them."""

_DAMAGED: Final = "the file is damaged: export or download it again"
_PLACEHOLDER_CODE: Final = 127


def load_model(path: str | Path, *, input_shapes: Mapping[str, Shape] | None = None) -> Model:
    """Read a .tflite file. See ``read_model``; raises ModelError for any file it cannot read."""
    file = Path(path)
    return read_model(read_file(file), file.stem, input_shapes=input_shapes)


def read_model(
    content: bytes, name: str, *, input_shapes: Mapping[str, Shape] | None = None
) -> Model:
    """Decode, verify and return a model.

    ``input_shapes`` gives graph inputs (by tensor or signature name) a shape, which is
    propagated through the graph. Without it a dynamic batch counts as 1 (said in
    ``Model.notes``) and any other dynamic axis is refused. Raises ModelError.
    """
    model = _assemble(content, name)
    model = resolve_shapes(model, input_shapes or {})
    check_model(model)
    return model


def verify(content: bytes) -> None:
    """Raise ModelError unless ``content`` is a sound TFLite model.

    Sound: every offset and count lies inside the file; every index names something; constants
    have the size of their shape; ops run in file order on tensors that exist by then; shapes,
    quantisation and options are possible. Time and memory are linear in the size of the file.
    """
    check_model(_assemble(content, ""))


def read_compiled(content: bytes, name: str) -> Model:
    """Decode a file that Vela wrote: every index is in range, but soundness is not checked.

    Vela lets two ``ethos-u`` ops write parts of one tensor, which ``verify`` refuses. Raises
    ModelError for a damaged file.
    """
    return _assemble(content, name)


def is_vela_compiled(model: Model) -> bool:
    """Return True if Vela has already compiled the model (it holds its custom op ``ethos-u``)."""
    return any(op.custom_code == "ethos-u" for graph in model.subgraphs for op in graph.ops)


def _assemble(content: bytes, name: str) -> Model:
    """Decode the file into a model whose indices are all in range."""
    check_identifier(content)
    root = decode(content)
    if not root.records("subgraphs"):
        raise ModelError("cannot use the model: it has no graph", "0 subgraphs", _DAMAGED)
    file = _File(content, root)
    graphs = tuple(file.subgraph(i, g) for i, g in enumerate(root.records("subgraphs")))
    return Model(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        subgraphs=graphs,
        signatures=tuple(_signature(s, graphs) for s in root.records("signature_defs")),
        description=root.text("description"),
        const_bytes=file.const_bytes(),
        content=content,
    )


def _signature(record: Record, graphs: tuple[Subgraph, ...]) -> Signature:
    where = f"signature {record.text('signature_key') or '(no name)'}"
    subgraph = _in_range(record.integer("subgraph_index"), len(graphs), where, "subgraph")
    count = len(graphs[subgraph].tensors)

    def named(field: str) -> tuple[tuple[str, int], ...]:
        return tuple(
            (m.text("name"), _in_range(m.integer("tensor_index"), count, where, "tensor"))
            for m in record.records(field)
        )

    return Signature(
        key=record.text("signature_key"),
        subgraph=subgraph,
        inputs=named("inputs"),
        outputs=named("outputs"),
    )


def _in_range(index: int, count: int, where: str, what: str) -> int:
    if 0 <= index < count:
        return index
    raise ModelError(
        f"cannot use the model: {where} names {what} {index}",
        f"there are {count}, numbered from 0",
        _DAMAGED,
        index=index,
        count=count,
    )


class _File:
    """The parts of a file that its subgraphs share."""

    def __init__(self, content: bytes, root: Record) -> None:
        self.content = memoryview(content).toreadonly()
        self.buffers = root.records("buffers")
        self.codes = tuple(_operator_code(code) for code in root.records("operator_codes"))
        self.constants = Constants(len(content))

    def subgraph(self, index: int, record: Record) -> Subgraph:
        """Read one subgraph."""
        tensors = record.records("tensors")
        where = f"subgraph {index}"
        ops = tuple(
            self.op(i, op, len(tensors), where) for i, op in enumerate(record.records("operators"))
        )
        inputs = _tensors(record.ints("inputs"), len(tensors), where)
        outputs = _tensors(record.ints("outputs"), len(tensors), where)
        made = {t for op in ops for t in op.outputs}.union(inputs)
        return Subgraph(
            index=index,
            name=record.text("name"),
            tensors=tuple(
                self.tensor(i, t, where, is_made=i in made) for i, t in enumerate(tensors)
            ),
            ops=ops,
            inputs=inputs,
            outputs=outputs,
        )

    def op(self, index: int, record: Record, tensors: int, where: str) -> Op:
        """Read one operator."""
        code = _in_range(
            record.integer("opcode_index"),
            len(self.codes),
            f"op {index} of {where}",
            "operator code",
        )
        kind, custom_code, version = self.codes[code]
        label = f"op {index} {custom_code or kind} of {where}"
        options: Options
        if kind is OpKind.CUSTOM:
            options = CustomOptions(code=custom_code, data=bytes(self.custom_data(record, label)))
        else:
            table = record.record("builtin_options") or record.record("builtin_options_2")
            options = read_options(kind, table, label)
        return Op(
            index=index,
            kind=kind,
            inputs=_tensors(record.ints("inputs"), tensors, label, optional=True),
            outputs=_tensors(record.ints("outputs"), tensors, label, optional=True),
            intermediates=_tensors(record.ints("intermediates"), tensors, label, optional=True),
            options=options,
            custom_code=custom_code,
            version=version,
        )

    def custom_data(self, record: Record, where: str) -> memoryview:
        """Option bytes of a custom op, in the flatbuffer or behind it."""
        return self.external(
            record.integer("large_custom_options_offset"),
            record.integer("large_custom_options_size"),
            record.blob("custom_options"),
            where,
        )

    def external(self, offset: int, size: int, inside: memoryview, where: str) -> memoryview:
        """Return bytes that lie behind the flatbuffer at ``offset``, or else ``inside``.

        Offsets 0 and 1 mean "inside" (the runtime uses 1 as a placeholder).
        """
        if offset <= 1:
            return inside
        if offset + size > len(self.content):
            raise ModelError(
                f"cannot use the model: the data of {where} lie outside the file",
                f"bytes {offset} to {offset + size} of {len(self.content)}",
                "the file is truncated: download it again",
            )
        return self.content[offset : offset + size]

    def tensor(self, index: int, record: Record, where: str, *, is_made: bool) -> Tensor:
        """Read one tensor; ``is_made``: a graph input, or written by an op."""
        name = record.text("name")
        label = (
            f"tensor {index} ({_short(name)}) of {where}" if name else f"tensor {index} of {where}"
        )
        code = record.integer("type")
        dtype = TENSOR_TYPES[code] if 0 <= code < len(TENSOR_TYPES) else DataType.UNKNOWN
        shape, dynamic_axes = _shape(record, label)
        check_size(shape, dtype, label)
        is_variable = record.flag("is_variable")
        raw = self.buffer(record.integer("buffer"), label)
        data: Array | None = None
        if not is_variable and (raw or (0 in shape and dtype in NUMPY_TYPES)):
            if raw and is_made:
                raise ModelError(
                    f"cannot use the model: {label} is written but constant",
                    f"buffer {record.integer('buffer')} holds its {len(raw)} bytes",
                    _DAMAGED,
                )
            if not is_made:
                data = self.constants.array(raw, shape, dtype, record.record("sparsity"), label)
        return Tensor(
            index=index,
            name=name,
            shape=shape,
            dtype=dtype,
            quantization=_quantization(record.record("quantization"), shape, dtype, label),
            data=data,
            is_variable=is_variable,
            is_sparse=record.has("sparsity"),
            dynamic_axes=dynamic_axes,
            stored_bytes=0 if data is None else len(raw),
        )

    def const_bytes(self) -> int:
        """Bytes of all buffers, each once."""
        return sum(len(self.buffer(index, f"buffer {index}")) for index in range(len(self.buffers)))

    def buffer(self, index: int, where: str) -> memoryview:
        """Bytes of a buffer; none for buffer 0 of a file without buffers."""
        if index == 0 and not self.buffers:
            return memoryview(b"")
        record = self.buffers[_in_range(index, len(self.buffers), where, "buffer")]
        offset, size = record.integer("offset"), record.integer("size")
        return self.external(offset, size, record.blob("data"), where)


def _operator_code(record: Record) -> tuple[OpKind, str, int]:
    """Return (kind, custom code, version); codes above 126 live in the newer field."""
    code = max(record.integer("builtin_code"), record.integer("deprecated_builtin_code"))
    kind = OPERATORS[code] if 0 <= code < len(OPERATORS) else OpKind.UNKNOWN
    if code == _PLACEHOLDER_CODE:
        kind = OpKind.UNKNOWN
    custom_code = record.text("custom_code") if kind is OpKind.CUSTOM else ""
    return kind, custom_code, record.integer("version")


def _tensors(
    indices: tuple[int, ...], count: int, where: str, *, optional: bool = False
) -> tuple[int, ...]:
    for index in indices:
        if not (optional and index == -1):
            _in_range(index, count, where, "tensor")
    return indices


def _shape(record: Record, where: str) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape (1 where an axis is unknown) and the axes that the file calls unknown."""
    shape, signature = record.ints("shape"), record.ints("shape_signature")
    if any(axis < -1 for axis in shape):
        why = f"shape {list(shape)} has a negative axis"
        raise ModelError(f"cannot use the model: {where} is impossible", why, _DAMAGED)
    stated = signature if len(signature) == len(shape) else shape
    dynamic = tuple(
        i for i, (axis, size) in enumerate(zip(stated, shape, strict=True)) if min(axis, size) < 0
    )
    return tuple(1 if axis < 0 else axis for axis in shape), dynamic


def _quantization(
    record: Record | None, shape: Shape, dtype: DataType, where: str
) -> Quantization | None:
    """Return a tensor's scales and zero points; None without scales (floats carry only ranges)."""
    scales = record.reals("scale") if record is not None else ()
    if record is None or not scales:
        return None
    zero_points = record.ints("zero_point") or (0,)
    if len(zero_points) == 1:
        zero_points *= len(scales)
    axis = record.integer("quantized_dimension")
    problem, low = "", 0.0 if len(scales) > 1 else MIN_SCALE
    if len(zero_points) != len(scales):
        problem = f"{len(scales)} scales and {len(zero_points)} zero points"
    elif len(scales) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scales)):
        problem = f"{len(scales)} scales for axis {axis} of {list(shape)}"
    elif not all(low <= s <= MAX_SCALE for s in scales):
        wrong = next(s for s in scales if not low <= s <= MAX_SCALE)
        problem = f"scale {wrong}, expected {low} to {MAX_SCALE}"
    elif dtype.is_integer and dtype.bits <= 16:
        first = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        if not all(first <= z < first + (1 << dtype.bits) for z in zero_points):
            problem = f"zero points {min(zero_points)} to {max(zero_points)} exceed {dtype.label}"
    if problem:
        what = f"cannot use the model: the quantisation of {where} is impossible"
        raise ModelError(what, problem, _DAMAGED)
    return Quantization(
        scales=scales, zero_points=zero_points, axis=axis if len(scales) > 1 else None
    )


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:28]}...{name[-28:]}"
