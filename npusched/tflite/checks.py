"""Checks of a decoded model as a graph: order, single writers, arity, shapes."""

from __future__ import annotations

from typing import Final

from npusched.errors import ModelError
from npusched.ir import Model, Op, Subgraph
from npusched.ir.options import CallOptions
from npusched.tflite.shapes import check_shapes

_DAMAGED: Final = "the file is damaged or its converter is faulty: convert the model again"


def check_model(model: Model) -> None:
    """Raise ModelError unless every subgraph can be executed in file order."""
    for graph in model.subgraphs:
        _check_order(graph)
        check_shapes(graph, f" of subgraph {graph.index}" if graph.index else "")
    _check_calls(model)


def op_label(op: Op, graph: Subgraph) -> str:
    """Name an op in messages."""
    place = f" of subgraph {graph.index}" if graph.index else ""
    return f"op {op.index} {op.custom_code or op.kind}{place}"


def _check_order(graph: Subgraph) -> None:
    """Each tensor is written once, and before it is read."""
    writer: dict[int, int] = {}
    for op in graph.ops:
        for tensor in op.outputs:
            if tensor >= 0 and writer.setdefault(tensor, op.index) != op.index:
                first = graph.ops[writer[tensor]]
                raise ModelError(
                    f"cannot use the model: tensor {tensor} is written twice",
                    f"by {op_label(first, graph)} and {op_label(op, graph)}",
                    _DAMAGED,
                )
    ready = set(graph.inputs)
    ready.update(t.index for t in graph.tensors if t.is_constant or t.is_variable)
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor < 0 or tensor in ready:
                continue
            if tensor in writer:
                raise ModelError(
                    f"cannot use the model: {op_label(op, graph)} runs too early",
                    f"it reads tensor {tensor}, which {op_label(graph.ops[writer[tensor]], graph)} "
                    "makes later: the ops form a cycle or are out of order",
                    _DAMAGED,
                )
            if op.custom_code != "ethos-u":
                raise _missing(f"{op_label(op, graph)} reads", tensor)
        ready.update(op.outputs)
    for tensor in graph.outputs:
        if tensor not in ready:
            raise _missing(f"subgraph {graph.index} returns", tensor)


def _missing(who: str, tensor: int) -> ModelError:
    return ModelError(
        f"cannot use the model: {who} tensor {tensor}, which nothing makes",
        "it is no graph input, constant or variable, and no op writes it",
        _DAMAGED,
    )


def _check_calls(model: Model) -> None:
    """Subgraphs that ops run exist and do not run themselves."""
    calls: dict[int, set[int]] = {graph.index: set() for graph in model.subgraphs}
    for graph in model.subgraphs:
        for op in graph.ops:
            if not isinstance(op.options, CallOptions):
                continue
            for target in op.options.subgraphs:
                if target not in calls:
                    raise ModelError(
                        f"cannot use the model: {op_label(op, graph)} runs subgraph {target}",
                        f"there are {len(calls)}, numbered from 0",
                        _DAMAGED,
                    )
                calls[graph.index].add(target)
    done: set[int] = set()
    while len(done) < len(calls):
        free = {g for g, targets in calls.items() if g not in done and targets <= done}
        if not free:
            loop = sorted(set(calls) - done)
            raise ModelError(
                "cannot use the model: subgraphs run each other in a circle",
                f"subgraphs {loop[:8]}",
                _DAMAGED,
            )
        done |= free
