"""TRANSPOSE: views, merging of neighbours, and the swaps that one permutation takes.

Source: LOWERING.md §4; Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RewriteIdentityTranspose,
MergeTransposes), ``compiler/scheduler_decompose.cpp`` (DecomposeTranspose, SwapAxes),
``architecture/ethosu55|85/*_constraints.cpp`` (OperatorQuery).
"""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower.common import NO_SCALE, add_kernel, is_u85, use, view
from npusched.graph.shapes import around_axis, folded_leading, pad_axes
from npusched.graph.types import KernelKind, Reverse
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.ir import DataType, OpKind, Shape

Perm = tuple[int, ...]

NHCW, NWHC, NCWH = (0, 2, 1), (1, 0, 2), (2, 1, 0)
NWCH, NCHW = (1, 2, 0), (2, 0, 1)
IDENTITY = (0, 1, 2)

U55_PERMUTATIONS = (NWHC, NHCW, NCWH)
"""What U55 and U65 do in one compound op; 32-bit NCWH takes three."""

U85_PERMUTATIONS = (NWHC, NHCW, NCWH, NWCH, NCHW)


# --- step 1 --------------------------------------------------------------------------------


def lower_transpose(graph: WorkGraph, op: WorkOp) -> None:
    """TRANSPOSE: a view if only axes of size 1 move, else one whole transpose."""
    del graph
    data = op.params[1].data
    assert data is not None
    rank = len(op.ifm.shape)
    perm = tuple(int(axis) % rank for axis in np.ravel(data))
    if keeps_order(op.ifm.shape, perm):
        op.kind = OpKind.RESHAPE
        return
    op.kind = KernelKind.TRANSPOSE
    op.perm = perm


def keeps_order(shape: Shape, perm: Perm) -> bool:
    """Return True if ``perm`` moves only axes of size 1."""
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)


def add_transpose(graph: WorkGraph, op: WorkOp, source: Link, result: Link, perm: Perm) -> WorkOp:
    """Add a transpose that ``op`` needs in step 1: a view if only axes of size 1 move."""
    if keeps_order(source.shape, perm):
        return view(graph, op, source, result)
    added = add_kernel(graph, op, KernelKind.TRANSPOSE, [source], result)
    added.perm = perm
    return added


# --- step 2 --------------------------------------------------------------------------------


def merge_transpose(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Merge a transpose into the one that feeds it; return the op to look at next.

    They merge if nobody else reads the tensor between, both see it in one shape, and at most one
    of them rescales. One that permutes nothing hands its result to its producer, if it has one.
    """
    if op.kind is not KernelKind.TRANSPOSE or op.perm is None:
        return op
    between = op.ifm.tensor
    producer = between.writers[0] if between.writers else None
    if is_identity(op.perm):
        return _drop_identity(graph, op, producer)
    if (
        producer is None
        or producer.kind is not KernelKind.TRANSPOSE
        or producer.perm is None
        or producer.cpu
        or not between.is_single_path
        or between.is_graph_output
    ):
        return op
    if producer.reverse is not Reverse.NONE or producer.ofm.shape != op.ifm.shape:
        return op
    if op.ofm_rescale is not None and producer.ofm_rescale is not None:
        return op
    producer.perm = tuple(producer.perm[axis] for axis in op.perm)
    if op.ofm_rescale is not None:
        producer.ofm_rescale = op.ofm_rescale
    producer.reverse = op.reverse
    result = op.ofm.copy()
    gap = producer.ofm.zero_point - op.ifm.zero_point  # one link may carry no quantisation
    if op.ofm_rescale is not None:
        producer.ifm.zero_point -= gap
    else:
        result.zero_point += gap
    graph.remove(op)
    graph.replace_ofm(producer, result)
    producer.source_ops = _union(producer.source_ops, op.source_ops)
    return producer


def _drop_identity(graph: WorkGraph, op: WorkOp, producer: WorkOp | None) -> WorkOp:
    """Let the producer write the result, or copy if there is neither producer nor reader."""
    result = op.ofm
    if producer is None:
        if not result.tensor.readers:
            op.kind, op.perm = KernelKind.MEMORY_COPY, None
        return op
    if (
        producer.cpu
        or not op.ifm.tensor.is_single_path
        or op.ifm.tensor.is_graph_output
        or op.ofm_rescale is not None
        or result.slice_offset is not None
    ):
        return op
    link = replace(producer.ofm, tensor=result.tensor)
    graph.remove(op)
    graph.replace_ofm(producer, link)
    producer.source_ops = _union(producer.source_ops, op.source_ops)
    return producer


def is_identity(perm: Perm) -> bool:
    """Return True if ``perm`` moves nothing."""
    return perm == tuple(range(len(perm)))


def _union(
    first: tuple[tuple[int, int], ...], second: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int], ...]:
    return first + tuple(source for source in second if source not in first)


# --- step 3 --------------------------------------------------------------------------------


def decompose_transpose(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: set ``transpose`` where the hardware does the permutation, else swap axes in turn.

    A selection sort of the axes; each swap is one op on a 3-axis view where the two axes can be
    made neighbours or ends of it, else it is carried out by moving them there and back.
    """
    if op.perm is None:
        return
    ifm = op.ifm
    if ifm.element_type is DataType.INT64 and not is_identity(op.perm):
        _read_as_pairs(op)
    shape, perm = _aligned(ifm.region, op.perm)
    if is_identity(perm):
        _copy_like(op)
        return
    if _is_native(graph, shape, perm, ifm.element_type):
        op.transpose, op.perm = _inner(perm), None
        return
    swaps = _selection_sort(graph, shape, perm, ifm.element_type)
    _add_swaps(graph, op, swaps)


def _read_as_pairs(op: WorkOp) -> None:
    """See int64 values as pairs of int32 along a new last axis."""
    assert op.perm is not None
    op.perm = (*op.perm, len(op.perm))
    for link in (op.ifm, op.ofm):
        link.shape = (*link.shape, 2)
        link.dtype = DataType.INT32


def _aligned(shape: Shape, perm: Perm) -> tuple[Shape, Perm]:
    """Return shape and permutation in one rank (at least 3): axes of size 1 in front stay."""
    rank = max(len(shape), len(perm), 3)
    extra = rank - len(perm)
    return pad_axes(shape, rank), (*range(extra), *(axis + extra for axis in perm))


def _inner(perm: Perm) -> tuple[int, int, int]:
    first = len(perm) - 3
    h, w, c = (axis - first for axis in perm[-3:])
    return (h, w, c)


def _copy_like(op: WorkOp) -> None:
    """A transpose of nothing runs as a copy of any shape (its kind stays)."""
    shape = folded_leading(op.ifm.region)
    op.perm, op.transpose = None, None
    for link in (op.ifm, op.ofm):
        if link.slice_offset is None:
            link.shape = shape


def _is_native(graph: WorkGraph, shape: Shape, perm: Perm, dtype: DataType) -> bool:
    """Return True if one op does this permutation of (1, ..., 1, h, w, c)."""
    first = len(perm) - 3
    if perm[:first] != tuple(range(first)) or prod(shape[:first]) != 1:
        return False
    inner = _inner(perm)
    if is_u85(graph):
        return inner in U85_PERMUTATIONS
    if dtype.bits == 32 and inner == NCWH:
        return False
    return inner in U55_PERMUTATIONS


Swap = tuple[Shape, Perm]
"""One op: the view that it reads, (h, w, c) or with ones in front, and how it permutes (h, w, c).

The rank of the view matters: a view of another rank counts as a reshape where ops are fused."""


def _selection_sort(graph: WorkGraph, shape: Shape, perm: Perm, dtype: DataType) -> list[Swap]:
    """Return the ops that bring the axes into the order of ``perm``."""
    order = [perm.index(axis) for axis in range(len(perm))]
    current = list(shape)
    swaps: list[Swap] = []
    for axis in range(len(perm)):
        if order[axis] == axis:
            continue
        found = order.index(axis, axis + 1)
        swaps += _swap_axes(graph, current, axis, found, dtype)
        order[axis], order[found] = order[found], order[axis]
    return swaps


def _swap_axes(graph: WorkGraph, shape: list[int], a: int, b: int, dtype: DataType) -> list[Swap]:
    """Swap axes a < b of ``shape`` (in place) and return the ops that do it."""
    rank = len(shape)
    last = rank - 1
    if rank <= 3 or (a >= rank - 3 and prod(shape[:-3]) == 1):
        return _swap_inner(graph, shape, a, b, dtype)
    if (a, b) == (0, 1):
        ops = _swap_axes(graph, [shape[0], shape[1], prod(shape[2:])], 0, 1, dtype)
    elif (a, b) == (last - 1, last):
        ops = _swap_axes(graph, [prod(shape[:-2]), shape[-2], shape[-1]], 1, 2, dtype)
    elif a != 0:
        ops = _swap_axes(graph, list(around_axis(tuple(shape), a)), 0, 1, dtype)
        shape.insert(0, shape.pop(a))
        ops += _swap_axes(graph, shape, 0, b, dtype)
        ops += _swap_axes(
            graph, [shape[0], prod(shape[1 : a + 1]), prod(shape[a + 1 :])], 0, 1, dtype
        )
        shape.insert(a, shape.pop(0))
        return ops
    elif b != last:
        ops = _swap_axes(graph, list(around_axis(tuple(shape), b)), 1, 2, dtype)
        shape.append(shape.pop(b))
        ops += _swap_axes(graph, shape, 0, last, dtype)
        ops += _swap_axes(graph, [prod(shape[:b]), prod(shape[b:-1]), shape[-1]], 1, 2, dtype)
        shape.insert(b, shape.pop())
        return ops
    else:
        ops = _swap_axes(graph, [shape[0], prod(shape[1:-1]), shape[-1]], 0, 2, dtype)
    shape[a], shape[b] = shape[b], shape[a]
    return ops


def _swap_inner(graph: WorkGraph, shape: list[int], a: int, b: int, dtype: DataType) -> list[Swap]:
    """Swap two of the three last axes; h and c of 32-bit data by way of w on U55/U65."""
    rank = len(shape)
    perm = list(range(rank))
    perm[a], perm[b] = perm[b], perm[a]
    full, aligned = _aligned(tuple(shape), tuple(perm))
    if not _is_native(graph, full, aligned, dtype):
        ops: list[Swap] = []
        for pair in ((rank - 2, rank - 1), (rank - 3, rank - 2), (rank - 2, rank - 1)):
            ops += _swap_inner(graph, shape, *pair, dtype)
        return ops
    shape[a], shape[b] = shape[b], shape[a]
    return [(full, _inner(aligned))]


def _add_swaps(graph: WorkGraph, op: WorkOp, swaps: list[Swap]) -> None:
    """Replace ``op`` by one transpose per swap; only the last one applies zero points."""
    source: Link = use(op.ifm.tensor, NO_SCALE)
    source.dtype = op.ifm.dtype
    for position, (shape, inner) in enumerate(swaps):
        moved = (*shape[:-3], *(shape[axis - 3] for axis in inner))
        last = position == len(swaps) - 1
        if last:
            result = _first_of(op.ofm, moved)
            source = replace(source, scale=op.ifm.scale, zero_point=op.ifm.zero_point)
        else:
            name = f"{op.ofm.tensor.name}/swap_{position}"
            result = use(graph.new_tensor(name, moved, op.ifm.element_type), NO_SCALE)
        piece = op.clone()
        piece.perm, piece.transpose = None, _triple(inner)
        piece.ofm_rescale = op.ofm_rescale if last else None
        piece.ifms, piece.ofms = [replace(source, shape=shape)], [result]
        piece.accumulator_scaled = False
        graph.add(piece, before=op)
        source = use(result.tensor, NO_SCALE, moved)
        source.dtype = result.dtype
    graph.remove(op)


def _first_of(link: Link, shape: Shape) -> Link:
    """See the tensor of ``link`` as ``shape``, or as several of it of which the first is meant."""
    count = prod(link.tensor.shape) // prod(shape)
    if count <= 1:
        return replace(link, shape=shape)
    whole = (count * shape[0], *shape[1:])
    return replace(link, shape=whole, slice_offset=(0,) * len(shape), slice_shape=shape)


def _triple(inner: Perm) -> tuple[int, int, int]:
    h, w, c = inner
    return (h, w, c)
