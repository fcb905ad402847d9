"""Which ops may run together, stripe by stripe, and which rows each of them makes when.

A segment is a run of consecutive ops with one sink, its last op. All of them can be striped along
the height, every other op has a reader inside, and whatever is passed on inside has plain rows.
A result that is not needed after the segment lives in a rolling buffer (bricks only); one that is
needed later is kept whole. Residual joins and forks may lie inside (PLANNER §1).
"""

from __future__ import annotations

from collections.abc import Mapping

from npusched.graph.chains import StopKind, primary_ifm, stripe_stop
from npusched.graph.kinds import is_elementwise
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Access, FeatureMap, KernelKind, Layout, Placement, ScheduledOp
from npusched.hardware.target import Family
from npusched.memory import align_up
from npusched.schedule.lifetimes import Lifetime
from npusched.schedule.rows import (
    Policy,
    Run,
    Window,
    last_run,
    producer_run,
    segment_runs,
)
from npusched.schedule.stripes import window_of

STRIPED_ALONE = frozenset({StopKind.ACTIVATION, StopKind.REQUANTISATION})
"""Vela never stripes stand-alone activations and requantisations; the hardware does not mind."""


class Fusing:
    """The segments of one graph: legality and rows, remembered.

    ``cap``: most ops in a segment. ``linear``: only chains, whose every result has one reader.
    """

    def __init__(
        self, graph: OpGraph, lives: Mapping[int, Lifetime], *, cap: int, linear: bool = False
    ) -> None:
        self.graph, self.lives = graph, lives
        self.cap, self.linear = cap, linear
        self.windows = [window_of(op) for op in graph.ops]
        self._striped = [_can_be_striped(graph, op) for op in graph.ops]
        self._edges = [self._inputs(v) for v in range(len(graph.ops))]
        self._first: dict[int, int] = {}
        self._runs: dict[tuple[int, int, Policy], dict[int, Run]] = {}

    def first(self, j: int) -> int:
        """Smallest i for which [i..j] is a segment; so is every [k..j] between (j: alone)."""
        known = self._first.get(j)
        if known is None:
            known = j
            if self._striped[j]:
                while known > 0 and j - known + 2 <= self.cap and self._joins(known - 1, j):
                    known -= 1
            self._first[j] = known
        return known

    def internal(self, tensor: int, i: int, j: int) -> bool:
        """True if the tensor is made in [i..j] and not needed after it."""
        life = self.lives[tensor]
        return i <= life.first and life.last <= j

    def run(self, v: int, j: int, stripe_rows: int, policy: Policy) -> Run:
        """Stripes of op v in segments that end with op j, in stripes of so many rows of op j.

        What comes before op v does not change them.
        """
        key = (j, stripe_rows, policy)
        runs = self._runs.get(key)
        if runs is None:
            runs = self._runs[key] = self._all_runs(j, stripe_rows, policy)
        return runs[v]

    def overwritable(self, i: int, j: int) -> tuple[int, ...]:
        """Maps made before [i..j] whose place op j's result may take, row by row.

        Op j is element-wise; the map has the same shape and layout as the result, is read whole,
        and nobody reads it after op j. Whether other ops of the segment are far enough ahead
        depends on the stripes: see ``may_overwrite``.
        """
        op = self.graph.ops[j]
        if not is_elementwise(op.kind) or op.placement is Placement.CPU or op.count > 1:
            return ()
        written = op.final_ofm
        result = self.graph.feature_maps[written.tensor]
        if not _plain(written) or self.graph.writers[result.id] != (j,):
            return ()
        found = []
        for access in op.ifms:
            fm = self.graph.feature_maps[access.tensor]
            if fm.is_constant or fm.is_graph_output or fm.is_persistent:
                continue
            life = self.lives[fm.id]
            alike = (fm.shape, fm.layout, fm.dtype.bits) == (
                result.shape,
                result.layout,
                result.dtype.bits,
            )
            plain = _plain(access) and access.view == written.view
            dying = life.first < i and life.last == j
            if alike and plain and dying and fm.id not in found:
                found.append(fm.id)
        return tuple(found)

    def may_overwrite(self, tensor: int, i: int, j: int, stripe_rows: int, policy: Policy) -> bool:
        """True if no other op of the segment still needs a row when op j overwrites it."""
        others = [v for v in self.graph.readers[tensor] if i <= v < j]
        if not others:
            return True
        progress = self._progress(i, j, stripe_rows, policy)
        for v in others:
            if any(access.is_slice for access in self.graph.ops[v].ifms if access.tensor == tensor):
                return False
            window = self._window(
                self.graph.ops[v],
                next(k for k, a in enumerate(self.graph.ops[v].ifms) if a.tensor == tensor),
            )
            total = self.windows[v].ofm_rows
            for end, done in progress:
                if done[v] < total and window.needed(done[v], done[v] + 1)[0] < end:
                    return False
        return True

    def overlaps(self, i: int, j: int) -> tuple[int, ...]:
        """Maps made before [i..j] whose dying rows op j's result may be written over.

        Nobody reads them after the segment, and inside only in whole rows. See ``shift_bytes``.
        Graph inputs count: their memory is free after the last read, too.
        """
        op = self.graph.ops[j]
        if not self._striped[j] or op.count > 1:
            return ()
        written = op.final_ofm
        result = self.graph.feature_maps[written.tensor]
        if not _whole_rows(written, result) or self.graph.writers[result.id] != (j,):
            return ()
        found = []
        for tensor in {a.tensor for v in range(i, j + 1) for a in self.graph.ops[v].ifms}:
            fm, life = self.graph.feature_maps[tensor], self.lives.get(tensor)
            kept = fm.is_constant or fm.is_graph_output or fm.is_persistent
            if kept or life is None or not (life.first < i <= life.last <= j):
                continue
            reads = [
                a for v in range(i, j + 1) for a in self.graph.ops[v].ifms if a.tensor == tensor
            ]
            if all(_whole_rows(access, fm) for access in reads):
                found.append(tensor)
        return tuple(sorted(found))

    def shift_bytes(self, tensor: int, i: int, j: int, stripe_rows: int, policy: Policy) -> int:
        """Bytes by which op j's result must start below the map to spare rows still needed.

        While op j writes a stripe, the rows that it reads for it are needed, too. A multiple of 16,
        not 0.
        """
        source = self.graph.feature_maps[tensor].row_bytes
        result = self.graph.feature_maps[self.graph.ops[j].final_ofm.tensor].row_bytes
        readers = [
            (v, self._window(self.graph.ops[v], k))
            for v in range(i, j + 1)
            for k, access in enumerate(self.graph.ops[v].ifms)
            if access.tensor == tensor
        ]
        shift = 0
        for end, done in self._progress(i, j, stripe_rows, policy):
            for v, window in readers:
                if done[v] < self.windows[v].ofm_rows:
                    low = window.needed(done[v], done[v] + 1)[0]
                    shift = max(shift, end * result - low * source)
        return align_up(max(shift, 1))

    def _progress(
        self, i: int, j: int, stripe_rows: int, policy: Policy
    ) -> list[tuple[int, dict[int, int]]]:
        """For each stripe of op j: its end, and how many rows every op has made by then."""
        ends = {v: list(self.run(v, j, stripe_rows, policy).ends) for v in range(i, j + 1)}
        found = []
        for number, end in enumerate(ends[j]):
            needed = {j: end}
            for v in range(j, i - 1, -1):
                for maker, window in self.edges(v, i):
                    if needed.get(v, 0):
                        upto = window.needed(max(needed[v] - 1, 0), needed[v])[1]
                        needed[maker] = max(needed.get(maker, 0), upto)
            done = {
                v: next((e for e in ends[v] if e >= rows), ends[v][-1])
                for v, rows in needed.items()
            }
            done[j] = ends[j][number - 1] if number else 0
            found.append((end, done))
        return found

    def edges(self, v: int, i: int) -> list[tuple[int, Window]]:
        """(op of the segment that starts at i, window) for each input of op v made there."""
        return [(maker, window) for maker, window in self._edges[v] if maker >= i]

    def _all_runs(self, j: int, stripe_rows: int, policy: Policy) -> dict[int, Run]:
        first = self.first(j)
        ops = range(first, j + 1)
        if all(self._reads_only_before(v, first) for v in ops) and not any(
            self._outlives(v, j) for v in ops[:-1]
        ):
            runs = {j: last_run(self.windows[j].ofm_rows, stripe_rows)}
            for v in range(j - 1, first - 1, -1):
                ((_, window),) = self.edges(v + 1, first)
                runs[v] = producer_run(runs[v + 1], window, policy)
            return runs
        general = segment_runs(
            [self.windows[v].ofm_rows for v in ops],
            [[(maker - first, window) for maker, window in self.edges(v, first)] for v in ops],
            stripe_rows,
            policy,
            whole=[v - first for v in ops[:-1] if self._outlives(v, j)],
        )
        return dict(zip(ops, general, strict=True))

    def _reads_only_before(self, v: int, first: int) -> bool:
        makers = [maker for maker, _ in self.edges(v, first)]
        return makers == ([] if v == first else [v - 1])

    def _outlives(self, v: int, j: int) -> bool:
        return self.lives[self.graph.ops[v].final_ofm.tensor].last > j

    def _joins(self, v: int, j: int) -> bool:
        """True if op v may stand in front of a segment that ends with op j (v + 1 is in it)."""
        if not self._striped[v]:
            return False
        op = self.graph.ops[v]
        tensor = self.graph.feature_maps[op.final_ofm.tensor]
        if self.graph.writers[tensor.id] != (v,):
            return False
        readers = [r for r in self.graph.readers[tensor.id] if r <= j]
        if not readers or (self.linear and (readers != [v + 1] or self._outlives(v, j))):
            return False
        if any(v not in {maker for maker, _ in self._edges[r]} for r in readers):
            return False
        if self._outlives(v, j):
            return True
        edge = tensor.is_graph_output or tensor.is_graph_input or tensor.is_persistent
        return tensor.layout is Layout.NHCWB16 and not edge

    def _inputs(self, v: int) -> list[tuple[int, Window]]:
        """Ops whose whole result op v reads in plain rows, with the window on it."""
        op = self.graph.ops[v]
        if not self._striped[v]:
            return []
        found = []
        for position, access in enumerate(op.ifms):
            makers = self.graph.writers.get(access.tensor, ())
            if len(makers) == 1 and makers[0] < v:
                written = self.graph.ops[makers[0]].final_ofm
                if _plain(written) and _plain(access) and written.view == access.view:
                    found.append((makers[0], self._window(op, position)))
        return found

    def _window(self, op: ScheduledOp, position: int) -> Window:
        if position == primary_ifm(op):
            return self.windows[op.id]
        rows, ofm_rows = op.ifms[position].shape[1], op.ofm.shape[1]
        return Window(ofm_rows=ofm_rows, ifm_rows=rows, whole=rows != ofm_rows)


def _whole_rows(access: Access, fm: FeatureMap) -> bool:
    """True if the access sees the whole map as it is stored, one image."""
    return _plain(access) and access.view == fm.shape and fm.shape[0] == 1


def _plain(access: Access) -> bool:
    return not access.is_slice and access.step_h == 1 and access.step_w == 1


def _can_be_striped(graph: OpGraph, op: ScheduledOp) -> bool:
    """True if stripes of the op are runs of whole rows, one after the other."""
    if any(access.step_h > 1 for access in (*op.reads, *op.writes)):
        return False
    if _loses_padding(graph, op):
        return False
    stop = stripe_stop(graph, op)
    if stop in STRIPED_ALONE:
        return op.count == 1 and op.ofm.shape[1] > 1 and op.transpose is None
    return stop is None


def _loses_padding(graph: OpGraph, op: ScheduledOp) -> bool:
    """True for average pools of a U55 or U65 that are padded above or below only.

    Without any padding the NPU divides in another way (SIM.md §3 "Avg pool"), and so it would in
    stripes from the middle.
    """
    kernel = op.kernel
    return (
        op.kind is KernelKind.AVG_POOL
        and graph.family is not Family.U85
        and bool(kernel.pad_top or kernel.pad_bottom)
        and not (kernel.pad_left or kernel.pad_right)
    )
