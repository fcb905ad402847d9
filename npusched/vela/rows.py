"""Rows of Vela's debug database as inputs of our cost functions, to check one against the other.

A row says everything that Vela's estimate depends on (VELA_SPEC_2 §1): shapes, types, layouts,
memories, blocks, encoded weight sizes; and the estimate itself. ``read_rows`` joins the tables
``perf``, ``perf_debug``, ``perf_debug_main``, ``group``, ``optimised``, ``source`` and
``perf_debug_conn``. What the database leaves out is inferred, as VELA_SPEC_2 §3 and §8.1 say:
upscaling, the scaled flag, a conv's own result before a fused op.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from npusched.cost.blocks import find_block
from npusched.cost.kinds import ACTIVATIONS
from npusched.cost.op_cost import Staging, op_cost, slack_of, staged_slack_of
from npusched.cost.transfers import weight_refetches
from npusched.cost.types import (
    Basis,
    BlockConfig,
    CostFm,
    CostOp,
    CostSub,
    OpCost,
    Traversal,
    WeightBytes,
)
from npusched.errors import VelaError
from npusched.graph.types import Kernel, KernelKind, Reverse, Shape4, Upscale
from npusched.hardware.target import Block, Target
from npusched.vela.tables import DebugDatabase, DebugTable

_Row = Mapping[str, str]

LUT_BLOCK_BYTES = 2048
"""SHRAM that Vela reserves for any kernel with a table (VELA_SPEC_2 §8)."""

_INPUT_COPY = "input_buffer_"
"""Name prefix of copies that Vela inserts to stage a graph input (VELA_SPEC_2 §5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VelaRow:
    """One scheduled op as Vela reports it.

    ``op`` has the whole OFM (what the report costs), ``stripe_op`` the stripe that the block was
    searched for. ``full_dma_cycles``: time to copy the un-sliced encoding, None if not staged.
    ``access_cycles``: by memory name of the target. ``cascade``: index of the cascade's last op, 0
    for none. ``est_cycles``: the scheduler's own estimate over all stripes, DMA left out.
    """

    id: int
    source_op: int
    name: str
    op: CostOp
    stripe_op: CostOp
    block: BlockConfig | None
    weights: WeightBytes
    depth_slices: tuple[int, ...]
    stripe_rows: int
    pre_buffered: bool
    full_dma_cycles: int | None
    cascade: int
    cascade_first: bool
    ifm_staged: bool
    op_cycles: int
    npu_cycles: int
    macs: int
    access_cycles: tuple[tuple[str, int], ...]
    est_cycles: int

    @property
    def staged(self) -> bool:
        """True if DMA copies the weights to the staging memory."""
        return self.full_dma_cycles is not None

    @property
    def slices(self) -> int:
        """Number of depth slices."""
        return max(len(self.depth_slices) - 1, 1)

    @property
    def last_slice_depth(self) -> int:
        """Channels of the last depth slice."""
        return self.depth_slices[-1] - self.depth_slices[-2]


def read_rows(database: DebugDatabase, target: Target) -> tuple[VelaRow, ...]:
    """Return every kernel that ran on the NPU, and CPU rows as kind CPU, in execution order.

    Raises VelaError if a row names an operator or type that we do not know.
    """
    tables = _Joined(database)
    return tuple(
        _row(tables, target, perf) for perf in tables.perf.values() if perf["id"] not in tables.group
    )


def row_slack(target: Target, row: VelaRow) -> int:
    """Cycles that a row lends to the next one's DMA (VELA_SPEC_2 §5)."""
    if row.block is None:
        return 0
    if row.staged:
        return staged_slack_of(
            target,
            row.op,
            depth=row.last_slice_depth,
            basis=Basis.VELA,
            block=row.block,
            rows=row.stripe_rows,
            slices=row.slices,
            ifm_staged=row.ifm_staged or (row.cascade != 0 and not row.cascade_first),
        )
    return slack_of(
        target,
        row.op,
        basis=Basis.VELA,
        block=row.block,
        ifm_staged=row.ifm_staged,
        ofm_staged=row.name.startswith(_INPUT_COPY),
    )


def row_cost(target: Target, row: VelaRow, previous: VelaRow | None) -> OpCost:
    """Our vela-compatible cost of a row, from its facts and its block.

    Rows with several depth slices lack the first slice's size in the database, so their NPU cycles
    are those of a single slice and only their other figures can be compared.
    """
    staging = None
    if row.staged:
        staging = Staging(
            full_dma_bytes=row.weights.total,
            first_dma_bytes=row.weights.weights + 10 * row.depth_slices[-1],
            pre_buffered_bytes=row.weights.total if row.pre_buffered else 0,
            self_slack_cycles=row_slack(target, row),
        )
    block = row.block or find_block(_npu(target), row.op)
    slack = 0 if previous is None else row_slack(target, previous)
    return op_cost(
        target,
        row.op,
        row.weights,
        basis=Basis.VELA,
        block=block,
        staging=staging,
        slack_cycles=slack,
    )


class _Joined:
    """The tables, indexed by row id."""

    def __init__(self, database: DebugDatabase) -> None:
        self.perf = _by_id(database.table("perf"))
        self.debug = _by_id(database.table("perf_debug"))
        self.main = _by_id(database.table("perf_debug_main"))
        self.optimised = _by_id(database.table("optimised"))
        self.source = _by_id(database.table("source"))
        self.group = {row["id"]: row["group_id"] for row in database.table("group").rows()}
        self.times_optimised = Counter(row["optimised_id"] for row in self.perf.values())
        self.subs: dict[str, list[str]] = {}
        for key in self.perf:
            if key in self.group and self.group[key] != key:
                self.subs.setdefault(self.group[key], []).append(key)
        self.group = {key: primary for key, primary in self.group.items() if key != primary}
        copies = {k for k, row in self.perf.items() if row["name"].startswith(_INPUT_COPY)}
        self.reads_copy = {
            row["id"]
            for row in database.table("perf_debug_conn").rows()
            if row["input_op_id"] in copies and row["input_index"] == "0"
        }
        self.cascade_firsts = self._first_of_cascades()

    def _first_of_cascades(self) -> set[str]:
        seen: set[str] = set()
        firsts = set()
        for key in self.perf:
            cascade = self.debug[key]["cascade"]
            if cascade not in seen:
                seen.add(cascade)
                firsts.add(key)
        return firsts

    def source_operator(self, key: str) -> str:
        """Operator of the source op that a row came from, "" if none."""
        row = self.source.get(self.perf[key]["source_id"])
        return row["operator"] if row is not None else ""


def _by_id(table: DebugTable) -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in table.rows()}


def _npu(target: Target):  # type: ignore[no-untyped-def]
    raise NotImplementedError
