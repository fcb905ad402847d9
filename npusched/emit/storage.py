"""Addresses for places: first fit over the events, or the plan's own where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npusched.emit.events import Issue, Place
from npusched.memory import LiveRange, allocate
from npusched.memory.ranges import lower_bound


@dataclass(frozen=True, slots=True)
class Addresses:
    """``of``: address of each place in its memory. ``used``: bytes of each memory by name."""

    of: tuple[int, ...]
    used: dict[str, int]


def assign(
    issue: Issue, limits: dict[str, int] | None = None, *, as_planned: bool = False
) -> Addresses:
    """Give every place an address (a multiple of 16); those alive together share no byte.

    ``limits``: bytes of each memory that are good enough. The plan's own addresses are taken
    where they need less and all real sizes still fit; ``as_planned``: wherever they fit.
    """
    limits = limits or {}
    lives = issue.lives()
    addresses = [0] * len(issue.places)
    used: dict[str, int] = {}
    for memory in sorted({place.memory for place in issue.places}):
        groups = _groups([place for place in issue.places if place.memory == memory])
        ranges = [_range(group, lives) for group in groups]
        limit = limits.get(memory)
        planned = _planned(groups, ranges)
        if planned is not None and as_planned:
            offsets, peak = planned
        else:
            found = allocate(ranges, limit_bytes=limit)
            offsets, peak = list(found.offsets), found.peak_bytes
            if planned is not None and planned[1] < peak:
                offsets, peak = planned
        for group, offset in zip(groups, offsets, strict=True):
            for place in group:
                addresses[place.number] = offset
        used[memory] = peak
    return Addresses(tuple(addresses), used)


def bound_bytes(issue: Issue, memory: str) -> int:
    """Bytes of a memory that no addresses can do without."""
    lives = issue.lives()
    groups = _groups([place for place in issue.places if place.memory == memory])
    return lower_bound([_range(group, lives) for group in groups])


def _groups(places: Sequence[Place]) -> list[list[Place]]:
    """Places that take each other over lie at one address."""
    group_of: dict[int, list[Place]] = {}
    groups: list[list[Place]] = []
    for place in places:
        over = None if place.over is None else group_of.get(place.over)
        if over is None:
            over = []
            groups.append(over)
        over.append(place)
        group_of[place.number] = over
    return groups


def _range(group: Sequence[Place], lives: Sequence[tuple[int, int]]) -> LiveRange:
    return LiveRange(
        key=str(group[0].number),
        size_bytes=max(place.size_bytes for place in group),
        first_step=min(lives[place.number][0] for place in group),
        end_step=max(lives[place.number][1] for place in group),
    )


def _planned(
    groups: Sequence[Sequence[Place]], ranges: Sequence[LiveRange]
) -> tuple[list[int], int] | None:
    """The plan's addresses and their peak, None where they are missing or do not fit."""
    offsets = []
    for group in groups:
        known = {place.planned for place in group}
        if len(known) != 1 or None in known:
            return None
        offsets.append(group[0].planned or 0)
    placed = sorted(
        zip(ranges, offsets, strict=True), key=lambda pair: (pair[1], pair[0].first_step)
    )
    for k, (one, address) in enumerate(placed):
        end = address + one.size_bytes
        for other, start in placed[k + 1 :]:
            if start >= end:
                break
            if one.overlaps(other):
                return None
    peak = max((a + -(-r.size_bytes // 16) * 16 for r, a in placed), default=0)
    return offsets, peak
