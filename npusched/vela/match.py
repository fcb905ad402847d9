"""Which rows of Vela's database belong to which ops of our graph."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import ScheduledOp, SourceRef
from npusched.vela.records import VelaOp

INPUT_COPY = "input_buffer_"
"""Name prefix of the copies that Vela inserts to stage a graph input (VELA_SPEC_2 §5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """An op that only one side has. ``id`` is ours or the database's, ``kind`` the kernel's."""

    id: int
    source_ref: SourceRef | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """``rows``: the database's rows of each of our ops (as many as it has pieces), in order.

    ``copies``: input copies that Vela inserted; our graph has no op for them. ``in_order``: both
    sides run the matched ops in the same order.
    """

    rows: Mapping[int, tuple[VelaOp, ...]]
    copies: tuple[VelaOp, ...]
    only_ours: tuple[Stray, ...]
    only_theirs: tuple[Stray, ...]
    in_order: bool

    @property
    def is_complete(self) -> bool:
        """True if every op has its counterpart and the order is the same."""
        return self.in_order and not self.only_ours and not self.only_theirs


def match_ops(graph: OpGraph, ops: Sequence[VelaOp]) -> Matching:
    """Match by source op, kernel kind and order.

    First both lists are walked side by side, which also matches ops that Vela files under no source
    op (LOWERING §10). What remains is matched per source op and kind, first to first.
    """
    copies = tuple(op for op in ops if op.name.startswith(INPUT_COPY))
    theirs = [op for op in ops if not op.name.startswith(INPUT_COPY)]
    rows, used = _side_by_side(graph, theirs)
    walked = len(rows)
    rest = theirs[used:]
    _by_source(graph.ops[walked:], rest, rows)
    taken = {row.id for found in rows.values() for row in found}
    firsts = [rows[op.id][0].index for op in graph.ops if op.id in rows]
    covered = {op.source_ref[0] for op in theirs if op.source_ref is not None}
    return Matching(
        rows=rows,
        copies=copies,
        only_ours=tuple(_our_stray(graph, op, covered) for op in graph.ops if op.id not in rows),
        only_theirs=tuple(_their_stray(graph, op) for op in theirs if op.id not in taken),
        in_order=firsts == sorted(firsts),
    )


def _side_by_side(
    graph: OpGraph, theirs: Sequence[VelaOp]
) -> tuple[dict[int, tuple[VelaOp, ...]], int]:
    """Match the longest equal beginning of both lists; return it and how many rows it takes."""
    rows: dict[int, tuple[VelaOp, ...]] = {}
    position = 0
    for op in graph.ops:
        part = tuple(theirs[position : position + op.count])
        if len(part) < op.count or not all(_alike(op, row) for row in part):
            break
        rows[op.id] = part
        position += op.count
    return rows, position


def _by_source(
    ours: Sequence[ScheduledOp], theirs: Sequence[VelaOp], rows: dict[int, tuple[VelaOp, ...]]
) -> None:
    waiting: dict[tuple[SourceRef | None, str], deque[VelaOp]] = defaultdict(deque)
    for row in theirs:
        waiting[row.source_ref, _kind(row)].append(row)
    for op in ours:
        ref = op.source_ops[0] if op.source_ops else None
        queue = waiting[ref, op.kind.value]
        if len(queue) >= op.count:
            rows[op.id] = tuple(queue.popleft() for _ in range(op.count))


def _alike(op: ScheduledOp, row: VelaOp) -> bool:
    ref = op.source_ops[0] if op.source_ops else None
    return _kind(row) == op.kind.value and row.source_ref in (ref, None)


def _kind(row: VelaOp) -> str:
    return "Cpu" if row.is_cpu else row.operator


def _our_stray(graph: OpGraph, op: ScheduledOp, covered: set[int]) -> Stray:
    ref = op.source_ops[0] if op.source_ops else None
    reason = f"Vela runs no {op.kind.value} for this op"
    if graph.subgraph not in covered:
        kept = ", ".join(str(index) for index in sorted(covered)) or "none"
        reason = (
            "Vela's database keeps the rows of one subgraph only "
            f"(here: {kept}, not {graph.subgraph})"
        )
    return Stray(id=op.id, source_ref=ref, kind=op.kind.value, reason=reason)


def _their_stray(graph: OpGraph, row: VelaOp) -> Stray:
    reason = f"our graph has no {row.operator} for this op"
    if row.source_ref is None:
        reason = "Vela made it up: it belongs to no op of the file"
    elif row.source_ref[0] != graph.subgraph:
        reason = f"it is an op of subgraph {row.source_ref[0]}"
    return Stray(id=row.id, source_ref=row.source_ref, kind=_kind(row), reason=reason)
