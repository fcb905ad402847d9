"""Least peak memory of one part of a graph, over all orders: best first through down-sets.

Ops count from 0 here (as bits of a number), and a unit may stand for several ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec


class Map(msgspec.Struct, frozen=True):
    """A map: size, units that use it, whether it is there before any and kept after all."""

    size_bytes: int
    users: tuple[int, ...]
    early: bool
    kept: bool


class Region:
    """Units [first, end) of a graph, as bits 0, 1, …; all before them ran, none after them."""

    def __init__(
        self, maps: Sequence[Map], before: Sequence[frozenset[int]], first: int, end: int
    ) -> None:
        self.first, self.count = first, end - first
        self.needs = [
            sum(1 << (k - first) for k in before[unit] if k >= first) for unit in range(first, end)
        ]
        self.leads_to: list[list[int]] = [[] for _ in self.needs]
        for unit, needed in enumerate(self.needs):
            for k in _bits(needed):
                self.leads_to[k].append(unit)
        self.through = self.steps = 0
        self.parts: list[_Part] = []
        self.fresh: list[list[_Part]] = [[] for _ in self.needs]
        self.dying: list[list[_Part]] = [[] for _ in self.needs]
        for item in maps:
            self._place(item, first, end)

    def _place(self, item: Map, first: int, end: int) -> None:
        """Note who of the region makes the map (``fresh``) and who needs it last (``dying``)."""
        inside = [k - first for k in item.users if first <= k < end]
        there = item.early or any(k < first for k in item.users)
        stays = item.kept or any(k >= end for k in item.users)
        if not (inside or (there and stays)):
            return
        part = _Part(item.size_bytes, sum(1 << k for k in inside), there, stays)
        self.parts.append(part)
        if there:
            self.through += item.size_bytes
        for k in inside:
            if not there:
                self.fresh[k].append(part)
            if not stays:
                self.dying[k].append(part)

    def search(self, cap: int) -> list[int] | None:
        """Units in the order of least peak, [] if none beats the given one, None if capped."""
        given = self._given_peak()
        if given <= self._least_possible():
            return []
        everything = (1 << self.count) - 1
        parents: dict[int, tuple[int, tuple[int, ...]]] = {}
        ready = sum(1 << unit for unit, needed in enumerate(self.needs) if not needed)
        queue = [_Move(0, 0, _State(0, ready, self.through), 0, ())]
        while queue:
            move = heappop(queue)
            state = move.state
            if state.done in parents:
                continue
            parents[state.done] = (move.previous, move.units)
            if state.done == everything:
                return [self.first + unit for unit in _path(parents, everything)]
            if self.steps > cap:
                return None
            for unit in _bits(state.ready):
                during, then = self.run(unit, state)
                peak = max(move.peak, during)
                if peak < given:
                    more, then = self._free_moves(then, peak)
                    if then.done not in parents:
                        left = self.count - then.done.bit_count()
                        heappush(queue, _Move(peak, left, then, state.done, (unit, *more)))
        return []

    def run(self, unit: int, state: _State) -> tuple[int, _State]:
        """(live bytes while the unit runs in this state, state after it)."""
        self.steps += 1
        during = state.live
        for part in self.fresh[unit]:
            if not part.users & state.done:
                during += part.size_bytes
        done, after = state.done | 1 << unit, during
        for part in self.dying[unit]:
            if not part.users & ~done:
                after -= part.size_bytes
        ready = state.ready & ~(1 << unit)
        for k in self.leads_to[unit]:
            if not self.needs[k] & ~done:
                ready |= 1 << k
        return during, _State(done, ready, after)

    def _free_moves(self, state: _State, peak: int) -> tuple[list[int], _State]:
        """Units that cost nothing now: within the peak, and no more is alive after them.

        Whatever order is best from here, it is as good with these first: with more done before
        it, a unit makes no more and frees no less.
        """
        taken: list[int] = []
        looked = -1
        while len(taken) > looked:
            looked = len(taken)
            for unit in _bits(state.ready):
                during, then = self.run(unit, state)
                if during <= peak and then.live <= state.live:
                    taken.append(unit)
                    state = then
        return taken, state

    def _given_peak(self) -> int:
        peak, state = 0, _State(0, 0, self.through)
        for unit in range(self.count):
            during, state = self.run(unit, state)
            peak = max(peak, during)
        return peak

    def _least_possible(self) -> int:
        """What some unit finds alive in any order: its own maps, and those that it lies between.

        Those are made by something that must run before it and needed by something after it.
        """
        before = [0] * self.count
        for unit in range(self.count):
            for k in _bits(self.needs[unit]):
                before[unit] |= before[k] | 1 << k
        after = [0] * self.count
        for unit in range(self.count - 1, -1, -1):
            for k in self.leads_to[unit]:
                after[unit] |= after[k] | 1 << k
        least = self.through
        for unit in range(self.count):
            own, early, late = 1 << unit, before[unit] | 1 << unit, after[unit] | 1 << unit
            live = sum(
                part.size_bytes
                for part in self.parts
                if part.users & own
                or ((part.there or part.users & early) and (part.stays or part.users & late))
            )
            least = max(least, live)
        return least


class _Part(msgspec.Struct, frozen=True):
    """A map as a region sees it: bytes, users as bits, there before it, kept after it.

    It becomes alive with the first user that runs (unless it is there), and is gone after the last
    (unless it stays).
    """

    size_bytes: int
    users: int
    there: bool
    stays: bool


class _State(NamedTuple):
    """A down-set: units that have run, units that may run now (both as bits), and live bytes."""

    done: int
    ready: int
    live: int


class _Move(NamedTuple):
    """On the way to ``state``: the largest live sum, units still to run; whence, and by which."""

    peak: int
    left: int
    state: _State
    previous: int
    units: tuple[int, ...]


def _bits(mask: int) -> Iterator[int]:
    """Places of the ones, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _path(parents: Mapping[int, tuple[int, tuple[int, ...]]], done: int) -> list[int]:
    steps: list[int] = []
    while done:
        done, units = parents[done]
        steps = [*units, *steps]
    return steps
