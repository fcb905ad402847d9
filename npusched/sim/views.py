"""Feature maps as registers address them: NHWC or bricks, four tiles, strides in bytes.

Register meanings: SIM.md §3 "Addresses", "Geometry", "PRECISION".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from npusched.graph.types import Kernel, Upscale
from npusched.sim.kernels import Binary, Unary, extent
from npusched.sim.reader import Reader
from npusched.vela.stream import Register, StreamOp, StreamOpKind

_BITS = {0: 8, 1: 16, 2: 32}


class Pool(IntEnum):
    """Modes of NPU_OP_POOL."""

    MAX = 0
    AVERAGE = 1
    REDUCE_SUM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A feature map as a kernel addresses it: shape (h, w, c), four tiles, strides in bytes.

    ``bases`` are addresses in ``region`` of the tiles (top left, top right, bottom left, bottom
    right); ``height0`` and ``height1`` the rows of the left and right top tiles, ``width0`` the
    columns of the left ones. ``dtype`` is numpy's name, bricks are NHCWB16.
    """

    region: int
    bases: tuple[int, int, int, int]
    height0: int
    height1: int
    width0: int
    stride_y: int
    stride_x: int
    stride_c: int
    dtype: np.dtype[np.generic]
    is_brick: bool
    zero_point: int
    h: int
    w: int
    c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """How IFM2 of a binary operation is used: repeated axes, and whether it is operand A."""

    h: bool
    w: bool
    c: bool
    is_first: bool
    is_scalar: bool


def _view(
    reader: Reader,
    *,
    base: Register,
    stride_x: Register,
    region: Register,
    tiles: tuple[Register, Register, Register],
    zero_point: Register,
    dtype: np.dtype[np.generic],
    is_brick: bool,
    shape: tuple[int, int, int],
) -> View:
    """Read the addressing registers of a feature map. ``tiles``: width0, height0, height1."""
    h, w, c = shape
    if min(shape) < 1:
        raise reader.refuse(f"a feature map has the impossible shape {h} x {w} x {c}")
    width0, height0, height1 = (reader.get(register) + 1 for register in tiles)
    return View(
        region=reader.get(region),
        bases=(
            reader.get(base),
            reader.get(base + 1) if w > width0 else 0,
            reader.get(base + 2) if h > height0 else 0,
            reader.get(base + 3) if w > width0 and h > height1 else 0,
        ),
        height0=height0,
        height1=height1,
        width0=width0,
        stride_x=reader.stride(stride_x),
        stride_y=reader.stride(stride_x + 1),
        stride_c=reader.stride(stride_x + 2),
        dtype=dtype,
        is_brick=is_brick,
        zero_point=reader.signed(zero_point, 16),
        h=h,
        w=w,
        c=c,
    )


def _dtype(bits: int, width: int, what: str, reader: Reader) -> np.dtype[np.generic]:
    """Return the element type of a PRECISION register (bit 0: signed)."""
    if width not in _BITS:
        raise reader.refuse(f"{what} has 64-bit elements")
    return np.dtype(f"{'i' if bits & 1 else 'u'}{_BITS[width] // 8}")


def _is_brick(bits: int, what: str, reader: Reader) -> bool:
    return reader.pick({0: False, 1: True}, bits >> 6 & 3, f"format of {what}")


def read_ofm(reader: Reader) -> View:
    """Read the OFM."""
    bits = reader.get(Register.OFM_PRECISION)
    return _view(
        reader,
        base=Register.OFM_BASE0,
        stride_x=Register.OFM_STRIDE_X,
        region=Register.OFM_REGION,
        tiles=(Register.OFM_WIDTH0_M1, Register.OFM_HEIGHT0_M1, Register.OFM_HEIGHT1_M1),
        zero_point=Register.OFM_ZERO_POINT,
        dtype=_dtype(bits, bits >> 1 & 3, "the OFM", reader),
        is_brick=_is_brick(bits, "the OFM", reader),
        shape=(
            reader.get(Register.OFM_HEIGHT_M1) + 1,
            reader.get(Register.OFM_WIDTH_M1) + 1,
            reader.get(Register.OFM_DEPTH_M1) + 1,
        ),
    )


def read_ifm(
    reader: Reader,
    op: StreamOp,
    function: Pool | Binary | Unary | None,
    window: Kernel,
    upscale: Upscale,
    ofm: View,
) -> View:
    """Read the IFM; its rows and columns follow from OFM, window and padding."""
    bits = reader.get(Register.IFM_PRECISION)
    h = extent(
        ofm.h, window.h, window.stride_h, window.dilation_h, window.pad_top + window.pad_bottom
    )
    w = extent(
        ofm.w, window.w, window.stride_w, window.dilation_w, window.pad_left + window.pad_right
    )
    if upscale is not Upscale.NONE:
        h, w = -(-h // 2), -(-w // 2)
    depth = ofm.c
    if op.kind is not StreamOpKind.ELEMENTWISE:
        depth = reader.get(Register.IFM_DEPTH_M1) + 1
        if op.kind is StreamOpKind.DEPTHWISE or function in (Pool.MAX, Pool.AVERAGE):
            if depth != ofm.c:
                raise reader.refuse(f"the IFM has {depth} channels, the OFM {ofm.c}")
        elif function is Pool.REDUCE_SUM and ofm.c != 1:
            raise reader.refuse(f"a sum over channels has an OFM of {ofm.c} channels")
    return _view(
        reader,
        base=Register.IFM_BASE0,
        stride_x=Register.IFM_STRIDE_X,
        region=Register.IFM_REGION,
        tiles=(Register.IFM_WIDTH0_M1, Register.IFM_HEIGHT0_M1, Register.IFM_HEIGHT1_M1),
        zero_point=Register.IFM_ZERO_POINT,
        dtype=_dtype(bits, bits >> 2 & 3, "the IFM", reader),
        is_brick=_is_brick(bits, "the IFM", reader),
        shape=(h, w, depth),
    )


def read_ifm2(reader: Reader, broadcast: Broadcast, ofm: View, ifm: View) -> View:
    """Read the second IFM of a binary operation; broadcast axes have size 1."""
    bits = reader.get(Register.IFM2_PRECISION)
    dtype = _dtype(bits, bits >> 2 & 3, "the IFM2", reader)
    if dtype.itemsize != ifm.dtype.itemsize:
        raise reader.refuse(f"the IFMs have elements of {ifm.dtype} and {dtype}")
    return _view(
        reader,
        base=Register.IFM2_BASE0,
        stride_x=Register.IFM2_STRIDE_X,
        region=Register.IFM2_REGION,
        tiles=(Register.IFM2_WIDTH0_M1, Register.IFM2_HEIGHT0_M1, Register.IFM2_HEIGHT1_M1),
        zero_point=Register.IFM2_ZERO_POINT,
        dtype=dtype,
        is_brick=_is_brick(bits, "the IFM2", reader),
        shape=(
            1 if broadcast.h else ofm.h,
            1 if broadcast.w else ofm.w,
            1 if broadcast.c else ofm.c,
        ),
    )


def read_broadcast(reader: Reader) -> Broadcast:
    """Read how IFM2 is used."""
    bits = reader.get(Register.IFM2_BROADCAST)
    return Broadcast(
        h=bool(bits & 1),
        w=bool(bits & 2),
        c=bool(bits & 4),
        is_first=bool(bits & 64),
        is_scalar=bool(bits & 128),
    )
