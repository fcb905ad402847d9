"""Both sides' schedules, joined by source op: one row per op of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from npusched.cost.types import OpCost
from npusched.graph.opgraph import OpGraph, SourcePlacement
from npusched.graph.types import Placement, ScheduledOp, SourceRef
from npusched.schedule.kernels import KernelCost
from npusched.schedule.types import Plan, WeightMode
from npusched.vela.compiled import VelaPlacement
from npusched.vela.match import Stray
from npusched.vela.records import VelaOp
from npusched.vela.row_fields import memory_names
from npusched.vela.schedule import VelaSchedule

PlaceName: TypeAlias = Literal["npu", "cpu", "view", "folded"]

SHOWN_STRAYS = 200
"""Most one-sided kernels that are listed; the rest is counted."""


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one side does for a source op, all its kernels together.

    ``kernels``: scheduled ops; ``cycles``: sum of max(NPU, memories); ``npu_cycles``: the NPU
    alone; ``memory_cycles``, ``bytes_read``, ``bytes_written`` by memory name. ``weights``:
    streamed, resident, sliced (copied in depth slices), "" without weights; ``weight_bytes`` as
    encoded. ``cascades``: indices of the segments of several ops that its kernels are in.
    ``stripe_rows``: rows per stripe of its last kernel, ``stripes`` how many of those.
    """

    placement: PlaceName
    kernels: int
    cycles: int
    npu_cycles: int
    cpu_cycles: int
    memory_cycles: dict[str, int]
    bytes_read: dict[str, int]
    bytes_written: dict[str, int]
    weights: Literal["", "streamed", "resident", "sliced"]
    weight_bytes: int
    cascades: tuple[int, ...]
    stripe_rows: int
    stripes: int


class JoinedOp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source op on both sides; None where a side has no kernel for it, and ``reason`` why.

    ``vela`` has the figures that Vela reports, ``vela_compatible`` and ``vela_recosted`` our two
    costs of the same kernels (None without a schedule to cost).
    """

    subgraph: int
    index: int
    kind: str
    name: str
    npusched: Side | None
    vela: Side | None
    vela_compatible: Side | None
    vela_recosted: Side | None
    reason: str


class OneSided(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that one side has and the other lacks. ``source_op``: [subgraph, index] or null."""

    source_op: tuple[int, int] | None
    kind: str
    name: str
    cycles: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """All rows, and the kernels that only one side has."""

    ops: tuple[JoinedOp, ...]
    only_npusched: tuple[OneSided, ...]
    only_vela: tuple[OneSided, ...]


class _Sum:
    """Collects the kernels of one source op on one side."""

    def __init__(self) -> None:
        self.placement: PlaceName = "npu"
        self.kernels = self.cycles = self.npu = self.cpu = self.weight_bytes = 0
        self.busy: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.modes: set[str] = set()
        self.cascades: list[int] = []
        self.stripe_rows = self.stripes = 0

    def add(
        self,
        *,
        cycles: int,
        npu: int,
        busy: Iterable[tuple[str, int]],
        read: Iterable[tuple[str, int]],
        written: Iterable[tuple[str, int]],
        kernels: int = 1,
        cpu: int = 0,
        on_cpu: bool = False,
    ) -> None:
        """Count one op and its costs."""
        self.kernels += kernels
        self.cycles += cycles
        self.npu += npu
        self.cpu += cpu
        if on_cpu:
            self.placement = "cpu"
        for sums, parts in ((self.busy, busy), (self.read, read), (self.written, written)):
            for name, count in parts:
                if count:
                    sums[name] = sums.get(name, 0) + count

    def schedule(
        self, *, mode: str, weight_bytes: int, cascade: int | None, rows: int, stripes: int
    ) -> None:
        """Note how the op runs."""
        if mode:
            self.modes.add(mode)
        self.weight_bytes += weight_bytes
        if cascade is not None and cascade not in self.cascades:
            self.cascades.append(cascade)
        self.stripe_rows, self.stripes = rows, stripes

    def side(self) -> Side:
        """The sums as a value."""
        ranked: tuple[Literal["sliced", "resident", "streamed"], ...] = (
            "sliced",
            "resident",
            "streamed",
        )
        return Side(
            placement=self.placement,
            kernels=self.kernels,
            cycles=self.cycles,
            npu_cycles=self.npu,
            cpu_cycles=self.cpu,
            memory_cycles=self.busy,
            bytes_read=self.read,
            bytes_written=self.written,
            weights=next((mode for mode in ranked if mode in self.modes), ""),
            weight_bytes=self.weight_bytes,
            cascades=tuple(self.cascades),
            stripe_rows=self.stripe_rows,
            stripes=self.stripes,
        )


Sums: TypeAlias = dict[SourceRef, _Sum]


def join(
    schedule: VelaSchedule,
    plan: Plan,
    *,
    theirs: Plan | None,
    compatible: Mapping[int, OpCost],
    recosted: Mapping[int, KernelCost],
    placement: Mapping[SourceRef, VelaPlacement],
    names: Sequence[str],
) -> Joined:
    """Join our plan and Vela's schedule of the same graph by source op (subgraph and index).

    ``theirs``: Vela's schedule as a plan, if it is one (its costs then come from there).
    ``compatible``, ``recosted``: costs of Vela's rows, by id. ``placement``: where the compiled
    file has each source op. ``names``: a name for each source op.
    """
    graph = schedule.graph
    ours = _plan_sums(graph, plan)
    reported, as_vela, again = _vela_sums(schedule, compatible, recosted)
    if theirs is not None:
        again = _plan_sums(graph, theirs)
    rows = []
    for source, name in zip(graph.sources, names, strict=True):
        ref = source.ref
        mine, his = ours.get(ref), reported.get(ref)
        both = (as_vela.get(ref), again.get(ref))
        kind = source.kind.value
        rows.append(
            JoinedOp(
                subgraph=ref[0],
                index=ref[1],
                kind=kind,
                name=name,
                npusched=None if mine is None else mine.side(),
                vela=None if his is None else his.side(),
                vela_compatible=None if both[0] is None else both[0].side(),
                vela_recosted=None if both[1] is None else both[1].side(),
                reason=_reason(source.placement, placement.get(ref), mine, his),
            )
        )
    return Joined(
        ops=tuple(rows),
        only_npusched=tuple(
            _our_kernel(graph, plan, stray) for stray in schedule.matching.only_ours[:SHOWN_STRAYS]
        ),
        only_vela=(
            *(_copy(op) for op in schedule.matching.copies),
            *(_their_kernel(schedule, s) for s in schedule.matching.only_theirs[:SHOWN_STRAYS]),
        ),
    )


def _plan_sums(graph: OpGraph, plan: Plan) -> Sums:
    """Costs of a plan per source op (that of each kernel's first source op)."""
    sums: Sums = {}
    for index, segment in enumerate(plan.segments):
        cascade = index if len(segment.ops) > 1 else None
        for run in segment.runs:
            op = graph.ops[run.op]
            if not op.source_ops:
                continue
            amounts = run.amounts
            entry = sums.setdefault(op.source_ops[0], _Sum())
            entry.add(
                kernels=op.count,
                cycles=amounts.npu_cycles,
                npu=amounts.core_cycles,
                cpu=amounts.cpu_cycles,
                on_cpu=op.placement is Placement.CPU,
                busy=run.memory_cycles,
                read=amounts.bytes_read,
                written=amounts.bytes_written,
            )
            entry.schedule(
                mode=_mode(run.weight_mode, run.buffering is not None and run.buffering.slices > 1),
                weight_bytes=run.weight_bytes,
                cascade=cascade,
                rows=run.stripe_rows,
                stripes=run.runs,
            )
    return sums


def _mode(mode: WeightMode | None, sliced: bool) -> str:
    if mode is None:
        return ""
    if mode is WeightMode.STREAMED:
        return "streamed"
    return "sliced" if sliced else "resident"


def _vela_sums(
    schedule: VelaSchedule, compatible: Mapping[int, OpCost], recosted: Mapping[int, KernelCost]
) -> tuple[Sums, Sums, Sums]:
    """Per source op: what Vela reports, our vela-compatible cost, our striped cost."""
    sums: tuple[Sums, Sums, Sums] = ({}, {}, {})
    names = memory_names(schedule.target)
    owner = {row.id: v for v, rows in schedule.matching.rows.items() for row in rows}
    cascades = _cascade_numbers(schedule)
    for op in schedule.ops:
        ref = _owner_ref(schedule.graph, owner.get(op.id), op)
        if ref is None or ref[0] != schedule.graph.subgraph:
            continue
        entries = [each.setdefault(ref, _Sum()) for each in sums]
        entries[0].add(
            cycles=op.op_cycles,
            npu=op.npu_cycles,
            on_cpu=op.is_cpu,
            busy=((names[n], c) for n, c in op.memory_cycles if n in names),
            read=((names[t.memory], t.read_bytes) for t in op.traffic if t.memory in names),
            written=((names[t.memory], t.written_bytes) for t in op.traffic if t.memory in names),
        )
        if op.id in compatible:
            cost = compatible[op.id]
            entries[1].add(
                cycles=cost.cycles,
                npu=cost.npu_cycles,
                busy=cost.memory_cycles,
                read=((t.memory, t.inflated_read) for t in cost.transfers),
                written=((t.memory, t.inflated_written) for t in cost.transfers),
            )
        else:
            entries[1].add(cycles=0, npu=0, on_cpu=op.is_cpu, busy=(), read=(), written=())
        if op.id in recosted:
            again = recosted[op.id]
            entries[2].add(
                cycles=again.cycles,
                npu=again.core_cycles,
                busy=again.busy.items(),
                read=again.read.items(),
                written=again.written.items(),
            )
        for entry in entries:
            _vela_schedule(schedule, op, entry, cascades)
    return sums


def _vela_schedule(
    schedule: VelaSchedule, op: VelaOp, entry: _Sum, cascades: Mapping[int, int]
) -> None:
    row = schedule.rows[op.id]
    rows, height = row.op.written.shape[1], row.stripe_op.written.shape[1]
    mode = ""
    if op.weights is not None and op.weights.total_bytes:
        mode = "streamed"
        if row.staged:
            mode = "sliced" if row.slices > 1 else "resident"
    entry.schedule(
        mode=mode,
        weight_bytes=row.weights.total,
        cascade=cascades.get(row.cascade),
        rows=height,
        stripes=max(1, -(-rows // max(height, 1))) * (row.slices if row.staged else 1),
    )


def _cascade_numbers(schedule: VelaSchedule) -> dict[int, int]:
    """Cascades numbered from 0 in order."""
    found = dict.fromkeys(row.cascade for row in schedule.rows.values() if row.cascade)
    return {cascade: number for number, cascade in enumerate(found)}


def _owner_ref(graph: OpGraph, v: int | None, op: VelaOp) -> SourceRef | None:
    """Source op of a row: Vela's own word, else that of our op that it matches."""
    if op.source_ref is not None or v is None:
        return op.source_ref
    sources = graph.ops[v].source_ops
    return sources[0] if sources else None


def _reason(
    ours: SourcePlacement, theirs: VelaPlacement | None, mine: _Sum | None, his: _Sum | None
) -> str:
    """Why a side has no kernel under this source op; "" if both have."""
    if mine is not None and his is not None:
        return ""
    if mine is None and his is None:
        texts = {
            SourcePlacement.VIEW: "both sides see its result as a view: nothing runs",
            SourcePlacement.FOLDED: "both sides let its neighbours' kernels do its work",
        }
        return texts.get(ours, "its work is counted under another source op on both sides")
    if mine is None:
        return f"Vela has kernels of its own for it, our graph has none ({ours.value})"
    if theirs is None:
        return "Vela's database has no row for it"
    return f"our graph has kernels of its own for it, Vela has none ({theirs.value})"


def _our_kernel(graph: OpGraph, plan: Plan, stray: Stray) -> OneSided:
    op: ScheduledOp = graph.ops[stray.id]
    run = next(r for segment in plan.segments for r in segment.runs if r.op == stray.id)
    return OneSided(
        source_op=stray.source_ref,
        kind=stray.kind,
        name=op.name,
        cycles=run.amounts.npu_cycles,
        reason=stray.reason,
    )


def _their_kernel(schedule: VelaSchedule, stray: Stray) -> OneSided:
    op = next(op for op in schedule.ops if op.id == stray.id)
    return OneSided(
        source_op=stray.source_ref,
        kind=stray.kind,
        name=op.name,
        cycles=op.op_cycles,
        reason=stray.reason,
    )


def _copy(op: VelaOp) -> OneSided:
    return OneSided(
        source_op=op.source_ref,
        kind=op.operator,
        name=op.name,
        cycles=op.op_cycles,
        reason="Vela copies a graph input to the staging memory first",
    )


def plan_sides(graph: OpGraph, plan: Plan) -> dict[SourceRef, Side]:
    """A plan's costs per source op."""
    return {ref: sums.side() for ref, sums in _plan_sums(graph, plan).items()}
