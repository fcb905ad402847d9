"""Limits of TRANSPOSE and of the RESIZE ops, which depend on shapes in a family's own way.

Facts: LOWERING §2.4; Vela 5.2.0, tflite_supported_operators_u55.cpp and _u85.cpp.
"""

from __future__ import annotations

from itertools import combinations
from math import inf, prod

import numpy as np

from npusched.ir import DataType, OpKind, Shape
from npusched.ir.options import ResizeOptions
from npusched.ops.constraint import Constraint, shape_text
from npusched.ops.limits_ops import four_dimensional
from npusched.ops.operands import Operands
from npusched.ops.roles import Role
from npusched.ops.window import axis

MAX_AXIS = 1 << 16
MAX_INT32_DEPTH = 1 << 15
MAX_INT32_NWHC = (1, MAX_AXIS, MAX_AXIS, 1 << 14)
MAX_UPSCALE_U55 = 8
MAX_UPSCALE_HALF_PIXEL_U55 = 2
MAX_UPSCALE_U85 = 2048
MAX_UPSCALE_HALF_PIXEL_U85 = 1024

_NHWC, _NWHC, _NHCW = (0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)
_THREE_AXES = frozenset({_NWHC, _NHCW, (0, 3, 1, 2), (0, 2, 3, 1), (0, 3, 2, 1)})

_TRANSPOSE_FIX = "transpose in steps of two axes, or merge axes with a RESHAPE first"


def permutation(operands: Operands) -> tuple[int, ...] | None:
    """Return the permutation extended in front to rank 4 (or its own rank if larger), or None."""
    values = operands.params()
    if values is None:
        return None
    extra = max(4 - len(values), 0)
    rank = len(values)
    return (*range(extra), *((v + rank if v < 0 else v) + extra for v in values))


def _exceeds(shape: Shape, limits: Shape) -> bool:
    """Say if an axis, counted from the last, exceeds its limit."""
    return any(s > m for s, m in zip(reversed(shape), reversed(limits), strict=False))


def _transpose_int32(operands: Operands) -> str | None:
    ifm, order = operands.get(Role.IFM), permutation(operands)
    if ifm is None or order is None or ifm.tensor.dtype is not DataType.INT32:
        return None
    shape = four_dimensional(ifm.shape)
    text = f"{shape_text(ifm.shape)} by {shape_text(operands.params() or ())}"
    if len(shape) > 4:
        return text
    if order == _NHWC:
        too_large = shape[-1] > MAX_INT32_DEPTH
    elif order == _NWHC:
        too_large = _exceeds(shape, MAX_INT32_NWHC)
    elif order == _NHCW:
        too_large = _exceeds((shape[0] * shape[1], *shape[2:]), (MAX_AXIS,) * 3)
    else:
        too_large = True
    return text if too_large else None


TRANSPOSE_INT32_U55 = Constraint(
    limit="transpose_int32",
    what="int32 shape and order",
    allowed="int32 transposes up to rank 4 that keep all axes (depth to 32768), swap height and "
    "width (depth to 16384) or swap width and channels",
    fix="transpose the int8 tensor before it becomes int32",
    find=_transpose_int32,
)


def _transpose_narrow(operands: Operands) -> str | None:
    ifm, order = operands.get(Role.IFM), permutation(operands)
    if ifm is None or order is None or ifm.tensor.dtype.bits > 16:
        return None
    shape = ifm.shape
    rank = len(shape)
    text = f"{shape_text(shape)} by {shape_text(operands.params() or ())}"
    if order == tuple(range(len(order))):
        return None
    one_volume = rank <= 3 or prod(shape[:-3]) == 1
    if one_volume and order in _THREE_AXES:
        return text if max(shape[-3:], default=1) > MAX_AXIS else None
    total = prod(shape)
    pairs = combinations(shape, 2)
    return text if total > 0 and any(total // (a * b) > MAX_AXIS for a, b in pairs) else None


TRANSPOSE_NARROW_U55 = Constraint(
    limit="transpose_shape",
    what="shape and order",
    allowed="three-axis transposes with axes up to 65536, others where the product of all but any "
    "two axes is at most 65536",
    fix=_TRANSPOSE_FIX,
    find=_transpose_narrow,
)


def _options(operands: Operands) -> ResizeOptions:
    options = operands.op.options
    return options if isinstance(options, ResizeOptions) else ResizeOptions()


def _sizes(operands: Operands) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (input h, w), (result h, w)."""
    ifm, ofm = operands.ifm_shape(), operands.ofm_shape
    return (axis(ifm, 2), axis(ifm, 1)), (axis(ofm, 2), axis(ofm, 1))


def _factor(size: int, result: int, *, align: bool) -> float:
    """Return the upscale factor in float32, as the comparison for equal factors is done in it."""
    if align:
        if result == 1:
            return 1.0
        return float(np.float32(result - 1) / np.float32(size - 1)) if size > 1 else inf
    return float(np.float32(result) / np.float32(size)) if size else inf


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _resize_text(operands: Operands) -> str:
    source, result = _sizes(operands)
    options = _options(operands)
    flags = [
        name
        for name, on in (
            ("align_corners", options.align_corners),
            ("half_pixel_centers", options.half_pixel_centers),
        )
        if on
    ]
    with_flags = f" with {' and '.join(flags)}" if flags else ""
    return f"{shape_text(source)} to {shape_text(result)}{with_flags}"


def _resize_u55(operands: Operands) -> str | None:
    source, result = _sizes(operands)
    options = _options(operands)
    half_pixel = operands.kind is OpKind.RESIZE_BILINEAR and options.half_pixel_centers
    text = _resize_text(operands)
    if source == (1, 1):
        return None
    if source == result:
        return text if half_pixel else None
    up_h, up_w = (
        _factor(size, out, align=options.align_corners)
        for size, out in zip(source, result, strict=True)
    )
    if up_h != up_w:
        one_axis = (result[0] == 1 and up_h == 1) or (result[1] == 1 and up_w == 1)
        if not one_axis or half_pixel:
            return text
    factor = max(up_h, up_w)
    maximum = MAX_UPSCALE_HALF_PIXEL_U55 if half_pixel else MAX_UPSCALE_U55
    whole = factor != inf and factor == int(factor)
    ok = whole and _is_power_of_two(int(factor)) and 1 < factor <= maximum
    return None if ok else text


RESIZE_U55 = Constraint(
    limit="resize_factor",
    what="resize",
    allowed="the same factor 2, 4 or 8 in height and width (bilinear with half_pixel_centers: only "
    "2; align_corners: of size - 1), or a 1x1 input",
    fix="resize by 2, 4 or 8, if need be in several steps",
    find=_resize_u55,
)


def _half_pixel_u85(operands: Operands) -> bool:
    options = _options(operands)
    if operands.kind is OpKind.RESIZE_BILINEAR:
        return options.half_pixel_centers
    return not options.align_corners or options.half_pixel_centers


def _resize_flags(operands: Operands) -> str | None:
    both = _options(operands).align_corners and _half_pixel_u85(operands)
    return "align_corners and half_pixel_centers" if both else None


def _ratios(operands: Operands) -> tuple[tuple[int, int], ...]:
    """Return (numerator, denominator) of the width's and height's factor."""
    source, result = _sizes(operands)
    pairs = ((result[1], source[1]), (result[0], source[0]))
    if not _options(operands).align_corners:
        return pairs
    return tuple((n - 1, d - 1) if d > 1 else (n, d) for n, d in pairs)


def _resize_range_u85(operands: Operands) -> str | None:
    maximum = MAX_UPSCALE_HALF_PIXEL_U85 if _half_pixel_u85(operands) else MAX_UPSCALE_U85
    for numerator, denominator in _ratios(operands):
        if numerator == 0 or denominator == 0 or numerator // denominator > maximum:
            return f"{_resize_text(operands)} (factor {numerator}/{denominator})"
    return None


def _resize_power_u85(operands: Operands) -> str | None:
    source, _ = _sizes(operands)
    if source == (1, 1):
        return None
    for numerator, denominator in _ratios(operands):
        if denominator == 0:
            return None
        whole = numerator % denominator == 0
        if not whole or not _is_power_of_two(numerator // denominator):
            return f"{_resize_text(operands)} (factor {numerator}/{denominator})"
    return None


RESIZE_LIMITS_U85 = (
    Constraint(
        limit="resize_flags",
        what="flags",
        allowed="at most one of align_corners and half_pixel_centers",
        fix="export the resize with one of the two",
        find=_resize_flags,
    ),
    Constraint(
        limit="resize_factor",
        what="resize",
        allowed=f"factors up to {MAX_UPSCALE_U85} ({MAX_UPSCALE_HALF_PIXEL_U85} with half pixels)",
        fix="resize in several steps",
        find=_resize_range_u85,
    ),
)
RESIZE_BILINEAR_LIMITS_U85 = (
    *RESIZE_LIMITS_U85,
    Constraint(
        limit="resize_power_of_two",
        what="resize",
        allowed="factors that are whole powers of two (align_corners: of size - 1)",
        fix="resize by powers of two, or use RESIZE_NEAREST_NEIGHBOR",
        find=_resize_power_u85,
    ),
)
