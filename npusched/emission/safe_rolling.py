"""Rolling buffers as large as Vela makes them.

A plan keeps the rows that are alive, no more: a row is overwritten as soon as the last kernel that
reads it has been issued. Vela keeps more, so such buffers exercise the machine harder than any file
of Vela's (EMIT.md §10). With Vela's rule there is always room for what is being made beside what is
being read.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.schedule.issue import stripes_of
from npusched.schedule.replay import rows_read
from npusched.schedule.types import Buffer, BufferKind, Plan


def with_safe_rolling(graph: OpGraph, plan: Plan) -> Plan:
    """Return the plan with rolling buffers of rup(made + read, read) rows, at most all rows.

    ``made`` and ``read``: most rows that one stripe of the producer makes, and one of a consumer
    reads (VELA_SPEC "Rolling buffer"). Sizes and addresses of the plan no longer hold.
    ``graph``: the one that was planned, in its own order.
    """
    ordered = reordered(graph, plan.order)
    rows = {
        key: count
        for step in range(len(plan.segments))
        for key, count in _segment_rows(ordered, plan, step).items()
    }
    buffers = tuple(
        _enlarged(buffer, rows[buffer.tensor, buffer.first_step])
        if (buffer.tensor, buffer.first_step) in rows and buffer.kind is BufferKind.ROLLING
        else buffer
        for buffer in plan.buffers
    )
    return replace(plan, buffers=buffers)


def _enlarged(buffer: Buffer, rows: int) -> Buffer:
    if rows <= buffer.rows:
        return buffer
    return replace(buffer, rows=rows, size_bytes=buffer.size_bytes // buffer.rows * rows)


def _segment_rows(graph: OpGraph, plan: Plan, step: int) -> dict[tuple[int, int], int]:
    """Rows of each rolling buffer that begins with a segment, by (feature map, segment)."""
    rolling = {
        buffer.tensor
        for buffer in plan.buffers
        if buffer.kind is BufferKind.ROLLING and buffer.first_step == step
    }
    if not rolling:
        return {}
    made: dict[int, int] = defaultdict(int)
    read: dict[int, int] = defaultdict(int)
    total: dict[int, int] = {}
    for v, start, end in stripes_of(graph, plan.segments[step], rolling):
        op = graph.ops[v]
        tensor = op.final_ofm.tensor
        made[tensor] = max(made[tensor], end - start)
        total[tensor] = op.ofm.shape[1]
        for position, access in enumerate(op.ifms):
            low, high = rows_read(op, position, start, end)
            read[access.tensor] = max(read[access.tensor], high - low)
    found = {}
    for tensor in rolling:
        unit = max(read[tensor], 1)
        found[tensor, step] = min(-(-(made[tensor] + unit) // unit) * unit, total[tensor])
    return found
