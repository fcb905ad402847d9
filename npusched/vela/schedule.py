"""Vela's own schedule as a plan over our ops: its cascades, stripes, buffers and addresses.

``from_vela`` reads top to bottom: match the ops, cut the order into segments, find every buffer in
the ``tensors`` table, cost each op where its maps lie. What does not fit our types is named in an
``Unmatched``, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from npusched.cost.adapt import cost_op
from npusched.cost.types import Basis, CostOp, WeightBytes
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement
from npusched.hardware.target import MemoryKind, Target
from npusched.ir import Model
from npusched.memory import live_bytes
from npusched.schedule.check_sharing import live_ranges
from npusched.schedule.kernels import KernelCost, Kernels, Places, Sizes
from npusched.schedule.objective import Objective
from npusched.schedule.rows import Policy
from npusched.schedule.stripes import touched_maps, window_of
from npusched.schedule.types import (
    Amounts,
    Bound,
    Buffering,
    Copy,
    OpRun,
    Plan,
    Proof,
    Segment,
    WeightMode,
    add_amounts,
)
from npusched.vela.encoded import encoded_weights
from npusched.vela.match import Matching, Stray, match_ops
from npusched.vela.placing import Cut, Located, locate
from npusched.vela.reader import read_ops, read_tensors
from npusched.vela.records import VelaOp, VelaTensor
from npusched.vela.recost import SliceSizes, cascade_stripes, lent_cycles, recost, slice_sizes
from npusched.vela.result import VelaResult
from npusched.vela.rows import VelaRow, read_rows, row_slack


@dataclass(frozen=True, kw_only=True)
class VelaSchedule:
    """Everything that one compilation says about its schedule, read and matched with our ops.

    ``rows`` are the cost facts of ``ops`` by id, in execution order. ``constant_bytes``: encoded
    weights, tables and other constants, as stored.
    """

    target: Target
    graph: OpGraph
    ops: tuple[VelaOp, ...]
    rows: Mapping[int, VelaRow]
    tensors: tuple[VelaTensor, ...]
    matching: Matching
    slices: Mapping[int, SliceSizes]
    constant_bytes: int

    @property
    def in_order(self) -> list[VelaRow]:
        """The rows in execution order."""
        return list(self.rows.values())

    def previous(self) -> dict[int, VelaRow]:
        """The row before each row, by id."""
        rows = self.in_order
        return {row.id: before for before, row in pairwise(rows)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """Why a schedule is no plan of ours: ops that one side lacks, and what else does not fit."""

    ops: tuple[Stray, ...]
    reasons: tuple[str, ...]


def read_schedule(result: VelaResult, model: Model, graph: OpGraph, target: Target) -> VelaSchedule:
    """Read and match a compilation of ``model`` for ``target``. Raises VelaError, ModelError.

    Needs the debug database and the compiled file.
    """
    counts = [len(each.ops) for each in model.subgraphs]
    ops = read_ops(result.database, counts)
    rows = {row.id: row for row in read_rows(result.database, target)}
    matching = match_ops(graph, ops)
    sliced = any(row.staged and row.slices > 1 for row in rows.values())
    encoded = encoded_weights(result, model) if sliced and result.compiled else ()
    return VelaSchedule(
        target=target,
        graph=graph,
        ops=ops,
        rows=rows,
        tensors=read_tensors(result.database),
        matching=matching,
        slices=slice_sizes(target, graph, matching, rows, encoded),
        constant_bytes=result.report.read_only_peak_bytes,
    )


def from_vela(schedule: VelaSchedule, objective: Objective | None = None) -> Plan | Unmatched:
    """Return Vela's schedule as a plan, costed like our plans, or what does not match."""
    matching = schedule.matching
    if not matching.is_complete:
        strays = (*matching.only_ours, *matching.only_theirs)
        order = [] if matching.in_order else ["Vela runs the ops in another order"]
        return Unmatched(ops=strays, reasons=tuple(order))
    cuts = _cut(schedule)
    located = locate(schedule.graph, schedule.target, matching, schedule.tensors, cuts)
    if located.missing:
        return Unmatched(ops=(), reasons=located.missing)
    return _Build(schedule, cuts, located, objective or Objective()).plan()


def _cut(schedule: VelaSchedule) -> list[Cut]:
    """Segments: ops of one cascade together, every other op alone; copies with their reader."""
    cuts: list[Cut] = []
    waiting = list(schedule.matching.copies)
    cascade = 0
    for op in schedule.graph.ops:
        rows = schedule.matching.rows[op.id]
        mine = schedule.rows[rows[0].id].cascade
        copies = []
        while waiting and waiting[0].index < rows[0].index:
            copies.append(waiting.pop(0))
        if mine and mine == cascade and not copies:
            cuts[-1] = Cut(ops=(*cuts[-1].ops, op.id), copies=cuts[-1].copies)
        else:
            cuts.append(Cut(ops=(op.id,), copies=tuple(copies)))
        cascade = mine
    return cuts


def _stripes(schedule: VelaSchedule, cut: Cut) -> list[tuple[int, Sizes]]:
    """(nominal rows, distinct stripes) of each op of a segment."""
    windows = [window_of(schedule.graph.ops[v]) for v in cut.ops]
    if len(cut.ops) == 1:
        rows = windows[0].ofm_rows
        return [(rows, ((0, rows, 1),))]
    heights = [_height(schedule, v) for v in cut.ops]
    return list(zip(heights, cascade_stripes(windows, heights), strict=True))


def _height(schedule: VelaSchedule, v: int) -> int:
    return schedule.rows[schedule.matching.rows[v][0].id].stripe_op.written.shape[1]


class _Build:
    """Assembles the plan of a schedule whose buffers have all been found."""

    def __init__(
        self, schedule: VelaSchedule, cuts: Sequence[Cut], located: Located, objective: Objective
    ) -> None:
        self.schedule, self.cuts, self.located = schedule, cuts, located
        self.graph, self.target = schedule.graph, schedule.target
        self.before = schedule.previous()
        self.lent: dict[int, int] = {}
        sizes = WeightBytes(exact=True)
        self.objective = objective
        self.kernels = Kernels(self.graph, self.target, lambda *_: sizes, objective)

    def plan(self) -> Plan:
        """The plan; its peak is Vela's own high-water mark."""
        target, located = self.target, self.located
        segments = [self._segment(index, cut) for index, cut in enumerate(self.cuts)]
        amounts = add_amounts([segment.amounts for segment in segments])
        memory = target.roles.cache
        shares = target.roles.const == target.roles.arena == memory
        constants = self.schedule.constant_bytes if shares else 0
        own = dict(located.allocations).get(memory)
        score = self._score(amounts)
        plan = Plan(
            segments=tuple(segments),
            homes=tuple(sorted(located.homes.items())),
            buffers=located.buffers,
            allocations=located.allocations,
            amounts=amounts,
            objective=score,
            bound=Bound(objective=score, gap=0.0, proof=Proof.FEASIBLE, scope="Vela's schedule"),
            budget_memory=memory,
            budget_bytes=None,
            sram_peak_bytes=constants + (own.peak_bytes if own else 0),
            sram_bound_bytes=constants + (own.bound_bytes if own else 0),
            constant_bytes=self.schedule.constant_bytes,
            notes=located.notes,
        )
        alive = live_bytes(live_ranges(plan.in_memory(memory)), 2 * len(segments))
        return replace(
            plan,
            segments=tuple(
                replace(segment, sram_bytes=max(alive[2 * index : 2 * index + 2]))
                for index, segment in enumerate(segments)
            ),
        )

    def _segment(self, index: int, cut: Cut) -> Segment:
        stripes = _stripes(self.schedule, cut)
        copies = tuple(self._copy(row, cut.ops[0]) for row in cut.copies)
        runs = [
            self._run(index, v, rows, sizes)
            for v, (rows, sizes) in zip(cut.ops, stripes, strict=True)
        ]
        last = self.graph.ops[cut.ops[-1]]
        height = stripes[-1][0]
        return Segment(
            ops=cut.ops,
            placement=last.placement,
            stripe_rows=height,
            stripes=max(1, -(-window_of(last).ofm_rows // max(height, 1))),
            policy=Policy.ALIGNED,
            runs=tuple(runs),
            amounts=add_amounts([*(c.amounts for c in copies), *(r.amounts for r in runs)]),
            sram_bytes=0,
            copies=copies,
        )

    def _run(self, index: int, v: int, rows: int, sizes: Sizes) -> OpRun:
        op = self.graph.ops[v]
        if op.placement is Placement.CPU:
            cost = self.kernels.run(v, rows, sizes, Places(()), WeightMode.STREAMED)
            return self._op_run(v, rows, 1, None, False, cost, "cpu")
        places = self._places(index, v)
        pieces = [self.schedule.rows[row.id] for row in self.schedule.matching.rows[v]]
        parts = [self._recost(self._cost_op(v, places, row), row, sizes) for row in pieces]
        cost = parts[0] if len(parts) == 1 else _sum(parts)
        bound_by = "mac" if cost.block is None else self.kernels.bound_by(v, places, cost)
        count = sum(number for _, _, number in sizes) * op.count
        staged = next((row for row in pieces if row.staged), pieces[0])
        return self._op_run(v, rows, count, staged, pieces[0].pre_buffered, cost, bound_by)

    def _recost(self, op: CostOp, row: VelaRow, sizes: Sizes) -> KernelCost:
        """Cost of a row after the one before it (which lends what Vela says if it is costed later).

        Rows are costed in the order of our ops.
        """
        before = self.before.get(row.id)
        slack = 0
        if before is not None:
            slack = self.lent.get(before.id, row_slack(self.target, before, basis=Basis.PHYSICAL))
        cost = recost(self.target, op, row, slack, sizes, self.schedule.slices.get(row.id))
        self.lent[row.id] = lent_cycles(self.target, row, cost)
        return cost

    def _op_run(
        self,
        v: int,
        rows: int,
        count: int,
        row: VelaRow | None,
        prefetched: bool,
        cost: KernelCost,
        bound_by: str,
    ) -> OpRun:
        op = self.graph.ops[v]
        mode: WeightMode | None = None
        buffering = None
        if row is not None and op.weights is not None:
            mode = WeightMode.RESIDENT if row.staged else WeightMode.STREAMED
            if row.staged and (row.slices > 1 or prefetched):
                buffering = Buffering(
                    borders=row.depth_slices,
                    buffers=self.located.weight_buffers.get(v, 1),
                    prefetched=prefetched,
                )
        block = None if cost.block is None else cost.block.ofm_block
        return OpRun(
            op=v,
            placement=op.placement,
            stripe_rows=rows,
            runs=count * (1 if row is None else max(row.slices if row.staged else 1, 1)),
            weight_mode=mode,
            weight_bytes=cost.weights.total,
            weights_exact=cost.weights.exact,
            block=None if block is None else (block.h, block.w, block.c),
            memory_cycles=tuple(sorted(cost.busy.items())),
            bound_by=bound_by,
            amounts=self.kernels.amounts(cost),
            buffering=buffering,
        )

    def _places(self, index: int, v: int) -> Places:
        """Memories of an op's maps: rolling buffers and copies in the cache."""
        found = []
        for tensor in touched_maps(self.graph.ops[v]):
            fm = self.graph.feature_maps[tensor]
            memory = self.target.roles.const if fm.is_constant else self.target.roles.arena
            found.append((tensor, self.located.memory_at(tensor, index) or memory))
        return Places(tuple(found))

    def _cost_op(self, v: int, places: Places, row: VelaRow) -> CostOp:
        return cost_op(
            self.graph.ops[v],
            self.graph.feature_maps,
            dict(places.of),
            const_memory=self.target.roles.const,
            sparse=row.op.sparse,
            fast_weights=row.op.fast_weights,
        )

    def _copy(self, op: VelaOp, reader: int) -> Copy:
        """An inserted copy is a kernel of its own: it reads the arena and writes the cache."""
        row = self.schedule.rows[op.id]
        cost = self._recost(row.op, row, ())
        amounts = self.kernels.amounts(cost)
        tensor = self.graph.ops[reader].ifms[0].tensor
        written = amounts.written_to(self.target.roles.cache)
        return Copy(
            tensor=tensor,
            source=self.target.roles.arena,
            destination=self.target.roles.cache,
            size_bytes=written,
            amounts=amounts,
        )

    def _score(self, amounts: Amounts) -> float:
        off_chip = (MemoryKind.DRAM, MemoryKind.OFF_CHIP_FLASH)
        return self.objective.score(
            cycles=amounts.npu_cycles
            + amounts.cpu_cycles * self.target.clock_hz / self.target.cpu.clock_hz,
            offchip_bytes=sum(
                amounts.moved(memory.name)
                for memory in self.target.memories
                if memory.kind in off_chip
            ),
            energy_nj=amounts.energy_nj[1],
        )


def _sum(parts: Sequence[KernelCost]) -> KernelCost:
    """All pieces of an op together; they use the same weights."""

    def total(maps: Sequence[Mapping[str, int]]) -> dict[str, int]:
        sums: dict[str, int] = {}
        for each in maps:
            for name, count in each.items():
                sums[name] = sums.get(name, 0) + count
        return sums

    return KernelCost(
        block=parts[0].block,
        weights=parts[0].weights,
        cycles=sum(part.cycles for part in parts),
        core_cycles=sum(part.core_cycles for part in parts),
        cpu_cycles=0,
        macs=sum(part.macs for part in parts),
        busy=total([part.busy for part in parts]),
        read=total([part.read for part in parts]),
        written=total([part.written for part in parts]),
        score=0.0,
    )
