"""``Editor``: a file as a builder that goes on where its author stopped.

All builder methods are there; what they add stands before an op of the file (``before``). Ops and
tensors of the file keep their numbers until ``content`` writes the edited file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from npusched.ir import DataType, Model, OpKind, Options, Shape
from npusched.tflite.builder import SubgraphBuilder
from npusched.tflite.constants import NUMPY_TYPES
from npusched.tflite.encode import encode
from npusched.tflite.graph_builder import FileState, Ref, pack_int4
from npusched.tflite.records import Record, Value
from npusched.tflite.rewrite import decode_to_write
from npusched.tflite.schema import TENSOR_TYPES
from npusched.tflite.write_options import write_options

_SALT = 1 << 20
"""First number of random constants, far from those of a file that our builder made."""


class _File(FileState):
    """What subgraphs share, with the operator codes that the file has already."""

    known: tuple[Record, ...] = ()

    def code(self, kind: OpKind, custom_code: str, version: int) -> int:
        """Return the index of an operator code, behind those of the file."""
        return len(self.known) + super().code(kind, custom_code, version)

    def code_records(self) -> tuple[Record, ...]:
        """All operator codes."""
        return (*self.known, *super().code_records())


class Editor(SubgraphBuilder):
    """Edits one subgraph of a model; the other subgraphs stay as they are.

    Raises ModelError for files whose data lies behind the flatbuffer (2 GiB or more), because
    offsets would have to move.
    """

    def __init__(self, model: Model, subgraph: int = 0) -> None:
        self.root = decode_to_write(model.content)
        state = _File(
            seed=0,
            buffers=list(self.root.records("buffers")),
            salt=_SALT,
            known=self.root.records("operator_codes"),
        )
        super().__init__(model.subgraphs[subgraph].name, state, subgraph)
        self.source = model.subgraphs[subgraph]
        self.graph = self.root.records("subgraphs")[subgraph]
        self.tensors = list(self.graph.records("tensors"))
        self.ops = list(self.graph.records("operators"))
        self.inputs = list(self.graph.ints("inputs"))
        self.outputs = list(self.graph.ints("outputs"))
        self._count = len(self.ops)
        self._added: dict[int, list[Record]] = {}
        self._removed: set[int] = set()

    def ref(self, tensor: int) -> Ref:
        """A tensor of the file as the builder's methods take it, with the edits made so far."""
        record, known = self.tensors[tensor], self.source.tensors[tensor]
        quantization = known.quantization
        single = quantization is not None and len(quantization.scales) == 1
        return Ref(
            index=tensor,
            name=known.name,
            shape=record.ints("shape") if record.has("shape") else (),
            dtype=TENSOR_TYPES[record.integer("type")],
            scale=quantization.scales[0] if single and quantization is not None else None,
            zero_point=quantization.zero_points[0] if single and quantization is not None else 0,
            values=known.data,
        )

    @contextmanager
    def before(self, op: int) -> Iterator[None]:
        """What is built inside stands before op ``op`` of the file (its count: at the end)."""
        start = len(self.ops)
        yield
        self._added.setdefault(op, []).extend(self.ops[start:])
        del self.ops[start:]

    def set_shape(self, tensor: int, shape: Shape) -> None:
        """Give an activation another shape."""
        self._change_tensor(tensor, shape=tuple(shape))

    def set_type(
        self,
        tensor: int,
        dtype: DataType,
        scales: Sequence[float] = (),
        zero_points: Sequence[int] = (),
        axis: int = 0,
    ) -> None:
        """Give a tensor another type and quantisation (none without scales)."""
        self._change_tensor(
            tensor,
            type=TENSOR_TYPES.index(dtype),
            quantization=_quantization(scales, zero_points, axis),
        )

    def set_constant(
        self,
        tensor: int,
        values: npt.NDArray[np.generic],
        *,
        scales: Sequence[float] | None = None,
        zero_points: Sequence[int] = (),
        axis: int = 0,
    ) -> None:
        """Give a constant other stored values (its type stays; shape and scales may change)."""
        kind = TENSOR_TYPES[self.tensors[tensor].integer("type")]
        array = np.ascontiguousarray(values.astype(NUMPY_TYPES[kind]))
        data = pack_int4(array) if kind is DataType.INT4 else array.tobytes()
        changes: dict[str, Value | None] = {"shape": values.shape, "buffer": self.file.buffer(data)}
        if scales is not None:
            changes["quantization"] = _quantization(scales, zero_points, axis)
        self._change_tensor(tensor, sparsity=None, **changes)

    def set_inputs(self, op: int, inputs: Sequence[int]) -> None:
        """Let an op read other tensors."""
        self._change_op(op, inputs=tuple(inputs))

    def set_outputs(self, op: int, outputs: Sequence[int]) -> None:
        """Let an op write other tensors."""
        self._change_op(op, outputs=tuple(outputs))

    def set_options(self, op: int, options: Options) -> None:
        """Give an op other options; fields of the file that ``options`` lack stay."""
        written = write_options(self.source.ops[op].kind, options)
        known = self.ops[op].record("builtin_options")
        if written is not None and known is not None and known.table == written.table:
            written = _with(known, **written.values)
        if written is not None:
            self._change_op(op, builtin_options=written)

    def remove(self, *ops: int) -> None:
        """Take ops away; what reads their results must be rewired."""
        self._removed.update(ops)

    def rewire(self, old: int, new: int) -> None:
        """Let every op and graph output that reads tensor ``old`` read ``new``."""

        def renamed(tensors: Sequence[int]) -> tuple[int, ...]:
            return tuple(new if t == old else t for t in tensors)

        self.ops = [_with(op, inputs=renamed(op.ints("inputs"))) for op in self.ops]
        self._added = {
            at: [_with(op, inputs=renamed(op.ints("inputs"))) for op in ops]
            for at, ops in self._added.items()
        }
        self.outputs = list(renamed(self.outputs))

    def content(self) -> bytes:
        """The bytes of the edited file; constants that nothing uses any more are left out."""
        ops: list[Record] = []
        for index in range(self._count + 1):
            ops += self._added.get(index, [])
            if index < self._count and index not in self._removed:
                ops.append(self.ops[index])
        graphs = list(self.root.records("subgraphs"))
        graphs[self.index] = _with(
            self.graph,
            tensors=self._used_tensors(ops),
            operators=tuple(ops),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
        )
        used = {t.integer("buffer") for graph in graphs for t in graph.records("tensors")}
        used |= {m.integer("buffer") for m in self.root.records("metadata")}
        return encode(
            _with(
                self.root,
                operator_codes=self.file.code_records(),
                subgraphs=tuple(graphs),
                buffers=tuple(
                    buffer if index in used else Record("Buffer", {})
                    for index, buffer in enumerate(self.file.buffers)
                ),
            )
        )

    def _used_tensors(self, ops: Sequence[Record]) -> tuple[Record, ...]:
        """All tensors; those that nothing uses hold no constant any more."""
        used = {*self.inputs, *self.outputs}
        for op in ops:
            used.update((*op.ints("inputs"), *op.ints("outputs"), *op.ints("intermediates")))
        return tuple(
            record if index in used else _with(record, buffer=0)
            for index, record in enumerate(self.tensors)
        )

    def _change_tensor(self, tensor: int, **changes: Value | None) -> None:
        values = {**self.tensors[tensor].values, **changes}
        kept = {name: value for name, value in values.items() if value is not None}
        self.tensors[tensor] = Record("Tensor", kept)

    def _change_op(self, op: int, **changes: Value) -> None:
        self.ops[op] = _with(self.ops[op], **changes)


def _quantization(scales: Sequence[float], zero_points: Sequence[int], axis: int) -> Record | None:
    if not scales:
        return None
    return Record(
        "QuantizationParameters",
        {
            "scale": tuple(scales),
            "zero_point": tuple(zero_points) or (0,) * len(scales),
            "quantized_dimension": axis,
        },
    )


def _with(record: Record, **changes: Value) -> Record:
    return Record(record.table, {**record.values, **changes})
