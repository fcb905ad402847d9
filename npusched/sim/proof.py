"""Prove a compiled file: same outputs and same intermediate tensors as the reference kernels.

In proof mode fully connected layers round once, as LiteRT's reference kernel does (SIM.md §4),
and nothing may differ. In hardware mode they round as the stream says; then outputs are compared
and their largest difference is stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from npusched.errors import SimError
from npusched.ir import DataType, Model, OpKind, Subgraph
from npusched.sim.connected import connected_kernels
from npusched.sim.flow import readers
from npusched.sim.kernels.arrays import Array
from npusched.sim.matching import Matcher, Near
from npusched.sim.program import LoadedKernel, Program, rounding_once
from npusched.sim.reference import random_inputs, reference_values
from npusched.sim.run import Executable, open_compiled
from npusched.tflite.reader import read_model

MAX_TENSOR_BYTES = 1 << 31
"""Values of all reference tensors that a proof may keep."""

MAX_SUSPECTS = 200
"""Kernels without counterpart that are looked at closely: it is the first wrong one that counts."""

MANY_KERNELS = 5000
"""Of programs with more kernels, so many are looked for, each in one tensor only."""


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
class Difference:
    """The first kernel whose output differs from the tensor that it should be.

    ``op`` is the source op that makes the tensor, -1 unknown; ``row``, ``column``, ``channel``
    place the first differing value in the tensor.
    """

    operator: int
    kernel: str
    offset_bytes: int
    tensor: str
    op: int
    kind: str
    row: int
    column: int
    channel: int
    got: int
    expected: int
    differing: int
    total: int

    def __str__(self) -> str:
        return (
            f"{self.kernel} (byte {self.offset_bytes}) differs from {self.tensor} "
            f"(op {self.op} {self.kind}) at row {self.row}, column {self.column}, channel "
            f"{self.channel}: {self.got} instead of {self.expected}; "
            f"{self.differing} of {self.total} values"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputResult:
    """A graph output: how many values differ, and by how much at most (units of last place)."""

    name: str
    values: int
    differing: int
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediates:
    """Kernels and tensors compared inside the network.

    ``kernels`` of 8 and 16 bits were looked for, ``equal`` of them found; ``temporaries`` have no
    counterpart in the file (by label). ``tensors`` are those that ops of the file make,
    ``covered`` were found whole; ``absorbed`` never reach memory (by name).
    ``different`` tensors between NPU operators and host ops are not as the reference made them.
    ``skipped`` kernels were not looked for, because there are very many.
    """

    kernels: int
    equal: int
    temporaries: tuple[str, ...]
    tensors: int
    covered: int
    absorbed: tuple[str, ...]
    different: tuple[str, ...] = ()
    skipped: int = 0

    @property
    def coverage(self) -> float:
        """Share of tensors that were found whole."""
        return self.covered / self.tensors if self.tensors else 1.0


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
    watcher = _Watcher(graph, expected, is_quick=kernels > MANY_KERNELS)
    results = executable.boundaries(_translate(graph, executable.graph, inputs), watcher)
    watcher.boundaries(executable.graph, results)
    outputs = _compare(graph, executable.graph, expected, results)
    intermediates, difference = watcher.finish(executable.programs, inputs.values())
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
                "one of the files gives no values for it, or of another size",
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


class _Watcher:
    """Looks every kernel's output up among the reference tensors."""

    def __init__(self, graph: Subgraph, expected: Mapping[int, Array], *, is_quick: bool) -> None:
        self._graph = graph
        self._matcher = Matcher(
            {
                index: (graph.tensors[index].name, values)
                for index, values in expected.items()
                if values.dtype.kind in "iu" and values[0].size
            },
            is_quick=is_quick,
        )
        self._batch = max((len(values) for values in expected.values()), default=1)
        self._is_quick = is_quick
        self._kernels = self._equal = self._skipped = 0
        self._temporaries: list[str] = []
        self._near: list[tuple[int, LoadedKernel, Near]] = []
        self._different: list[str] = []
        self._found: set[tuple[int, int]] = set()
        self._readers: dict[int, tuple[frozenset[int], ...]] = {}

    def __call__(self, operator: int, kernel: LoadedKernel, written: Array) -> None:
        """Look at one kernel."""
        if written.dtype.itemsize > 2:
            return
        if self._is_quick and self._kernels >= MANY_KERNELS:
            self._skipped += 1
            return
        self._kernels += 1
        if len(written) != self._batch:
            written = np.broadcast_to(written, (self._batch, *written.shape[1:]))
        if self._matcher.find(kernel.ofm.view, written):
            self._equal += 1
            self._found.add((operator, kernel.state.index))
            return
        self._temporaries.append(f"{operator}: {kernel.state.label}")
        if len(self._temporaries) > MAX_SUSPECTS:
            return
        near = self._matcher.nearest(kernel.ofm.view, written)
        if near is not None:
            self._near.append((operator, kernel, near))

    def boundaries(self, compiled: Subgraph, values: Mapping[int, Array]) -> None:
        """Compare the tensors between NPU operators and host ops, by name."""
        names: dict[str, list[int]] = {}
        for target in self._matcher.targets:
            names.setdefault(target.name, []).append(target.index)
        for index, array in values.items():
            name = compiled.tensors[index].name
            same = names.get(name, [])
            if len(same) == 1 and not self._matcher.check_whole(same[0], array):
                self._different.append(name)

    def finish(
        self, programs: Sequence[Program], inputs: Iterable[Array]
    ) -> tuple[Intermediates, Difference | None]:
        """Return the figures, and the first kernel that differs from the tensor it should be."""
        self._matcher.spread(inputs)
        targets = self._matcher.targets
        missing = [target for target in targets if not target.is_covered]
        wrong = next((each for each in self._near if self._is_wrong(each, programs)), None)
        figures = Intermediates(
            kernels=self._kernels,
            equal=self._equal,
            temporaries=tuple(self._temporaries),
            tensors=len(targets),
            covered=len(targets) - len(missing),
            absorbed=tuple(target.name for target in missing),
            different=tuple(self._different),
            skipped=self._skipped,
        )
        return figures, None if wrong is None else self._difference(*wrong)

    def _is_wrong(
        self, suspect: tuple[int, LoadedKernel, Near], programs: Sequence[Program]
    ) -> bool:
        """Tell a wrong result from a temporary that resembles a tensor.

        Temporaries lead to results that are found among the tensors; a wrong result spoils all
        that depends on it, up to the end of the operator.
        """
        operator, kernel, near = suspect
        if bool(near.block.target.covered[near.block.places].all()):
            return False
        if operator not in self._readers:
            self._readers[operator] = readers(programs[operator])
        pending, seen = [kernel.state.index], {kernel.state.index}
        while pending:
            for reader in self._readers[operator][pending.pop()]:
                if (operator, reader) in self._found:
                    return False
                if reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return True

    def _difference(self, operator: int, kernel: LoadedKernel, near: Near) -> Difference:
        tensor = near.block.target.index
        op = next((op for op in self._graph.ops if tensor in op.outputs), None)
        row, column, channel = near.place
        return Difference(
            operator=operator,
            kernel=kernel.state.label,
            offset_bytes=kernel.state.offset_bytes,
            tensor=near.block.target.name,
            op=-1 if op is None else op.index,
            kind="" if op is None else str(op.kind),
            row=row,
            column=column,
            channel=channel,
            got=near.got,
            expected=near.expected,
            differing=near.differing,
            total=near.total,
        )


def known_exceptions(graph: Subgraph) -> tuple[str, ...]:
    """Known differences between the NPU and the reference that a model can show."""
    found = []
    for op in graph.ops:
        if not op.inputs or op.inputs[0] < 0:
            continue
        dtype = graph.tensors[op.inputs[0]].dtype
        found += [text for kind, types, text in _EXCEPTIONS if op.kind is kind and dtype in types]
    return tuple(dict.fromkeys(found))
