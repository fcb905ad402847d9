"""The order in which a segment issues its stripes (PLANNER §1 "run")."""

from __future__ import annotations

from collections.abc import Container, Iterator

from npusched.graph.opgraph import OpGraph
from npusched.schedule.replay import rows_read
from npusched.schedule.rows import Policy
from npusched.schedule.types import Segment


def stripes_of(
    graph: OpGraph, segment: Segment, rolling: Container[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield (op, first row, end row) of every stripe of a segment, in order.

    Before an op makes a stripe, its inputs are made as far as the stripe needs them. Results that
    are not ``rolling`` (feature map ids) are made to the end, even the rows that nobody inside
    asks for.
    """
    order = _Order(graph, segment)
    last = segment.ops[-1]
    yield from order.make(last, graph.ops[last].ofm.shape[1])
    for v in segment.ops[:-1]:
        if graph.ops[v].final_ofm.tensor not in rolling:
            yield from order.make(v, graph.ops[v].ofm.shape[1])


class _Order:
    def __init__(self, graph: OpGraph, segment: Segment) -> None:
        self.graph, self.segment = graph, segment
        self.rows = {run.op: max(run.stripe_rows, 1) for run in segment.runs}
        self.done = dict.fromkeys(segment.ops, 0)
        self.makers = {graph.ops[v].final_ofm.tensor: v for v in segment.ops}

    def make(self, v: int, upto: int) -> Iterator[tuple[int, int, int]]:
        op = self.graph.ops[v]
        total = op.ofm.shape[1]
        while self.done[v] < upto:
            start = self.done[v]
            end = min(start + self.rows[v], total)
            if self.segment.policy is Policy.DEMAND:
                end = min(end, upto)
            for position, access in enumerate(op.ifms):
                maker = self.makers.get(access.tensor, v)
                if maker != v:
                    yield from self.make(maker, rows_read(op, position, start, end)[1])
            yield v, start, end
            self.done[v] = end
