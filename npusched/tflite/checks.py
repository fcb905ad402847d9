"""Checks of a decoded model as a graph: order, single writers, arity, shapes."""

from __future__ import annotations

from math import prod
from typing import Final

from npusched.errors import ModelError
from npusched.ir import DataType, Model, Op, Shape, Subgraph
from npusched.ir.options import CallOptions
from npusched.tflite.shapes import check_shapes

MAX_TENSOR_BYTES: Final = 1 << 32
"""Largest tensor taken as meant: the 4 GiB that a 32-bit address reaches."""
MAX_RANK: Final = 16
"""More axes than any TFLite kernel takes (8)."""

_DAMAGED: Final = "the file is damaged or its converter is faulty: convert the model again"


def check_model(model: Model) -> None:
    """Raise ModelError unless every subgraph can be executed in file order."""
    for graph in model.subgraphs:
        _check_order(graph)
        _check_empty(graph)
        check_shapes(graph, f" of subgraph {graph.index}" if graph.index else "")
    _check_calls(model)


def check_size(shape: Shape, dtype: DataType, where: str) -> None:
    """Raise ModelError for a shape that no memory holds; an axis of 0 counts as 1."""
    need_bytes = prod(max(size, 1) for size in shape) * max(dtype.bits, 8) // 8
    if len(shape) > MAX_RANK or need_bytes > MAX_TENSOR_BYTES:
        raise ModelError(
            f"cannot use the model: {where} is too large",
            f"{dtype.label} {list(shape[: MAX_RANK + 1])} exceeds {MAX_RANK} axes "
            f"or {MAX_TENSOR_BYTES} bytes",
            _DAMAGED,
        )


def op_label(op: Op, graph: Subgraph) -> str:
    """Name an op in messages."""
    place = f" of subgraph {graph.index}" if graph.index else ""
    return f"op {op.index} {op.custom_code or op.kind}{place}"


def _check_order(graph: Subgraph) -> None:
    """Each tensor is written once, and before it is read."""
    writer: dict[int, int] = {}
    given = set(graph.inputs)
    for op in graph.ops:
        for tensor in op.outputs:
            if tensor < 0:
                continue
            if tensor in writer or tensor in given:
                first = (
                    op_label(graph.ops[writer[tensor]], graph) if tensor in writer else "the caller"
                )
                raise ModelError(
                    f"cannot use the model: tensor {tensor} is written twice",
                    f"by {first} and {op_label(op, graph)}",
                    _DAMAGED,
                )
            writer[tensor] = op.index
    ready = set(given)
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


def _check_empty(graph: Subgraph) -> None:
    """Nothing that is computed is empty (constants may be: the shape of a scalar)."""
    touched = {t for op in graph.ops for t in (*op.inputs, *op.outputs)}
    for index in sorted(touched.union(graph.inputs, graph.outputs)):
        tensor = graph.tensors[index]
        if index >= 0 and 0 in tensor.shape and not tensor.is_constant:
            raise ModelError(
                f"cannot use the model: tensor {index} of subgraph {graph.index} is empty",
                f"{tensor.dtype.label} {list(tensor.shape)} has no elements",
                _DAMAGED,
            )


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
    # Take away subgraphs that run nothing (more) until none is left; a circle never empties.
    callers: dict[int, list[int]] = {index: [] for index in calls}
    for index, targets in calls.items():
        for target in targets:
            callers[target].append(index)
    waiting = {index: len(targets) for index, targets in calls.items()}
    free = [index for index, count in waiting.items() if count == 0]
    while free:
        for index in callers[free.pop()]:
            waiting[index] -= 1
            if waiting[index] == 0:
                free.append(index)
    loop = [index for index, count in waiting.items() if count]
    if loop:
        raise ModelError(
            "cannot use the model: subgraphs run each other in a circle",
            f"subgraphs {loop[:8]}",
            _DAMAGED,
        )
