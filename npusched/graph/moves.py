"""Data movement that costs nothing: views, slices and pads that neighbours take over.

Sources: LOWERING.md §4; Vela 5.2.0, ``compiler/graphir_optimiser.cpp`` (RemoveReshape,
CanonicaliseReshapeTransposePattern, MoveSplitSliceToConsumer, MoveConcatSliceToProducer,
RemoveUnusedConsumers, ReplaceBroadcastWithAdd), ``compiler/optimiser_utils.cpp``.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.kinds import is_binary, is_elementwise
from npusched.graph.lower.fixedpoint import clamp, multiply_by_scale
from npusched.graph.lower.scaling import UNIT, Scale, dtype_range
from npusched.graph.shapes import equal_reduced, pad_axes, squeezed
from npusched.graph.types import KernelKind, Reverse, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import OpKind
from npusched.ir.options import ReshapeOptions

_MOVERS = frozenset(
    {
        OpKind.RESHAPE,
        OpKind.PAD,
        KernelKind.MEMORY_COPY,
        KernelKind.TRANSPOSE,
        KernelKind.REVERSE,
        KernelKind.GATHER,
        KernelKind.SCATTER,
    }
)
"""Ops that cannot take over the slice that their result is copied to."""

_NO_SLICED_INPUT = frozenset({OpKind.RESHAPE, KernelKind.GATHER, KernelKind.SCATTER})
"""Ops that stop a slice from being moved to the readers."""


# --- views ---------------------------------------------------------------------------------


def remove_view(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Remove a view by letting both sides use one tensor; copy first where that is impossible.

    A copy of the input is made iff the input is (graph input or output, constant, written by the
    CPU, persistent) and the output is (graph output, read by the CPU, persistent), or the input
    has several readers and the stored shapes differ. Other readers then read the copy too.
    """
    if op.kind is not OpKind.RESHAPE or op.cpu:
        return op
    source, result = op.ifm.tensor, op.ofm.tensor
    pinned_source = (
        source.is_graph_input
        or source.is_graph_output
        or source.is_constant
        or source.is_persistent
        or any(writer.cpu for writer in source.writers)
    )
    pinned_result = (
        result.is_graph_output
        or result.is_persistent
        or any(reader.cpu for reader in result.readers)
    )
    next_op = op
    if (pinned_source and pinned_result) or (
        len(source.readers) > 1 and source.shape != result.shape
    ):
        next_op = _copy_after(graph, op)
        source = op.ifm.tensor
    graph.remove(op)
    if pinned_result:
        _redirect_writers(source, result)
        _redirect_readers(source, result)
    else:
        _redirect_readers(result, source)
        source.shape = result.shape
        if source.source is None:
            source.source = result.source
    return next_op


def _copy_after(graph: WorkGraph, view: WorkOp) -> WorkOp:
    """Copy the view's input to a new tensor that all its readers then read."""
    source = view.ifm.tensor
    link = Link(tensor=source, shape=source.shape, zero_point=view.ifm.zero_point)
    link.scale = view.ifm.scale
    copied = clone_tensor(graph, source, f"{source.name}_copy")
    _redirect_readers(source, copied)
    return graph.add(
        WorkOp(
            kind=KernelKind.MEMORY_COPY,
            source_ops=view.source_ops,
            ifms=[link],
            ofms=[replace(link, tensor=copied)],
            rounding=Rounding.NATURAL,
            name=view.name,
        )
    )


def clone_tensor(graph: WorkGraph, tensor: WorkTensor, name: str) -> WorkTensor:
    """Add a temporary like ``tensor``, without its values, readers and writers."""
    clone = replace(
        tensor,
        name=name,
        data=None,
        source=None,
        is_graph_input=False,
        is_graph_output=False,
        is_persistent=False,
        readers=[],
        writers=[],
    )
    graph.tensors.append(clone)
    return clone


def _redirect_writers(old: WorkTensor, new: WorkTensor) -> None:
    """Let every writer of ``old`` write ``new``; shapes and slices of the links stay."""
    for op in list(old.writers):
        for position, link in enumerate(op.ofms):
            if link.tensor is old:
                op.ofms[position] = replace(link, tensor=new)
                old.writers.remove(op)
                new.writers.append(op)


def _redirect_readers(old: WorkTensor, new: WorkTensor) -> None:
    """Let every reader of ``old`` read ``new``; shapes and slices of the links stay."""
    for op in list(dict.fromkeys(old.readers)):
        for position, link in enumerate(op.ifms):
            if link.tensor is old:
                op.ifms[position] = replace(link, tensor=new)
                old.readers.remove(op)
                new.readers.append(op)
        for position, tensor in op.params.items():
            if tensor is old:
                op.params[position] = new
                old.readers.remove(op)
                new.readers.append(op)


def move_view_past_transpose(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Swap a RESHAPE that moves only unit axes with the transpose that alone reads it.

    The transpose then permutes the view's input, and a view follows it, which makes it easier to
    merge with other transposes.
    """
    if not isinstance(op.options, ReshapeOptions) or op.cpu or not op.ofm.tensor.is_single_path:
        return op
    transpose = op.ofm.tensor.readers[0]
    perm = transpose.perm
    before, after = op.ifm.shape, transpose.ifm.shape
    if transpose.kind is not KernelKind.TRANSPOSE or perm is None or transpose.cpu:
        return op
    if squeezed(before) != squeezed(after):
        return op
    axes = [axis for axis, size in enumerate(before) if size != 1]
    rank_of = {axis: i for i, axis in enumerate(a for a, size in enumerate(after) if size != 1)}
    moved = iter([axes[rank_of[axis]] for axis in perm if axis in rank_of])
    transpose.perm = tuple(axis if size == 1 else next(moved) for axis, size in enumerate(before))
    shape = tuple(before[axis] for axis in transpose.perm)
    result = transpose.ofm
    between = clone_tensor(graph, result.tensor, f"{result.tensor.name}_propagated_reshape")
    between.shape, between.dtype = shape, op.ofm.tensor.dtype
    source = op.ifm.copy()
    graph.remove(op)
    graph.replace_ifm(transpose, 0, replace(transpose.ifm, tensor=source.tensor, shape=before))
    graph.replace_ofm(transpose, replace(result, tensor=between, shape=shape))
    return graph.add(
        WorkOp(
            kind=OpKind.RESHAPE,
            source_ops=op.source_ops,
            ifms=[replace(result, tensor=between, shape=shape)],
            ofms=[result.copy()],
            options=op.options,
            name=op.name,
        )
    )


def fold_constant(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Compute an unscaled copy, or a requantisation, of a whole constant now."""
    if op.kind not in (KernelKind.MEMORY_COPY, KernelKind.QUANTIZE) or op.cpu:
        return op
    ifm, ofm = op.ifm, op.ofm
    data = ifm.tensor.data
    if data is None or ofm.tensor.is_graph_output or len(ofm.tensor.writers) > 1:
        return op
    if ifm.is_sliced or ofm.is_sliced:
        return op
    if op.kind is KernelKind.QUANTIZE:
        data = _requantised(op, data)
    elif op.ofm_rescale is not None or ifm.zero_point != ofm.zero_point:
        return op
    ofm.tensor.data = data.reshape(ofm.tensor.shape)
    graph.remove(op)
    return op


def _requantised(op: WorkOp, data: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return what the kernel would make of ``data``."""
    scale = UNIT
    if op.ofm_rescale is not None:
        scale = Scale(op.ofm_rescale.multipliers[0], op.ofm_rescale.shifts[0])
    low, high = dtype_range(op.ofm.element_type)
    values = [
        clamp(multiply_by_scale(value - op.ifm.zero_point, scale) + op.ofm.zero_point, low, high)
        for value in data.reshape(-1).tolist()
    ]
    return np.array(values, op.ofm.element_type.label)


# --- slices --------------------------------------------------------------------------------


def move_slice_to_readers(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Let each reader of a sliced copy read the slice itself; drop the copy if all could.

    A reader can if it sees the copy in its own shape and unsliced, is no resize and no transpose
    that permutes, and not both step. The walk over the readers ends at the first that never can
    (CPU, view).
    """
    if op.kind is not KernelKind.MEMORY_COPY or op.cpu or op.reverse is not Reverse.NONE:
        return op
    ifm, ofm = op.ifm, op.ofm
    if ifm.slice_offset is None or ofm.slice_offset is not None:
        return op
    if ifm.element_type is not ofm.element_type:
        return op  # the copy widens; Vela 5.2 moves the slice here too, and then fails
    stepped = (ifm.step_h, ifm.step_w) != (1, 1)
    whole = equal_reduced(ofm.shape, ofm.tensor.shape)
    for reader in list(ofm.tensor.readers):
        if reader.cpu or reader.kind in _NO_SLICED_INPUT:
            return op
        position = next(
            (i for i, link in enumerate(reader.ifms[:2]) if link.tensor is ofm.tensor), None
        )
        if position is None or not whole or _permutes(reader) or reader.kind is KernelKind.RESIZE:
            continue
        link = reader.ifms[position]
        if (
            not equal_reduced(link.shape, ofm.shape)
            or link.slice_offset is not None
            or (stepped and (link.step_h, link.step_w) != (1, 1))
        ):
            continue
        if position == 1 and not is_binary(reader.kind):
            continue
        _take_slice(reader, position, op)
    if not _is_needed(ofm.tensor):
        graph.remove(op)
    return op


def _permutes(op: WorkOp) -> bool:
    return op.perm is not None and op.perm != tuple(range(len(op.perm)))


def _take_slice(reader: WorkOp, position: int, copy: WorkOp) -> None:
    old, ifm = reader.ifms[position], copy.ifm
    old.tensor.readers.remove(reader)
    reader.ifms[position] = replace(
        old,
        tensor=ifm.tensor,
        shape=ifm.shape,
        slice_offset=ifm.slice_offset,
        slice_shape=ifm.slice_shape,
        step_h=ifm.step_h,
        step_w=ifm.step_w,
        dtype=ifm.dtype,
    )
    ifm.tensor.readers.append(reader)
    reader.source_ops = merged_sources(reader.source_ops, copy.source_ops)


def merged_sources(
    first: tuple[tuple[int, int], ...], second: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int], ...]:
    """Return the union of two lists of source ops, ``first`` in front."""
    return first + tuple(source for source in second if source not in first)


def move_slice_to_writer(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Let the writer of a tensor that is copied into a slice write the slice itself.

    Returns the writer if the copy vanished. Conditions: LOWERING §4, CONCAT/PACK.
    """
    if op.kind is not KernelKind.MEMORY_COPY or op.cpu or not graph.holds(op):
        return op
    ifm, ofm = op.ifm, op.ofm
    if (
        ifm.is_sliced
        or (ifm.step_h, ifm.step_w) != (1, 1)
        or not ofm.is_sliced
        or (ofm.step_h, ofm.step_w) != (1, 1)
        or op.reverse is not Reverse.NONE
        or op.ofm_rescale is not None
        or ifm.zero_point != ofm.zero_point
    ):
        return op
    between = ifm.tensor
    if (
        between.is_graph_input
        or between.is_graph_output
        or between.is_persistent
        or between.is_constant
        or not between.is_single_path
    ):
        return op
    writer = between.writers[0]
    if writer.cpu or writer.kind in _MOVERS or writer.count > 1:
        return op
    if not _becomes_elementwise(graph, writer) and prod(ifm.shape) > prod(ifm.shape[-3:]):
        return op
    result = writer.ofm
    if (
        result.is_sliced
        or (result.step_h, result.step_w) != (1, 1)
        or writer.reverse is not Reverse.NONE
        or result.shape != ifm.shape
    ):
        return op
    graph.replace_ofm(
        writer,
        replace(
            result,
            tensor=ofm.tensor,
            shape=ofm.shape,
            slice_offset=ofm.slice_offset,
            slice_shape=ofm.slice_shape,
        ),
    )
    graph.remove(op)
    writer.source_ops = merged_sources(writer.source_ops, op.source_ops)
    return writer


def _becomes_elementwise(graph: WorkGraph, op: WorkOp) -> bool:
    """Return True for elementwise ops, and for what enlarges one pixel on U55 and U65: an Add."""
    if op.kind is KernelKind.RESIZE and graph.family is not Family.U85:
        return op.ifm.shape[-3:-1] == (1, 1)
    return is_elementwise(op.kind)


def remove_unread(graph: WorkGraph) -> None:
    """Remove ops whose results nobody reads and that are no output, upwards to a fixed point."""
    pending = graph.ops
    while pending:
        op = pending.pop()
        if not graph.holds(op) or any(_is_needed(link.tensor) for link in op.ofms):
            continue
        graph.remove(op)
        for link in op.ifms:
            pending += link.tensor.writers


def _is_needed(tensor: WorkTensor) -> bool:
    return bool(tensor.readers) or tensor.is_graph_output or tensor.is_persistent


# --- broadcasting --------------------------------------------------------------------------


def split_double_broadcast(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Where both inputs of a binary op are broadcast, expand the first by an Add of zeros.

    Only needed on U55/U65, which broadcast one side.
    """
    if not is_binary(op.kind):
        return op
    shape = op.ofm.region
    if any(pad_axes(link.region, len(shape)) == shape for link in op.ifms[:2]):
        return op
    first = op.ifm
    dtype = first.tensor.dtype
    expanded = clone_tensor(graph, op.ofm.tensor, f"{first.tensor.name}_broadcasted")
    expanded.dtype, expanded.shape = dtype, shape
    zeros = graph.new_tensor("const_zero", shape, dtype, data=np.zeros(shape, dtype=dtype.label))
    graph.add(
        WorkOp(
            kind=KernelKind.ADD,
            source_ops=op.source_ops,
            ifms=[
                Link(tensor=zeros, shape=shape),
                Link(tensor=first.tensor, shape=first.tensor.shape),
            ],
            ofms=[Link(tensor=expanded, shape=shape)],
            name=op.name,
        )
    )
    graph.replace_ifm(
        op, 0, replace(first, tensor=expanded, shape=shape, slice_offset=None, slice_shape=None)
    )
    return op
