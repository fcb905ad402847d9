"""Find what kernels write among the tensors that a reference computed.

A kernel writes a block of some tensor: rows of a stripe, a slice of channels, every second
column. Where the block lies follows from the OFM's strides and the tensor's shape; at which
position, from the values. Values of several random inputs make chance hits improbable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from npusched.graph.types import BRICK_CHANNELS
from npusched.sim.kernels.arrays import Array, Ints
from npusched.sim.views import View

_PROBES = 64
_NEAR = 0.5
"""Share of equal values from which a block counts as meant to be that tensor's."""

_MIN_NEAR_ELEMENTS = 16
_MAX_STARTS = 4096

_MAX_TRIES = 64
_MAX_COMPARED = 1 << 20
"""Places that are compared in full at least, and elements that may be compared for more of them:
many places look alike where values are nearly constant."""


@dataclass(frozen=True)
class Target:
    """A reference tensor: values (batch, elements) and its last three axes; which are found."""

    index: int
    name: str
    values: Array
    h: int
    w: int
    c: int
    covered: Array

    @staticmethod
    def of(index: int, name: str, values: Array) -> Target:
        """Wrap values (batch, *shape)."""
        shape = (1, 1, 1, *values.shape[1:])
        c, w = shape[-1], shape[-2]
        flat = values.reshape(len(values), -1)
        size = flat.shape[1]
        return Target(index, name, flat, size // max(w * c, 1), w, c, np.zeros(size, np.bool_))

    @property
    def is_covered(self) -> bool:
        """True if every element was found."""
        return bool(self.covered.all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where a kernel's output was looked for: a tensor, and flat places in it."""

    target: Target
    places: Ints

    @property
    def first(self) -> tuple[int, int, int]:
        """Row, column and channel of the block's first element."""
        place = int(self.places.flat[0])
        row, rest = divmod(place, self.target.w * self.target.c)
        return row, rest // self.target.c, rest % self.target.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A block that a kernel's output resembles without being equal to it."""

    block: Block
    differing: int
    total: int
    got: int
    expected: int
    place: tuple[int, int, int]
    """Row, column and channel of the first differing value in the tensor."""


class Matcher:
    """The tensors of a reference run, and which of their elements kernels were found to write.

    ``is_quick``: look for one match only, first where the last one was (for very many kernels).
    """

    def __init__(self, tensors: Mapping[int, tuple[str, Array]], *, is_quick: bool = False) -> None:
        self._is_quick = is_quick
        self.targets = [Target.of(index, name, values) for index, (name, values) in tensors.items()]

    def find(self, view: View, written: Array) -> list[Block]:
        """Mark and return all blocks that equal what a kernel wrote (batch, h, w, c).

        Tensors already found whole are looked at only if no other one matches.
        """
        found: list[Block] = []
        alike = [each for each in self.targets if each.values.dtype == written.dtype]
        whole = {each.index for each in alike if each.is_covered}
        for covered in (False, True):
            for target in alike:
                if (target.index in whole) == covered:
                    block = _equal_block(target, view, written)
                    if block is not None:
                        target.covered[block.places] = True
                        found.append(block)
                        if self._is_quick:
                            self.targets.remove(target)
                            self.targets.insert(0, target)
                            return found
            if found:
                break
        return found

    def check_whole(self, index: int, values: Array) -> bool:
        """Compare a whole tensor (batch, elements in order); mark it and return True if equal.

        True also for tensors that are not compared.
        """
        target = next((each for each in self.targets if each.index == index), None)
        if target is None or target.values.size != values.size:
            return True
        equal = np.array_equal(target.values, values.reshape(target.values.shape))
        if equal:
            target.covered[:] = True
        return equal

    def nearest(self, view: View, written: Array) -> Near | None:
        """Return the block that resembles the output most, None if none does."""
        best: tuple[float, Block] | None = None
        for target in self.targets:
            for offsets in _offsets(target, view, written):
                starts = _row_starts(target, offsets)
                block, share = _best_start(target, offsets, starts, written)
                if block is not None and (best is None or share > best[0]):
                    best = (share, block)
        if best is None or best[0] < _NEAR or written[0].size < _MIN_NEAR_ELEMENTS:
            return None
        return _describe(best[1], written)

    def spread(self, inputs: Iterable[Array]) -> None:
        """Mark tensors that hold the values of one found whole, or of a graph input (views)."""
        whole = {
            target.values.tobytes()
            for target in self.targets
            if target.is_covered and target.covered.size
        }.union(np.ascontiguousarray(values).tobytes() for values in inputs)
        for target in self.targets:
            if not target.is_covered and target.values.tobytes() in whole:
                target.covered[:] = True


def _offsets(target: Target, view: View, written: Array) -> Iterator[Ints]:
    """Yield ways to lay the output over the tensor: flat offsets (h, w, c) of its elements."""
    _, h, w, c = written.shape
    if target.values.dtype != written.dtype or target.covered.size < h * w * c:
        return
    y, x, z = np.ogrid[:h, :w, :c]
    size = view.dtype.itemsize
    if view.is_brick:
        pitch = target.w * -(-target.c // BRICK_CHANNELS) * BRICK_CHANNELS * size
        if w <= target.w and c <= target.c and view.stride_y % pitch == 0:
            step = view.stride_y // pitch
            if step == 1 or step * (h - 1) < target.h:
                yield (y * step * target.w + x) * target.c + z
                return
    elif view.stride_x % size == 0 and view.stride_y % size == 0:
        offsets = (y * view.stride_y + x * view.stride_x) // size + z
        if 0 <= int(offsets.max()) - int(offsets.min()) < target.covered.size:
            yield offsets
    if target.covered.size == h * w * c or (c == target.c and w == target.w):
        yield (y * w + x) * c + z


def _equal_block(target: Target, view: View, written: Array) -> Block | None:
    """Return a place where the tensor equals the output, preferably one not found yet."""
    for offsets in _offsets(target, view, written):
        flat = offsets.ravel()
        probes = _probes(flat.size)
        values = written.reshape(len(written), -1)
        low, high = -int(flat.min()), target.covered.size - int(flat.max())
        if high <= low:
            continue
        first = target.values[0, low + flat[probes[0]] : high + flat[probes[0]]]
        starts = np.flatnonzero(first == values[0, probes[0]]) + low
        for probe in probes:
            if not starts.size:
                break
            equal = target.values[:, starts + flat[probe]] == values[:, probe, None]
            starts = starts[equal.all(axis=0)]
        fresh = ~target.covered[starts + flat[0]]
        rows = starts % (target.w * target.c) == 0
        order = np.lexsort((~fresh, ~rows))
        tries = max(_MAX_TRIES, _MAX_COMPARED // flat.size)
        for start in starts[order][:tries].tolist():
            places = flat + start
            if np.array_equal(target.values[:, places], values):
                return Block(target=target, places=places.reshape(offsets.shape))
    return None


def _probes(size: int) -> Ints:
    """Places within the output to look at first: spread evenly."""
    return np.unique(np.linspace(0, size - 1, min(size, _PROBES)).astype(np.int64))


def _row_starts(target: Target, offsets: Ints) -> Ints:
    """Positions where a block may begin: rows for wide blocks, else every element."""
    low, high = -int(offsets.min()), target.covered.size - int(offsets.max())
    step = target.w * target.c if offsets.shape[2] == target.c else 1
    starts = np.arange(low, high, step)
    return starts[:: -(-len(starts) // _MAX_STARTS)] if len(starts) > _MAX_STARTS else starts


def _best_start(
    target: Target, offsets: Ints, starts: Ints, written: Array
) -> tuple[Block | None, float]:
    """Return the start with most equal probes, and the share of equal values there."""
    if not starts.size:
        return None, 0.0
    flat = offsets.ravel()
    values = written.reshape(len(written), -1)
    hits = np.zeros(len(starts), np.int64)
    for probe in _probes(flat.size):
        equal = target.values[:, starts + flat[probe]] == values[:, probe, None]
        hits += equal.sum(axis=0)
    places = flat + int(starts[int(hits.argmax())])
    share = float((target.values[:, places] == values).mean())
    return Block(target=target, places=places.reshape(offsets.shape)), share


def _describe(block: Block, written: Array) -> Near:
    """Compare a block with the output."""
    expected = block.target.values[:, block.places]
    differs = expected != written
    where = tuple(int(axis) for axis in np.argwhere(differs)[0]) if differs.any() else (0, 0, 0, 0)
    row, rest = divmod(int(block.places[where[1:]]), block.target.w * block.target.c)
    return Near(
        block=block,
        differing=int(differs.sum()),
        total=int(differs.size),
        got=int(written[where]),
        expected=int(expected[where]),
        place=(row, rest // block.target.c, rest % block.target.c),
    )
