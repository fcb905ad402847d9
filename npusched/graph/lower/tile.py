"""TILE, MIRROR_PAD, REVERSE_V2: copies into place.

Source: LOWERING.md §4; Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RewriteTile,
ReshapeReverse), ``compiler/tflite_graph_optimiser.cpp`` (ConvertMirrorPad, ConvertReverse).
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower.common import (
    NO_SCALE,
    add_kernel,
    copy,
    quant,
    temporary,
    use,
)
from npusched.graph.shapes import around_axis, with_axis
from npusched.graph.types import KernelKind, Reverse
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import OpKind, Shape
from npusched.ir.options import MirrorPadOptions


def constant_values(tensor: WorkTensor) -> list[int]:
    """Return the values of a constant parameter, flattened ([] if it is not constant)."""
    return [] if tensor.data is None else [int(value) for value in np.ravel(tensor.data)]


# --- TILE ----------------------------------------------------------------------------------


def lower_tile(graph: WorkGraph, op: WorkOp) -> None:
    """TILE: one copy if nothing is repeated, else copies axis by axis."""
    tile_copies(graph, op, op.ifm, op.ofm)
    graph.remove(op)


def tile_copies(graph: WorkGraph, op: WorkOp, ifm: Link, ofm: Link) -> None:
    """Add the copies that repeat ``ifm`` to the shape of ``ofm`` (equal rank).

    Per repeated axis, the partial result so far is copied as often as the axis asks.
    """
    repeats = [wide // narrow for wide, narrow in zip(ofm.shape, ifm.shape, strict=True)]
    axes = [axis for axis, count in enumerate(repeats) if count > 1]
    if not axes:
        copy(graph, op, ifm, ofm)
        return
    source = ifm
    for axis in axes:
        shape = with_axis(source.shape, axis, ofm.shape[axis])
        if axis == axes[-1]:
            target = ofm
        else:
            partial = temporary(graph, op, f"tiled_{axis}", shape, ofm.tensor.dtype)
            target = use(partial, quant(source))
        for index in range(repeats[axis]):
            offset = with_axis((0,) * len(shape), axis, index * source.shape[axis])
            copy(graph, op, source, _part(target, offset, source.shape))
        source = replace(use(target.tensor, quant(target), shape))


def _part(link: Link, offset: Shape, shape: Shape) -> Link:
    return replace(link, slice_offset=offset, slice_shape=shape)


# --- MIRROR_PAD ----------------------------------------------------------------------------


def lower_mirror_pad(graph: WorkGraph, op: WorkOp) -> None:
    """MIRROR_PAD of h and w: the centre, mirrored rows from the input, columns from the result."""
    options = op.options
    edge = 0 if isinstance(options, MirrorPadOptions) and options.symmetric else 1
    pads = constant_values(op.params[1])
    top, bottom, left, right = _pads_of_h_and_w(pads)
    ifm, ofm = op.ifm, op.ofm
    rank = len(ofm.shape)
    height, width = rank - 3, rank - 2
    ifm_h, ifm_w = ifm.shape[height], ifm.shape[width]
    zeros = (0,) * rank

    def at(h: int, w: int) -> Shape:
        return with_axis(with_axis(zeros, height, h), width, w)

    copy(graph, op, ifm, _part(ofm, at(top, left), ifm.shape))
    for rows, read, write in (
        (top, edge, 0),
        (bottom, ifm_h - bottom - edge, ofm.shape[height] - bottom),
    ):
        if rows:
            shape = with_axis(ifm.shape, height, rows)
            source, target = _part(ifm, at(read, 0), shape), _part(ofm, at(write, left), shape)
            copy(graph, op, source, target).reverse = Reverse.H
    for columns, read, write in (
        (left, left + edge, 0),
        (right, ifm_w + left - right - edge, ofm.shape[width] - right),
    ):
        if columns:
            shape = with_axis(ofm.shape, width, columns)
            source, target = _part(ofm, at(0, read), shape), _part(ofm, at(0, write), shape)
            copy(graph, op, source, target).reverse = Reverse.W
    graph.remove(op)


def _pads_of_h_and_w(pads: list[int]) -> tuple[int, int, int, int]:
    """Return (top, bottom, left, right) of pads that end with those of h, w and c."""
    padded = [0] * max(0, 6 - len(pads)) + pads
    top, bottom, left, right = padded[-6:-2]
    return top, bottom, left, right


# --- REVERSE_V2 ----------------------------------------------------------------------------


def lower_reverse(graph: WorkGraph, op: WorkOp) -> None:
    """REVERSE_V2: one mover per axis. A batch or more than 4 axes are folded around the axis."""
    shape = op.ofm.shape
    axes = [axis % len(shape) for axis in constant_values(op.params[1])]
    if not axes:
        op.kind = OpKind.RESHAPE
        return
    source = use(op.ifm.tensor, NO_SCALE, shape)
    for position, axis in enumerate(axes):
        if position == len(axes) - 1:
            result = use(op.ofm.tensor, NO_SCALE, shape)
        else:
            middle = temporary(graph, op, f"reversed_{axis}", shape, op.ofm.tensor.dtype)
            result = use(middle)
        added = add_kernel(graph, op, KernelKind.REVERSE, [source], result)
        _set_axis(added, shape, axis)
        source = use(result.tensor, NO_SCALE, shape)
    graph.remove(op)


def _set_axis(op: WorkOp, shape: Shape, axis: int) -> None:
    rank = len(shape)
    folded = rank > 4 or (rank == 4 and (shape[0] > 1 or axis == 0))
    if folded:
        op.ifm.shape = op.ofm.shape = around_axis(shape, axis)
        axis, rank = 1, 3
    op.axis = axis - rank
    op.reverse = {-3: Reverse.H, -2: Reverse.W, -1: Reverse.C}[op.axis]
