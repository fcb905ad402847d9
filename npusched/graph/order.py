"""Orders: how rewrites walk the graph, how ops are executed, how CPU ops are gathered.

Sources: LOWERING.md §3; Vela 5.2.0, ``compiler/graph_optimiser.hpp`` (RewriteGraph),
``compiler/graph.hpp`` (TraverseGraphFromEnd), ``compiler/scheduler_packing.cpp``
(ReorderOperations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from npusched.graph.work import WorkGraph, WorkOp, WorkTensor

Rewrite = Callable[[WorkGraph, WorkOp], WorkOp]
"""Rewrites one op and returns the op to look at next: itself if nothing changed."""


def inputs_of(op: WorkOp) -> list[WorkTensor]:
    """Return the tensors that ``op`` reads and that may have a writer."""
    return [*(link.tensor for link in op.ifms), *op.params.values()]


def walk(graph: WorkGraph, *rewrites: Rewrite) -> None:
    """Apply ``rewrites`` to every op, from the outputs upwards, until each op stands still.

    Ops are visited depth first; of several outputs, inputs or writers the last is visited first.
    All rewrites are applied in turn, again and again, until none returns another op; an op that
    was removed meanwhile is skipped.
    """
    stack = [op for tensor in graph.outputs for op in tensor.writers]
    visited: set[WorkOp] = set()
    while stack:
        op = stack.pop()
        if op in visited or not graph.holds(op):
            continue
        current, previous = op, None
        while current is not previous:
            previous = current
            for rewrite in rewrites:
                current = rewrite(graph, current)
        visited.add(current)
        for tensor in (*(link.tensor for link in current.ofms), *inputs_of(current)):
            stack += [writer for writer in tensor.writers if writer not in visited]


def execution_order(graph: WorkGraph) -> list[WorkOp]:
    """Return the ops in the order in which regor runs them: depth first from the outputs.

    The last output, the last input and the last writer of a tensor come first; in graphs with
    persistent tensors the writers of a tensor come in the order of their creation instead.
    """
    forward = graph.has_persistent

    def push(tensors: Iterable[WorkTensor]) -> None:
        for tensor in tensors:
            writers = reversed(tensor.writers) if forward else tensor.writers
            stack.extend((False, op) for op in writers if op not in visited)

    order: list[WorkOp] = []
    visited: set[WorkOp] = set()
    stack: list[tuple[bool, WorkOp]] = []
    push(graph.outputs)
    while stack:
        done, op = stack.pop()
        if done:
            order.append(op)
        elif op not in visited:
            visited.add(op)
            stack.append((True, op))
            push(inputs_of(op))
    return order


def gather_cpu_ops(groups: Sequence[list[WorkOp]]) -> list[list[WorkOp]]:
    """Move CPU ops so that they interrupt the NPU less often; return the new order of groups.

    A group is an NPU op with its followers, or a single CPU op. (1) CPU ops fed by nothing but
    graph inputs, constants and other such ops go first. (2) Else CPU ops whose results are all
    graph outputs without a reader go last. (3) From the back, each remaining CPU op slides later
    until the next group is a CPU op or an NPU group that reads one of its results.
    """
    early: list[list[WorkOp]] = []
    late: list[list[WorkOp]] = []
    others: list[list[WorkOp]] = []
    early_ops: set[WorkOp] = set()
    for group in groups:
        op = group[0]
        if op.cpu and _is_early(op, early_ops):
            early.append(group)
            early_ops.add(op)
        elif op.cpu and all(_is_late(link.tensor) for link in op.ofms):
            late.append(group)
        else:
            others.append(group)
    for start in range(len(others) - 1, -1, -1):
        if not others[start][0].cpu:
            continue
        at = start
        while at + 1 < len(others) and _may_pass(others[at][0], others[at + 1]):
            others[at], others[at + 1] = others[at + 1], others[at]
            at += 1
    return early + others + late


def _is_early(op: WorkOp, early: set[WorkOp]) -> bool:
    tensors = inputs_of(op)
    if all(tensor.is_constant or tensor.is_graph_input for tensor in tensors):
        return True
    return all(writer in early for tensor in tensors for writer in tensor.writers)


def _is_late(tensor: WorkTensor) -> bool:
    return tensor.is_graph_output and not tensor.readers


def _may_pass(op: WorkOp, group: list[WorkOp]) -> bool:
    """Return True if CPU op ``op`` may run after the NPU ``group`` that follows it."""
    if group[0].cpu:
        return False
    results = {link.tensor for link in op.ofms}
    return not any(link.tensor in results for member in group for link in member.ifms)
