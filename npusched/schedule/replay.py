"""Row-level replay of a segment: every buffer slot remembers whose row it holds.

Written apart from the planner's row arithmetic: it executes the segment's definition (make the
inputs a stripe needs, then the stripe), stores ``(op, row)`` in slot ``row mod R``, and checks on
every read that the row wanted is there. A missing, stale or too early overwritten row is a fault,
and so is an access that would need more than two tiles (more rows than the buffer has).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from npusched.graph.chains import primary_ifm
from npusched.graph.types import ScheduledOp
from npusched.schedule.rows import Policy

Slots = dict[int, tuple[int, int]]


class ReplayedOp(msgspec.Struct, frozen=True, kw_only=True):
    """One op of the segment. ``rows``: rows of its buffer, None = kept whole.

    ``height``: rows of a full stripe. ``over``: op (index in the segment) whose buffer this one
    takes over, row by row, None = its own. ``outlives``: all rows must exist at the end.
    """

    op: ScheduledOp
    height: int
    rows: int | None
    over: int | None = None
    outlives: bool = False


def replay_segment(ops: Sequence[ReplayedOp], policy: Policy) -> list[str]:
    """Execute the segment on row numbers; return what goes wrong, at most a few sentences."""
    execution = _Execution(ops, policy)
    execution.make(len(ops) - 1, execution.total[-1])
    for k, item in enumerate(ops):
        if item.outlives:
            execution.make(k, execution.total[k])
    return execution.faults[:3]


class _Execution:
    def __init__(self, ops: Sequence[ReplayedOp], policy: Policy) -> None:
        self.ops = ops
        self.demand = policy is Policy.DEMAND
        self.total = [item.op.ofm.shape[1] for item in ops]
        self.done = [0] * len(ops)
        self.faults: list[str] = []
        self.makers: Mapping[int, int] = {item.op.final_ofm.tensor: k for k, item in enumerate(ops)}
        self.slots: list[Slots] = []
        for item in ops:
            self.slots.append({} if item.over is None else self.slots[item.over])

    def make(self, k: int, upto: int) -> None:
        """Let op k produce rows until ``upto`` of them exist."""
        item = self.ops[k]
        while self.done[k] < upto:
            start = self.done[k]
            end = min(start + item.height, self.total[k])
            if self.demand:
                end = min(end, upto)
            reads = []
            for position, access in enumerate(item.op.ifms):
                maker = self.makers.get(access.tensor)
                if maker is not None and maker != k:
                    low, high = rows_read(item.op, position, start, end)
                    self.make(maker, high)
                    reads.append((maker, low, high))
            for maker, low, high in reads:
                self._read(maker, low, high)
            self._write(k, start, end)
            self.done[k] = end

    def _write(self, k: int, start: int, end: int) -> None:
        rows = self.ops[k].rows
        if rows is not None and end - start > rows:
            self.faults.append(f"op {self.ops[k].op.id} writes {end - start} rows into {rows}")
        for row in range(start, end):
            self.slots[k][row if rows is None else row % rows] = (k, row)

    def _read(self, k: int, low: int, high: int) -> None:
        rows, number = self.ops[k].rows, self.ops[k].op.id
        if rows is not None and high - low > rows:
            self.faults.append(f"{high - low} rows of op {number} read through {rows}")
        for row in range(low, high):
            held = self.slots[k].get(row if rows is None else row % rows)
            if held != (k, row):
                self.faults.append(f"row {row} of op {number} is gone: its slot holds {held}")


def rows_read(op: ScheduledOp, position: int, start: int, end: int) -> tuple[int, int]:
    """Rows of input ``position`` that rows [start, end) of ``op`` need."""
    available = op.ifms[position].shape[1]
    if position != primary_ifm(op):
        same = available == op.ofm.shape[1]
        return (start, end) if same else (0, available)
    kernel = op.kernel
    single = available == 1 and kernel.h == 1 and kernel.stride_h == 1
    if single and op.ofm.shape[1] > 1:
        return 0, 1
    low = start * kernel.stride_h - kernel.pad_top
    high = (end - 1) * kernel.stride_h - kernel.pad_top + (kernel.h - 1) * kernel.dilation_h + 1
    low, high = max(low, 0), min(high, available)
    return min(low, max(high - 1, 0)), max(high, 1)
