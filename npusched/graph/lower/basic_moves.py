"""Lowering of ops that only move data: views, copies with slices, pads.

Sources: LOWERING.md §4; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp`` (RewriteConcat,
RewritePack, RewriteUnpack, RewriteSlice, RewriteStridedSlice, ConvertPadV2).
"""

from __future__ import annotations

from npusched.graph.lower import scaling
from npusched.graph.lower.basic_kernels import rescale_or_unit
from npusched.graph.shapes import ceil_div, pad_axes
from npusched.graph.types import KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import OpKind, Shape
from npusched.ir.options import (
    AxisOptions,
    ConcatOptions,
    NoOptions,
    ReshapeOptions,
    StridedSliceOptions,
)


def constant_ints(tensor: WorkTensor) -> tuple[int, ...]:
    """Return the values of a constant parameter tensor, flattened."""
    assert tensor.data is not None
    return tuple(int(value) for value in tensor.data.reshape(-1).tolist())


def lower_view(graph: WorkGraph, op: WorkOp) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: a view. Only a RESHAPE proper keeps reshape options."""
    del graph
    op.options = ReshapeOptions() if op.kind is OpKind.RESHAPE else NoOptions()
    op.kind = OpKind.RESHAPE


def lower_concat(graph: WorkGraph, op: WorkOp) -> None:
    """CONCATENATION: one copy per input into a slice of the result, rescaled where it differs."""
    assert isinstance(op.options, ConcatOptions)
    _copies_into_slices(graph, op, [link.shape for link in op.ifms], op.options.axis)


def lower_pack(graph: WorkGraph, op: WorkOp) -> None:
    """PACK: as CONCATENATION with a new axis of size 1."""
    assert isinstance(op.options, AxisOptions)
    axis = op.options.axis % len(op.ofm.shape)
    shapes = [(*link.shape[:axis], 1, *link.shape[axis:]) for link in op.ifms]
    _copies_into_slices(graph, op, shapes, axis)


def _copies_into_slices(graph: WorkGraph, op: WorkOp, shapes: list[Shape], axis: int) -> None:
    ofm = op.ofm
    axis %= len(ofm.shape)
    offset = 0
    for link, shape in zip(op.ifms, shapes, strict=True):
        target = ofm.copy()
        target.slice_offset = tuple(offset if i == axis else 0 for i in range(len(ofm.shape)))
        target.slice_shape = shape
        source = link.copy()
        source.shape = shape
        scale = scaling.copy_scale(source.scale, target.scale, source.zero_point, target.zero_point)
        graph.add(
            WorkOp(
                kind=KernelKind.MEMORY_COPY,
                source_ops=op.source_ops,
                ifms=[source],
                ofms=[target],
                rounding=Rounding.NATURAL,
                ofm_rescale=rescale_or_unit(scale, Rounding.NATURAL),
                name=op.name,
            )
        )
        offset += shape[axis]
    graph.remove(op)


def add_slice_copy(
    graph: WorkGraph,
    op: WorkOp,
    ofm: Link,
    *,
    offset: Shape,
    shape: Shape,
    step_h: int = 1,
    step_w: int = 1,
) -> WorkOp:
    """Add a copy of a part of the op's IFM to ``ofm`` (shape before the steps). No rescale."""
    source = op.ifm.copy()
    source.slice_offset, source.slice_shape = offset, shape
    source.step_h, source.step_w = step_h, step_w
    return graph.add(
        WorkOp(
            kind=KernelKind.MEMORY_COPY,
            source_ops=op.source_ops,
            ifms=[source],
            ofms=[ofm.copy()],
            rounding=Rounding.NATURAL,
            name=op.name,
        )
    )


def lower_split(graph: WorkGraph, op: WorkOp) -> None:
    """SPLIT, SPLIT_V, UNPACK: one copy per result from a slice of the input."""
    ifm_shape = op.ifm.shape
    axis = _split_axis(op) % len(ifm_shape)
    offset = 0
    for ofm in op.ofms:
        if op.kind is OpKind.UNPACK:
            ofm.shape = (*ofm.shape[:axis], 1, *ofm.shape[axis:])
        else:
            ofm.shape = pad_axes(ofm.shape, len(ifm_shape))
        at = tuple(offset if i == axis else 0 for i in range(len(ifm_shape)))
        add_slice_copy(graph, op, ofm, offset=at, shape=ofm.shape)
        offset += ofm.shape[axis]
    graph.remove(op)


def _split_axis(op: WorkOp) -> int:
    if op.kind is OpKind.UNPACK:
        assert isinstance(op.options, AxisOptions)
        return op.options.axis
    return constant_ints(op.params[0 if op.kind is OpKind.SPLIT else 2])[0]


def lower_slice(graph: WorkGraph, op: WorkOp) -> None:
    """SLICE: a copy of a box (a size of -1 means: to the end)."""
    begin = constant_ints(op.params[1])
    size = tuple(
        full - start if wanted == -1 else wanted
        for wanted, full, start in zip(
            constant_ints(op.params[2]), op.ifm.shape, begin, strict=True
        )
    )
    add_slice_copy(graph, op, op.ofm, offset=begin, shape=size)
    graph.remove(op)


def lower_strided_slice(graph: WorkGraph, op: WorkOp) -> None:
    """STRIDED_SLICE with constant bounds: a copy of a box, with steps on h and w."""
    offset, shape, strides = strided_box(op)
    ofm = op.ofm
    ofm.shape = tuple(ceil_div(size, step) for size, step in zip(shape, strides, strict=True))
    steps = pad_axes(strides, 3)
    copy = add_slice_copy(
        graph, op, ofm, offset=offset, shape=shape, step_h=steps[-3], step_w=steps[-2]
    )
    scale = scaling.copy_scale(op.ifm.scale, ofm.scale, op.ifm.zero_point, ofm.zero_point)
    copy.ofm_rescale = rescale_or_unit(scale, Rounding.DOUBLE)
    copy.rounding = Rounding.DOUBLE
    graph.remove(op)


def strided_box(op: WorkOp) -> tuple[Shape, Shape, Shape]:
    """Return (offset, shape, strides) that a STRIDED_SLICE reads, in the rank of its input.

    Bounds are clamped as Vela does: begin into [0, size - 1], end into [1, size].
    """
    options = op.options
    assert isinstance(options, StridedSliceOptions)
    begins, ends, steps = (constant_ints(op.params[i]) for i in (1, 2, 3))
    ifm = op.ifm.shape
    offset, shape, strides = [0] * len(ifm), list(ifm), [1] * len(ifm)
    spec_count = min(len(begins), len(ends), len(steps))
    axis = 0
    for spec in range(spec_count):
        bit = 1 << spec
        if options.ellipsis_mask & bit:
            axis = len(ifm) - (spec_count - spec - 1)
            continue
        shrink = bool(options.shrink_axis_mask & bit)
        size = ifm[axis]
        if shrink or not options.begin_mask & bit:
            begin = begins[spec] + (size if begins[spec] < 0 else 0)
            offset[axis] = min(max(begin, 0), size - 1)
            shape[axis] = 1 if shrink else size - offset[axis]
        if not shrink and not options.end_mask & bit:
            end = ends[spec] + (size if ends[spec] < 0 else 0)
            shape[axis] = min(max(end, 1), size) - offset[axis]
        strides[axis] = steps[spec]
        axis += 1
    return tuple(offset), tuple(shape), tuple(strides)


def lower_pad(graph: WorkGraph, op: WorkOp) -> None:
    """PAD, PADV2: keep the op for data movement, which may let a convolution swallow it."""
    del graph
    op.pad_value = op.ofm.zero_point
    if op.kind is OpKind.PADV2:
        op.pad_value = constant_ints(op.params.pop(2))[0]
    op.kind = OpKind.PAD
