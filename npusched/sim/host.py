"""Ops that stay on the host, cut out of a model and run by LiteRT.

Tensors are named by their index in the subgraph that the ops come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npusched.errors import SimError
from npusched.ir import Op, OpKind, Subgraph
from npusched.ir.options import VarHandleOptions
from npusched.sim.kernels.arrays import Array
from npusched.sim.reference import NO_VALUES_HINT, reference_values
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value

_STATEFUL = frozenset({OpKind.VAR_HANDLE, OpKind.CALL_ONCE})


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Ops that stay on the host, as a model of their own."""

    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    content: bytes
    is_stateful: bool


def host_group(root: Record, graph: Subgraph, ops: Sequence[Op]) -> HostGroup:
    """Cut host ops out as a model: what they need from outside becomes an input.

    Handles of variables are no values: the ops that make them are copied into each group, behind
    the calls that set variables up (Vela may place those behind the first reads). Constants that
    no op of the group needs are left out.
    """
    handles = {
        index: op for op in graph.ops if op.kind is OpKind.VAR_HANDLE for index in op.outputs
    }
    needed = {handles[i].index: handles[i] for op in ops for i in op.inputs if i in handles}
    if needed:
        needed.update({op.index: op for op in graph.ops if op.kind is OpKind.CALL_ONCE})
    ops = sorted(
        {**{op.index: op for op in ops}, **needed}.values(),
        key=lambda op: (op.kind is not OpKind.CALL_ONCE, op.index),
    )
    inside = {op.index for op in ops}
    made = {index for op in ops for index in op.outputs if index >= 0}
    elsewhere = {
        index for op in graph.ops if op.index not in inside for index in op.outputs if index >= 0
    }.union(graph.inputs)
    read = dict.fromkeys(
        index for op in ops for index in op.inputs if index in elsewhere and index not in made
    )
    wanted = {index for op in graph.ops if op.index not in inside for index in op.inputs}.union(
        graph.outputs
    )
    outputs = tuple(sorted((made & wanted) - set(handles)))
    return HostGroup(
        ops=tuple(op.index for op in ops),
        inputs=tuple(read),
        outputs=outputs,
        content=_cut_out(root, graph.index, ops, tuple(read), outputs),
        is_stateful=any(op.kind in _STATEFUL for op in graph.ops),
    )


def _cut_out(
    root: Record, subgraph: int, ops: Sequence[Op], inputs: tuple[int, ...], outputs: Sequence[int]
) -> bytes:
    """The file of some ops of one subgraph, which becomes the first one."""
    graphs = root.records("subgraphs")
    record = graphs[subgraph]
    records, tensors = record.records("operators"), record.records("tensors")
    used = {i for op in ops for i in (*op.inputs, *op.outputs, *op.intermediates)}
    cut = Record(
        record.table,
        {
            **record.values,
            "tensors": tuple(
                tensor if index in used else _changed(tensor, buffer=0)
                for index, tensor in enumerate(tensors)
            ),
            "operators": tuple(records[op.index] for op in ops),
            "inputs": inputs,
            "outputs": tuple(outputs),
        },
    )
    kept = (cut, *graphs[1:])
    return encode(
        _changed(
            _without_signatures(root),
            subgraphs=kept,
            buffers=_needed_buffers(root, kept),
        )
    )


def entry_first(root: Record, subgraph: int) -> bytes:
    """The file with one subgraph in the place of the first one, which is where LiteRT starts."""
    graphs = root.records("subgraphs")
    changed = (graphs[subgraph], *graphs[1:])
    return encode(_changed(_without_signatures(root), subgraphs=changed))


def _without_signatures(root: Record) -> Record:
    left_out = ("signature_defs", "metadata", "metadata_buffer")
    values = {key: value for key, value in root.values.items() if key not in left_out}
    return Record(root.table, values)


def _needed_buffers(root: Record, graphs: Iterable[Record]) -> tuple[Record, ...]:
    """All buffers, those that no tensor names emptied."""
    named = {t.integer("buffer") for graph in graphs for t in graph.records("tensors")}
    return tuple(
        buffer if number in named else Record(buffer.table, {})
        for number, buffer in enumerate(root.records("buffers"))
    )


def _changed(record: Record, **changes: Value) -> Record:
    return Record(record.table, {**record.values, **changes})


def run_host(group: HostGroup, values: Mapping[int, Array]) -> dict[int, Array]:
    """Run host ops on each element of the batch: tensor index -> (batch, *shape), both ways."""
    count = max((len(array) for array in values.values()), default=1)
    given = {
        index: np.broadcast_to(values[index], (count, *values[index].shape[1:]))
        for index in group.inputs
    }
    found = reference_values(group.content, given, group.outputs, is_stateful=group.is_stateful)
    missing = [index for index in group.outputs if index not in found]
    if missing:
        raise SimError(
            "LiteRT gave no values", f"of tensor {missing[0]} of a host op", NO_VALUES_HINT
        )
    return {
        index: np.broadcast_to(array, (count, *array.shape[1:])) for index, array in found.items()
    }


def check_variables(graph: Subgraph, groups: Sequence[HostGroup]) -> None:
    """Refuse variables that one host group sets and a later one reads: each starts afresh."""
    names = {
        op.outputs[0]: op.options.shared_name
        for op in graph.ops
        if isinstance(op.options, VarHandleOptions) and op.outputs
    }
    assigned: set[str] = set()
    for group in groups:
        ops = [graph.ops[index] for index in group.ops]
        read = {names.get(op.inputs[0]) for op in ops if op.kind is OpKind.READ_VARIABLE}
        crossing = sorted(name for name in assigned if name in read)
        if crossing:
            raise SimError(
                f"variable {crossing[0]} cannot be followed",
                "one part of the model on the host sets it, a later one reads it",
                "a model with such a variable can be planned, but not executed",
            )
        assigned |= {names.get(op.inputs[0], "") for op in ops if op.kind is OpKind.ASSIGN_VARIABLE}
