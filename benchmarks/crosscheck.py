"""One compilation by Vela against our vela-compatible cost of the schedule it chose.

Inputs of the cost are facts of the schedule: shapes, windows, types, layouts, memories, blocks,
stripes, depth slices and encoded sizes. What Vela reports is only looked at to compare.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from npusched.cost.blocks import find_block
from npusched.cost.stripe import striped_nominal
from npusched.cost.types import CostFm, CostOp, OpCost
from npusched.graph.build import build_graph
from npusched.hardware import Target
from npusched.ir import Model
from npusched.vela.encoded import encoded_weights
from npusched.vela.match import match_ops
from npusched.vela.reader import read_ops
from npusched.vela.recost import SliceSizes, compatible_costs, slice_sizes
from npusched.vela.result import VelaResult
from npusched.vela.rows import VelaRow, read_rows

INPUT_COPY = "input_buffer_"
QUANTITIES = ("npu", "access", "block", "bytes", "total", "macs")


@dataclass(slots=True)
class Check:
    """Counts over the rows of one compilation.

    ``rows``: op rows that Vela gives cycles. ``exact``: of them, those with equal NPU cycles,
    access cycles of every memory and block; ``equal``: per quantity. ``sliced``: with several
    depth slices. ``estimates``, ``equal_estimates``: ops in cascades whose striped estimate was
    tried. ``ours``, ``theirs``: cycles of the network. ``errors``: relative error of the total of
    every row that differs in anything, with its name and what differs.
    """

    rows: int = 0
    exact: int = 0
    sliced: int = 0
    cascaded: int = 0
    estimates: int = 0
    equal_estimates: int = 0
    ours: int = 0
    theirs: int = 0
    equal: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[float, str]] = field(default_factory=list)


def check(target: Target, result: VelaResult, model: Model) -> Check:
    """Cost every row of a result and compare."""
    found = Check(theirs=result.report.total_cycles)
    rows = read_rows(result.database, target)
    costs = compatible_costs(target, rows, slices_of(target, result, model, rows))
    moved = _reported_bytes(target, result)
    for row in rows:
        if row.id in costs:
            _check_row(target, found, row, costs[row.id], moved.get(row.id, {}))
    return found


def slices_of(
    target: Target, result: VelaResult, model: Model, rows: Sequence[VelaRow]
) -> dict[int, SliceSizes]:
    """Encoded bytes of the rows with several depth slices."""
    assert target.accelerator is not None
    if not any(row.staged and row.slices > 1 for row in rows):
        return {}
    ops = read_ops(result.database, [len(graph.ops) for graph in model.subgraphs])
    covered = {op.source_ref[0] for op in ops if op.source_ref is not None}
    encoded = encoded_weights(result, model)
    found: dict[int, SliceSizes] = {}
    for subgraph in sorted(covered):
        graph = build_graph(model, target.accelerator.family, subgraph=subgraph)
        by_id = {row.id: row for row in rows}
        found |= slice_sizes(target, graph, match_ops(graph, ops), by_id, encoded)
    return found


def _check_row(
    target: Target,
    found: Check,
    row: VelaRow,
    cost: OpCost,
    moved: Mapping[str, tuple[int, int]],
) -> None:
    assert target.accelerator is not None
    found.ours += cost.cycles
    if row.op_cycles == 0 and cost.cycles == 0:
        return
    busy = dict(cost.memory_cycles)
    same = {
        "npu": cost.npu_cycles == row.npu_cycles,
        "access": all(busy.get(name, 0) == cycles for name, cycles in row.access_cycles),
        "block": row.block is None or find_block(target.accelerator, row.stripe_op) == row.block,
        "bytes": _bytes_of(cost) == moved,
        "total": cost.cycles == row.op_cycles,
        "macs": cost.macs == row.macs,
    }
    found.rows += 1
    found.sliced += row.slices > 1
    found.equal.update(name for name, is_same in same.items() if is_same)
    if same["npu"] and same["access"] and same["block"]:
        found.exact += 1
    if not all(same.values()):
        wrong = "+".join(name for name, is_same in same.items() if not is_same)
        error = cost.cycles / row.op_cycles - 1 if row.op_cycles else 1.0
        found.errors.append((round(error, 6), f"{row.name} {row.op.kind}: {wrong}"))
    if row.cascade:
        found.cascaded += 1
        if row.block is not None:
            found.estimates += 1
            found.equal_estimates += estimate(target, row) == row.est_cycles


def _bytes_of(cost: OpCost) -> dict[str, tuple[int, int]]:
    """Bytes read and written per memory, burst inflation included; idle memories are left out."""
    sums: dict[str, tuple[int, int]] = {}
    for move in cost.transfers:
        read, written = sums.get(move.memory, (0, 0))
        sums[move.memory] = (read + move.inflated_read, written + move.inflated_written)
    return {memory: both for memory, both in sums.items() if any(both)}


def _reported_bytes(target: Target, result: VelaResult) -> dict[int, dict[str, tuple[int, int]]]:
    """The same as Vela reports it, by row id."""
    table = result.database.table("perf_debug")
    ids = table.ints("id")
    found: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for memory in target.memories:
        columns = [
            [table.ints(f"{memory.vela_name}{purpose}_{way}") for purpose in PURPOSES]
            for way in ("read", "write")
        ]
        reads, writes = ([sum(cells) for cells in zip(*way, strict=True)] for way in columns)
        for id_, read, written in zip(ids, reads, writes, strict=True):
            if read or written:
                found[id_][memory.name] = (read, written)
    return found


PURPOSES = ("Lut", "FeatureMap", "Weights", "Scales")


def estimate(target: Target, row: VelaRow) -> int:
    """Vela's scheduler's estimate of a striped op, from the row's facts (VELA_SPEC_2 §6)."""
    return striped_nominal(
        target,
        as_scheduled(target, row),
        row.stripe_op.written.shape[1],
        bias_memory=target.roles.cache if row.staged else None,
    )


def as_scheduled(target: Target, row: VelaRow) -> CostOp:
    """Feature maps where Vela's scheduler assumes them.

    That is the arena, except for copies that stage a graph input and their readers, and for what
    ops with staged weights read inside a cascade (VELA_SPEC_2 §5).
    """
    arena, cache = target.roles.arena, target.roles.cache

    def placed(fm: CostFm, memory: str) -> CostFm:
        return fm if fm.memory == target.roles.const else replace(fm, memory=memory)

    reads_cache = row.ifm_staged or (row.staged and row.cascade and not row.cascade_first)
    op = row.op
    return replace(
        op,
        ifm=placed(op.ifm, cache if reads_cache else arena),
        ifm2=None if op.ifm2 is None else placed(op.ifm2, arena),
        ofm=placed(op.ofm, cache if row.name.startswith(INPUT_COPY) else arena),
        subs=tuple(replace(sub, ofm=placed(sub.ofm, arena)) for sub in op.subs),
    )


def network_cause(model: Model, found: Check) -> str:
    """Why the network total differs, "" if it does not."""
    if found.ours == found.theirs:
        return ""
    if len(model.subgraphs) > 1:
        return "several subgraphs, rows of one"
    if found.errors:
        return "rows differ"
    return "rows are missing"


def worst(errors: Sequence[tuple[float, str]], count: int) -> list[tuple[float, str]]:
    """The largest errors."""
    return sorted(errors, key=lambda pair: -abs(pair[0]))[:count]
