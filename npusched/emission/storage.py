"""Addresses for places: first fit over the events, or the plan's own where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from npusched.emission.events import Issue, Place
from npusched.memory import LiveRange, Tied, align_up, allocate, allocate_tied

Group: TypeAlias = "list[tuple[int, int]]"
"""Places that take each other over: (index, bytes above the lowest of them)."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """``of``: address of each place in its memory. ``used``: bytes of each memory by name."""

    of: tuple[int, ...]
    used: dict[str, int]


def assign(
    issue: Issue, limits: dict[str, int] | None = None, *, as_planned: bool = False
) -> Addresses:
    """Give every place an address (a multiple of 16).

    Places that are needed together share no byte, but for those that take each other over.
    ``limits``: bytes of each memory that are good enough. The plan's own addresses are taken
    where they need less and all real sizes still fit; ``as_planned``: wherever they fit.
    """
    limits = limits or {}
    lives = issue.lives()
    addresses = [0] * len(issue.places)
    used: dict[str, int] = {}
    for memory in sorted({place.memory for place in issue.places}):
        places = [place for place in issue.places if place.memory == memory]
        ranges = [_range(place, lives[place.number]) for place in places]
        offsets, peak = _assigned(places, ranges, limits.get(memory), as_planned=as_planned)
        for place, offset in zip(places, offsets, strict=True):
            addresses[place.number] = offset
        used[memory] = peak
    return Addresses(tuple(addresses), used)


def _range(place: Place, life: tuple[int, int]) -> LiveRange:
    first, end = life
    return LiveRange(
        key=str(place.number), size_bytes=place.size_bytes, first_step=first, end_step=end
    )


def _assigned(
    places: Sequence[Place],
    ranges: Sequence[LiveRange],
    limit: int | None,
    *,
    as_planned: bool,
) -> tuple[list[int], int]:
    """Addresses in one memory, and their peak."""
    groups = _groups(places)
    planned = _planned(places, ranges, groups)
    if planned is not None and as_planned:
        return planned
    found = _first_fit(places, ranges, groups, limit)
    return planned if planned is not None and planned[1] < found[1] else found


def _groups(places: Sequence[Place]) -> list[Group]:
    """Places that take each other over, with their distances."""
    index_of = {place.number: k for k, place in enumerate(places)}
    below: dict[int, int] = {}
    group_of: dict[int, list[int]] = {}
    groups: list[list[int]] = []
    for k, place in enumerate(places):
        over = None if place.over is None else index_of.get(place.over)
        if over is None or over not in group_of:
            groups.append([k])
            group_of[k], below[k] = groups[-1], 0
        else:
            group_of[over].append(k)
            group_of[k], below[k] = group_of[over], below[over] + place.shift_bytes
    return [[(k, max(below[m] for m in group) - below[k]) for k in group] for group in groups]


def _first_fit(
    places: Sequence[Place], ranges: Sequence[LiveRange], groups: Sequence[Group], limit: int | None
) -> tuple[list[int], int]:
    offsets = [0] * len(places)
    if any(place.shift_bytes for place in places):
        tied = [Tied(members=tuple(group)) for group in groups]
        found = allocate_tied(ranges, tied, limit_bytes=limit)
        return list(found.offsets), found.peak_bytes
    whole = [
        LiveRange(
            key=str(number),
            size_bytes=max(ranges[k].size_bytes for k, _ in group),
            first_step=min(ranges[k].first_step for k, _ in group),
            end_step=max(ranges[k].end_step for k, _ in group),
        )
        for number, group in enumerate(groups)
    ]
    placed = allocate(whole, limit_bytes=limit)
    for group, offset in zip(groups, placed.offsets, strict=True):
        for k, _ in group:
            offsets[k] = offset
    return offsets, placed.peak_bytes


def _planned(
    places: Sequence[Place], ranges: Sequence[LiveRange], groups: Sequence[Group]
) -> tuple[list[int], int] | None:
    """The plan's addresses and their peak, None where they are missing or do not fit."""
    offsets = [place.planned for place in places]
    known = [offset for offset in offsets if offset is not None]
    if len(known) < len(offsets):
        return None
    group_of = {}
    for number, group in enumerate(groups):
        if len({known[k] - above for k, above in group}) != 1:
            return None
        group_of.update({k: number for k, _ in group})
    order = sorted(range(len(places)), key=lambda k: known[k])
    for at, k in enumerate(order):
        end = known[k] + ranges[k].size_bytes
        for other in order[at + 1 :]:
            if known[other] >= end:
                break
            if group_of[k] != group_of[other] and ranges[k].overlaps(ranges[other]):
                return None
    ends = [offset + align_up(one.size_bytes) for offset, one in zip(known, ranges, strict=True)]
    return known, max(ends, default=0)
