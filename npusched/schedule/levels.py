"""Fusion levels: the same network with more and more of it kept out of memory (DESIGN).

``as_stored`` to ``L1`` count the file's ops, as a framework would run them; ``L2`` counts kernels
as the NPU runs them; ``L3`` keeps maximal legal chains in SRAM, on the graph with batch norms
folded: what fusion can give at most, whatever the budget. Bytes are logical feature-map bytes
(weights apart), dispatches are kernel calls. Cycles of ``as_stored`` to ``L1`` are those of the
kernels that do each op's work, plus a pass of its own for every activation that is not fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from npusched.graph.batchnorm import BatchNorm, find_batch_norms
from npusched.ir import ActivationKind, Op, OpKind, Subgraph
from npusched.ops import Category, spec
from npusched.schedule.types import Amounts, add_amounts

ACTIVATIONS = frozenset(
    {OpKind.RELU, OpKind.RELU6, OpKind.RELU_N1_TO_1, OpKind.RELU_0_TO_1, OpKind.TANH}
)
"""Stand-alone ops that a converter turns into a fused field where it can."""

HOSTS = frozenset(
    {
        OpKind.CONV_2D,
        OpKind.DEPTHWISE_CONV_2D,
        OpKind.TRANSPOSE_CONV,
        OpKind.FULLY_CONNECTED,
        OpKind.ADD,
        OpKind.SUB,
        OpKind.MUL,
        OpKind.DIV,
        OpKind.AVERAGE_POOL_2D,
        OpKind.MAX_POOL_2D,
        OpKind.CONCATENATION,
    }
)
"""Ops with an activation field in the file format."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level: logical feature-map bytes, kernel calls, and what they cost."""

    level: str
    traffic_bytes: int
    dispatches: int
    amounts: Amounts


class Unit(msgspec.Struct, frozen=True):
    """One kernel call of a source-level executor: tensors read and written, ops it stands for.

    ``activation``: the call is a fused field run on its own, over ``writes[0]``.
    """

    ops: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    activation: bool = False


def source_levels(
    subgraph: Subgraph,
    cost_of_op: Callable[[int], Amounts],
    cost_of_activation: Callable[[int], Amounts],
) -> list[Level]:
    """Levels ``as_stored``, ``L0`` and ``L1`` of a subgraph.

    ``cost_of_op(index)``: the op's own work; ``cost_of_activation(tensor)``: one pass of an
    activation over a tensor.
    """
    norms = find_batch_norms(subgraph)
    levels = []
    for name, units in (
        ("as_stored", as_stored(subgraph)),
        ("L0", unfused(subgraph, norms)),
        ("L1", converted(subgraph, norms)),
    ):
        parts = []
        for unit in units:
            if unit.activation:
                parts.append(cost_of_activation(unit.writes[0]))
            else:
                parts.append(cost_of_op(unit.ops[0]))
        levels.append(
            Level(
                level=name,
                traffic_bytes=sum(_traffic(subgraph, unit) for unit in units),
                dispatches=len(units),
                amounts=add_amounts(parts),
            )
        )
    return levels


def as_stored(subgraph: Subgraph) -> list[Unit]:
    """The file's ops, one call each."""
    return [_unit(subgraph, op) for op in subgraph.ops]


def unfused(subgraph: Subgraph, norms: Iterable[BatchNorm]) -> list[Unit]:
    """Activation fields expanded to calls of their own; a batch norm is one call."""
    by_multiply = {norm.multiply: norm for norm in norms}
    absorbed = {norm.add for norm in norms if norm.multiply is not None}
    units = []
    for op in subgraph.ops:
        if op.index in absorbed:
            continue
        norm = by_multiply.get(op.index)
        last = op if norm is None or norm.add is None else subgraph.ops[norm.add]
        ops = (op.index,) if last is op else (op.index, last.index)
        units.append(Unit(ops, _read(subgraph, op), _written(last)))
        if activation_of(last) is not ActivationKind.NONE:
            units.append(Unit((last.index,), _written(last)[:1], _written(last)[:1], True))
    return units


def converted(subgraph: Subgraph, norms: Iterable[BatchNorm]) -> list[Unit]:
    """Batch norms folded into the linear op before them, activations fused, views gone."""
    units: dict[int, Unit] = {}
    made_by: dict[int, int] = {}
    by_op = {index: norm for norm in norms for index in norm.ops}
    readers: dict[int, int] = {}
    for op in subgraph.ops:
        for tensor in set(op.inputs):
            readers[tensor] = readers.get(tensor, 0) + 1
    for op in subgraph.ops:
        if spec(op.kind).category is Category.VIEW:
            continue  # its result has no maker: nothing fuses across a view
        norm = by_op.get(op.index)
        host = None
        if norm is not None and (op.index != norm.ops[0] or norm.linear is not None):
            host = made_by.get(_data_input(subgraph, op))
        elif op.kind in ACTIVATIONS and op.inputs:
            before = made_by.get(op.inputs[0])
            alone = readers.get(op.inputs[0], 0) == 1 and op.inputs[0] not in subgraph.outputs
            if before is not None and alone and _can_host(subgraph, units[before]):
                host = before
        if host is None:
            units[op.index] = _unit(subgraph, op)
            host = op.index
        else:
            unit = units[host]
            units[host] = Unit((*unit.ops, op.index), unit.reads, _written(op))
        for tensor in op.outputs:
            made_by[tensor] = host
    return list(units.values())


def activation_of(op: Op) -> ActivationKind:
    """The op's fused activation field."""
    return getattr(op.options, "activation", ActivationKind.NONE)


def _can_host(subgraph: Subgraph, unit: Unit) -> bool:
    kinds = subgraph.ops[unit.ops[0]].kind
    last = subgraph.ops[unit.ops[-1]]
    return (
        kinds in HOSTS
        and activation_of(last) is ActivationKind.NONE
        and (last.kind not in ACTIVATIONS)
    )


def _data_input(subgraph: Subgraph, op: Op) -> int:
    return next(t for t in op.inputs if t >= 0 and not subgraph.tensors[t].is_constant)


def _unit(subgraph: Subgraph, op: Op) -> Unit:
    return Unit((op.index,), _read(subgraph, op), _written(op))


def _read(subgraph: Subgraph, op: Op) -> tuple[int, ...]:
    distinct = dict.fromkeys(t for t in op.inputs if t >= 0)
    return tuple(t for t in distinct if not subgraph.tensors[t].is_constant)


def _written(op: Op) -> tuple[int, ...]:
    return tuple(t for t in op.outputs if t >= 0)


def _traffic(subgraph: Subgraph, unit: Unit) -> int:
    return sum(subgraph.tensors[t].size_bytes for t in (*unit.reads, *unit.writes))
