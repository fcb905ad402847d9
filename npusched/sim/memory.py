"""Byte memories of a stream, and feature maps in them.

A ``View`` becomes one or more ``Piece``s, each a strided array over the bytes of a region, so
that reading and writing only move data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from npusched.errors import SimError
from npusched.graph.types import BRICK_CHANNELS
from npusched.sim.kernels.arrays import Array
from npusched.sim.views import View

Span: TypeAlias = tuple[int, int]
"""First byte, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a feature map that one strided array covers.

    ``shape`` and ``strides`` (bytes) are of (h, w, c), or (h, w, c / 16, 16) for whole bricks;
    ``rows``, ``columns``, ``channels`` say which part of the feature map it is.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: slice
    columns: slice
    channels: slice

    def span(self, element_bytes: int) -> Span:
        """Return the bytes between the first and the last element."""
        low = high = self.address
        for size, stride in zip(self.shape, self.strides, strict=True):
            reach = (size - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + element_bytes


@dataclass(frozen=True)
class Storage:
    """Where a feature map lies: its view cut in pieces."""

    view: View
    pieces: tuple[Piece, ...]

    @staticmethod
    def of(view: View) -> Storage:
        """Cut a view at tile borders, and bricks at the last whole brick."""
        return Storage(view, tuple(_pieces(view)))

    @cached_property
    def span(self) -> Span:
        """The bytes between the first and the last element of all pieces."""
        spans = [piece.span(self.view.dtype.itemsize) for piece in self.pieces]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def read(self, memory: Array) -> Array:
        """Return (n, h, w, c) from ``memory`` (n, bytes): a view of it where possible."""
        view = self.view
        if len(self.pieces) == 1:
            part = _array(memory, self.pieces[0], view.dtype)
            return part.reshape(len(memory), view.h, view.w, view.c)
        result = np.empty((len(memory), view.h, view.w, view.c), view.dtype)
        for piece in self.pieces:
            part = _array(memory, piece, view.dtype)
            place = result[:, piece.rows, piece.columns, piece.channels]
            place[...] = part.reshape(place.shape)
        return result

    def write(self, memory: Array, values: Array) -> None:
        """Write (n, h, w, c) to ``memory`` (n, bytes)."""
        for piece in self.pieces:
            part = values[:, piece.rows, piece.columns, piece.channels]
            _array(memory, piece, self.view.dtype)[...] = part.reshape(len(values), *piece.shape)

    def read_byte(self, shadow: Array, byte: int) -> Array:
        """Return (h, w, c): what ``shadow`` (one entry per byte) holds for byte ``byte``.

        ``byte`` counts within each element.
        """
        view = self.view
        result = np.empty((view.h, view.w, view.c), shadow.dtype)
        for piece, part in zip(self.pieces, self.bytes_of(shadow), strict=True):
            place = result[piece.rows, piece.columns, piece.channels]
            place[...] = part[..., byte].reshape(place.shape)
        return result

    def mark(self, shadow: Array, values: Array) -> None:
        """Write (h, w, c) ``values`` to all bytes of each element in ``shadow``."""
        for piece, part in zip(self.pieces, self.bytes_of(shadow), strict=True):
            chosen = values[piece.rows, piece.columns, piece.channels]
            part[...] = chosen.reshape(piece.shape)[..., None]

    def bytes_of(self, shadow: Array) -> list[Array]:
        """Return what ``shadow`` (one entry per byte) holds for each piece, as writable views.

        Their shape is the piece's, with one more axis for the bytes of an element.
        """
        size = shadow.itemsize
        return [
            np.ndarray(
                (*piece.shape, self.view.dtype.itemsize),
                shadow.dtype,
                shadow,
                piece.address * size,
                (*(stride * size for stride in piece.strides), size),
            )
            for piece in self.pieces
        ]


def _array(memory: Array, piece: Piece, dtype: np.dtype[np.generic]) -> Array:
    """Return the piece of each memory of the batch as one strided array."""
    return np.ndarray(
        (len(memory), *piece.shape),
        dtype,
        memory,
        piece.address,
        (memory.strides[0], *piece.strides),
    )


def _pieces(view: View) -> list[Piece]:
    """Cut at tile borders (SIM.md §3 "Addresses"): rows per half, columns, then whole bricks."""
    pieces = []
    columns = [(0, min(view.width0, view.w), view.height0)]
    if view.w > view.width0:
        columns.append((view.width0, view.w, view.height1))
    for right, (left, end, height) in enumerate(columns):
        rows = [(0, min(height, view.h))]
        if view.h > height:
            rows.append((height, view.h))
        for low, (top, bottom) in enumerate(rows):
            base = view.bases[right + 2 * low]
            pieces += _tile(view, base, slice(top, bottom), slice(left, end))
    return pieces


def _tile(view: View, base: int, rows: slice, columns: slice) -> list[Piece]:
    """Return the pieces of one tile."""
    h, w = rows.stop - rows.start, columns.stop - columns.start
    size = view.dtype.itemsize
    if not view.is_brick:
        strides = (view.stride_y, view.stride_x, size)
        return [Piece(base, (h, w, view.c), strides, rows, columns, slice(0, view.c))]
    whole, rest = divmod(view.c, BRICK_CHANNELS)
    step = BRICK_CHANNELS * size
    pieces = []
    if whole:
        pieces.append(
            Piece(
                base,
                (h, w, whole, BRICK_CHANNELS),
                (view.stride_y, step, view.stride_c, size),
                rows,
                columns,
                slice(0, whole * BRICK_CHANNELS),
            )
        )
    if rest:
        pieces.append(
            Piece(
                base + whole * view.stride_c,
                (h, w, rest),
                (view.stride_y, step, size),
                rows,
                columns,
                slice(whole * BRICK_CHANNELS, view.c),
            )
        )
    return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A memory that a stream addresses by number.

    ``content`` is set for read-only memories. ``same_as`` names the region whose bytes these are
    (the compiled file lists one tensor twice). ``size_bytes`` limits addresses.
    """

    index: int
    name: str
    size_bytes: int
    content: bytes | None = None
    same_as: int | None = None

    @property
    def is_read_only(self) -> bool:
        """True for constants."""
        return self.content is not None

    @property
    def key(self) -> int:
        """Number of the region whose bytes are used."""
        return self.index if self.same_as is None else self.same_as


def check_span(span: Span, region: Region, where: str) -> None:
    """Raise SimError if bytes lie outside a region."""
    if span[0] < 0 or span[1] > region.size_bytes:
        raise SimError(
            f"{where} leaves its memory",
            f"bytes {span[0]} to {span[1]} of region {region.index} ({region.name}), "
            f"which has {region.size_bytes}",
            "the stream is damaged, or the region is too small: compile the model again",
            low=span[0],
            high=span[1],
            size_bytes=region.size_bytes,
        )
