"""Kernels as rows that a scheduled graph and Vela's debug database share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import (
    NOT_STORED,
    Access,
    Kernel,
    Layout,
    Placement,
    ScheduledOp,
    Shape4,
    SourceRef,
)
from npusched.ir import DataType
from npusched.vela.records import VelaFm, VelaOp


@dataclass(frozen=True)
class MapRow:
    """A feature map as one kernel uses it; layout None where it never reaches memory."""

    region: Shape4
    offset: Shape4
    dtype: DataType
    layout: Layout | None


@dataclass(frozen=True)
class KernelRow:
    """One kernel; ``window`` is size, stride and dilation; ``followers`` are fused or chained."""

    operator: str
    source: SourceRef | None
    inputs: tuple[MapRow, ...]
    result: MapRow | None
    window: tuple[int, ...]
    followers: tuple[tuple[str, SourceRef | None], ...]


CPU_ROW = "Passthrough"


def rows_of_graph(graph: OpGraph) -> list[KernelRow]:
    """Return a row per kernel in the order in which they run, pieces one by one."""
    return [_row(graph, op, place) for op, place in _expanded(graph.ops)]


def _expanded(ops: Sequence[ScheduledOp]) -> Iterator[tuple[ScheduledOp, Shape4]]:
    """Yield every piece; a run of ops linked by accumulators is repeated as a whole."""
    run: list[ScheduledOp] = []
    for op in ops:
        run.append(op)
        if op.placement is Placement.NPU and not op.write_ofm:
            continue
        for place in _places(op):
            for member in run:
                yield member, place
        run = []


def _places(op: ScheduledOp) -> list[Shape4]:
    if op.pieces is None:
        return [(0, 0, 0, 0)]
    n, h, w, c = op.pieces.grid
    places = list(itertools.product(range(n), range(h), range(w), range(c)))
    return places[::-1] if op.pieces.backwards else places


def _row(graph: OpGraph, op: ScheduledOp, place: Shape4) -> KernelRow:
    if op.placement is Placement.CPU:
        return KernelRow(CPU_ROW, op.source_ops[0], (), None, (), ())
    steps = op.pieces.ifm_steps if op.pieces else ((0, 0, 0, 0),) * len(op.ifms)
    ofm_step = op.pieces.ofm_step if op.pieces else (0, 0, 0, 0)
    return KernelRow(
        op.kind.value,
        op.source_ops[0],
        tuple(
            _map_row(graph, access, place, step)
            for access, step in zip(op.ifms, steps, strict=True)
        ),
        _map_row(graph, _written(op), place, ofm_step),
        _window(op.kernel),
        tuple((sub.kind.value, sub.source_ops[0]) for sub in op.sub_ops),
    )


def _written(op: ScheduledOp) -> Access:
    """The primary's result as Vela states it: that of the last member fused before any chain."""
    result = op.ofm
    for sub in op.sub_ops:
        if sub.chained:
            break
        result = sub.ofm
    return result


def _map_row(graph: OpGraph, access: Access, place: Shape4, step: Shape4) -> MapRow:
    n, h, w, c = (
        at + index * size for at, index, size in zip(access.offset, place, step, strict=True)
    )
    stored = access.tensor != NOT_STORED
    layout = graph.feature_maps[access.tensor].layout if stored else None
    return MapRow(access.shape, (n, h, w, c), access.dtype, layout)


def _window(kernel: Kernel) -> tuple[int, ...]:
    sizes = (kernel.h, kernel.w, kernel.stride_h, kernel.stride_w)
    return (*sizes, kernel.dilation_h, kernel.dilation_w)


def rows_of_vela(ops: Sequence[VelaOp]) -> list[KernelRow]:
    """Return a row per primary op of Vela's database."""
    return [
        KernelRow(CPU_ROW, op.source_ref, (), None, (), ())
        if op.is_cpu
        else KernelRow(
            op.operator,
            op.source_ref,
            tuple(_vela_map(fm) for fm in (op.ifm, op.ifm2) if fm is not None),
            None if op.ofm is None else _vela_map(op.ofm),
            _window(op.kernel),
            tuple((follower.operator, follower.source_ref) for follower in op.followers),
        )
        for op in ops
    ]


def _vela_map(fm: VelaFm) -> MapRow:
    """A place of 3 axes is padded with 1 in the database: no batch of one has a second."""
    n, h, w, c = fm.offset
    return MapRow(
        fm.region, (min(n, fm.shape[0] - 1), h, w, c), fm.dtype, fm.layout if fm.memory else None
    )


def matches(ours: KernelRow, vela: KernelRow) -> bool:
    """Return True if both are the same kernel; Vela knows no source of ops that it made up."""
    if len(ours.followers) != len(vela.followers):
        return False
    followers = tuple(
        (name, mine if theirs is None else theirs)
        for (_, mine), (name, theirs) in zip(ours.followers, vela.followers, strict=True)
    )
    source = ours.source if vela.source is None else vela.source
    return ours == replace(vela, source=source, followers=followers)
