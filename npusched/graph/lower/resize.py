"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

U85 has a resize unit. U55/U65 double the size while reading, as often as needed, and interpolate
in a last pool or depthwise convolution. Source: LOWERING.md §5; Vela 5.2.0,
``compiler/tflite_graph_optimiser.cpp`` (ConvertResize), ``compiler/graphir_optimiser.cpp``
(RewriteIdentityResize, RewriteResize), ``compiler/scheduler_decompose.cpp`` (LegaliseResize).
"""

from __future__ import annotations

from math import gcd

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.lower.common import (
    NO_SCALE,
    ONE,
    add_kernel,
    constant,
    is_u85,
    quant,
    requantised,
    use,
)
from npusched.graph.lower.scaling import UNIT, Scale
from npusched.graph.split import along_leading_axes, cut, feature_maps, has_leading, replace_by
from npusched.graph.types import Kernel, KernelKind, Reverse, Rounding, Upscale
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, OpKind, Shape
from npusched.ir.options import ResizeOptions

HALF_PIXEL_SCALE = Scale((1 << 31) + 1, 35)
"""1/16 that rounds as the reference does (unsigned multiplier; LegaliseResize)."""

_HALF_PIXEL_WEIGHTS = ((1, 3, 3, 9), (3, 1, 9, 3), (3, 9, 1, 3), (9, 3, 3, 1))


class Ratio(msgspec.Struct, frozen=True):
    """Output / input size of one axis as ``n / d`` in lowest terms (doubled for half pixels)."""

    n: int
    d: int
    offset: int


def ratio(ofm: int, ifm: int, *, align_corners: bool, half_pixel: bool) -> Ratio:
    """Return the scale of one axis: (o-1)/(i-1) with aligned corners, else o/i."""
    if align_corners and ifm > 1:
        ofm, ifm = ofm - 1, ifm - 1
    divisor = gcd(ofm, ifm) or 1
    n, d = ofm // divisor, ifm // divisor
    if not half_pixel:
        return Ratio(n, d, 0)
    return Ratio(2 * n, 2 * d, d - n)


def lower_resize(graph: WorkGraph, op: WorkOp) -> None:
    """RESIZE_*: a copy for equal sizes, else one whole resize."""
    options = op.options
    assert isinstance(options, ResizeOptions)
    bilinear = op.kind is OpKind.RESIZE_BILINEAR
    align = options.align_corners
    half = options.half_pixel_centers if bilinear else not align or options.half_pixel_centers
    ifm, ofm = op.ifm, op.ofm
    rows = ratio(ofm.shape[-3], ifm.shape[-3], align_corners=align, half_pixel=half)
    columns = ratio(ofm.shape[-2], ifm.shape[-2], align_corners=align, half_pixel=half)
    one_pixel = ifm.shape[-3] == ifm.shape[-2] == 1
    interpolate = bilinear and not one_pixel
    if _is_identity(rows, columns, interpolate):
        add_kernel(
            graph,
            op,
            KernelKind.MEMORY_COPY,
            [use(ifm.tensor, NO_SCALE)],
            use(ofm.tensor, NO_SCALE),
            ofm_scale=UNIT,
        )
    else:
        _whole_resize(graph, op, rows, columns, interpolate)
    graph.remove(op)


def _is_identity(rows: Ratio, columns: Ratio, interpolate: bool) -> bool:
    if rows.offset or columns.offset:
        return False
    unit = (rows.n, rows.d, columns.n, columns.d) == (1, 1, 1, 1)
    return unit or (not interpolate and rows.n == rows.d and columns.n == columns.d)


def _whole_resize(
    graph: WorkGraph, op: WorkOp, rows: Ratio, columns: Ratio, interpolate: bool
) -> None:
    shift = (rows.n * columns.n).bit_length() - 1 if interpolate else 0
    added = add_kernel(
        graph,
        op,
        KernelKind.RESIZE,
        [use(op.ifm.tensor, ONE, op.ifm.shape)],
        use(op.ofm.tensor, quant(op.ofm), op.ofm.shape),
        rounding=Rounding.SYMMETRIC,
        ofm_scale=Scale(1, shift),
    )
    added.resize = (rows.n, rows.d, columns.n, columns.d)
    added.interpolate = interpolate


# --- step 3 --------------------------------------------------------------------------------


def decompose_resize(graph: WorkGraph, op: WorkOp) -> None:
    """Step 3: one resize per batch on U85; on U55/U65 doublings and a last window, or an Add."""
    if is_u85(graph):
        if has_leading(feature_maps(op)):
            replace_by(graph, op, along_leading_axes(op))
        return
    assert op.resize is not None
    n_h, d_h, n_w, _ = op.resize
    half_pixel = d_h == 2 and n_h % 2 == 0
    up_h, up_w = (n_h // 2, n_w // 2) if half_pixel else (n_h, n_w)
    if op.ifm.region[1] == op.ifm.region[2] == 1:
        _spread(graph, op)
    elif op.interpolate and half_pixel:
        _half_pixel_doubling(graph, op)
    else:
        factor = max(up_h, up_w)
        source = requantised(op.ifm, NO_SCALE)
        while factor > 2:
            source = _doubled(graph, op, source, up_h, up_w)
            factor //= 2
        _last_doubling(graph, op, source, up_h, up_w)
    graph.remove(op)
    for piece in graph.ops:  # in step 3 the graph holds nothing else
        cut(graph, piece)


def _spread(graph: WorkGraph, op: WorkOp) -> None:
    """Add zeros in the result's shape to the single pixel (stored values, no zero point)."""
    ofm = requantised(op.ofm, NO_SCALE)
    zeros = constant(graph, f"{op.name}/zeros", np.zeros(ofm.region), ofm.tensor.dtype)
    ifm = requantised(op.ifm, NO_SCALE)
    add_kernel(graph, op, KernelKind.ADD, [ifm, use(zeros)], ofm, ofm_scale=UNIT)


def _doubled(graph: WorkGraph, op: WorkOp, source: Link, up_h: int, up_w: int) -> Link:
    """Add a 1x1 pool that reads its input enlarged by 2; return its result."""
    n, height, width, depth = source.region
    shape = (n, height * min(2, up_h), width * min(2, up_w), depth)
    result = graph.new_tensor(f"{op.name}/doubled_{shape[1]}", shape, op.ifm.tensor.dtype)
    _piece(graph, op, KernelKind.AVG_POOL, source, use(result), Kernel(), Upscale.NEAREST)
    return use(result)


def _piece(
    graph: WorkGraph,
    op: WorkOp,
    kind: KernelKind,
    ifm: Link,
    ofm: Link,
    kernel: Kernel,
    upscale: Upscale = Upscale.NONE,
) -> WorkOp:
    """Add one unscaled kernel of a resize before ``op``."""
    return graph.add(
        WorkOp(
            kind=kind,
            source_ops=op.source_ops,
            ifms=[ifm],
            ofms=[ofm],
            kernel=kernel,
            upscale=upscale,
            rounding=Rounding.DOUBLE,
            accumulator_scaled=False,
            name=op.name,
        ),
        before=op,
    )


def _last_doubling(graph: WorkGraph, op: WorkOp, source: Link, up_h: int, up_w: int) -> None:
    """The last doubling: plain (nearest), averaging (bilinear), or picking one tap (aligned)."""
    ofm = requantised(op.ofm, NO_SCALE)
    aligned = _looks_aligned(op, max(up_h, up_w))
    nearest = Upscale.NEAREST
    if op.interpolate:
        pads = (0, 0) if aligned else (up_h - 1, up_w - 1)
        kernel = Kernel(h=up_h, w=up_w, pad_bottom=pads[0], pad_right=pads[1])
        _piece(graph, op, KernelKind.AVG_POOL, source, ofm, kernel, nearest)
    elif aligned:
        kernel = Kernel(h=up_h, w=up_w)
        taps = np.zeros((ofm.region[3], up_h, up_w, 1))
        taps[:, up_h // 2, up_w // 2, :] = 1
        piece = _piece(graph, op, KernelKind.DEPTHWISE, source, ofm, kernel, nearest)
        _set_weights(graph, piece, taps, f"resize_pick_{up_h}x{up_w}x{ofm.region[3]}")
    else:
        _piece(graph, op, KernelKind.AVG_POOL, source, ofm, Kernel(), nearest)


def _looks_aligned(op: WorkOp, factor: int) -> bool:
    """Return True if (o-1)/(i-1) is the factor on the larger axis, as Vela tells the mode."""
    ifm, ofm = op.ifm.region, op.ofm.region
    if ifm[1] == ifm[2] == 1:
        return False
    ratios = (np.float32(ofm[axis] - 1) / np.float32(max(ifm[axis] - 1, 1)) for axis in (1, 2))
    return bool(max(ratios) == factor)


def _set_weights(
    graph: WorkGraph, piece: WorkOp, values: npt.NDArray[np.float64], name: str
) -> None:
    weights = constant(graph, name, values, DataType.INT8)
    weights.scales, weights.zero_points = (1.0,), (0,)
    bias = constant(graph, "resize_bias", np.zeros(1), DataType.INT32)
    piece.weights, piece.bias = use(weights, ONE), use(bias)
    weights.readers.append(piece)
    bias.readers.append(piece)


def _half_pixel_doubling(graph: WorkGraph, op: WorkOp) -> None:
    """Bilinear x2 with half pixels: repeat the edge, then a 2x2 window per phase of the result."""
    n, height, width, depth = op.ifm.region
    shape = (n, height + 2, width + 2, depth)
    padded = graph.new_tensor(f"{op.name}/edge_padded", shape, op.ifm.tensor.dtype)
    _repeat_edges(graph, op, padded)
    for phase, weights in enumerate(_HALF_PIXEL_WEIGHTS):
        row, column = divmod(phase, 2)
        ifm = _part(use(padded), (0, row, column, 0), (n, height + 1, width + 1, depth))
        ofm = op.ofm.region
        target = _part(
            requantised(op.ofm, NO_SCALE),
            (0, row, column, 0),
            (ofm[0], ofm[1] - 1, ofm[2] - 1, ofm[3]),
        )
        target.step_h = target.step_w = 2
        piece = _piece(graph, op, KernelKind.DEPTHWISE, ifm, target, Kernel(h=2, w=2))
        taps = np.tile(np.reshape(weights, (1, 2, 2, 1)), (depth, 1, 1, 1))
        _set_weights(graph, piece, taps, f"resize_phase_{phase}x{depth}")
        piece.ofm_rescale = HALF_PIXEL_SCALE.rescale()


def _repeat_edges(graph: WorkGraph, op: WorkOp, padded: WorkTensor) -> None:
    """Copy the input into the middle of ``padded``, then its edge rows, then edge columns."""
    shape = op.ifm.region
    n, height, width, depth = shape
    source = requantised(op.ifm, NO_SCALE)

    def copied(link: Link, at: Shape, size: Shape, reverse: Reverse) -> None:
        target = _part(use(padded), at, size)
        _piece(graph, op, KernelKind.MEMORY_COPY, link, target, Kernel()).reverse = reverse

    copied(source, (0, 1, 1, 0), shape, Reverse.NONE)
    row = (n, 1, width, depth)
    for read, write in ((0, 0), (height - 1, height + 1)):
        copied(_part(source, (0, read, 0, 0), row), (0, write, 1, 0), row, Reverse.H)
    column = (n, height + 2, 1, depth)
    for read, write in ((width, width + 1), (1, 0)):
        link = _part(use(padded), (0, 0, read, 0), column)
        copied(link, (0, 0, write, 0), column, Reverse.W)


def _part(link: Link, offset: Shape, shape: Shape) -> Link:
    """Return a part of what ``link`` touches."""
    if link.slice_offset is not None:
        offset = tuple(a + b for a, b in zip(offset, link.slice_offset, strict=True))
    return replace(link, slice_offset=offset, slice_shape=shape)
