"""Zero points, padding, x2 upscaling and the sizes that follow from a window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npusched.graph.types import Kernel, Upscale
from npusched.sim.kernels.arrays import Array


def extent(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Return the input rows (or columns) that ``size`` output rows need, padding taken off."""
    return (size - 1) * stride + (kernel - 1) * dilation + 1 - padding


def centre(values: Array, zero_point: int, dtype: npt.DTypeLike) -> Array:
    """Return ``values - zero_point`` in ``dtype``, which must be wide enough."""
    result = values.astype(dtype)
    if zero_point:
        result -= np.asarray(zero_point, dtype)
    return result


def upscale(values: Array, mode: Upscale, h: int, w: int) -> Array:
    """Return centred ``values`` upscaled by 2 and cut to ``h`` x ``w``.

    NEAREST repeats each element, ZEROS puts it at even places between zeros.
    """
    if mode is Upscale.NONE:
        return values
    if mode is Upscale.NEAREST:
        return values.repeat(2, axis=1).repeat(2, axis=2)[:, :h, :w]
    n, rows, columns, c = values.shape
    result = np.zeros((n, 2 * rows, 2 * columns, c), values.dtype)
    result[:, ::2, ::2] = values
    return result[:, :h, :w]


def pad(values: Array, kernel: Kernel, fill: int = 0) -> Array:
    """Return ``values`` with the kernel's padding around rows and columns, filled with ``fill``."""
    top, left, bottom, right = (
        kernel.pad_top,
        kernel.pad_left,
        kernel.pad_bottom,
        kernel.pad_right,
    )
    if not (top or left or bottom or right):
        return values
    n, h, w, c = values.shape
    result = np.full((n, top + h + bottom, left + w + right, c), fill, values.dtype)
    result[:, top : top + h, left : left + w] = values
    return result


def prepare(
    values: Array,
    kernel: Kernel,
    *,
    zero_point: int,
    ofm_shape: tuple[int, int],
    mode: Upscale = Upscale.NONE,
    dtype: npt.DTypeLike,
    fill: int = 0,
) -> Array:
    """Return what the windows of an OFM of ``ofm_shape`` (oh, ow) slide over.

    The stored ``values`` minus the zero point, upscaled, cut to the rows and columns that the
    windows reach, padded with ``fill``. ``dtype`` must hold the differences.
    """
    oh, ow = ofm_shape
    h = extent(oh, kernel.h, kernel.stride_h, kernel.dilation_h, kernel.pad_top + kernel.pad_bottom)
    w = extent(ow, kernel.w, kernel.stride_w, kernel.dilation_w, kernel.pad_left + kernel.pad_right)
    if mode is Upscale.NONE:
        return pad(centre(values[:, :h, :w], zero_point, dtype), kernel, fill)
    return pad(upscale(centre(values, zero_point, dtype), mode, h, w), kernel, fill)


def windows(values: Array, kernel: Kernel) -> Array:
    """Return all windows of padded ``values`` as a view (n, oh, ow, kh, kw, c)."""
    n, h, w, c = values.shape
    oh = (h - kernel.dilated_h) // kernel.stride_h + 1
    ow = (w - kernel.dilated_w) // kernel.stride_w + 1
    sn, sh, sw, sc = values.strides
    return np.lib.stride_tricks.as_strided(
        values,
        (n, oh, ow, kernel.h, kernel.w, c),
        (
            sn,
            sh * kernel.stride_h,
            sw * kernel.stride_w,
            sh * kernel.dilation_h,
            sw * kernel.dilation_w,
            sc,
        ),
        writeable=False,
    )


def taps(values: Array, kernel: Kernel) -> list[Array]:
    """Return one view (n, oh, ow, c) of padded ``values`` per tap, rows first."""
    _, h, w, _ = values.shape
    last_h = (h - kernel.dilated_h) // kernel.stride_h * kernel.stride_h + 1
    last_w = (w - kernel.dilated_w) // kernel.stride_w * kernel.stride_w + 1
    return [
        values[:, y : y + last_h : kernel.stride_h, x : x + last_w : kernel.stride_w]
        for y in range(0, kernel.dilated_h, kernel.dilation_h)
        for x in range(0, kernel.dilated_w, kernel.dilation_w)
    ]
