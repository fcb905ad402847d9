"""Addresses for ranges that keep fixed distances: results that grow over inputs that die.

The same search as ``allocate``, but what is placed are groups: ranges whose addresses differ by
given bytes and which may share bytes among themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from npusched.memory.allocate import SEARCH_ROUNDS, Allocation, search_orders
from npusched.memory.ranges import LiveRange, align_up


class Tied(msgspec.Struct, frozen=True):
    """Ranges (by index) with their distances in bytes from the group's lowest address."""

    members: tuple[tuple[int, int], ...]


def allocate_tied(
    ranges: Sequence[LiveRange],
    groups: Sequence[Tied],
    *,
    limit_bytes: int | None = None,
    rounds: int = SEARCH_ROUNDS,
) -> Allocation:
    """Like ``allocate``; every range is in one group. Offsets are per range, in order."""
    if not ranges:
        return Allocation(offsets=(), peak_bytes=0, bound_bytes=0)
    placer = _GroupPlacer(ranges, groups)
    whole = [
        LiveRange(
            key=str(number),
            size_bytes=max(d + ranges[k].size_bytes for k, d in group.members),
            first_step=min(ranges[k].first_step for k, _ in group.members),
            end_step=max(ranges[k].end_step for k, _ in group.members),
        )
        for number, group in enumerate(groups)
    ]
    bound = _bound(ranges, groups)
    goal = bound if limit_bytes is None else max(bound, limit_bytes)
    bases, peak = search_orders(whole, placer, goal, rounds)
    offsets = [0] * len(ranges)
    for base, group in zip(bases, groups, strict=True):
        for k, distance in group.members:
            offsets[k] = base + distance
    return Allocation(offsets=tuple(offsets), peak_bytes=peak, bound_bytes=bound)


class _GroupPlacer:
    """First fit of groups: a group's base must suit all its members."""

    def __init__(self, ranges: Sequence[LiveRange], groups: Sequence[Tied]) -> None:
        own = [align_up(live.size_bytes) for live in ranges]
        self.sizes = [max(d + own[k] for k, d in group.members) for group in groups]
        self.clashes: list[list[tuple[int, int, int]]] = []
        for number, group in enumerate(groups):
            self.clashes.append(
                [
                    (n, e - d - own[k], e - d + own[o])
                    for k, d in group.members
                    for n, other in enumerate(groups)
                    if n != number
                    for o, e in other.members
                    if ranges[o].overlaps(ranges[k])
                ]
            )

    def place(self, order: Sequence[int], most_bytes: int | None) -> tuple[list[int], int] | None:
        """Place groups one by one at the lowest free base; return bases and the peak.

        None as soon as the peak is above ``most_bytes``. Relative to the base of a group that
        clashes, an open interval of bases is taken.
        """
        bases = [-1] * len(self.sizes)
        peak = 0
        for number in order:
            taken = sorted(
                (bases[other] + low, bases[other] + high)
                for other, low, high in self.clashes[number]
                if bases[other] >= 0
            )
            base = 0
            for low, high in taken:
                if low >= base:
                    break
                base = max(base, high)
            bases[number] = base
            peak = max(peak, base + self.sizes[number])
            if most_bytes is not None and peak > most_bytes:
                return None
        return bases, peak


def _bound(ranges: Sequence[LiveRange], groups: Sequence[Tied]) -> int:
    """Largest sum over the steps of what each group spans then."""
    steps = sorted({live.first_step for live in ranges})
    return max((sum(_span(ranges, group, step) for group in groups) for step in steps), default=0)


def _span(ranges: Sequence[LiveRange], group: Tied, step: int) -> int:
    """Bytes that the members alive at a step take, those that two share counted once."""
    parts = sorted(
        (d, d + align_up(ranges[k].size_bytes))
        for k, d in group.members
        if ranges[k].first_step <= step < ranges[k].end_step
    )
    total = end = 0
    for low, high in parts:
        total += max(high - max(low, end), 0)
        end = max(end, high)
    return total
