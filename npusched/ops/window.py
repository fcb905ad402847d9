"""The window of convolutions and pools, and the input rows that output rows need."""

from __future__ import annotations

import msgspec

from npusched.ir import Shape
from npusched.ir.options import ConvOptions, Padding, PoolOptions


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Size, stride, dilation (elements) and padding (rows, columns of the IFM) of a kernel."""

    h: int = 1
    w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0

    @property
    def dilated_h(self) -> int:
        """Rows that the window spans."""
        return (self.h - 1) * self.dilation_h + 1

    @property
    def dilated_w(self) -> int:
        """Columns that the window spans."""
        return (self.w - 1) * self.dilation_w + 1

    @property
    def has_padding(self) -> bool:
        """True if any side is padded."""
        return any((self.pad_top, self.pad_left, self.pad_bottom, self.pad_right))


def axis(shape: Shape, from_end: int) -> int:
    """Return the size of the axis ``from_end`` places before the end (0 = last), 1 where absent."""
    return shape[-1 - from_end] if from_end < len(shape) else 1


def total_padding(in_size: int, out_size: int, stride: int, dilated: int) -> int:
    """Return the rows (or columns) of padding that SAME needs.

    max(0, (ceil(out/stride)-1)*stride + dilated - in). ``out_size`` is in input pixels, usually
    equal to ``in_size`` (LOWERING §1, SetKernel). A stride of 0 counts as 1.
    """
    stride = max(stride, 1)
    return max(0, (-(-out_size // stride) - 1) * stride + dilated - in_size)


def padded(window: Window, ifm: Shape, out: Shape) -> Window:
    """Return ``window`` with SAME padding: the smaller half at top and left."""
    rows = total_padding(axis(ifm, 2), axis(out, 2), window.stride_h, window.dilated_h)
    columns = total_padding(axis(ifm, 1), axis(out, 1), window.stride_w, window.dilated_w)
    return Window(
        h=window.h,
        w=window.w,
        stride_h=window.stride_h,
        stride_w=window.stride_w,
        dilation_h=window.dilation_h,
        dilation_w=window.dilation_w,
        pad_top=rows // 2,
        pad_left=columns // 2,
        pad_bottom=(rows + 1) // 2,
        pad_right=(columns + 1) // 2,
    )


def pool_window(options: PoolOptions, ifm: Shape) -> Window:
    """Return the window of a pool over ``ifm`` (n, h, w, c)."""
    window = Window(
        h=options.filter_h, w=options.filter_w, stride_h=options.stride_h, stride_w=options.stride_w
    )
    return padded(window, ifm, ifm) if options.padding is Padding.SAME else window


def conv_window(options: ConvOptions, ifm: Shape, weights: Shape, *, transposed: bool) -> Window:
    """Return the window of a convolution; ``weights`` are OHWI (depthwise 1HWC).

    A transpose convolution's padding depends on its lowering and is left out.
    """
    window = Window(
        h=axis(weights, 2),
        w=axis(weights, 1),
        stride_h=options.stride_h,
        stride_w=options.stride_w,
        dilation_h=1 if transposed else options.dilation_h,
        dilation_w=1 if transposed else options.dilation_w,
    )
    if transposed or options.padding is not Padding.SAME:
        return window
    return padded(window, ifm, ifm)


def ifm_rows(window: Window, first: int, end: int, ifm_h: int) -> tuple[int, int]:
    """Return the half-open range of IFM rows that OFM rows [first, end) read.

    first*s - top .. (end-1)*s - top + dilated_h, clipped to [0, ifm_h): padding is not read.
    """
    low = first * window.stride_h - window.pad_top
    high = (end - 1) * window.stride_h - window.pad_top + window.dilated_h
    return (max(low, 0), min(max(high, 0), ifm_h))
