"""Prove a plan: execute it, and compare every map that it makes with LiteRT and the interpreter.

Maps that stand for a tensor of the file are compared with LiteRT's reference kernels, all maps with
``interpret``; in rolling buffers, the rows that were made. Nothing may differ (fully connected
layers in proof mode, SIM.md §4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from npusched.errors import PlanError
from npusched.graph.opgraph import OpGraph
from npusched.ir import Model, OpKind, Subgraph
from npusched.schedule.types import Plan
from npusched.sim.execute_plan import Executed, PlanExecutor
from npusched.sim.host import entry_first
from npusched.sim.host_ops import HostOps
from npusched.sim.interpret import Interpreter, Values
from npusched.sim.kernels.arrays import Array
from npusched.sim.proof import Mode, OutputResult, Verdict, known_exceptions
from npusched.sim.reference import reference_values
from npusched.tflite.decode import decode

BATCH_BYTES = 1 << 28
"""Memories, tags and values of so many inputs at a time as fit into this."""

LITERT = "LiteRT"
INTERPRETER = "interpreter"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """The first map, in execution order, with a value that differs.

    ``op`` is the scheduled op that completes it, ``source_op`` the op of the file (-1: none).
    ``against``: what has the ``expected`` value. ``differing`` of ``total`` values, all inputs.
    """

    tensor: str
    op: int
    kernel: str
    source_op: int
    kind: str
    row: int
    column: int
    channel: int
    got: float
    expected: float
    differing: int
    total: int
    against: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProof:
    """What was compared, with what result.

    ``stored`` maps were read back whole, of ``rolled`` ones the rows that were made; ``compared``
    of them with LiteRT, ``equal`` without a difference; ``only_interpreted`` (names) have no
    counterpart in the file. ``interpreter_equal``: no map and no output differs from the
    interpreter. ``fault``: why the plan could not be carried out; "" if it could.
    """

    verdict: Verdict
    mode: Mode
    inputs: int
    outputs: tuple[OutputResult, ...]
    stored: int
    rolled: int
    compared: int
    equal: int
    only_interpreted: tuple[str, ...]
    interpreter_equal: bool
    difference: PlanDifference | None
    fault: str
    exceptions: tuple[str, ...]


def prove_plan(
    model: Model,
    graph: OpGraph,
    plan: Plan,
    inputs: Mapping[int, Array],
    *,
    mode: Mode = Mode.PROOF,
) -> PlanProof:
    """Execute a plan on given inputs (tensor index -> (batch, *shape)) and compare.

    CPU ops run in LiteRT, on what the plan's memories hold. Raises SimError for ops that cannot
    be executed, and if LiteRT is missing or cannot run the model.
    """
    subgraph = model.subgraphs[graph.subgraph]
    host, once = HostOps(model, graph), mode is Mode.PROOF
    interpreter = Interpreter(graph, single_rounding=once, host=host)
    tally = _Tally(graph, subgraph)
    fault = ""
    try:
        executor = PlanExecutor(graph, plan, single_rounding=once, host=host)
        for part in _batches(inputs, _bytes_per_input(subgraph, executor)):
            expected = _expected(model, graph.subgraph, part)
            runs = [
                [part[index][k] for index in subgraph.inputs]
                for k in range(max((len(values) for values in part.values()), default=1))
            ]
            tally.add(executor.run_batch(runs), interpreter.run_batch(runs), expected)
    except PlanError as error:
        fault = f"{error.what}: {error.why}" if error.why else error.what
    return tally.proof(fault, mode, known_exceptions(subgraph))


def _bytes_per_input(subgraph: Subgraph, executor: PlanExecutor) -> int:
    """Bytes that one input takes: memories with their tags, and every tensor three times."""
    made = {i for op in subgraph.ops for i in op.outputs if i >= 0}
    values = sum(subgraph.tensors[index].size_bytes for index in made)
    return executor.memory_bytes + 3 * values


def _batches(inputs: Mapping[int, Array], bytes_each: int) -> Iterator[dict[int, Array]]:
    """Parts of the inputs that fit into ``BATCH_BYTES``, at least one each."""
    count = max((len(values) for values in inputs.values()), default=1)
    size = max(1, BATCH_BYTES // max(bytes_each, 1))
    for start in range(0, count, size):
        yield {index: values[start : start + size] for index, values in inputs.items()}


def _expected(model: Model, subgraph: int, inputs: Mapping[int, Array]) -> dict[int, Array]:
    """LiteRT's value of every tensor that an op makes, by index."""
    graph = model.subgraphs[subgraph]
    content = model.content if subgraph == 0 else entry_first(decode(model.content), subgraph)
    made = dict.fromkeys(
        index
        for op in graph.ops
        for index in op.outputs
        if index >= 0 and graph.tensors[index].dtype.bits
    )
    return reference_values(
        content,
        inputs,
        list(dict.fromkeys((*made, *graph.outputs))),
        keeps_all=True,
        is_stateful=any(op.kind is OpKind.VAR_HANDLE for op in graph.ops),
    )


@dataclass(slots=True)
class _Count:
    """Values of one map compared with one side, and the first that differs: place, got, wanted."""

    total: int = 0
    differing: int = 0
    largest: float = 0.0
    first: tuple[tuple[int, ...], float, float] | None = None

    def add(self, got: Array, wanted: Array, shape: Sequence[int]) -> None:
        """Compare flat arrays; places are in ``shape``."""
        wrong = got != wanted
        if got.dtype.kind == "f":
            wrong &= ~(np.isnan(got) & np.isnan(wanted))
        self.total += got.size
        if not wrong.any():
            return
        self.differing += int(wrong.sum())
        gaps = np.abs(got[wrong].astype(np.float64) - wanted[wrong].astype(np.float64))
        self.largest = max(self.largest, float(gaps.max()))
        if self.first is None:
            flat = int(wrong.argmax())
            place = tuple(int(part) for part in np.unravel_index(flat, tuple(shape)))
            self.first = place, float(got[flat]), float(wanted[flat])


@dataclass(slots=True)
class _Tally:
    """Adds up comparisons of all inputs, by map and side."""

    graph: OpGraph
    subgraph: Subgraph
    litert: dict[int, _Count] = field(default_factory=dict)
    interpreted: dict[int, _Count] = field(default_factory=dict)
    outputs: dict[int, _Count] = field(default_factory=dict)
    rolled: set[int] = field(default_factory=set)
    inputs: int = 0
    is_interpreted: bool = True
    """False once an output differs from the interpreter's."""

    def add(
        self,
        executed: Sequence[Executed],
        whole: Sequence[Values],
        expected: Mapping[int, Array],
    ) -> None:
        """Compare the runs of one batch."""
        for number, (run, values) in enumerate(zip(executed, whole, strict=True)):
            self.inputs += 1
            for tensor, array in run.tensors.items():
                self._map(tensor, array, array.shape[1], number, values, expected)
            for tensor, array in run.rolled.items():
                self.rolled.add(tensor)
                rows = run.rolled_rows[tensor]
                self._map(tensor, array, rows, number, values, expected)
            for place, (index, got) in enumerate(
                zip(self.subgraph.outputs, run.outputs, strict=True)
            ):
                wanted = _stored(expected[index][number], got)
                self.outputs.setdefault(place, _Count()).add(got.ravel(), wanted, got.shape)
                self.is_interpreted &= _equal(got, values.outputs[place])

    def _map(
        self,
        tensor: int,
        array: Array,
        rows: int,
        number: int,
        values: Values,
        expected: Mapping[int, Array],
    ) -> None:
        fm = self.graph.feature_maps[tensor]
        if fm.is_persistent or not self.graph.writers[tensor]:
            return  # a variable, compared through what is made of it, or an input
        shape, made = array.shape, array[:, :rows]
        sides = [(self.interpreted, values.tensors.get(tensor))]
        if fm.source is not None and fm.source[0] == self.graph.subgraph:
            wanted = expected.get(fm.source[1])
            if wanted is not None and wanted[number].size == prod(shape):
                sides.append((self.litert, wanted[number]))
        for counts, whole in sides:
            if whole is not None:
                part = _stored(whole, array).reshape(shape)[:, :rows]
                counts.setdefault(tensor, _Count()).add(made.ravel(), part.ravel(), made.shape)

    def proof(self, fault: str, mode: Mode, exceptions: tuple[str, ...]) -> PlanProof:
        """The sums, and the first difference in execution order."""
        difference = self._first()
        outputs = tuple(
            OutputResult(
                name=self.subgraph.tensors[self.subgraph.outputs[place]].name,
                values=count.total,
                differing=count.differing,
                largest=count.largest,
            )
            for place, count in self.outputs.items()
        )
        interpreted = [count.differing for count in self.interpreted.values()]
        equal = not fault and difference is None and not any(each.differing for each in outputs)
        equal &= self.is_interpreted
        maps = self.graph.feature_maps
        return PlanProof(
            verdict=Verdict.EQUAL if equal else Verdict.DIFFERENT,
            mode=mode,
            inputs=self.inputs,
            outputs=outputs,
            stored=len(self.interpreted) - len(self.rolled),
            rolled=len(self.rolled),
            compared=len(self.litert),
            equal=sum(not count.differing for count in self.litert.values()),
            only_interpreted=tuple(
                maps[tensor].name for tensor in self.interpreted if tensor not in self.litert
            ),
            interpreter_equal=self.is_interpreted and not any(interpreted),
            difference=difference,
            fault=fault,
            exceptions=exceptions,
        )

    def _first(self) -> PlanDifference | None:
        """The first map that differs: from LiteRT if it does, else from the interpreter."""
        sides = [(LITERT, self.litert), (INTERPRETER, self.interpreted)]
        found = [
            (self.graph.writers[tensor][-1], side, tensor, name, count)
            for side, (name, counts) in enumerate(sides)
            for tensor, count in counts.items()
            if count.first is not None
        ]
        if not found:
            return None
        op, _, tensor, against, count = min(found, key=lambda each: each[:3])
        assert count.first is not None
        (_, row, column, channel), got, wanted = count.first
        made_by = self.graph.ops[op]
        source = made_by.source_ops[-1][1] if made_by.source_ops else -1
        fm = self.graph.feature_maps[tensor]
        if fm.source is not None:
            makers = (o.index for o in self.subgraph.ops if fm.source[1] in o.outputs)
            source = next(makers, source)
        return PlanDifference(
            tensor=fm.name,
            op=op,
            kernel=made_by.kind.value,
            source_op=source,
            kind="" if source < 0 else self.subgraph.ops[source].kind.value,
            row=row,
            column=column,
            channel=channel,
            got=got,
            expected=wanted,
            differing=count.differing,
            total=count.total,
            against=against,
        )


def _stored(values: Array, like: Array) -> Array:
    """Values as the plan stores them, flat (bools are bytes there)."""
    return values.astype(like.dtype, copy=False).ravel()


def _equal(a: Array, b: Array) -> bool:
    return np.array_equal(a, b.reshape(a.shape), equal_nan=a.dtype.kind == "f")
