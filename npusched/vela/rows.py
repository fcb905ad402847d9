"""Rows of Vela's debug database as inputs of our cost functions, to check one against the other.

A row says everything that Vela's estimate depends on (VELA_SPEC_2 §1): shapes, types, layouts,
memories, blocks, encoded weight sizes; and the estimate itself. ``read_rows`` joins the tables
perf, perf_debug, perf_debug_main, group, source and perf_debug_conn. What the database leaves out
is inferred, as VELA_SPEC_2 §3 and §8.1 say: upscaling, the scaled flag, a kernel's own result in
front of a fused op.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from npusched.cost.arith import ceil_div, unpermuted
from npusched.cost.blocks import find_block
from npusched.cost.kinds import ACTIVATIONS
from npusched.cost.op_cost import Staging, op_cost, slack_of, staged_slack_of
from npusched.cost.types import Basis, BlockConfig, CostFm, CostOp, CostSub, OpCost, WeightBytes
from npusched.cost.weights import scale_bytes
from npusched.graph.types import Kernel, KernelKind, Upscale
from npusched.hardware.target import AcceleratorU55, Block, Target
from npusched.vela.row_fields import (
    Row,
    bits_of,
    block_of,
    kernel_of,
    kind_of,
    map_of,
    reverse_of,
    transpose_of,
)
from npusched.vela.tables import DebugDatabase, DebugTable

LUT_BLOCK_BYTES = 2048
"""SHRAM that Vela reserves for any kernel with a table (VELA_SPEC_2 §8)."""

NARROW_TABLE_BYTES = 256
WIDE_TABLE_BYTES = 2048
"""Sizes of look-up tables of 8-bit and 16-bit inputs (VELA_SPEC_2 §5)."""

_SCALE_BYTES = 10
_INPUT_COPY = "input_buffer_"
"""Name prefix of copies that Vela inserts to stage a graph input (VELA_SPEC_2 §5)."""

_SCALAR = CostFm((1, 1, 1, 1), 8, False, None)
_CPU_OP = CostOp(KernelKind.CPU, _SCALAR, _SCALAR)
_FUSED = ACTIVATIONS | {KernelKind.TRANSPOSE, KernelKind.REVERSE}


class VelaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduled op as Vela reports it.

    ``op`` has the whole OFM (what the report costs), ``stripe_op`` the stripe that the block was
    searched for. ``staged``: DMA copies the weights to the staging memory.
    ``cascade``: index of the cascade's last op, 0 for none. What Vela reports, to compare with:
    ``op_cycles``, ``npu_cycles``, ``macs``, ``access_cycles`` (by memory name of the target) and
    ``est_cycles``, the scheduler's own estimate over all stripes, DMA left out.
    """

    id: int
    name: str
    op: CostOp
    stripe_op: CostOp
    block: BlockConfig | None
    weights: WeightBytes
    depth_slices: tuple[int, ...]
    pre_buffered: bool
    staged: bool
    cascade: int
    cascade_first: bool
    ifm_staged: bool
    op_cycles: int
    npu_cycles: int
    macs: int
    access_cycles: tuple[tuple[str, int], ...]
    est_cycles: int

    @property
    def is_input_copy(self) -> bool:
        """True for a copy that Vela inserted to stage a graph input."""
        return self.name.startswith(_INPUT_COPY)

    @property
    def slices(self) -> int:
        """Number of depth slices."""
        return max(len(self.depth_slices) - 1, 1)

    @property
    def last_slice_depth(self) -> int:
        """Channels of the last depth slice; all of them, untransposed, if a transpose is fused."""
        if self.op.transpose is not None:
            return unpermuted(self.op.written.shape, self.op.transpose)[3]
        return self.depth_slices[-1] - self.depth_slices[-2]


def read_rows(database: DebugDatabase, target: Target) -> tuple[VelaRow, ...]:
    """Return every scheduled op (CPU ones have kind CPU and no block), in execution order.

    Raises VelaError if a row names an operator that we do not know.
    """
    tables = _Joined(database)
    return tuple(_row(tables, target, key) for key in tables.perf if key not in tables.primary_of)


def row_slack(target: Target, row: VelaRow, *, basis: Basis = Basis.VELA) -> int:
    """Cycles that a row lends to the next one's DMA (VELA_SPEC_2 §5).

    Unless a cascade costs them anew, an inserted input copy lends none, and what its reader lends
    was worked out before there was the copy (Vela 5.2.0, scheduler.cpp, CreateInitialSchedule).

    Not covered: if Vela staged the weights of a cascade's last op for a while and then left them
    where they are, it lends cycles with its biases in the staging memory. No fact tells.
    """
    is_copy = row.is_input_copy
    if row.block is None or (is_copy and row.cascade == 0):
        return 0
    if row.staged:
        return staged_slack_of(
            target,
            row.op,
            depth=row.last_slice_depth,
            basis=basis,
            block=row.block,
            rows=row.stripe_op.written.shape[1],
            slices=row.slices,
            ifm_staged=row.ifm_staged or (row.cascade != 0 and not row.cascade_first),
        )
    return slack_of(
        target,
        row.op,
        basis=basis,
        block=row.block,
        ifm_staged=row.ifm_staged and row.cascade != 0,
        ofm_staged=is_copy,
    )


def row_cost(
    target: Target,
    row: VelaRow,
    previous: VelaRow | None,
    *,
    first_slice: WeightBytes | None = None,
    unsliced: WeightBytes | None = None,
    scales_memory: str | None = None,
) -> OpCost:
    """Our vela-compatible cost of a row that runs on the NPU, from its facts and its block.

    ``first_slice``: encoded bytes of the first depth slice, all cores (see ``encoded_weights``).
    ``unsliced``: encoded bytes of all its weights in one slice (``weight_bytes`` of our own graph's
    op). The database lacks both; without them, NPU cycles of a row with several slices are computed
    from the sum of its slices, and must not be compared. No cost that Vela reports is an input.
    """
    if target.accelerator is None:
        raise ValueError(f"{target.name} has no NPU")
    return op_cost(
        target,
        row.op,
        row.weights,
        basis=Basis.VELA,
        block=row.block or find_block(target.accelerator, row.op),
        staging=row_staging(target, row, first_slice, unsliced) if row.staged else None,
        slack_cycles=0 if previous is None else row_slack(target, previous),
        scales_memory=scales_memory,
    )


def row_staging(
    target: Target,
    row: VelaRow,
    first_slice: WeightBytes | None,
    unsliced: WeightBytes | None,
    *,
    basis: Basis = Basis.VELA,
) -> Staging:
    """What the DMA of a row with staged weights copies, and when (sizes as in ``row_cost``)."""
    first = row.weights if row.slices == 1 or first_slice is None else first_slice
    channels = row.depth_slices[1]
    unpadded = isinstance(target.accelerator, AcceleratorU55)
    return Staging(
        full_dma_bytes=(unsliced or row.weights).total,
        first_dma_bytes=first.weights + (_SCALE_BYTES * channels if unpadded else first.scales),
        pre_buffered_bytes=first.total if row.pre_buffered else 0,
        self_slack_cycles=row_slack(target, row, basis=basis),
    )


class _Joined:
    """The tables, indexed by row id."""

    def __init__(self, database: DebugDatabase) -> None:
        self.perf = _by_id(database.table("perf"))
        self.debug = _by_id(database.table("perf_debug"))
        self.main = _by_id(database.table("perf_debug_main"))
        self.source = _by_id(database.table("source"))
        self.primary_of = {
            row["id"]: row["group_id"]
            for row in database.table("group").rows()
            if row["id"] != row["group_id"]
        }
        self.subs: dict[str, list[str]] = {}
        for key in self.perf:
            if key in self.primary_of:
                self.subs.setdefault(self.primary_of[key], []).append(key)
        self.times_optimised = Counter(row["optimised_id"] for row in self.perf.values())
        copies = {k for k, row in self.perf.items() if row["name"].startswith(_INPUT_COPY)}
        self.reads_copy = {
            row["id"]
            for row in database.table("perf_debug_conn").rows()
            if row["input_op_id"] in copies and row["input_index"] == "0"
        }
        firsts: dict[str, str] = {}
        for key in self.perf:
            firsts.setdefault(self.debug[key]["cascade"], key)
        self.cascade_firsts = frozenset(firsts.values())

    def source_operator(self, key: str) -> str:
        """Operator of the source op that a row came from, "" if none."""
        row = self.source.get(self.perf[key]["source_id"])
        return "" if row is None else row["operator"]


def _by_id(table: DebugTable) -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in table.rows()}


def _row(tables: _Joined, target: Target, key: str) -> VelaRow:
    perf, debug = tables.perf[key], tables.debug[key]
    accelerator = target.accelerator
    ublock = accelerator.ofm_ublock if isinstance(accelerator, AcceleratorU55) else Block(1, 1, 1)
    block = block_of(tables.main.get(key), ublock)
    on_npu = key in tables.main
    op = cost_op_from_row(tables, target, key, on_npu=on_npu)
    stripe_op = cost_op_from_row(tables, target, key, on_npu=on_npu, stripe=True)
    staged = bool(debug["weight_buffering"]) and debug["weight_buffering"] != "None"
    borders = tuple(int(part) for part in debug["ofm_depth_slices"].split("|") if part)
    return VelaRow(
        id=int(key),
        name=perf["name"],
        op=op,
        stripe_op=stripe_op,
        block=block,
        weights=_weights(target, op, block, debug, borders),
        depth_slices=borders,
        pre_buffered=debug["weight_pre_buffer"] == "1",
        staged=staged,
        cascade=int(debug["cascade"] or 0),
        cascade_first=key in tables.cascade_firsts,
        ifm_staged=key in tables.reads_copy,
        op_cycles=int(perf["op_cycles"]),
        npu_cycles=int(perf["npu_cycles"]),
        macs=int(perf["mac_count"]),
        access_cycles=tuple(
            (memory.name, int(perf.get(f"{memory.vela_name}_ac") or 0))
            for memory in target.memories
        ),
        est_cycles=int(debug["est_op_cycles_without_buffering"] or 0),
    )


def cost_op_from_row(
    tables: _Joined, target: Target, key: str, *, on_npu: bool, stripe: bool = False
) -> CostOp:
    """Describe a row to the cost functions; ``stripe`` with the stripe's shapes.

    CPU rows cost Vela nothing and may lack shapes: they become an op of one element.
    """
    if not on_npu:
        return _CPU_OP
    debug = tables.debug[key]
    kind = kind_of(tables.perf[key]["operator"])
    ofm = _must(map_of(debug, target, "ofm", stripe=stripe))
    ifm = map_of(debug, target, "ifm", stripe=stripe) or ofm
    subs = _subs(tables, target, key, ofm)
    kernel = kernel_of(debug)
    lut_bytes = _table_bytes(target, kind, ofm, ifm)
    uses_lut = lut_bytes or any(sub.kind is KernelKind.LUT for sub in subs)
    weight_format = debug["weight_format"]
    return CostOp(
        kind=kind,
        ifm=ifm,
        ofm=replace(ofm, bits=subs[0].ifm_bits) if subs else ofm,
        ifm2=map_of(debug, target, "ifm2", stripe=stripe),
        kernel=kernel,
        upscale=_upscale(target, debug, kind, kernel),
        scaled=_is_scaled(tables, key, kind),
        has_scales=debug["weight_total_bytes"] != "",
        sparse="Sparse" in weight_format,
        fast_weights="Fast" in weight_format,
        lut_bytes=lut_bytes or (LUT_BLOCK_BYTES if uses_lut else 0),
        lut_is_primary=lut_bytes > 0,
        transpose=transpose_of(debug),
        reverse=reverse_of(debug),
        ifm_step=_ifm_step(debug),
        subs=subs,
    )


def _must(fm: CostFm | None) -> CostFm:
    if fm is None:
        raise ValueError("a row of Vela's database has no OFM")
    return fm


def _subs(tables: _Joined, target: Target, key: str, ofm: CostFm) -> tuple[CostSub, ...]:
    """Followers of a kernel, in order. The first fused one writes what the row lists as its OFM."""
    result: list[CostSub] = []
    for position, sub_key in enumerate(tables.subs.get(key, ())):
        row = tables.debug[sub_key]
        kind = kind_of(tables.perf[sub_key]["operator"])
        chained = kind not in _FUSED
        inputs = [map_of(row, target, name) for name in ("ifm", "ifm2")]
        inside = [
            name for name in ("ifm", "ifm2") if row[f"{name}_dtype"] and not row[f"{name}_memory"]
        ]
        received = inside[0] if inside else "ifm"
        own_ofm = _must(map_of(row, target, "ofm"))
        used_ofm = ofm if position == 0 and not chained else own_ofm
        result.append(
            CostSub(
                kind=kind,
                ifm_bits=bits_of(row[f"{received}_dtype"]),
                ofm=used_ofm,
                chained=chained,
                ifm=inputs[0] if row["ifm_memory"] else None,
                ifm2=inputs[1] if row["ifm2_memory"] else None,
                transpose=transpose_of(row),
                reverse=reverse_of(row),
                vela_ofm=own_ofm if kind in ACTIVATIONS and own_ofm != used_ofm else None,
            )
        )
    return tuple(result)


def _weights(
    target: Target, op: CostOp, block: BlockConfig | None, debug: Row, borders: tuple[int, ...]
) -> WeightBytes:
    """Encoded bytes: streams as listed, scales as the encoder pads them (VELA_SPEC_2 §7).

    The scales of a result that is written transposed have the depth before transposition.
    """
    total = int(debug["weight_total_bytes"] or 0)
    if not total or block is None or target.accelerator is None:
        return WeightBytes()
    channels = [end - start for start, end in pairwise(borders)]
    if op.transpose is not None and len(channels) == 1:
        channels = [unpermuted(op.written.shape, op.transpose)[3]]
    scales = sum(scale_bytes(target.accelerator, n, block.ofm_ublock.c) for n in channels)
    return WeightBytes(total, scales, exact=True)


def _table_bytes(target: Target, kind: KernelKind, ofm: CostFm, ifm: CostFm) -> int:
    """Size of the table that a kernel has of its own (not a fused follower's), 0 for none.

    256 bytes for 8-bit tables, 2048 for 16-bit ones; on U85 also int16 sigmoid and tanh are tables
    (VELA_SPEC_2 §5).
    """
    wide = max(ifm.bits, ofm.bits) > 8
    is_table = kind is KernelKind.LUT
    if kind in (KernelKind.SIGMOID, KernelKind.TANH):
        is_table = wide and not isinstance(target.accelerator, AcceleratorU55)
    if not is_table:
        return 0
    return WIDE_TABLE_BYTES if ifm.bits > 8 else NARROW_TABLE_BYTES


def _is_scaled(tables: _Joined, key: str, kind: KernelKind) -> bool:
    """False for passes that Vela marks unscaled: of a resize, transposes that it made itself."""
    source = tables.source_operator(key)
    if kind is KernelKind.DEPTHWISE:
        return not source.startswith("Resize")
    if kind is KernelKind.TRANSPOSE:
        pieces = tables.times_optimised[tables.perf[key]["optimised_id"]]
        return source == "Transpose" and pieces == 1
    return True


def _ifm_step(debug: Row) -> tuple[int, int]:
    """Rows and columns from one that is read to the next."""
    return max(int(debug["ifm_strides_h"] or 1), 1), max(int(debug["ifm_strides_w"] or 1), 1)


def _upscale(target: Target, debug: Row, kind: KernelKind, kernel: Kernel) -> Upscale:
    """Infer x2 upscaling from the shapes (VELA_SPEC_2 §8.1).

    Regor never upscales on U85: it has a resize unit, and splits transpose convolutions.
    """
    if not isinstance(target.accelerator, AcceleratorU55):
        return Upscale.NONE
    if kind in (KernelKind.FULLY_CONNECTED, KernelKind.MATMUL) or transpose_of(debug) is not None:
        return Upscale.NONE
    pools = (KernelKind.AVG_POOL, KernelKind.MAX_POOL, KernelKind.DEPTHWISE)
    if kind is not KernelKind.CONV2D and kind not in pools:
        return Upscale.NONE
    steps = (debug["ofm_strides_h"], debug["ofm_strides_w"])
    if kernel.stride_h != 1 or kernel.stride_w != 1 or steps != ("1", "1"):
        return Upscale.NONE
    ifm, ofm = _must(map_of(debug, target, "ifm")), _must(map_of(debug, target, "ofm"))
    read_h, read_w = (
        ceil_div(size, step) for size, step in zip(ifm.shape[1:3], _ifm_step(debug), strict=True)
    )
    axes = (
        (read_h, ofm.shape[1], kernel.dilated_h, kernel.pad_top + kernel.pad_bottom),
        (read_w, ofm.shape[2], kernel.dilated_w, kernel.pad_left + kernel.pad_right),
    )
    if not all(2 * i - 2 <= o <= 2 * i + k for i, o, k, _ in axes):
        return Upscale.NONE
    if not any(o > i + pad - k + 1 for i, o, k, pad in axes):
        return Upscale.NONE
    return Upscale.ZEROS if kind is KernelKind.CONV2D else Upscale.NEAREST
