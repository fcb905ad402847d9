"""Tensors by address: who wrote each byte last, and which values are read together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusched.emission.parts import align_up
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span, Storage
from npusched.sim.views import View

_LANES = 16


@dataclass(frozen=True, slots=True)
class TemplateTensor:
    """A tensor as the template stores it: ``size_bytes`` (a multiple of 16) from ``base``.

    ``memory`` is the flatbuffer tensor that is the memory. Addresses of the template are only
    used to tell how views lie in the tensor.
    """

    number: int
    memory: int
    base: int
    size_bytes: int


class Follower:
    """Follows values through memories while commands are walked in order.

    Every write is a new value; a read joins all values that it sees (a concatenation, a slice).
    """

    def __init__(self) -> None:
        self._shadows: dict[int, Array] = {}
        self._parents: list[int] = [0]
        self._spans: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._granules: list[int] = [1]
        self._lives: list[tuple[int, int]] = [(0, 0)]
        self._now = 0

    def add_memory(self, memory: int, size_bytes: int) -> None:
        """Add a memory, or let it grow."""
        known = self._shadows.get(memory)
        if known is None or len(known) < size_bytes:
            self._shadows[memory] = np.zeros(size_bytes, np.int32)

    def write(self, memory: int, storage: Storage) -> int:
        """A kernel writes a view: return the new value."""
        value = self._new(memory, storage.span, _granule(storage.view))
        for part in storage.bytes_of(self._shadows[memory]):
            part[...] = value
        return value

    def write_span(self, memory: int, span: Span) -> int:
        """The host writes bytes: return the new value."""
        value = self._new(memory, span, 1)
        self._shadows[memory][span[0] : span[1]] = value
        return value

    def read(self, memory: int, storage: Storage) -> int | None:
        """A kernel reads a view: return the value, None if it holds bytes that nobody wrote."""
        shadow = self._shadows[memory]
        seen: set[int] = set()
        for part in storage.bytes_of(shadow):
            seen.update(np.unique(part).tolist())
        return self._join(seen)

    def read_span(self, memory: int, span: Span) -> int | None:
        """The host reads bytes; else as ``read``."""
        return self._join(set(np.unique(self._shadows[memory][span[0] : span[1]]).tolist()))

    def only_value(self, memory: int, span: Span) -> int | None:
        """The value that these bytes are all of, None if they are of several: nothing is joined."""
        seen = {self._root(v) for v in np.unique(self._shadows[memory][span[0] : span[1]]).tolist()}
        return seen.pop() if len(seen) == 1 and 0 not in seen else None

    def _new(self, memory: int, span: Span, granule: int) -> int:
        self._now += 1
        value = len(self._parents)
        self._lives.append((self._now, self._now + 1))
        self._parents.append(value)
        self._spans.append((memory, *span))
        self._granules.append(granule)
        return value

    def _join(self, seen: set[int]) -> int | None:
        if not seen or 0 in seen:
            return None
        for value in seen:
            self._lives[value] = (self._lives[value][0], self._now + 1)
        first, *rest = sorted(map(self._root, seen))
        for other in rest:
            self._parents[self._root(other)] = first
        return first

    def _root(self, value: int) -> int:
        while self._parents[value] != value:
            self._parents[value] = self._parents[self._parents[value]]
            value = self._parents[value]
        return value

    def tensors(self) -> tuple[tuple[TemplateTensor, ...], dict[int, int]]:
        """Return all tensors, and which of them each value is."""
        while self._merge_shared():
            pass
        numbers = {root: number for number, root in enumerate(self._bounds())}
        found = []
        for root, (memory, low, high, granule, _, _) in self._bounds().items():
            base = low - low % _LANES
            size = align_up(-(-(high - base) // granule) * granule)
            found.append(TemplateTensor(numbers[root], memory, base, size))
        return tuple(found), {
            value: numbers[self._root(value)] for value in range(1, len(self._parents))
        }

    def _bounds(self) -> dict[int, tuple[int, int, int, int, int, int]]:
        """(memory, first byte, end, granule, first and last time) of the values of each root."""
        bounds: dict[int, tuple[int, int, int, int, int, int]] = {}
        for value in range(1, len(self._parents)):
            root = self._root(value)
            memory, low, high = self._spans[value]
            first, last = self._lives[value]
            _, a, b, g, f, e = bounds.get(root, (memory, low, high, 1, first, last))
            bounds[root] = (
                memory,
                min(a, low),
                max(b, high),
                max(g, self._granules[value]),
                min(f, first),
                max(e, last),
            )
        return bounds

    def _merge_shared(self) -> bool:
        """Join values that share a granule of bytes at one time: parts of one tensor, side by side.

        Tensors begin at multiples of 16, so two of them never share one.
        """
        placed = sorted(
            (m, low - low % _LANES, align_up(high), f, e, root)
            for root, (m, low, high, _, f, e) in self._bounds().items()
        )
        merged = False
        for k, (memory, _, high, first, last, root) in enumerate(placed):
            for other_memory, start, _, f, e, other in placed[k + 1 :]:
                if other_memory != memory or start >= high:
                    break
                a, b = self._root(root), self._root(other)
                if a != b and max(first, f) < min(last, e):
                    self._parents[max(a, b)] = min(a, b)
                    merged = True
        return merged


def _granule(view: View) -> int:
    """Bytes in whole numbers of which a view's tensor is stored: a brick holds 16 channels."""
    return _LANES * view.dtype.itemsize if view.is_brick else 1
