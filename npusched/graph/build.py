"""``build_graph``: from a model to the scheduled graph, the passes in the order of regor.

Sources: LOWERING.md §1; Vela 5.2.0, ``compiler/tflite_graph_optimiser.hpp`` and
``compiler/graphir_optimiser.hpp`` (step lists), ``compiler/scheduler_packing.cpp`` (Process).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from npusched.errors import ModelError
from npusched.graph import moves, pads
from npusched.graph.block_query import BlockOf, default_block
from npusched.graph.freeze import freeze
from npusched.graph.fuse import Group, fuse
from npusched.graph.intake import make_work_graph
from npusched.graph.lower.logic import convert_booleans
from npusched.graph.lower.registry import DECOMPOSITIONS, LOWERINGS
from npusched.graph.lower.transpose import merge_transpose
from npusched.graph.opgraph import OpGraph, SourceOp, SourcePlacement
from npusched.graph.order import execution_order, gather_cpu_ops, walk
from npusched.graph.requant import fuse_requantisation
from npusched.graph.split import cut, deepen, pad_to_four_axes
from npusched.graph.types import Placement, ScheduledOp
from npusched.graph.work import WorkGraph, WorkOp
from npusched.hardware.target import Family
from npusched.ir import Model, Op, OpKind, Subgraph
from npusched.ops import Reason, dilated_convolutions, host_work, place, unreachable_ops

Placements = Mapping[int, tuple[Reason, ...]]
"""Per op index the reasons for the CPU; empty = on the NPU."""


def build_graph(
    model: Model,
    family: Family | None,
    *,
    subgraph: int = 0,
    placements: Placements | None = None,
    block_of: BlockOf = default_block,
) -> OpGraph:
    """Return the scheduled graph of one subgraph as Vela 5.2 would schedule it on ``family``.

    ``family`` None: every op on the host, one scheduled op per source op. ``placements``
    overrides which ops run on the CPU (default: ``npusched.ops.place``; ops without an entry run
    on the NPU). ``block_of`` gives the accelerator's block sizes, which decide into how many
    pieces ops with an axis above 65536 (on U85 also padded strides above 3) are cut; without it
    a fixed block is assumed. Raises ModelError if there is no such subgraph.
    """
    if not 0 <= subgraph < len(model.subgraphs):
        raise ModelError(
            f"{model.name} has no subgraph {subgraph}",
            f"it has {len(model.subgraphs)}, counted from 0",
            "give the index of one of them",
            subgraph=subgraph,
        )
    given = place(model, family, subgraph) if placements is None else placements
    reasons = {op.index: tuple(given.get(op.index, ())) for op in model.subgraphs[subgraph].ops}
    matches = () if family is None else dilated_convolutions(model, family, subgraph)
    graph = make_work_graph(
        model,
        family,
        subgraph,
        on_cpu=lambda op: bool(reasons[op.index]) or op.kind is OpKind.CUSTOM,
        dilated=matches,
    )
    if family is not None:
        lower_ops(graph)
        move_data(graph)
    ops, maps = freeze(graph, _groups(graph, block_of))
    by_source = {fm.source: fm.id for fm in maps.values() if fm.source is not None}
    source = model.subgraphs[subgraph]
    ops = tuple(_with_host_work(source, op) for op in ops)
    return OpGraph(
        family=family,
        subgraph=subgraph,
        ops=ops,
        feature_maps=maps,
        inputs=tuple(by_source[subgraph, index] for index in source.inputs),
        outputs=tuple(by_source[subgraph, index] for index in source.outputs),
        sources=_sources(model, subgraph, ops, reasons),
    )


def _with_host_work(source: Subgraph, op: ScheduledOp) -> ScheduledOp:
    """Note what a CPU op does, in MACs and elements, for its cost on the host."""
    if op.placement is not Placement.CPU:
        return op
    return replace(op, host_work=host_work(source, source.ops[op.source_ops[0][1]]))


def _groups(graph: WorkGraph, block_of: BlockOf) -> list[Group]:
    """Return the kernels in execution order: of the file on a host, as regor's on an NPU."""
    if graph.family is None:
        return fuse(sorted(graph.ops, key=lambda op: op.source_ops), Family.U55)
    fused = fuse(decompose(graph, execution_order(graph), block_of), graph.family)
    by_primary = {group.primary: group for group in fused}
    gathered = gather_cpu_ops([group.members for group in fused])
    return [by_primary[members[0]] for members in gathered]


def lower_ops(graph: WorkGraph) -> None:
    """Step 1: turn each TFLite op on the NPU into kernels, from the outputs upwards.

    Variables first: each assignment makes its variable an output, in the order in which the
    handles are met. Handles last, because their readers look at them.
    """
    order = _visiting_order(graph)
    handles = [op for op in order if op.kind is OpKind.VAR_HANDLE]
    assignments = [
        reader
        for handle in handles
        for reader in handle.ofm.tensor.readers
        if reader.kind is OpKind.ASSIGN_VARIABLE
    ]
    others = [op for op in order if op.kind is not OpKind.VAR_HANDLE]
    for op in dict.fromkeys([*assignments, *others, *handles]):
        if not op.cpu and isinstance(op.kind, OpKind) and graph.holds(op):
            LOWERINGS[op.kind](graph, op)


def _visiting_order(graph: WorkGraph) -> list[WorkOp]:
    order: list[WorkOp] = []

    def note(_: WorkGraph, op: WorkOp) -> WorkOp:
        order.append(op)
        return op

    walk(graph, note)
    return list(dict.fromkeys(order))


def move_data(graph: WorkGraph) -> None:
    """Step 2: remove views, swallow pads, unroll strides, fuse requantisations, move slices."""
    convert_booleans(graph)
    walk(graph, moves.move_view_past_transpose)
    walk(graph, moves.remove_view)
    walk(graph, moves.fold_constant)
    walk(graph, fuse_requantisation)
    windows = (pads.fix_pool_stride, pads.swallow_pad, pads.reset_kernel, pads.rewrite_pad)
    if graph.family is Family.U85:
        walk(graph, *windows, pads.unroll_strides)
    else:
        walk(graph, *windows, pads.unroll_strides, moves.split_double_broadcast)
    moves.remove_unread(graph)
    walk(graph, merge_transpose, moves.move_slice_to_readers, moves.move_slice_to_writer)
    moves.remove_unread(graph)
    walk(graph, fuse_requantisation)


def decompose(graph: WorkGraph, order: list[WorkOp], block_of: BlockOf) -> list[WorkOp]:
    """Step 3: cut ops that the hardware cannot run in one go; return the final order."""
    result: list[WorkOp] = []
    for op in order:
        if op.cpu:
            result.append(op)
            continue
        graph.set_ops([op])
        pad_to_four_axes(op)
        deepen(op)
        if op.kind in DECOMPOSITIONS:
            DECOMPOSITIONS[op.kind](graph, op)
        for piece in graph.ops:
            cut(graph, piece, block_of)
        result += graph.ops
    graph.set_ops(result)
    return result


def _sources(
    model: Model, subgraph: int, ops: tuple[ScheduledOp, ...], reasons: Placements
) -> tuple[SourceOp, ...]:
    source = model.subgraphs[subgraph]
    scheduled: dict[int, list[int]] = {op.index: [] for op in source.ops}
    owned: set[int] = set()
    for op in ops:
        refs = [*op.source_ops, *(ref for sub in op.sub_ops for ref in sub.source_ops)]
        owned.add(op.source_ops[0][1])
        owned.update(sub.source_ops[0][1] for sub in op.sub_ops)
        for _, index in dict.fromkeys(refs):
            scheduled[index].append(op.id)
    dropped = unreachable_ops(source)
    return tuple(
        SourceOp(
            ref=(subgraph, op.index),
            kind=op.kind,
            placement=_source_placement(op, ops, scheduled[op.index], owned, dropped),
            cpu_reasons=reasons[op.index],
            scheduled_ops=tuple(scheduled[op.index]),
        )
        for op in source.ops
    )


_VIEWS = frozenset({OpKind.RESHAPE, OpKind.SQUEEZE, OpKind.EXPAND_DIMS, OpKind.TRANSPOSE})


def _source_placement(
    op: Op,
    ops: tuple[ScheduledOp, ...],
    scheduled: list[int],
    owned: set[int],
    dropped: frozenset[int],
) -> SourcePlacement:
    if op.index in dropped:
        return SourcePlacement.FOLDED
    if op.index in owned:
        on_cpu = any(ops[number].placement is Placement.CPU for number in scheduled)
        return SourcePlacement.CPU if on_cpu else SourcePlacement.NPU
    return SourcePlacement.VIEW if op.kind in _VIEWS else SourcePlacement.FOLDED
