"""Two costs of Vela's schedule: as Vela would report it, and stripe by stripe as our plans count.

Vela's report costs a cascaded op on its whole result with the stripe's block (VELA_SPEC §8.1).
``recost`` costs every stripe on its own, with the memories' physical bandwidths, so that Vela's
schedule and our plans stand on one basis. DMA hides under the row before, as long as that runs
where its maps really lie (Vela lends the cycles of scheduling time, when all are in the arena);
inside a cascade it hides under nothing, as in our plans (PLANNER §10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from npusched.cost.bursts import dma_cycles, lut_dma_cycles
from npusched.cost.kinds import ELEMENTWISE
from npusched.cost.op_cost import Staging, op_cost
from npusched.cost.stripe import stripe_cost
from npusched.cost.types import Basis, BlockConfig, CostOp, OpCost, WeightBytes
from npusched.cost.weight_format import WeightFormat
from npusched.cost.weights import weight_bytes
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import KernelKind, Upscale
from npusched.hardware.target import Target
from npusched.schedule.kernels import KernelCost, Sizes, Tally
from npusched.schedule.rows import Run, Window, last_run
from npusched.vela.encoded import EncodedOp
from npusched.vela.match import Matching
from npusched.vela.rows import VelaRow, row_cost, row_slack, row_staging


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSizes:
    """Encoded bytes of a row with several depth slices, which the database does not state.

    ``parts``: weights and scales of each slice, as the command stream reads them. ``unsliced``: the
    same weights in one slice, computed from our own graph (``weights.weight_bytes``).
    """

    first: WeightBytes
    parts: tuple[int, ...]
    unsliced: WeightBytes


def slice_sizes(
    target: Target,
    graph: OpGraph,
    matching: Matching,
    rows: Mapping[int, VelaRow],
    encoded: Sequence[EncodedOp],
) -> dict[int, SliceSizes]:
    """Sizes of all rows (by id) whose weights are staged in several slices.

    A row that matches none of our ops counts the sum of its slices as unsliced.
    """
    owner = {row.id: v for v, found in matching.rows.items() for row in found}
    result = {}
    for op in encoded:
        row = rows.get(op.scheduled_id)
        if row is None or not row.staged or row.slices == 1 or row.block is None:
            continue
        parts = [
            WeightBytes(
                sum(part.weights_bytes for part in op.parts if part.slice == index),
                sum(part.scales_bytes for part in op.parts if part.slice == index),
                exact=True,
            )
            for index in range(op.slices)
        ]
        v = owner.get(row.id)
        unsliced = row.weights
        if v is not None and graph.ops[v].weights is not None:
            form = WeightFormat(sparse=row.op.sparse, fast=row.op.fast_weights)
            unsliced = weight_bytes(target, graph.ops[v], row.block, form=form)
        result[row.id] = SliceSizes(
            first=parts[0], parts=tuple(part.total for part in parts), unsliced=unsliced
        )
    return result


def compatible_costs(
    target: Target,
    rows: Sequence[VelaRow],
    slices: Mapping[int, SliceSizes],
    *,
    honest_scales: bool = False,
) -> dict[int, OpCost]:
    """Our vela-compatible cost of every row on the NPU, by id; no reported cost is read.

    ``honest_scales``: charge staged scales to the staging memory, which Vela does not.
    """
    found = {}
    previous: VelaRow | None = None
    for row in rows:
        if row.op.kind is not KernelKind.CPU:
            sizes = slices.get(row.id)
            found[row.id] = row_cost(
                target,
                row,
                previous,
                first_slice=None if sizes is None else sizes.first,
                unsliced=row.weights if sizes is None else sizes.unsliced,
                scales_memory=target.roles.cache if honest_scales and row.staged else None,
            )
        previous = row
    return found


def recost(
    target: Target,
    op: CostOp,
    row: VelaRow,
    slack: int,
    stripes: Sizes,
    slices: SliceSizes | None,
) -> KernelCost:
    """Cost of a row as Vela schedules it, in stripes, with physical bandwidths.

    ``op`` describes the whole op (ours or the row's own), ``stripes`` its distinct stripes; a row
    outside cascades runs whole. ``slack``: cycles that the row before lends (``lent_cycles``).
    """
    tally = Tally()
    if row.cascade == 0:
        staging = None
        if row.staged:
            first = None if slices is None else slices.first
            unsliced = row.weights if slices is None else slices.unsliced
            staging = row_staging(target, row, first, unsliced, basis=Basis.PHYSICAL)
        tally.add(_whole(target, op, row.weights, row.block, staging, slack), 1)
    else:
        _add_stripes(target, op, row, stripes, slack, tally)
    return KernelCost(
        block=row.block,
        weights=row.weights,
        cycles=tally.cycles,
        core_cycles=tally.core,
        cpu_cycles=0,
        macs=tally.macs,
        busy=tally.busy,
        read=tally.read,
        written=tally.written,
        score=0.0,
    )


def lent_cycles(target: Target, row: VelaRow, cost: KernelCost) -> int:
    """Cycles of a recosted row that hide the next row's DMA, as segments of our plans lend them.

    All of them, without a copy of its own that nothing hides; the last slice of staged weights;
    of a cascade the last op alone, because Vela starts the copy there. CPU ops and copies that
    Vela inserts lend none.
    """
    if row.op.kind is KernelKind.CPU:
        return 0
    if row.cascade or row.is_input_copy or (row.staged and (row.slices > 1 or row.pre_buffered)):
        return row_slack(target, row, basis=Basis.PHYSICAL)
    if not row.staged:
        return cost.cycles
    size = row.weights.total
    basis, source, destination = Basis.PHYSICAL, target.const, target.cache
    return cost.cycles - dma_cycles(
        target, size, source=source, destination=destination, basis=basis
    )


@lru_cache(maxsize=1 << 16)
def _whole(
    target: Target,
    op: CostOp,
    weights: WeightBytes,
    block: BlockConfig | None,
    staging: Staging | None,
    slack: int,
) -> OpCost:
    return op_cost(
        target,
        op,
        weights,
        basis=Basis.PHYSICAL,
        block=block,
        staging=staging,
        slack_cycles=slack,
    )


def _add_stripes(
    target: Target, op: CostOp, row: VelaRow, stripes: Sizes, slack: int, tally: Tally
) -> None:
    """Every stripe, and one copy of staged weights (under the op before if prefetched)."""
    home = target.roles.cache if row.staged else target.roles.const
    height = row.stripe_op.written.shape[1]
    table = op.lut_bytes if op.lut_is_primary else 0
    load = lut_dma_cycles(target, table, source=target.const, basis=Basis.PHYSICAL)
    wait = max(load - slack, 0) if row.cascade_first else load
    for start, end, count in stripes:
        cost = stripe_cost(
            target,
            op,
            start,
            end,
            row.weights,
            nominal_rows=height,
            weights_memory=home,
            scales_memory=home,
            lut_loaded=True,
        )
        first = 1 if start == 0 else 0
        tally.add(cost, first, wait_cycles=wait)
        tally.add(cost, count - first)
    if row.staged:
        copy = dma_cycles(
            target,
            row.weights.total,
            source=target.const,
            destination=target.cache,
            basis=Basis.PHYSICAL,
        )
        if row.cascade_first and row.pre_buffered:
            copy = max(copy - slack, 0)
        tally.copy(row.weights.total, target.roles.const, target.roles.cache, copy)


def cascade_stripes(windows: Sequence[Window], heights: Sequence[int]) -> list[Sizes]:
    """Distinct stripes of every op of a cascade, from the nominal heights of all.

    Every stripe is full (as Vela makes them) but the last; rows that nobody needs are not made.
    """
    run = last_run(windows[-1].ofm_rows, heights[-1])
    runs = [run]
    for window, height in zip(reversed(windows[1:]), reversed(heights[:-1]), strict=True):
        starts: list[int] = []
        done = 0
        for start, end in zip(run.starts, run.ends, strict=True):
            while done < window.needed(start, end)[1]:
                starts.append(done)
                done = min(done + height, window.ifm_rows)
        run = Run(stripe_rows=height, starts=starts, ends=(*starts[1:], done), kept_rows=0)
        runs.append(run)
    return [tuple(run.sizes(window)) for run, window in zip(reversed(runs), windows, strict=True)]


def row_window(op: CostOp) -> Window:
    """How rows of a row's result map to rows of its input (as ``schedule.window_of``)."""
    kernel, rows = op.kernel, op.written.shape[1]
    ifm = op.ifm
    if op.kind in ELEMENTWISE and op.ifm2 is not None and op.ifm.shape[1] != rows:
        ifm = op.ifm2
    plain = kernel.dilated_h == 1 and kernel.stride_h == 1 and op.upscale is Upscale.NONE
    return Window(
        ofm_rows=rows,
        ifm_rows=ifm.shape[1],
        stride=kernel.stride_h,
        extent=kernel.dilated_h,
        pad_top=kernel.pad_top,
        whole=plain and ifm.shape[1] == 1 and rows > 1,
    )


def recost_rows(
    target: Target, rows: Sequence[VelaRow], slices: Mapping[int, SliceSizes]
) -> dict[int, KernelCost]:
    """``recost`` of every row on the NPU by id, from the rows alone (no graph of ours)."""
    found = {}
    stripes = _stripes_of(rows)
    slack = 0
    for row in rows:
        if row.op.kind is KernelKind.CPU:
            slack = 0
            continue
        sizes = stripes.get(row.id, ())
        cost = found[row.id] = recost(target, row.op, row, slack, sizes, slices.get(row.id))
        slack = lent_cycles(target, row, cost)
    return found


def _stripes_of(rows: Sequence[VelaRow]) -> dict[int, Sizes]:
    """Stripes of the rows in cascades, by id."""
    cascades: dict[int, list[VelaRow]] = {}
    for row in rows:
        if row.cascade:
            cascades.setdefault(row.cascade, []).append(row)
    found = {}
    for members in cascades.values():
        windows = [row_window(row.op) for row in members]
        heights = [row.stripe_op.written.shape[1] for row in members]
        for row, sizes in zip(members, cascade_stripes(windows, heights), strict=True):
            found[row.id] = sizes
    return found
