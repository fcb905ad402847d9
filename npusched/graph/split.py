"""Step 3 for ordinary kernels: four axes, deep elementwise shapes, batches, axes above 65536.

Sources: LOWERING.md §4; Vela 5.2.0, ``compiler/scheduler_packing.cpp`` (ConvertOperation),
``compiler/scheduler_decompose.cpp`` (ReshapeElementwise, DecomposeLeadingDimensions,
DecomposeBlocksElementwise, DecomposeConv2D, DecomposeBlocks).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from npusched.graph.averages import sum_and_scale
from npusched.graph.block_query import BlockOf, default_block
from npusched.graph.blocks import cut_blocks, is_strided, needs_cutting
from npusched.graph.kinds import CONVOLUTIONS, POOLS, REDUCTIONS, is_elementwise_like
from npusched.graph.shapes import (
    DEEP_ENOUGH,
    MAX_AXIS,
    MIN_DEPTH,
    deepened,
    folded_leading,
    pad_axes,
)
from npusched.graph.types import KernelKind, Pieces, Shape4
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.hardware.target import Family
from npusched.ir import Shape


def feature_maps(op: WorkOp) -> list[Link]:
    """Return all feature-map links of ``op``, the result last."""
    return [*op.ifms, *op.ofms]


def pad_to_four_axes(op: WorkOp) -> None:
    """Give every link at least four axes; drop slices that cover everything."""
    for link in feature_maps(op):
        if _covers_all(link):
            link.slice_offset = link.slice_shape = None
        link.shape = pad_axes(link.shape, 4)
        if link.slice_offset is not None and link.slice_shape is not None:
            link.slice_offset = pad_axes(link.slice_offset, 4, 0)
            link.slice_shape = pad_axes(link.slice_shape, 4)


def _covers_all(link: Link) -> bool:
    """Return True if a slice starts at the origin, has the shape of the view and no steps."""
    if link.slice_offset is None or (link.step_h, link.step_w) != (1, 1):
        return False
    return not any(link.slice_offset) and link.slice_shape == link.shape


def _may_reshape(op: WorkOp) -> bool:
    """Return True if nothing ties an elementwise op to its shape: no broadcast, slice or step."""
    links = feature_maps(op)
    if any(link.is_sliced or (link.step_h, link.step_w) != (1, 1) for link in links):
        return False
    shapes = {link.shape for link in op.ifms if prod(link.shape) != 1}
    return len(shapes) <= 1


def deepen(op: WorkOp) -> None:
    """Reshape a shallow elementwise op so that its channels fill a brick (LOWERING §4)."""
    if not is_elementwise_like(op.kind) or not _may_reshape(op):
        return
    if op.ofm_rescale is not None and len(op.ofm_rescale.multipliers) > 1:
        return
    shape = op.ofm.shape
    if prod(shape) <= MIN_DEPTH or shape[-1] >= DEEP_ENOUGH:
        return
    for link in feature_maps(op):
        if link is op.ofm or prod(link.shape) != 1:
            link.shape = deepened(link.shape)


def has_leading(links: Iterable[Link]) -> bool:
    """Return True if a link touches more than one index of an axis before (h, w, c)."""
    return any(prod(link.region[:-3]) > 1 for link in links)


def has_large_axis(links: Iterable[Link]) -> bool:
    """Return True if a link touches more than 65536 rows, columns or channels."""
    return any(max(link.region[-3:]) > MAX_AXIS for link in links)


def cut(graph: WorkGraph, op: WorkOp, block_of: BlockOf = default_block) -> None:
    """Replace ``op`` by pieces that the hardware runs, or leave it alone."""
    if is_elementwise_like(op.kind):
        links = feature_maps(op)
        if has_leading(links) or has_large_axis(links):
            replace_by(graph, op, _elementwise_pieces(op))
    elif op.kind is KernelKind.TRANSPOSE:
        replace_by(graph, op, _transposed_pieces(op))
    elif op.kind in CONVOLUTIONS or op.kind in POOLS or op.kind is KernelKind.FULLY_CONNECTED:
        replace_by(graph, op, _windowed_pieces(graph, op, block_of))


def _elementwise_pieces(op: WorkOp) -> list[WorkOp]:
    fold_leading_axes(op)
    pieces = along_leading_axes(op) if has_leading(feature_maps(op)) else [op]
    return [block for piece in pieces for block in _axis_pieces(piece)]


def _windowed_pieces(graph: WorkGraph, op: WorkOp, block_of: BlockOf) -> list[WorkOp]:
    pieces = [op]
    if has_leading(feature_maps(op)):
        pieces = along_leading_axes(op, grid=not needs_cutting(op))
    if op.kind in REDUCTIONS:
        return [block for piece in pieces for block in _axis_pieces(piece)]
    return [block for piece in pieces for block in _blocks(graph, piece, block_of)]


def _blocks(graph: WorkGraph, op: WorkOp, block_of: BlockOf) -> list[WorkOp]:
    if op.kind is KernelKind.AVG_POOL and is_strided(op) and graph.family is Family.U85:
        pool, rest = sum_and_scale(graph, op)
        return [*cut_blocks(graph, pool, block_of), *rest]
    return cut_blocks(graph, op, block_of)


def fold_leading_axes(op: WorkOp) -> None:
    """Fold the axes before (h, w, c) of an elementwise op into its height.

    The result may have rank 3, which counts as a reshape where ops are fused.
    """
    if not _may_reshape(op):
        return
    shape = folded_leading(op.ofm.shape)
    for link in feature_maps(op):
        link.slice_offset = link.slice_shape = None
        if link is op.ofm or prod(link.shape) != 1:
            link.shape = shape


def replace_by(graph: WorkGraph, op: WorkOp, pieces: list[WorkOp]) -> None:
    """Put ``pieces`` in the place of ``op``."""
    if pieces == [op]:
        return
    for piece in pieces:
        graph.add(piece, before=op)
    graph.remove(op)


def whole(link: Link) -> tuple[Shape, Shape]:
    """Return (offset, shape) of what a link touches."""
    if link.slice_offset is not None and link.slice_shape is not None:
        return link.slice_offset, link.slice_shape
    return (0,) * len(link.shape), link.shape


def along_leading_axes(op: WorkOp, *, grid: bool = True) -> list[WorkOp]:
    """Cut ``op`` into pieces of one index along each leading axis, in order.

    The last leading axis becomes a ``grid`` of equal pieces; axes before it separate ops. Inputs of
    size 1 along an axis are broadcast: every piece reads them whole.
    """
    rank = len(op.ofm.shape)
    outer: list[WorkOp] = [op]
    for axis in range(rank - 4):
        outer = [piece for one in outer for piece in _single_indices(one, axis)]
    axis = rank - 4
    if not grid:
        return [piece for one in outer for piece in _single_indices(one, axis)]
    return [_grid_along(one, axis) for one in outer]


def _single_indices(op: WorkOp, axis: int) -> list[WorkOp]:
    return [_narrowed(op, axis, index, 1) for index in range(op.ofm.region[axis])]


def _narrowed(op: WorkOp, axis: int, start: int, size: int) -> WorkOp:
    """Return a copy of ``op`` on [start, start + size) of one axis; broadcast inputs stay."""
    piece = op.clone()
    for link in feature_maps(piece):
        narrow(link, axis - len(op.ofm.shape), start, size)
    return piece


def narrow(link: Link, axis: int, start: int, size: int) -> None:
    """Touch only [start, start + size) of an axis (counted from the end), unless it is 1."""
    offset, shape = whole(link)
    at = axis + len(shape)
    if at >= 0 and shape[at] != 1:
        begin = offset[at] + start
        end = min(begin + size, offset[at] + shape[at])
        offset = (*offset[:at], begin, *offset[at + 1 :])
        shape = (*shape[:at], end - begin, *shape[at + 1 :])
    link.slice_offset, link.slice_shape = offset, shape


def _grid_along(op: WorkOp, axis: int) -> WorkOp:
    """Return ``op`` as a grid of equal pieces along ``axis`` (the one before h)."""
    count = op.ofm.region[axis]
    piece = _narrowed(op, axis, 0, 1)
    if count == 1:
        return piece

    def step(before: Link) -> Shape4:
        at = axis - len(op.ofm.shape) + len(before.region)
        return (1 if at >= 0 and before.region[at] != 1 else 0, 0, 0, 0)

    piece.pieces = Pieces(
        grid=(count, 1, 1, 1),
        ifm_steps=tuple(step(link) for link in op.ifms),
        ofm_step=(1, 0, 0, 0),
    )
    return piece


def _axis_pieces(op: WorkOp) -> list[WorkOp]:
    """Cut axes above 65536, height outermost."""
    blocks = [op]
    rank = len(op.ofm.shape)
    for axis in range(rank - 3, rank):
        size = op.ofm.region[axis]
        limit = _axis_limit(op, axis - rank)
        if size > limit:
            blocks = [
                _narrowed(block, axis, start, limit)
                for block in blocks
                for start in range(0, size, limit)
            ]
    return blocks


def _transposed_pieces(op: WorkOp) -> list[WorkOp]:
    """Cut axes above 65536 of a transpose by the hardware; its links see them in other places."""
    blocks = [op]
    for target, source in enumerate(op.transpose or ()):
        size = op.ofm.region[target - 3]
        if size > MAX_AXIS:
            starts = range(0, size, MAX_AXIS)
            blocks = [
                _narrowed_apart(b, (source - 3, target - 3), at) for b in blocks for at in starts
            ]
    return blocks


def _narrowed_apart(op: WorkOp, axes: tuple[int, int], start: int) -> WorkOp:
    piece = op.clone()
    narrow(piece.ifm, axes[0], start, MAX_AXIS)
    narrow(piece.ofm, axes[1], start, MAX_AXIS)
    return piece


def _axis_limit(op: WorkOp, axis: int) -> int:
    """Return the largest size of an axis; wide copies have less depth (U55 copies as 16 bits)."""
    bits = op.ofm.element_type.bits
    if axis == -1 and op.kind is KernelKind.MEMORY_COPY and bits > 16:
        return MAX_AXIS // (4 if bits == 64 else 2)
    return MAX_AXIS
