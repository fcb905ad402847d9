"""Independent check of a plan's op order: derived from who touches what, not from ``orders``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import NOT_STORED, Access, Placement, ScheduledOp


def order_faults(graph: OpGraph, order: Sequence[int]) -> list[str]:
    """Return why the ops of ``graph`` may not run in ``order``; [] if they may, or if it is empty.

    Two ops keep the order of the graph if one writes what the other reads, or both write a common
    element; an op on the CPU keeps its place; an op that continues in the accumulators of another
    follows it.
    """
    if not order:
        return []
    if sorted(order) != list(range(len(graph.ops))):
        return [f"the order is no permutation of {len(graph.ops)} ops"]
    place = {op: k for k, op in enumerate(order)}
    faults = []
    for op in graph.ops:
        if op.placement is Placement.CPU and place[op.id] != op.id:
            faults.append(f"op {op.id} on the CPU moved to place {place[op.id]}")
        if op.keep_accumulators and place[op.id] != place[op.id - 1] + 1:
            faults.append(f"op {op.id} does not follow the op whose accumulators it keeps")
    for first, second in _conflicts(graph):
        if place[first.id] > place[second.id]:
            faults.append(f"op {second.id} runs before op {first.id}, which touches the same map")
    return faults


def _conflicts(graph: OpGraph) -> Iterator[tuple[ScheduledOp, ScheduledOp]]:
    """Pairs (earlier, later) of ops that touch common elements, at least one writing."""
    names = {
        number: fm.source or fm.name if fm.is_persistent else number
        for number, fm in graph.feature_maps.items()
    }
    touched: dict[object, list[tuple[ScheduledOp, Access, bool]]] = {}
    for op in graph.ops:
        for accesses, writes in ((op.reads, False), (op.writes, True)):
            for access in accesses:
                if access.tensor == NOT_STORED:
                    continue
                name = names.get(access.tensor, access.tensor)
                touched.setdefault(name, []).append((op, access, writes))
    for users in touched.values():
        for one, two in product([user for user in users if user[2]], users):
            if one[0].id != two[0].id and (not two[2] or _overlap(one, two)):
                yield (one[0], two[0]) if one[0].id < two[0].id else (two[0], one[0])


def _overlap(one: tuple[ScheduledOp, Access, bool], two: tuple[ScheduledOp, Access, bool]) -> bool:
    """True unless two writes lie apart on some axis, in the same view, each in one piece."""
    (op, first, _), (other, second, _) = one, two
    if op.count > 1 or other.count > 1 or first.view != second.view:
        return True
    if max(first.step_h, first.step_w, second.step_h, second.step_w) > 1:
        return True
    spans = zip(first.offset, first.shape, second.offset, second.shape, strict=True)
    return all(a < b + n and b < a + m for a, m, b, n in spans)
