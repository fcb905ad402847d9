"""Part of ``check_plan``: results that are written over rows of an input that have been used.

The segment is run again, op by op and stripe by stripe, with byte ranges instead of values: a row
of the input that is read after (or while) the result is written over it is a fault. Written apart
from the planner's formula for the shift.
"""

from __future__ import annotations

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Access, FeatureMap
from npusched.schedule.replay import rows_read
from npusched.schedule.rows import Policy
from npusched.schedule.types import Buffer, Segment


def overlap_faults(
    graph: OpGraph, segment: Segment, new: Buffer, old: Buffer, new_at: int, old_at: int
) -> list[str]:
    """What is wrong with result ``new`` over ``old``, a map that is read for the last time.

    ``new_at``, ``old_at``: their addresses in bytes.
    """
    source, result = graph.feature_maps[old.tensor], graph.feature_maps[new.tensor]
    faults = []
    if new_at != old_at - new.shift_bytes:
        faults.append(f"{new.name!r} is not {new.shift_bytes} bytes below {old.name!r}")
    if source.is_graph_output or source.is_persistent:
        faults.append(f"{new.name!r} is written over {old.name!r}, which must be kept")
    if graph.writers[result.id] != (segment.ops[-1],):
        faults.append(f"{new.name!r} is not made by the last op of its segment alone")
    touched = [
        (access, fm)
        for v in segment.ops
        for access in (*graph.ops[v].ifms, graph.ops[v].final_ofm)
        for fm in (source, result)
        if access.tensor == fm.id
    ]
    if not all(_in_whole_rows(access, fm) for access, fm in touched):
        faults.append(f"{new.name!r} or {old.name!r} is not touched in whole rows")
    return faults or _Rerun(graph, segment, source, result, old_at, new_at).faults()


def _in_whole_rows(access: Access, fm: FeatureMap) -> bool:
    steps = (access.step_h, access.step_w) == (1, 1)
    return steps and access.shape == access.view == fm.shape and fm.shape[0] == 1


class _Rerun:
    def __init__(
        self,
        graph: OpGraph,
        segment: Segment,
        source: FeatureMap,
        result: FeatureMap,
        source_at: int,
        result_at: int,
    ) -> None:
        self.graph, self.segment = graph, segment
        self.source, self.result = source, result
        self.source_at, self.result_at = source_at, result_at
        self.done = dict.fromkeys(segment.ops, 0)
        self.makers = {graph.ops[v].final_ofm.tensor: v for v in segment.ops}
        self.height = {run.op: max(run.stripe_rows, 1) for run in segment.runs}
        self.written_upto = result_at
        self.found: list[str] = []

    def faults(self) -> list[str]:
        for v in (self.segment.ops[-1], *self.segment.ops[:-1]):
            self._make(v, self.graph.ops[v].ofm.shape[1])
        return self.found[:3]

    def _make(self, v: int, upto: int) -> None:
        op = self.graph.ops[v]
        while self.done[v] < upto:
            start = self.done[v]
            end = min(start + self.height[v], op.ofm.shape[1])
            if self.segment.policy is Policy.DEMAND:
                end = min(end, upto)
            needs = [rows_read(op, k, start, end) for k in range(len(op.ifms))]
            for access, (_, high) in zip(op.ifms, needs, strict=True):
                maker = self.makers.get(access.tensor, v)
                if maker != v:
                    self._make(maker, high)
            if op.final_ofm.tensor == self.result.id:
                self.written_upto = self.result_at + end * self.result.row_bytes
            for access, (low, high) in zip(op.ifms, needs, strict=True):
                if access.tensor == self.source.id:
                    self._read(v, low, high)
            self.done[v] = end

    def _read(self, v: int, low: int, high: int) -> None:
        first = self.source_at + low * self.source.row_bytes
        last = self.source_at + high * self.source.row_bytes
        if first < self.written_upto and self.result_at < last:
            self.found.append(
                f"op {v} reads row {low} of {self.source.name!r}, over which "
                f"{self.result.name!r} is written"
            )
