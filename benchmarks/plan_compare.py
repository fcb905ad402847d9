"""Compares what an executed graph and an executed plan compute with LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from npusched.graph.opgraph import OpGraph
from npusched.ir import Model, OpKind
from npusched.sim.execute_plan import Executed
from npusched.sim.host_ops import HostOps
from npusched.sim.interpret import Interpreter, Values
from npusched.sim.kernels.arrays import Array
from npusched.sim.reference import random_inputs, reference_values


@dataclass(slots=True)
class Counts:
    """What was compared: tensors of the file, values, temporaries, and the maps that differ.

    ``rolled``: maps that never exist as a whole. ``differing``: name -> (differing values,
    largest difference).
    """

    tensors: int = 0
    values: int = 0
    temporaries: int = 0
    rolled: int = 0
    differing: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, name: str, got: Array, wanted: Array) -> None:
        """Compare the values of all inputs."""
        self.values += wanted.size
        wrong = unequal(got, wanted)
        if wrong.any():
            gap = np.abs(got[wrong].astype(np.float64) - wanted[wrong].astype(np.float64))
            self.differing[name] = (int(np.count_nonzero(wrong)), float(gap.max()))


@dataclass(frozen=True, slots=True)
class Expected:
    """What a graph must compute: per run the inputs, the reference's values, the interpreter's.

    ``reference``: tensor index of the file -> (runs, *shape). ``outputs``: indices of the file's
    outputs.
    """

    graph: OpGraph
    runs: list[list[Array]]
    reference: dict[int, Array]
    outputs: tuple[int, ...]
    interpreted: list[Values]

    def is_compared(self, tensor: int) -> bool:
        """False for inputs, and for variables: they are compared through what is made of them."""
        fm = self.graph.feature_maps[tensor]
        return not fm.is_persistent and bool(self.graph.writers[tensor])

    def wanted(self, tensor: int) -> Array | None:
        """The reference's values of a map (runs, elements), None for temporaries."""
        fm = self.graph.feature_maps[tensor]
        found = None if fm.source is None else self.reference.get(fm.source[1])
        if found is None or found[0].size != prod(fm.shape):
            return None
        return found.reshape(len(found), -1)


def expect(model: Model, graph: OpGraph, count: int, seed: int = 0) -> Expected:
    """Run the reference and the interpreter on random inputs. Raises SimError if one cannot."""
    interpreter = Interpreter(graph, host=HostOps(model, graph))
    subgraph = model.subgraphs[graph.subgraph]
    drawn = random_inputs(subgraph, count, seed)
    runs = [[drawn[index][k] for index in subgraph.inputs] for k in range(count)]
    wanted = {
        fm.source[1]
        for fm in graph.feature_maps.values()
        if fm.source is not None and fm.dtype.bits and graph.writers[fm.id]
    }
    reference = reference_values(
        model.content,
        drawn,
        sorted(wanted | set(subgraph.outputs)),
        keeps_all=True,
        is_stateful=any(op.kind is OpKind.VAR_HANDLE for op in subgraph.ops),
    )
    return Expected(graph, runs, reference, tuple(subgraph.outputs), interpreter.run_batch(runs))


def compare_interpreter(expected: Expected) -> Counts:
    """The interpreter against the reference: every map that holds a tensor of the file."""
    counts = Counts()
    graph = expected.graph
    for tensor in expected.interpreted[0].tensors:
        wanted = expected.wanted(tensor)
        if wanted is None or not expected.is_compared(tensor):
            continue
        counts.tensors += 1
        got = _stacked([values.tensors[tensor] for values in expected.interpreted])
        counts.add(graph.feature_maps[tensor].name, got, wanted)
    _add_outputs(counts, [values.outputs for values in expected.interpreted], expected)
    return counts


def compare_plan(executed: Sequence[Executed], expected: Expected) -> Counts:
    """A plan's runs against the reference; temporaries against the interpreter."""
    counts = Counts()
    for tensor in executed[0].tensors:
        if expected.is_compared(tensor):
            got = np.stack([each.tensors[tensor] for each in executed])
            _add_map(counts, tensor, got, got.shape[1:], expected)
    for tensor, array in executed[0].rolled.items():
        made = executed[0].rolled_rows[tensor]
        got = np.stack([each.rolled[tensor][:, :made] for each in executed])
        counts.rolled += 1
        _add_map(counts, tensor, got, array.shape, expected)
    _add_outputs(counts, [each.outputs for each in executed], expected)
    return counts


def _add_map(
    counts: Counts, tensor: int, got: Array, shape: tuple[int, ...], expected: Expected
) -> None:
    """Compare (runs, n, rows, w, c): the first rows of a map of some shape."""
    wanted = expected.wanted(tensor)
    if wanted is None:
        counts.temporaries += 1
        wanted = _stacked([values.tensors[tensor] for values in expected.interpreted])
    else:
        counts.tensors += 1
    rows = wanted.reshape(-1, *shape)[:, :, : got.shape[2]]
    counts.add(expected.graph.feature_maps[tensor].name, got, rows)


def _add_outputs(counts: Counts, runs: Sequence[tuple[Array, ...]], expected: Expected) -> None:
    """Compare the graph's outputs once more, as they are read after the last op."""
    for position, index in enumerate(expected.outputs):
        got = _stacked([outputs[position] for outputs in runs])
        wanted = expected.reference[index]
        counts.add(f"output {position}", got, wanted.reshape(len(wanted), -1))


def unequal(a: Array, b: Array) -> Array:
    """Where values differ; a NaN equals another one."""
    wrong: Array = a != b
    if a.dtype.kind == "f":
        wrong &= ~(np.isnan(a) & np.isnan(b))
    return wrong


def _stacked(arrays: Sequence[Array]) -> Array:
    return np.stack([array.ravel() for array in arrays])
