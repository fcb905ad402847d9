"""Memories of a plan as bytes: feature maps at their addresses, NHWC or bricks, whole or rolling.

Beside every byte a tag tells which buffer and which row was written there last, so that a read of
a row that is missing, stale, or overwritten by another buffer is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npusched.errors import PlanError
from npusched.graph.types import BRICK_CHANNELS, Access, Layout
from npusched.sim.kernels.arrays import Array
from npusched.sim.meaning import numpy_type

_EMPTY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a feature map is: ``size_bytes`` at ``offset_bytes`` of ``memory``.

    ``number`` names the buffer in tags. ``rolling_rows``: row r lies in slot r mod that many;
    0 = all rows are there.
    """

    number: int
    name: str
    memory: str
    offset_bytes: int
    size_bytes: int
    layout: Layout
    rolling_rows: int = 0

    @property
    def end_bytes(self) -> int:
        """First byte after it."""
        return self.offset_bytes + self.size_bytes


@dataclass(slots=True)
class ByteMemory:
    """The bytes of one memory, garbage at first, with tags of who wrote them.

    ``is_checked``: reads must find what the same buffer wrote, of the row that is asked for.
    """

    name: str
    size_bytes: int
    is_checked: bool = True
    data: npt.NDArray[np.uint8] = field(init=False, repr=False)
    tags: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.size_bytes)
        self.data = generator.integers(0, 256, self.size_bytes, np.uint8)
        self.tags = np.full(self.size_bytes, _EMPTY, np.int64)

    def read(self, place: Place, access: Access, rows: tuple[int, int] | None = None) -> Array:
        """The stored values (n, rows, w, c) of an access; ``rows`` of it, None = all.

        Raises PlanError for bytes outside the memory or the buffer, and (checked) for values that
        the buffer does not hold.
        """
        numbers = self._rows(place, access, rows)
        values, tags = self._arrays(place, access)
        slots = _slots(place, numbers)
        if self.is_checked:
            for byte_tags in tags:
                self._check(place, _part(byte_tags[:, slots], access), numbers)
        return _part(values[:, slots], access)

    def write(
        self, place: Place, access: Access, content: Array, rows: tuple[int, int] | None = None
    ) -> None:
        """Store (n, rows, w, c); else like ``read``."""
        numbers = self._rows(place, access, rows)
        values, tags = self._arrays(place, access)
        n, _, w, c = _slices(access)
        shape = (n.stop - n.start, len(numbers), len(range(w.start, w.stop, w.step)), len(c))
        content = content.reshape(shape)
        for index, slot in enumerate(_slots(place, numbers)):
            _put(values[n, slot, w], content[:, index], c)
        self._mark(place, access, numbers, tags)

    def reserve(self, place: Place, access: Access, rows: tuple[int, int] | None) -> None:
        """Mark what ``write`` would store as the place's own; the values stay as they are."""
        numbers = self._rows(place, access, rows)
        _, tags = self._arrays(place, access)
        self._mark(place, access, numbers, tags)

    def _mark(
        self,
        place: Place,
        access: Access,
        numbers: npt.NDArray[np.int64],
        tags: list[Array],
    ) -> None:
        n, _, w, c = _slices(access)
        for row, slot in zip(numbers, _slots(place, numbers), strict=True):
            for byte_tags in tags:
                _put(byte_tags[n, slot, w], np.int64(_tag(place, int(row))), c)

    def claim(self, place: Place) -> None:
        """Fill a place that holds no feature map (resident weights) with its own mark."""
        part = slice(place.offset_bytes, place.end_bytes)
        self.data[part] = place.number & 0xFF
        self.tags[part] = _tag(place, 0)

    def check_claim(self, place: Place) -> None:
        """Refuse a place whose mark is damaged: something else was written there (PlanError)."""
        part = slice(place.offset_bytes, place.end_bytes)
        damaged = np.flatnonzero(self.tags[part] != _tag(place, 0))
        if place.end_bytes > self.size_bytes or len(damaged):
            where = int(damaged[0]) if len(damaged) else self.size_bytes - place.offset_bytes
            raise PlanError(
                f"{place.name} are overwritten while they are needed",
                f"byte {where} of {place.size_bytes} at {place.offset_bytes} of {place.memory}",
            )

    def _rows(
        self, place: Place, access: Access, rows: tuple[int, int] | None
    ) -> npt.NDArray[np.int64]:
        """The rows that are touched at once (checked: no more than the place has)."""
        numbers = _row_numbers(access, rows)
        if self.is_checked and 0 < place.rolling_rows < len(numbers):
            raise PlanError(
                f"{len(numbers)} rows of {place.name!r} are touched at once",
                f"its rolling buffer has {place.rolling_rows}",
            )
        return numbers

    def _check(self, place: Place, tags: Array, rows: npt.NDArray[np.int64]) -> None:
        wanted = np.array([_tag(place, int(row)) for row in rows], np.int64)
        wrong = tags != wanted.reshape(1, -1, 1, 1)
        if not wrong.any():
            return
        first = tuple(int(index) for index in np.argwhere(wrong)[0])
        number, row = divmod(int(tags[first]), _ROW_LIMIT)
        held = f"its row {row}" if number == place.number else f"what buffer {number} wrote"
        if tags[first] == _EMPTY:
            held = "nothing"
        raise PlanError(
            f"row {int(rows[first[1]])} of {place.name!r} is not where it should be",
            f"its place in {place.memory} holds {held}",
        )

    def _arrays(self, place: Place, access: Access) -> tuple[Array, list[Array]]:
        """Writable values (n, h, w, c) or bricks (n, h, w, c/16, 16), and tags per byte of them."""
        dtype = numpy_type(access.dtype)
        n, h, w, c = access.view
        rows = place.rolling_rows or h
        bricks = -(-c // BRICK_CHANNELS)
        is_linear = place.layout is Layout.NHWC
        shape = (n, rows, w, c) if is_linear else (n, rows, bricks, w, BRICK_CHANNELS)
        used = int(np.prod(shape)) * dtype.itemsize
        end = place.offset_bytes + used
        if used > place.size_bytes or end > self.size_bytes or place.offset_bytes < 0:
            raise PlanError(
                f"{place.name!r} does not fit its place",
                f"{used} bytes at {place.offset_bytes} of {place.memory}, "
                f"where {place.size_bytes} of {self.size_bytes} bytes are its own",
            )
        values = self.data[place.offset_bytes : end].view(dtype).reshape(shape)
        tags = [
            self.tags[place.offset_bytes + byte : end : dtype.itemsize].reshape(shape)
            for byte in range(dtype.itemsize)
        ]
        if is_linear:
            return values, tags
        order = (0, 1, 3, 2, 4)
        return values.transpose(order), [part.transpose(order) for part in tags]


_ROW_LIMIT = 1 << 32


def _tag(place: Place, row: int) -> int:
    """Rows count in rolling buffers; whole maps may be seen in other shapes."""
    return place.number * _ROW_LIMIT + (row if place.rolling_rows else 0)


def _row_numbers(access: Access, rows: tuple[int, int] | None) -> npt.NDArray[np.int64]:
    """Rows of the map that rows [start, end) of an access are."""
    first, last = access.offset[1], min(access.offset[1] + access.shape[1], access.view[1])
    every = np.arange(first, last, access.step_h)
    return every if rows is None else every[rows[0] : rows[1]]


def _slots(place: Place, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return rows % place.rolling_rows if place.rolling_rows else rows


def _slices(access: Access) -> tuple[slice, None, slice, npt.NDArray[np.int64]]:
    n, _, w, c = access.offset
    sn, _, sw, sc = access.shape
    return slice(n, n + sn), None, slice(w, w + sw, access.step_w), np.arange(c, c + sc)


def _part(rows: Array, access: Access) -> Array:
    """A copy of the access's part of whole rows."""
    n, _, w, c = _slices(access)
    chosen = rows[n, :, w]
    if chosen.ndim == 4:
        part: Array = chosen[..., c]
    else:
        part = chosen[..., c // BRICK_CHANNELS, c % BRICK_CHANNELS]
    return part


def _put(target: Array, content: Array | np.int64, channels: npt.NDArray[np.int64]) -> None:
    """Store one row (n, w, c) in a view (n, w, c) or (n, w, c/16, 16)."""
    if target.ndim == 3:
        target[..., channels] = content
    else:
        target[..., channels // BRICK_CHANNELS, channels % BRICK_CHANNELS] = content
