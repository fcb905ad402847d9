"""Which of our ops each kernel of the template belongs to."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

from npusched.emission.template import Template, TemplateKernel
from npusched.errors import EmitError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.ir import Model
from npusched.vela.match import match_ops
from npusched.vela.reader import read_ops, read_queue


@dataclass(frozen=True, slots=True)
class KernelMatch:
    """``kernels``: of each op (id in the graph's own order), in order of issue.

    ``strays``: kernels of ops that our graph does not have, each with the op that it runs before.
    """

    kernels: dict[int, tuple[TemplateKernel, ...]]
    strays: tuple[TemplateKernel, ...]


def match_kernels(template: Template, model: Model, graph: OpGraph) -> KernelMatch:
    """Match by the debug database: kernel -> Vela's op -> ours.

    ``graph``: in its own order. Raises EmitError if an op of ours has no kernel.
    """
    if len(model.subgraphs) > 1:
        return KernelMatch(_in_order(template, graph), ())
    database = template.result.database
    ops = read_ops(database, [len(each.ops) for each in model.subgraphs])
    matching = match_ops(graph, ops)
    owner: dict[int, int] = {}
    for v, rows in matching.rows.items():
        for row in rows:
            owner[row.id] = v
            owner.update((follower.id, v) for follower in row.followers)
    found: dict[int, list[TemplateKernel]] = defaultdict(list)
    strays: list[TemplateKernel] = []
    for kernel, scheduled in _rows(template):
        if scheduled in owner:
            found[owner[scheduled]].append(kernel)
        else:
            strays.append(kernel)
    for op in graph.ops:
        if op.placement is Placement.NPU and op.id not in found:
            raise _unmatched(op)
    return KernelMatch({v: tuple(each) for v, each in found.items()}, tuple(strays))


def _in_order(template: Template, graph: OpGraph) -> dict[int, tuple[TemplateKernel, ...]]:
    """Kernels of ops by order alone: the database describes one subgraph only, not always ours.

    Raises EmitError unless each piece of an op is one kernel with a result of its size.
    """
    waiting = list(template.kernels)
    found = {}
    for op in graph.ops:
        if op.placement is Placement.CPU:
            continue
        own, waiting = waiting[: op.count], waiting[op.count :]
        sizes = [each.rows * each.state.ofm.w * each.channels for each in own]
        is_conv = op.weights is not None
        alike = all((each.weights != ()) == is_conv for each in own)
        if not alike or sizes != [op.final_ofm.elements] * op.count:
            raise _unmatched(op)
        found[op.id] = tuple(own)
    if waiting:
        raise _unmatched(graph.ops[-1])
    return found


def _unmatched(op: ScheduledOp) -> EmitError:
    return EmitError(
        f"cannot emit the plan: Vela has no kernel for op {op.id}",
        f"{op.kind.value} {op.name!r}",
        "Vela lowers this model in another way; report it",
    )


def _rows(template: Template) -> list[tuple[TemplateKernel, int]]:
    """Each kernel with the id of Vela's op: the first row of the queue at or behind it.

    An op of several kernels has one row, at its last kernel.
    """
    streams: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for queued in read_queue(template.result.database):
        streams[queued.stream_id].append((queued.offset_bytes, queued.scheduled_id))
    if len(streams) != len(template.partitions):
        raise EmitError(
            "cannot emit the plan: Vela's database does not describe all NPU operators",
            f"{len(streams)} streams of {len(template.partitions)}",
            "report the model",
        )
    found = []
    for kernels, rows in zip(template.by_partition, streams.values(), strict=True):
        rows.sort()
        offsets = [offset for offset, _ in rows]
        for kernel in kernels:
            at = bisect_left(offsets, kernel.op.offset_bytes)
            found.append((kernel, rows[min(at, len(rows) - 1)][1]))
    return found
