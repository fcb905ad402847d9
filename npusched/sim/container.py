"""The NPU operators of a compiled .tflite file: streams, memories, and where graph tensors lie.

An ``ethos-u`` operator reads [command stream, read-only, scratch, scratch_fast, inputs...]; the
scratch tensor is listed twice where there is no fast memory. Graph tensors lie in the scratch
tensor, at the difference of their OfflineMemoryAllocation entries (VELA_SPEC §6, SIM.md §3; older
versions of Vela give the scratch tensor no entry, it then begins at 0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npusched.errors import ModelError, SimError
from npusched.ir import DataType, Model, Op, Subgraph, Tensor
from npusched.sim.execute import Observer, execute, new_memories
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Region, Span
from npusched.sim.program import Program, load
from npusched.tflite.decode import decode
from npusched.tflite.reader import read_compiled
from npusched.vela.compiled import NPU_OP
from npusched.vela.stream import Stream, decode_stream

READ_ONLY, SCRATCH, SCRATCH_FAST = 0, 1, 2
_FIXED_INPUTS = 4
_METADATA = "OfflineMemoryAllocation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A graph tensor in the scratch memory of an NPU operator."""

    tensor: Tensor
    address: int

    @property
    def numpy_type(self) -> np.dtype[np.generic]:
        """Element type of its values."""
        return numpy_type(self.tensor.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuOperator:
    """An ``ethos-u`` operator: its place in the file, stream, memories and placed tensors.

    ``memory_tensors`` are the tensors that are its scratch and fast scratch memory.
    """

    subgraph: int
    op: int
    stream: Stream
    regions: tuple[Region, ...]
    inputs: tuple[Placed, ...]
    outputs: tuple[Placed, ...]
    memory_tensors: tuple[int, int]

    @property
    def host_spans(self) -> tuple[tuple[int, Span], ...]:
        """The bytes that the host writes for it: (region, span) of its inputs."""
        return tuple(
            (SCRATCH, (each.address, each.address + each.tensor.size_bytes)) for each in self.inputs
        )

    def load(self, *, resolves_constants: bool = True) -> Program:
        """Resolve the stream (see ``program.load``)."""
        return load(self.stream, self.regions, resolves_constants=resolves_constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFile:
    """A compiled file: the model as it is written, and its NPU operators in file order."""

    model: Model
    operators: tuple[NpuOperator, ...]


def numpy_type(dtype: DataType) -> np.dtype[np.generic]:
    """Return numpy's type for values of a tensor. Raises SimError where there is none."""
    if dtype.is_integer or dtype is DataType.BOOL or dtype.label.startswith("float"):
        return np.dtype(dtype.label)
    raise SimError(
        f"cannot hold {dtype.label} values",
        "numpy has no such type",
        "a model with such a tensor can be planned, but not executed",
    )


def read_compiled_file(content: bytes, name: str = "compiled") -> CompiledFile:
    """Read a file that Vela wrote.

    Raises ModelError for a damaged file or one without NPU operators, SimError for operators that
    are not as Vela writes them.
    """
    model = read_compiled(content, name)
    offsets = planned_offsets(content, model)
    operators = tuple(
        _operator(graph, op, offsets[graph.index])
        for graph in model.subgraphs
        for op in graph.ops
        if op.custom_code == NPU_OP
    )
    if not operators:
        raise ModelError(
            "the model holds no NPU operator",
            f"{sum(len(graph.ops) for graph in model.subgraphs)} ops, none of them {NPU_OP}",
            "compile it with Vela first",
        )
    return CompiledFile(model=model, operators=operators)


def planned_offsets(content: bytes, model: Model) -> tuple[tuple[int, ...], ...]:
    """Return the offsets of the tensors of each subgraph in the arena as planned, -1 = none.

    Raises ModelError for a table that is too short.
    """
    root = decode(content)
    entry = next((m for m in root.records("metadata") if m.text("name") == _METADATA), None)
    counts = [len(graph.tensors) for graph in model.subgraphs]
    if entry is None:
        return tuple((-1,) * count for count in counts)
    buffers = root.records("buffers")
    index = entry.integer("buffer")
    raw = bytes(buffers[index].blob("data")) if 0 <= index < len(buffers) else b""
    words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4").tolist()
    if len(words) < 3 or len(words) - 3 < sum(counts):
        raise ModelError(
            f"cannot use the compiled file: its {_METADATA} is too short",
            f"{len(words)} words for {sum(counts)} tensors",
            "compile the model again",
        )
    offsets = []
    position = 3
    for count in counts:
        offsets.append(tuple(words[position : position + count]))
        position += count
    return tuple(offsets)


def _operator(graph: Subgraph, op: Op, offsets: Sequence[int]) -> NpuOperator:
    """Describe one operator."""
    where = f"NPU operator {op.index} of subgraph {graph.index}"
    if len(op.inputs) < _FIXED_INPUTS or min(op.inputs) < 0:
        raise SimError(
            f"{where} does not have the inputs that Vela writes",
            f"they are tensors {list(op.inputs)}; needed: {_FIXED_INPUTS} or more",
            "the compiled file is damaged: compile again",
        )
    command, constants, scratch, fast = (graph.tensors[i] for i in op.inputs[:_FIXED_INPUTS])
    base = max(offsets[scratch.index], 0)

    def placed(index: int) -> Placed:
        if offsets[index] < 0:
            raise SimError(
                f"{where}: tensor {graph.tensors[index].name} has no planned address",
                f"{_METADATA} says {offsets[index]}",
                "compile the model again (separate_io_regions is not modelled)",
            )
        return Placed(tensor=graph.tensors[index], address=offsets[index] - base)

    regions = [
        Region(
            index=READ_ONLY,
            name="read_only",
            size_bytes=0 if constants.data is None else constants.data.nbytes,
            content=b"" if constants.data is None else constants.data.tobytes(),
        ),
        Region(index=SCRATCH, name="scratch", size_bytes=scratch.size_bytes),
        Region(
            index=SCRATCH_FAST,
            name="scratch" if fast.index == scratch.index else "scratch_fast",
            size_bytes=fast.size_bytes,
            same_as=SCRATCH if fast.index == scratch.index else None,
        ),
    ]
    return NpuOperator(
        subgraph=graph.index,
        op=op.index,
        stream=decode_stream(b"" if command.data is None else command.data.tobytes()),
        regions=tuple(regions),
        inputs=tuple(placed(index) for index in op.inputs[_FIXED_INPUTS:]),
        outputs=tuple(placed(index) for index in op.outputs),
        memory_tensors=(scratch.index, fast.index),
    )


def run_operator(
    operator: NpuOperator,
    program: Program,
    inputs: Mapping[int, Array],
    observer: Observer | None = None,
    *,
    memories: dict[int, Array] | None = None,
) -> dict[int, Array]:
    """Run an operator on a batch: tensor index -> values (batch, *shape), for inputs and results.

    ``memories`` are those that earlier operators of the file left (Vela hands tensors on in the
    scratch memory without listing them), new ones if None. Raises SimError if an input is missing
    or has another size.
    """
    batch = max((len(values) for values in inputs.values()), default=1)
    if memories is None:
        memories = new_memories(program, batch)
    scratch = memories[program.regions[SCRATCH].key]
    for placed in operator.inputs:
        values = inputs.get(placed.tensor.index)
        if values is None or prod(values.shape[1:]) != placed.tensor.elements:
            raise SimError(
                f"input {placed.tensor.name} is missing or has another size",
                f"needed: {list(placed.tensor.shape)}, given: "
                f"{'nothing' if values is None else list(values.shape[1:])}",
                "give every input, with its shape or a batch axis in front",
            )
        raw = np.ascontiguousarray(values, placed.numpy_type).view(np.uint8)
        raw = raw.reshape(len(values), -1)
        scratch[:, placed.address : placed.address + raw.shape[1]] = raw
    execute(program, memories, observer)
    results = {}
    for placed in operator.outputs:
        end = placed.address + placed.tensor.size_bytes
        raw = scratch[:, placed.address : end].copy()
        results[placed.tensor.index] = raw.view(placed.numpy_type).reshape(
            len(scratch), *placed.tensor.shape
        )
    return results
