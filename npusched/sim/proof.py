"""Prove a compiled file: same outputs and same intermediate tensors as the reference kernels.

In proof mode fully connected layers round once, as LiteRT's reference kernel does (SIM.md §4),
and nothing may differ. In hardware mode they round as the stream says; then outputs are compared
and their largest difference is stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from npusched.errors import SimError
from npusched.ir import DataType, Model, OpKind, Subgraph
from npusched.sim.connected import connected_kernels
from npusched.sim.kernels.arrays import Array
from npusched.sim.program import rounding_once
from npusched.sim.reference import random_inputs, reference_values
from npusched.sim.run import Executable, open_compiled
from npusched.sim.watcher import MANY_KERNELS, Difference, Intermediates, Watcher
from npusched.tflite.reader import read_model

MAX_TENSOR_BYTES = 1 << 31
"""Values of all reference tensors that a proof may keep."""


_EIGHT = (DataType.INT8, DataType.UINT8)
_EXCEPTIONS: tuple[tuple[OpKind, tuple[DataType, ...], str], ...] = (
    (
        OpKind.FULLY_CONNECTED,
        (DataType.INT16,),
        "int16 FULLY_CONNECTED: the stream's multiplier has 16 bits, up to 1 LSB",
    ),
    (OpKind.PRELU, (DataType.INT16,), "int16 PRELU: LiteRT's reference kernel scales wrongly"),
    (OpKind.SUM, _EIGHT, "8-bit SUM: LiteRT's reference kernel loses values"),
    (OpKind.NEG, _EIGHT, "8-bit NEG: LiteRT's reference kernel ignores the zero point"),
    (
        OpKind.TRANSPOSE,
        (DataType.UINT8,),
        "uint8 TRANSPOSE: Vela 5.2 clips values above 127 in transposes of several passes",
    ),
)
"""(op, type, what is known). Found by comparing with exact arithmetic; none hides a difference."""


class Mode(StrEnum):
    """How fully connected layers round: as the reference kernel, or as the stream says."""

    PROOF = "proof"
    HARDWARE = "hardware"


class Verdict(StrEnum):
    """Result of a proof."""

    EQUAL = "equal"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputResult:
    """A graph output: how many values differ, and by how much at most (units of last place)."""

    name: str
    values: int
    differing: int
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was compared, with what result. ``single_rounding``: kernels that round once."""

    verdict: Verdict
    mode: Mode
    inputs: int
    seed: int
    outputs: tuple[OutputResult, ...]
    intermediates: Intermediates
    difference: Difference | None
    single_rounding: int
    exceptions: tuple[str, ...] = ()

    @property
    def outputs_equal(self) -> bool:
        """True if no output value differs."""
        return all(output.differing == 0 for output in self.outputs)


def prove_compiled(
    original: bytes,
    compiled: bytes,
    inputs: int = 20,
    seed: int = 0,
    *,
    mode: Mode = Mode.PROOF,
) -> Proof:
    """Run a compiled file and its original on random inputs and compare.

    Raises ModelError for unreadable files, SimError for states that are not modelled, if LiteRT is
    missing or cannot run the original, or if the two files do not have the same inputs.
    """
    model = read_model(original, "original")
    executable = open_compiled(compiled)
    drawn = random_inputs(model.subgraphs[0], inputs, seed)
    return prove(model, executable, drawn, seed=seed, mode=mode)


def prove(
    model: Model,
    executable: Executable,
    inputs: Mapping[int, Array],
    *,
    seed: int = 0,
    mode: Mode = Mode.PROOF,
) -> Proof:
    """Compare on given inputs (tensor index of the original -> (batch, *shape))."""
    graph = model.subgraphs[0]
    once = 0
    if mode is Mode.PROOF:
        found = [connected_kernels(model, program) for program in executable.programs]
        once = sum(len(each) for each in found)
        executable = replace(
            executable,
            programs=tuple(
                rounding_once(program, kernels)
                for program, kernels in zip(executable.programs, found, strict=True)
            ),
        )
    expected = reference_values(
        model.content,
        inputs,
        _wanted(graph, inputs),
        keeps_all=True,
        is_stateful=any(op.kind is OpKind.VAR_HANDLE for op in graph.ops),
    )
    kernels = sum(len(program.kernels) for program in executable.programs)
    watcher = Watcher(graph, expected, is_quick=kernels > MANY_KERNELS)
    results = executable.boundaries(_translate(graph, executable.graph, inputs), watcher)
    watcher.boundaries(executable.graph, results)
    outputs = _compare(graph, executable.graph, expected, results)
    intermediates, difference = watcher.finish(model, executable.programs, inputs.values())
    equal = difference is None and all(each.differing == 0 for each in outputs)
    equal = equal and not intermediates.different
    return Proof(
        verdict=Verdict.EQUAL if equal else Verdict.DIFFERENT,
        mode=mode,
        inputs=max((len(values) for values in inputs.values()), default=0),
        seed=seed,
        outputs=outputs,
        intermediates=intermediates,
        difference=difference,
        single_rounding=once,
        exceptions=known_exceptions(graph),
    )


def _wanted(graph: Subgraph, inputs: Mapping[int, Array]) -> list[int]:
    """Tensors to keep: all that ops make (the outputs only, if that would be too much)."""
    made = dict.fromkeys(
        index
        for op in graph.ops
        for index in op.outputs
        if index >= 0 and graph.tensors[index].dtype.bits
    )
    count = max((len(values) for values in inputs.values()), default=1)
    total = sum(graph.tensors[index].size_bytes for index in made) * count
    if total > MAX_TENSOR_BYTES:
        return list(dict.fromkeys(graph.outputs))
    return list(dict.fromkeys((*made, *graph.outputs)))


def _pairs(first: Sequence[int], second: Sequence[int], a: Subgraph, b: Subgraph) -> dict[int, int]:
    """Match tensors of two graphs by name, or by order where names are missing or ambiguous."""
    names = [b.tensors[index].name for index in second]
    if len(first) != len(second):
        raise SimError(
            "the compiled file belongs to another model",
            f"{len(second)} inputs or outputs, the original has {len(first)}",
            "compile this model again",
        )
    by_name = dict(zip(names, second, strict=True))
    if len(by_name) == len(second) and all(a.tensors[i].name in by_name for i in first):
        return {index: by_name[a.tensors[index].name] for index in first}
    return dict(zip(first, second, strict=True))


def _size(values: Array | None) -> str:
    return "none" if values is None else str(values.size)


def _translate(
    graph: Subgraph, compiled: Subgraph, inputs: Mapping[int, Array]
) -> dict[int, Array]:
    """Return the inputs by tensor index of the compiled file."""
    pairs = _pairs(graph.inputs, compiled.inputs, graph, compiled)
    found = {}
    for index, other in pairs.items():
        values = inputs[index]
        shape = compiled.tensors[other].shape
        if int(np.prod(shape)) != int(np.prod(values.shape[1:])):
            raise SimError(
                "the compiled file belongs to another model",
                f"input {compiled.tensors[other].name} has shape {list(shape)}, "
                f"the original's {list(values.shape[1:])}",
                "compile this model again",
            )
        found[other] = values.reshape(len(values), *shape)
    return found


def _compare(
    graph: Subgraph,
    compiled: Subgraph,
    expected: Mapping[int, Array],
    results: Mapping[int, Array],
) -> tuple[OutputResult, ...]:
    """Compare graph outputs."""
    found = []
    for index, other in _pairs(graph.outputs, compiled.outputs, graph, compiled).items():
        want = expected.get(index)
        have = results.get(other)
        name = graph.tensors[index].name
        if want is None or have is None or want.size != have.size:
            raise SimError(
                f"output {name} cannot be compared",
                f"values of the original: {_size(want)}, of the compiled file: {_size(have)}",
                "the compiled file belongs to another model, or is damaged: compile again",
            )
        have = have.reshape(want.shape)
        differs = have != want
        if want.dtype.kind == "f":
            differs &= ~(np.isnan(have) & np.isnan(want))
        gap = np.abs(have.astype(np.float64) - want.astype(np.float64))[differs]
        found.append(
            OutputResult(
                name=name,
                values=want.size,
                differing=int(differs.sum()),
                largest=float(gap.max(initial=0.0)),
            )
        )
    return tuple(found)


def known_exceptions(graph: Subgraph) -> tuple[str, ...]:
    """Known differences between the NPU and the reference that a model can show."""
    found = []
    for op in graph.ops:
        if not op.inputs or op.inputs[0] < 0:
            continue
        dtype = graph.tensors[op.inputs[0]].dtype
        found += [text for kind, types, text in _EXCEPTIONS if op.kind is kind and dtype in types]
    return tuple(dict.fromkeys(found))
