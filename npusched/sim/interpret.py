"""Executes a scheduled graph, op by op, on whole tensors: what lowering says the model computes.

Equal to LiteRT's ``BUILTIN_REF`` if lowering keeps the meaning of the model (fully connected ops
in proof mode, SIM.md §4). Buffers, stripes and addresses do not exist here: see ``execute_plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npusched.errors import SimError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Access, FeatureMap, Placement
from npusched.schedule.lifetimes import storage
from npusched.sim.apply import compute, pieces_of
from npusched.sim.host_ops import HostOps
from npusched.sim.kernels.arrays import Array
from npusched.sim.meaning import Meaning, meaning_of, numpy_type


@dataclass(frozen=True, slots=True)
class Values:
    """Stored values after a run.

    ``tensors``: feature map id -> array of its storage shape, for every map that is not constant.
    ``outputs``: the graph's outputs, in its order, same form.
    """

    tensors: dict[int, Array]
    outputs: tuple[Array, ...]


class Interpreter:
    """A graph, ready to run on any number of inputs.

    ``single_rounding``: see ``meaning_of``. ``host`` runs the CPU ops. Raises SimError naming the
    first op that cannot be executed (CPU ops without a host, functions that are not published,
    kernels of the U85 alone).
    """

    def __init__(
        self, graph: OpGraph, *, single_rounding: bool = True, host: HostOps | None = None
    ) -> None:
        self.graph, self.host = graph, host
        self.meanings = meanings_of(graph, single_rounding=single_rounding, host=host)

    def run(self, inputs: Sequence[Array]) -> Values:
        """Run on one array per graph input (as stored, any shape of the right size).

        Variables start as zeros. Raises SimError for inputs of another number or size.
        """
        return self.run_batch([inputs])[0]

    def run_batch(self, batch: Sequence[Sequence[Array]]) -> list[Values]:
        """Like ``run``, for several inputs: CPU ops run on all of them at once."""
        memories = []
        for inputs in batch:
            memory = _Memory(self.graph)
            memories.append(memory)
            for tensor, values in zip(self.graph.inputs, checked(self.graph, inputs), strict=True):
                memory.array(tensor)[:] = values.ravel()
        for op, meanings in zip(self.graph.ops, self.meanings, strict=True):
            if op.placement is Placement.CPU and self.host is not None:
                reads = self.host.reads(op)
                given = [{k: memory.region(op.ifms[k]) for k in reads} for memory in memories]
                for memory, results in zip(memories, self.host.run(op, given), strict=True):
                    for position, result in results.items():
                        target = memory.region(op.ofms[position])
                        target[...] = result.reshape(target.shape)
            for meaning in meanings:
                for memory in memories:
                    memory.execute(meaning)
        return [self._values(memory) for memory in memories]

    def _values(self, memory: _Memory) -> Values:
        maps = [fm for fm in self.graph.feature_maps.values() if not fm.is_constant]
        tensors = {
            fm.id: memory.array(fm.id).reshape(fm.shape) for fm in maps if memory.holds(fm.id)
        }
        outputs = tuple(
            memory.array(number).reshape(self.graph.feature_maps[number].shape)
            for number in self.graph.outputs
        )
        return Values(tensors, outputs)


def interpret(graph: OpGraph, inputs: Sequence[Array], *, single_rounding: bool = True) -> Values:
    """Run a graph once (see ``Interpreter``)."""
    return Interpreter(graph, single_rounding=single_rounding).run(inputs)


def meanings_of(
    graph: OpGraph, *, single_rounding: bool, host: HostOps | None = None
) -> list[list[Meaning]]:
    """Per op of the graph the meanings of its pieces. Raises SimError (see ``Interpreter``).

    CPU ops have none where there is a ``host``.
    """
    found: list[list[Meaning]] = []
    for op in graph.ops:
        if op.placement is Placement.CPU and host is not None:
            found.append([])
            continue
        first = meaning_of(op, graph.family, single_rounding=single_rounding)
        found.append(
            [Meaning(piece, first.arithmetic, first.after, first.dtype) for piece in pieces_of(op)]
        )
    return found


def checked(graph: OpGraph, inputs: Sequence[Array]) -> list[Array]:
    """The inputs in the types that are stored. Raises SimError for a wrong number or size."""
    if len(inputs) != len(graph.inputs):
        raise SimError(
            f"{len(inputs)} inputs for a graph with {len(graph.inputs)}",
            f"it reads {', '.join(graph.feature_maps[each].name for each in graph.inputs)}",
            "give one array per input, in this order",
        )
    found = []
    for tensor, values in zip(graph.inputs, inputs, strict=True):
        fm = graph.feature_maps[tensor]
        if values.size != prod(fm.shape):
            raise SimError(
                f"input {fm.name!r} has {values.size} elements",
                f"its shape is {list(fm.shape)}, {prod(fm.shape)} elements",
                "give an array of that shape",
            )
        found.append(values.astype(numpy_type(fm.dtype)))
    return found


def constant_array(fm: FeatureMap) -> Array:
    """The stored elements of a constant, flat. Raises SimError if the graph has no values."""
    if fm.data is None:
        raise SimError(
            f"constant {fm.name!r} has no values",
            f"its buffer, {fm.dtype.label} {list(fm.shape)}, is empty",
            "execute the whole model, with its constants",
        )
    values: Array = np.ascontiguousarray(fm.data).astype(numpy_type(fm.dtype)).ravel()
    return values


class _Memory:
    """The flat storage of every feature map; maps of the same variable share one."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._same = storage(graph)
        self._arrays: dict[int, Array] = {}

    def array(self, tensor: int) -> Array:
        """Storage of a map: its constant values, or zeros at first."""
        tensor = self._same.get(tensor, tensor)
        if tensor not in self._arrays:
            fm = self._graph.feature_maps[tensor]
            if fm.is_constant:
                self._arrays[tensor] = constant_array(fm)
            else:
                self._arrays[tensor] = np.zeros(prod(fm.shape), numpy_type(fm.dtype))
        return self._arrays[tensor]

    def holds(self, tensor: int) -> bool:
        """True if the map has been read or written."""
        return self._same.get(tensor, tensor) in self._arrays

    def execute(self, meaning: Meaning) -> None:
        """Run one kernel on whole tensors."""
        op = meaning.op
        result = compute(meaning, [self.region(access) for access in op.ifms])
        target = self.region(op.final_ofm)
        target[...] = result.reshape(target.shape)

    def region(self, access: Access) -> Array:
        """A writable view (n, h, w, c) of what an access touches."""
        return region_of(self.array(access.tensor), access)


def region_of(flat: Array, access: Access) -> Array:
    """The part of a map's flat storage that an access touches, as a view (n, h, w, c).

    The access may see less than the map holds: pads of several sizes share one constant. Raises
    SimError if it sees more.
    """
    stored = flat.view(numpy_type(access.dtype))
    view = access.view if stored.size > 1 else (1, 1, 1, 1)
    if prod(view) > stored.size:
        raise SimError(
            f"an op sees {prod(view)} elements in a map of {stored.size}",
            f"it takes {list(view)} of tensor {access.tensor}",
            "the model contradicts itself: convert it again",
        )
    whole = stored[: prod(view)].reshape(view)
    n, h, w, c = access.offset
    sn, sh, sw, sc = access.shape
    part: Array = whole[
        n : n + sn, h : h + sh : access.step_h, w : w + sw : access.step_w, c : c + sc
    ]
    return part
