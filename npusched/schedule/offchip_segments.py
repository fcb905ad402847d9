"""Ways to run a segment where off-chip bytes count apart from the score.

The same segments as ``Segments``, but every front is over (bytes, score, off-chip bytes): a way
that scores worse stays if it moves less off the chip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from npusched.memory import align_up
from npusched.schedule.fronts import Entry, modes_of
from npusched.schedule.kernels import Places, Sizes
from npusched.schedule.rows import Policy
from npusched.schedule.search import NO_PREFETCH, Homes, Option
from npusched.schedule.segments import Detail, Segments
from npusched.schedule.staging import copy_cycles
from npusched.schedule.types import WeightMode

Triple = tuple[int, float, int, float, int]
"""An ``Entry`` with off-chip bytes: (bytes, score, off-chip bytes, hiding cycles, mask)."""


class OffchipSegments(Segments):
    """``Segments`` whose options are a front in three criteria and state their off-chip bytes."""

    def options(self, i: int, j: int, homes: Homes, prefetch: int = NO_PREFETCH) -> list[Option]:
        """Front of ways to run segment [i..j], by rising bytes; empty above the limit."""
        places = {self.tensors[item]: memory for item, memory in homes}
        if i == j:
            return self._single(i, places, prefetch)
        memory = {
            tensor: place
            for v in range(i, j + 1)
            for tensor, place in self.places_of(v, i, j, places).of
        }
        found = [
            Option(
                own + size,
                score,
                Detail(way[0], way[1], modes_of(mask, i, j), way[2], None, way[3]),
                hiding,
                offchip,
            )
            for own, way in self._striped(i, j, places)
            for size, score, offchip, hiding, mask in self._triples(i, j, way[0], way[1], memory)
        ]
        return front_of_options(found)

    def _single(self, v: int, homes: Mapping[int, str], prefetch: int) -> list[Option]:
        places = self.places_of(v, v, v, homes)
        return front_of_options(
            [
                replace(option, offchip_bytes=self._moved(v, places, option))
                for option in self._all_single(v, homes, prefetch)
            ]
        )

    def _moved(self, v: int, places: Places, option: Option) -> int:
        """Off-chip bytes of op v run whole."""
        detail = option.detail
        assert isinstance(detail, Detail)
        if detail.shift:
            rows, sizes = self.sizes(v, v, detail.stripe_rows, detail.policy)
            cost = self.kernels.run(v, rows, sizes, places, detail.modes[0])
        elif detail.way is None:
            cost = self.kernels.whole(v, places, detail.modes[0])
        else:
            assert self.staged is not None
            cost = self.staged.cost(v, places, detail.way, 0)
        return self.kernels.offchip_bytes(cost)

    def _entries(
        self, v: int, stripe_rows: int, sizes: Sizes | None, places: Places
    ) -> list[Entry]:
        """Op v alone, with resident weights also where they only save off-chip bytes."""
        return [
            (size, score, hiding, mask)
            for size, score, _, hiding, mask in self._own(v, stripe_rows, sizes, places)
        ]

    def _own(self, v: int, stripe_rows: int, sizes: Sizes | None, places: Places) -> list[Triple]:
        cost = self._cost(v, stripe_rows, sizes, places, WeightMode.STREAMED)
        moved = self.kernels.offchip_bytes(cost)
        found: list[Triple] = [(0, cost.score, moved, float(cost.cycles), 0)]
        if WeightMode.RESIDENT in self.modes(v):
            other = self._cost(v, stripe_rows, sizes, places, WeightMode.RESIDENT)
            total = self.kernels.weights(v, stripe_rows, places).total
            less = self.kernels.offchip_bytes(other)
            if other.score < cost.score or less < moved:
                hiding = float(other.cycles - copy_cycles(self.kernels, total))
                found.append((align_up(total), other.score, less, hiding, 1 << v))
        return found

    def _triples(
        self, v: int, j: int, stripe_rows: int, policy: Policy, memory: Mapping[int, str]
    ) -> list[Triple]:
        """Front of weight choices for ops v..j of a segment (see ``_suffix``)."""
        key = (v, j, stripe_rows, policy, tuple(memory[t] for t in self._crossing(v, j)))
        known = self._triple_suffixes.get(key)
        if known is None:
            rows, sizes = self.sizes(v, j, stripe_rows, policy)
            places = Places(tuple((t, memory[t]) for t in self._touched[v]))
            known = self._own(v, rows, sizes, places)
            if v < j:
                rest = self._triples(v + 1, j, stripe_rows, policy, memory)
                known = _sums(known, rest, self.limit_bytes)
            self._triple_suffixes[key] = known
        return known

    @cached_property
    def _triple_suffixes(self) -> dict[tuple[object, ...], list[Triple]]:
        return {}


def _sums(mine: Sequence[Triple], rest: Sequence[Triple], limit_bytes: float) -> list[Triple]:
    """Front of all sums of one entry of each list, without those above the limit."""
    sums = [
        (a + size, b + score, c + offchip, d + hiding, m | mask)
        for size, score, offchip, hiding, mask in mine
        for a, b, c, d, m in rest
        if a + size <= limit_bytes
    ]
    if len(mine) == 1:
        return sums
    sums.sort()
    stairs = Stairs()
    return [entry for entry in sums if stairs.add(entry[1], entry[2])]


def front_of_options(options: Sequence[Option]) -> list[Option]:
    """The options that no other beats in bytes, score and off-chip bytes, by rising bytes."""
    stairs = Stairs()
    ordered = sorted(options, key=lambda o: (o.sram_bytes, o.score, o.offchip_bytes))
    return [option for option in ordered if stairs.add(option.score, option.offchip_bytes)]


class Stairs:
    """Pairs (score, off-chip bytes) of which none is as good as another in both."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.offchip: list[int] = []

    def add(self, score: float, offchip: int) -> bool:
        """Take a pair in unless one is at least as good; those that it beats go. True if taken."""
        at = bisect_right(self.scores, score)
        if at and self.offchip[at - 1] <= offchip:
            return False
        if at and self.scores[at - 1] == score:
            at -= 1  # as cheap, but moves more
        end = at
        while end < len(self.scores) and self.offchip[end] >= offchip:
            end += 1
        self.scores[at:end] = [score]
        self.offchip[at:end] = [offchip]
        return True
