"""MEAN, SUM and REDUCE_MAX/MIN/ANY/ALL.

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp`` (ConvertMeanOps,
ConvertReduceMinMaxAnyAll), ``compiler/graphir_optimiser.cpp`` (RewriteReduceSum,
RewriteReduceMin), ``compiler/scheduler_decompose.cpp`` (DecomposeReduce).
"""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower import scaling
from npusched.graph.lower.common import (
    NO_SCALE,
    ONE,
    Quant,
    add_kernel,
    constant,
    is_u85,
    quant,
    scalar,
    temporary,
    use,
)
from npusched.graph.lower.scaling import UNIT, Scale
from npusched.graph.shapes import MAX_AXIS, around_axis, pad_axes, with_axis
from npusched.graph.split import narrow
from npusched.graph.types import Kernel, KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, OpKind, Shape

MAX_MEAN_HEIGHT = 64
MAX_MEAN_ELEMENTS = 64 * 64

_REDUCTIONS = {
    OpKind.REDUCE_MAX: KernelKind.REDUCE_MAX,
    OpKind.REDUCE_MIN: KernelKind.REDUCE_MIN,
    OpKind.REDUCE_ANY: KernelKind.REDUCE_ANY,
    OpKind.REDUCE_ALL: KernelKind.REDUCE_ALL,
}


def axes_of(op: WorkOp) -> list[int]:
    """Return the axes (0-based, in the order of the file) that parameter 1 names."""
    data = op.params[1].data
    rank = len(op.ifm.shape)
    return [] if data is None else [int(axis) % rank for axis in np.ravel(data)]


# --- MEAN ----------------------------------------------------------------------------------


def lower_mean(graph: WorkGraph, op: WorkOp) -> None:
    """MEAN: depthwise sums with weights of one into int32, added up, times a constant.

    A window of at most 4096 elements and 64 rows per sum; more rows are cut into several sums.
    """
    ifm = op.ifm
    source, reduced, result = _mean_shapes(op)
    height = source[-3] if reduced[-3] else 1
    width = source[-2] if reduced[-2] else 1
    count = height * width
    if height > MAX_MEAN_HEIGHT and count <= MAX_MEAN_ELEMENTS and reduced[-3] and reduced[-2]:
        source = (*source[:-3], 1, count, source[-1])
        height, width = 1, count
    rows = min(MAX_MEAN_ELEMENTS // width, height, MAX_MEAN_HEIGHT)
    total: WorkTensor | None = None
    for start in range(0, height, rows):
        kernel = Kernel(h=min(rows, height - start), w=width)
        read = (
            *source[:-3],
            kernel.h if reduced[-3] else source[-3],
            width if reduced[-2] else source[-2],
            source[-1],
        )
        link = replace(
            use(ifm.tensor, Quant(1.0, ifm.zero_point), source),
            slice_offset=with_axis((0,) * len(source), -3, start),
            slice_shape=read,
        )
        part = _window_sum(graph, op, link, kernel, result)
        if total is not None:
            added = temporary(graph, op, "mean_sum", result, DataType.INT32)
            ifms = [use(total, ONE), use(part, ONE)]
            add_kernel(graph, op, KernelKind.ADD, ifms, use(added, ONE), ofm_scale=UNIT)
            part = added
        total = part
    assert total is not None
    ofm = op.ofm
    scale = scaling.mean_scale(ifm.scale or 1.0, ofm.scale or 1.0, count)
    factor = use(scalar(graph, "mean_multiplier", scale.multiplier), ONE)
    add_kernel(
        graph,
        op,
        KernelKind.MUL,
        [use(total, ONE), factor],
        use(ofm.tensor, quant(ofm), result),
        ofm_scale=scale.ofm,
    )
    graph.remove(op)


def _mean_shapes(op: WorkOp) -> tuple[Shape, Shape, Shape]:
    """Return the shape read (4 axes or more), which axes are reduced (1/0), the result's shape.

    A mean over channels moves them into an axis of size 1 (the operator checks grant one).
    """
    shape = op.ifm.shape
    axes = set(axes_of(op))
    reduced = pad_axes(tuple(int(i in axes) for i in range(len(shape))), 4, 0)
    result = pad_axes(tuple(1 if i in axes else n for i, n in enumerate(shape)), 4)
    source = pad_axes(shape, 4)
    if not (reduced[-1] and source[-1] > 1):
        return source, reduced, result
    drop = len(source) - (2 if source[-2] == 1 else 3)

    def moved(axes4: Shape, fill: int) -> Shape:
        return (*axes4[:drop], *axes4[drop + 1 :], fill)

    return moved(source, 1), moved(reduced, 0), moved(result, 1)


def _window_sum(
    graph: WorkGraph, op: WorkOp, link: Link, kernel: Kernel, result: Shape
) -> WorkTensor:
    """Add a depthwise convolution with weights of one; int32 sums of (value - zero point)."""
    depth = link.shape[-1]
    sixteen = link.tensor.dtype is DataType.INT16
    ones = np.ones((depth, kernel.h, kernel.w, 1))
    weights = constant(graph, f"mean_ones_{kernel.h}x{kernel.w}x{depth}", ones, DataType.UINT8)
    weights.scales, weights.zero_points = (1.0,), (0,)
    bias_dtype = DataType.INT64 if sixteen else DataType.INT32
    bias = constant(graph, "mean_bias", np.zeros(depth), bias_dtype)
    sums = temporary(graph, op, "mean_part", result, DataType.INT32)
    add_kernel(
        graph,
        op,
        KernelKind.DEPTHWISE,
        [link],
        use(sums, ONE),
        rounding=Rounding.NATURAL if sixteen else Rounding.DOUBLE,
        kernel=kernel,
        weights=use(weights, ONE),
        bias=use(bias),
    )
    return sums


# --- SUM -----------------------------------------------------------------------------------


def lower_sum(graph: WorkGraph, op: WorkOp) -> None:
    """SUM over one axis: the reduction runs over channels, so other axes are transposed first.

    A zero point is subtracted after the sum on U85; U55/U65 use a 1x1 convolution with ones.
    """
    ifm = op.ifm
    axis = axes_of(op)[0]
    shape = ifm.shape
    scale = UNIT
    if ifm.scale is not None and op.ofm.scale is not None:
        scale = scaling.abs_scale(scaling.float32(ifm.scale), scaling.float32(op.ofm.scale))
    if axis == len(shape) - 1:
        folded = (prod(shape[:-2]), *pad_axes(shape, 2)[-2:])
        source = use(ifm.tensor, quant(ifm), folded)
    else:
        around = around_axis(shape, axis)
        moved = temporary(
            graph, op, "sum_transpose", (around[0], around[2], around[1]), ifm.tensor.dtype
        )
        transpose = add_kernel(
            graph, op, KernelKind.TRANSPOSE, [use(ifm.tensor, NO_SCALE, around)], use(moved)
        )
        transpose.perm = (0, 2, 1)
        source = use(moved, quant(ifm))
    _sum_channels(graph, op, source, scale)
    graph.remove(op)


def _sum_channels(graph: WorkGraph, op: WorkOp, source: Link, scale: Scale) -> None:
    shape = with_axis(source.shape, -1, 1)
    ofm = use(op.ofm.tensor, quant(op.ofm), shape)
    zero_point = 0 if source.tensor.dtype.bits >= 32 else source.zero_point
    natural = Rounding.NATURAL
    if zero_point == 0:
        added = add_kernel(
            graph, op, KernelKind.REDUCE_SUM, [source], ofm, rounding=natural, ofm_scale=scale
        )
        added.axis = -1
    elif is_u85(graph):
        # The subtraction sees the file's shape of the result, the sum one channel per position.
        last = len(op.ifm.shape) - 1
        stated = op.ofm.shape if axes_of(op)[0] == last else shape
        sums = temporary(graph, op, "sum", stated, DataType.INT32)
        plain = replace(source, zero_point=0)
        written = use(sums, shape=shape)
        added = add_kernel(
            graph, op, KernelKind.REDUCE_SUM, [plain], written, rounding=natural, ofm_scale=UNIT
        )
        added.axis = -1
        offset = use(scalar(graph, "sum_zero_point", source.shape[-1] * zero_point))
        add_kernel(
            graph,
            op,
            KernelKind.SUB,
            [use(sums), offset],
            replace(ofm, shape=stated),
            rounding=natural,
            ofm_scale=scale,
        )
    else:
        ones = constant(
            graph,
            f"sum_ones_{source.shape[-1]}",
            np.ones((1, 1, 1, source.shape[-1])),
            DataType.INT8,
        )
        ones.scales, ones.zero_points = (1.0,), (0,)
        bias = constant(graph, "sum_bias", np.zeros(1), DataType.INT32)
        add_kernel(
            graph,
            op,
            KernelKind.CONV2D,
            [replace(source, shape=pad_axes(source.shape, 4))],
            replace(ofm, shape=pad_axes(shape, 4)),
            rounding=natural,
            ofm_scale=scale,
            weights=use(ones, ONE),
            bias=use(bias),
        )


# --- REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL ------------------------------------------


def lower_reduction(graph: WorkGraph, op: WorkOp) -> None:
    """REDUCE_MAX/MIN/ANY/ALL: one kernel per axis, in the order of the axis list."""
    assert isinstance(op.kind, OpKind)
    kind = _REDUCTIONS[op.kind]
    axes = axes_of(op)
    source = op.ifm
    how = quant(source)
    for position, axis in enumerate(axes):
        shape = with_axis(source.shape, axis, 1)
        if position == len(axes) - 1:
            result = use(op.ofm.tensor, how, shape)
        else:
            name = f"reduce_{axis}"
            result = use(temporary(graph, op, name, shape, source.tensor.dtype), how)
        if kind is KernelKind.REDUCE_MIN and not is_u85(graph):
            _minimum_by_maximum(graph, op, source, result, axis)
        else:
            _reduction(graph, op, kind, source, result, axis)
        source = use(result.tensor, how, shape)
    graph.remove(op)


def _reduction(
    graph: WorkGraph, op: WorkOp, kind: KernelKind, source: Link, result: Link, axis: int
) -> None:
    """Add one reduction, whole; step 3 brings its axis to one that the hardware reduces."""
    added = add_kernel(graph, op, kind, [source], result, rounding=Rounding.NATURAL, ofm_scale=UNIT)
    added.axis = axis - len(source.shape)
    added.kernel = _window_along(source.shape, added.axis)


def _window_along(shape: Shape, axis: int) -> Kernel:
    """Kernel that covers ``axis`` (negative), if it is h or w."""
    if axis == -3:
        return Kernel(h=shape[axis])
    return Kernel(w=shape[axis]) if axis == -2 else Kernel()


def _minimum_by_maximum(
    graph: WorkGraph, op: WorkOp, source: Link, result: Link, axis: int
) -> None:
    """min(x) = p - max(p - x), with p = -1 (or the unsigned maximum), on stored values."""
    dtype = source.tensor.dtype
    pivot = scalar(graph, "reduce_min_pivot", -1, dtype)
    inverted = temporary(graph, op, "inverted", source.shape, dtype)
    reduced = temporary(graph, op, "inverted_maximum", result.shape, dtype)
    plain = use(source.tensor, NO_SCALE, source.shape)
    add_kernel(graph, op, KernelKind.SUB, [use(pivot), plain], use(inverted), ofm_scale=UNIT)
    how = Quant(None, source.zero_point)
    _reduction(graph, op, KernelKind.REDUCE_MAX, use(inverted, how), use(reduced, how), axis)
    back = use(result.tensor, NO_SCALE, result.shape)
    add_kernel(graph, op, KernelKind.SUB, [use(pivot), use(reduced)], back, ofm_scale=UNIT)


def decompose_reduction(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: bring the reduced axis to where the hardware reduces, and cut it above 65536."""
    _fold_around_axis(graph, op)
    _cut_reduced_axis(graph, op)


def _fold_around_axis(graph: WorkGraph, op: WorkOp) -> None:
    """Bring the reduced axis to where the hardware reduces (in place).

    U85 reduces h or w, U55/U65 w only, and ReduceSum only c; else (and for a batch) the shape is
    folded to 3 axes around w (ReduceSum: everything before w into h). A slice is folded too where
    it stays one; else it is copied out first.
    """
    axis = reduced_axis(op)
    shape = op.ifm.region
    rank = len(shape)
    if op.kind is KernelKind.REDUCE_SUM:
        legal = axis == -1
    else:
        legal = axis == -2 or (axis == -3 and is_u85(graph))
    if legal and prod(shape[:-3]) == 1:
        return
    middle = rank - 2 if op.kind is KernelKind.REDUCE_SUM else rank + axis
    cuts = (middle, middle + 1)
    ifm = _folded(op.ifm, cuts)
    if ifm is None:
        _copy_slice_out(graph, op)
        ifm = replace(op.ifm, shape=_three(op.ifm.shape, cuts))
    ofm = _folded(op.ofm, cuts)
    op.ifms = [ifm]
    op.ofms = [replace(op.ofm, shape=_three(op.ofm.shape, cuts)) if ofm is None else ofm]
    if op.kind is KernelKind.REDUCE_SUM:
        return
    op.axis = -2
    op.kernel = replace(op.kernel, h=1, w=ifm.region[-2])


def _cut_reduced_axis(graph: WorkGraph, op: WorkOp) -> None:
    """Reduce parts of an axis above 65536 on their own, then their results."""
    axis = reduced_axis(op)
    size = op.ifm.region[axis]
    if size <= MAX_AXIS:
        return
    starts = range(0, size, MAX_AXIS)
    summed = op.kind is KernelKind.REDUCE_SUM
    dtype = DataType.INT32 if summed else op.ifm.element_type
    shape = with_axis(op.ofm.region, axis, len(starts))
    parts = graph.new_tensor(f"{op.name}/parts", shape, dtype)
    how = ONE if summed else quant(op.ifm)
    for index, start in enumerate(starts):
        piece = op.clone()
        narrow(piece.ifm, axis, start, MAX_AXIS)
        piece.ofms = [use(parts, how)]
        narrow(piece.ofm, axis, index, 1)
        piece.kernel = _window_along(piece.ifm.region, axis)
        if summed:
            piece.ofm_rescale = None
        graph.add(piece, before=op)
    graph.replace_ifm(op, 0, use(parts, how))
    op.kernel = _window_along(shape, axis)


def reduced_axis(op: WorkOp) -> int:
    """Return the reduced axis, counted from the end; unstated, it is the last."""
    if op.axis is None:
        return -1
    return op.axis if op.axis < 0 else op.axis - len(op.ifm.shape)


def _three(shape: Shape, cuts: tuple[int, int]) -> Shape:
    """Fold the axes before, between and behind two cuts."""
    first, second = cuts
    return (prod(shape[:first]), prod(shape[first:second]), prod(shape[second:]))


def _folded(link: Link, cuts: tuple[int, int]) -> Link | None:
    """Fold a link to 3 axes, its slice included; None if the slice is no box any more."""
    shape = _three(link.shape, cuts)
    if link.slice_offset is None or link.slice_shape is None:
        return replace(link, shape=shape)
    offsets, sizes = [], []
    for low, high in ((0, cuts[0]), cuts, (cuts[1], len(link.shape))):
        whole = link.shape[low:high]
        part = _merged(whole, link.slice_offset[low:high], link.slice_shape[low:high])
        if part is None:
            return None
        offsets.append(part[0])
        sizes.append(part[1])
    return replace(link, shape=shape, slice_offset=tuple(offsets), slice_shape=tuple(sizes))


def _merged(whole: Shape, offset: Shape, size: Shape) -> tuple[int, int] | None:
    """Return (offset, size) of a box in merged axes, None if it is not contiguous there."""
    at = 0
    for extent, start in zip(whole, offset, strict=True):
        at = at * extent + start
    wide = [axis for axis, count in enumerate(size) if count != 1]
    if wide and size[wide[0] + 1 :] != whole[wide[0] + 1 :]:
        return None
    return at, prod(size)


def _copy_slice_out(graph: WorkGraph, op: WorkOp) -> None:
    """Copy what ``op`` reads to a tensor of its own, which it then reads whole."""
    region = op.ifm.region
    name = f"{op.name}/slice"
    tensor = graph.new_tensor(name, region, op.ifm.tensor.dtype)
    copied = WorkOp(
        kind=KernelKind.MEMORY_COPY,
        source_ops=op.source_ops,
        ifms=[op.ifm.copy()],
        ofms=[replace(use(tensor), zero_point=op.ifm.zero_point)],
        rounding=Rounding.NATURAL,
        name=name,
    )
    graph.add(copied, before=op)
    graph.replace_ifm(op, 0, replace(use(tensor, quant(op.ifm))))
