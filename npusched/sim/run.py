"""Run a compiled file: NPU operators by the simulator, the ops around them by LiteRT.

Tensors are named by their index in the main subgraph. Every input starts from the initial state
of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from npusched.errors import SimError
from npusched.ir import Op, Subgraph
from npusched.sim.container import (
    SCRATCH,
    SCRATCH_FAST,
    CompiledFile,
    NpuOperator,
    numpy_type,
    read_compiled_file,
    run_operator,
)
from npusched.sim.execute import new_memories
from npusched.sim.host import HostGroup, check_variables, host_group, run_host
from npusched.sim.kernels.arrays import Array
from npusched.sim.program import LoadedKernel, Program
from npusched.sim.reference import random_inputs
from npusched.tflite.decode import decode
from npusched.tflite.records import Record

Watcher: TypeAlias = Callable[[int, LoadedKernel, Array], None]
"""Called behind each kernel: number of the NPU operator, the kernel, what it wrote."""


@dataclass(frozen=True)
class Executable:
    """A compiled file ready to run: its steps in order, programs of its NPU operators."""

    file: CompiledFile
    content: bytes
    programs: tuple[Program, ...]

    @property
    def graph(self) -> Subgraph:
        """The main subgraph."""
        return self.file.model.subgraphs[0]

    @cached_property
    def steps(self) -> tuple[HostGroup | int, ...]:
        """Host groups and numbers of NPU operators, in execution order."""
        return _steps(self.file, self.content)

    def run(self, inputs: Mapping[int, Array], watcher: Watcher | None = None) -> dict[int, Array]:
        """Return the graph outputs of a batch: tensor index -> (batch, *shape).

        ``inputs`` has all graph inputs, (batch, *shape). Raises SimError for missing or unfit
        inputs, and if LiteRT is needed but missing.
        """
        values = self.boundaries(inputs, watcher)
        return {index: values[index] for index in self.graph.outputs if index in values}

    def boundaries(
        self, inputs: Mapping[int, Array], watcher: Watcher | None = None
    ) -> dict[int, Array]:
        """Return all tensors between steps, in the order in which they were made; see ``run``."""
        values = dict(check_inputs(self.graph, inputs))
        kept: dict[int, Array] = {}
        for step in self.steps:
            if isinstance(step, HostGroup):
                values.update(run_host(step, values))
                continue
            operator, program = self.file.operators[step], self.programs[step]
            given = _given(operator, values)
            batch = max((len(array) for array in values.values()), default=1)
            observer = None if watcher is None else _bind(watcher, step)
            memories = _memories(operator, program, batch, kept)
            values.update(run_operator(operator, program, given, observer, memories=memories))
        return values


def _given(operator: NpuOperator, values: Mapping[int, Array]) -> dict[int, Array]:
    """Return an operator's inputs: values made so far, or constants of the file."""
    given: dict[int, Array] = {}
    for placed in operator.inputs:
        tensor = placed.tensor
        if tensor.index in values:
            given[tensor.index] = values[tensor.index]
        elif tensor.data is not None:
            given[tensor.index] = np.asarray(tensor.data)[None]
        else:
            raise SimError(
                f"input {tensor.name} of an NPU operator is never made",
                f"operator {operator.op} reads tensor {tensor.index}",
                "the compiled file is damaged: compile again",
            )
    return given


def _memories(
    operator: NpuOperator, program: Program, batch: int, kept: dict[int, Array]
) -> dict[int, Array]:
    """Return an operator's memories; those that it shares with earlier ones come from ``kept``."""
    memories = new_memories(program, batch)
    for region, tensor in zip((SCRATCH, SCRATCH_FAST), operator.memory_tensors, strict=True):
        key = program.regions[region].key
        memories[key] = kept.setdefault(tensor, memories[key])
    return memories


def _bind(watcher: Watcher, number: int) -> Callable[[LoadedKernel, Array], None]:
    def observe(kernel: LoadedKernel, written: Array) -> None:
        watcher(number, kernel, written)

    return observe


def open_compiled(content: bytes, name: str = "compiled") -> Executable:
    """Read and load a compiled file. Raises ModelError or SimError (see ``read_compiled_file``)."""
    file = read_compiled_file(content, name)
    return Executable(file, content, tuple(each.load() for each in file.operators))


def bind_inputs(graph: Subgraph, named: Mapping[str, Array]) -> dict[int, Array]:
    """Return inputs by tensor index, given by tensor name (Vela may reorder graph inputs).

    Each is (batch, *shape) or one value of the tensor's shape. Raises SimError for unknown names.
    """
    known = {graph.tensors[index].name: index for index in graph.inputs}
    unknown = sorted(set(named) - set(known))
    if unknown or len(named) < len(known):
        missing = sorted(set(known) - set(named))
        raise SimError(
            "the inputs do not fit the model",
            f"unknown: {', '.join(unknown) or 'none'}; missing: {', '.join(missing) or 'none'}",
            f"the model's inputs are {', '.join(known)}",
        )
    bound = {}
    for name, values in named.items():
        tensor = graph.tensors[known[name]]
        bound[tensor.index] = values[None] if values.shape == tensor.shape else values
    return bound


def check_inputs(graph: Subgraph, inputs: Mapping[int, Array]) -> Mapping[int, Array]:
    """Return ``inputs`` if every graph input is there with its shape, type and one batch size."""
    batches = {len(values) for values in inputs.values()}
    for index in graph.inputs:
        tensor = graph.tensors[index]
        values = inputs.get(index)
        wanted = numpy_type(tensor.dtype)
        if values is None or values.shape[1:] != tensor.shape or values.dtype != wanted:
            given = "nothing" if values is None else f"{values.dtype} {list(values.shape[1:])}"
            raise SimError(
                f"input {tensor.name} does not fit",
                f"needed: {wanted} {list(tensor.shape)}, given: {given}",
                "give an array of that type, of that shape or with a batch axis in front",
            )
    if len(batches) > 1:
        raise SimError(
            "the inputs have different batch sizes",
            f"{sorted(batches)}",
            "give the same number of values for every input",
        )
    return inputs


def draw_inputs(executable: Executable, count: int, seed: int) -> dict[int, Array]:
    """Return random inputs for a compiled file (see ``random_inputs``)."""
    return random_inputs(executable.graph, count, seed)


def _steps(file: CompiledFile, content: bytes) -> tuple[HostGroup | int, ...]:
    """Split the main subgraph at its NPU operators."""
    graph = file.model.subgraphs[0]
    numbers = {
        operator.op: number
        for number, operator in enumerate(file.operators)
        if operator.subgraph == 0
    }
    root: Record | None = None
    steps: list[HostGroup | int] = []
    pending: list[Op] = []
    for op in graph.ops:
        if op.index not in numbers:
            pending.append(op)
            continue
        if pending:
            root = root or decode(content)
            steps.append(host_group(root, graph, pending))
            pending = []
        steps.append(numbers[op.index])
    if pending:
        steps.append(host_group(root or decode(content), graph, pending))
    check_variables(graph, [step for step in steps if isinstance(step, HostGroup)])
    return tuple(steps)
