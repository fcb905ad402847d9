"""Small models as values: one op (or a few) with tensors described in a line each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npusched.ir import (
    DataType,
    Model,
    Op,
    OpKind,
    Options,
    Quantization,
    Shape,
    Subgraph,
    Tensor,
)
from npusched.ir.options import NoOptions
from npusched.tflite.constants import NUMPY_TYPES
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from npusched.tflite.schema import OPERATORS, TENSOR_TYPES
from npusched.tflite.write_options import write_options

Array = npt.NDArray[np.generic]

_TYPES = {t.label: t for t in DataType}


@dataclass(frozen=True, eq=False)
class T:
    """A tensor to be: ``values`` make it a constant (a number fills the shape).

    8- and 16-bit tensors get scale 0.5 and zero point 0 unless told otherwise.
    """

    shape: Shape
    dtype: str = "int8"
    scale: float | tuple[float, ...] | None = -1.0
    zero: int | tuple[int, ...] = 0
    values: object = None
    axis: int = 0
    unknown: tuple[int, ...] = ()
    variable: bool = False

    @property
    def type(self) -> DataType:
        """The element type."""
        return _TYPES[self.dtype]

    def quantization(self) -> Quantization | None:
        """The quantisation that the file will hold."""
        if self.scale is None:
            return None
        if self.scale == -1.0:
            narrow = self.dtype in ("int8", "uint8", "int16")
            zero = self.zero if isinstance(self.zero, tuple) else (self.zero,)
            return Quantization(scales=(0.5,), zero_points=zero) if narrow else None
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        zeros = self.zero if isinstance(self.zero, tuple) else (self.zero,) * len(scales)
        many = len(scales) > 1
        return Quantization(scales=scales, zero_points=zeros, axis=self.axis if many else None)

    def data(self) -> Array | None:
        """The constant's values."""
        if self.values is None:
            return None
        numpy_type = NUMPY_TYPES[self.type]
        made = np.asarray(self.values, numpy_type)
        return np.broadcast_to(made, self.shape) if made.ndim == 0 else made.reshape(self.shape)


def ints(*values: int, dtype: str = "int32") -> T:
    """A constant vector of integers: an axis list, a permutation, a shape."""
    return T((len(values),), dtype, None, values=values)


@dataclass(frozen=True, eq=False)
class Node:
    """One op over tensors; equal ``T`` objects are the same tensor of the file."""

    kind: OpKind
    inputs: tuple[T | None, ...]
    outputs: tuple[T, ...]
    options: Options = field(default_factory=NoOptions)
    intermediates: tuple[T, ...] = ()
    custom_code: str = ""


def model_of(*nodes: Node, outputs: tuple[T, ...] | None = None) -> Model:
    """Return a model of one subgraph; unwritten tensors are inputs, unread ones outputs."""
    order: dict[int, T] = {}
    for node in nodes:
        for tensor in (*node.inputs, *node.intermediates, *node.outputs):
            if tensor is not None:
                order.setdefault(id(tensor), tensor)
    index = {key: i for i, key in enumerate(order)}
    written = {id(t) for node in nodes for t in node.outputs}
    read = {id(t) for node in nodes for t in node.inputs if t is not None}
    middle = {id(t) for node in nodes for t in node.intermediates}
    free = [
        index[k]
        for k, t in order.items()
        if k not in written and t.values is None and not t.variable and k not in middle
    ]
    ends = [index[id(t)] for t in outputs] if outputs is not None else None
    graph = Subgraph(
        index=0,
        name="main",
        tensors=tuple(_tensor(i, t) for i, t in enumerate(order.values())),
        ops=tuple(_op(i, node, index) for i, node in enumerate(nodes)),
        inputs=tuple(free),
        outputs=tuple(
            ends if ends is not None else [index[k] for k in order if k in written - read]
        ),
    )
    model = Model(name="one_op", sha256="", size_bytes=0, subgraphs=(graph,))
    return replace(model, content=file_of(model))


def _tensor(index: int, t: T) -> Tensor:
    data = t.data()
    return Tensor(
        index=index,
        name=f"t{index}",
        shape=t.shape,
        dtype=t.type,
        quantization=t.quantization(),
        data=data,
        is_variable=t.variable,
        dynamic_axes=t.unknown,
        stored_bytes=0 if data is None else data.nbytes,
    )


def _op(index: int, node: Node, tensors: dict[int, int]) -> Op:
    return Op(
        index=index,
        kind=node.kind,
        inputs=tuple(-1 if t is None else tensors[id(t)] for t in node.inputs),
        outputs=tuple(tensors[id(t)] for t in node.outputs),
        intermediates=tuple(tensors[id(t)] for t in node.intermediates),
        options=node.options,
        custom_code=node.custom_code,
    )


def file_of(model: Model) -> bytes:
    """Return the .tflite bytes of a model made here."""
    buffers: list[Record] = [Record("Buffer", {})]
    codes: dict[tuple[OpKind, str], int] = {}
    graphs = tuple(_graph_record(g, buffers, codes) for g in model.subgraphs)
    code_records = tuple(
        Record(
            "OperatorCode",
            {
                "deprecated_builtin_code": min(OPERATORS.index(kind), 127),
                "builtin_code": OPERATORS.index(kind),
                "version": 1,
                **({"custom_code": custom} if custom else {}),
            },
        )
        for kind, custom in codes
    )
    return encode(
        Record(
            "Model",
            {
                "version": 3,
                "operator_codes": code_records,
                "subgraphs": graphs,
                "buffers": tuple(buffers),
            },
        )
    )


def _graph_record(
    graph: Subgraph, buffers: list[Record], codes: dict[tuple[OpKind, str], int]
) -> Record:
    tensors = []
    for t in graph.tensors:
        values: dict[str, Value] = {
            "shape": t.shape,
            "type": TENSOR_TYPES.index(t.dtype),
            "name": t.name,
            "buffer": 0,
        }
        if t.data is not None:
            buffers.append(Record("Buffer", {"data": np.ascontiguousarray(t.data).tobytes()}))
            values["buffer"] = len(buffers) - 1
        if t.is_variable:
            values["is_variable"] = True
        if t.dynamic_axes:
            values["shape_signature"] = tuple(
                -1 if a in t.dynamic_axes else s for a, s in enumerate(t.shape)
            )
        if t.quantization is not None:
            q = t.quantization
            values["quantization"] = Record(
                "QuantizationParameters",
                {
                    "scale": q.scales,
                    "zero_point": q.zero_points,
                    "quantized_dimension": q.axis or 0,
                },
            )
        tensors.append(Record("Tensor", values))
    ops = []
    for op in graph.ops:
        entry: dict[str, Value] = {
            "opcode_index": codes.setdefault((op.kind, op.custom_code), len(codes)),
            "inputs": op.inputs,
            "outputs": op.outputs,
        }
        if op.intermediates:
            entry["intermediates"] = op.intermediates
        options = write_options(op.kind, op.options)
        if options is not None:
            entry["builtin_options"] = options
        ops.append(Record("Operator", entry))
    return Record(
        "SubGraph",
        {
            "tensors": tuple(tensors),
            "inputs": graph.inputs,
            "outputs": graph.outputs,
            "operators": tuple(ops),
            "name": graph.name,
        },
    )
