"""What a curve of SRAM against time says: dominated points, floor, knee, steps the wrong way.

Pure functions of figures; where the figures come from is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import msgspec


class Spot(msgspec.Struct, frozen=True):
    """Figures of one point: bytes of SRAM, time, bytes moved off the chip, energy."""

    sram_bytes: int
    time_s: float
    offchip_bytes: int
    energy_nj: float


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A range of limits where more memory was asked for and the result got slower.

    At ``from_bytes`` the result takes ``best_cycles``; at all limits tried in
    [``first_bytes``, ``last_bytes``], which are larger, at least one cycle more, at worst
    ``worst_cycles`` (at ``worst_bytes``).
    """

    from_bytes: int
    best_cycles: int
    first_bytes: int
    last_bytes: int
    worst_bytes: int
    worst_cycles: int


def _key(spot: Spot) -> tuple[int, float, int]:
    return spot.sram_bytes, spot.time_s, spot.offchip_bytes


def dominators(spots: Sequence[Spot]) -> list[int | None]:
    """For each spot one that is no worse in SRAM, time and off-chip bytes and better in one.

    None where there is none. The dominator named is not dominated itself. Equal spots do not
    dominate each other.
    """
    best: list[int] = []
    found: list[int | None] = [None] * len(spots)
    for index in sorted(range(len(spots)), key=lambda i: (_key(spots[i]), i)):
        mine = _key(spots[index])
        for other in best:
            theirs = _key(spots[other])
            if theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True)):
                found[index] = other
                break
        else:
            best.append(index)
    return found


def kept(spots: Sequence[Spot]) -> list[int]:
    """Indices of the spots that none dominates."""
    return [index for index, other in enumerate(dominators(spots)) if other is None]


def floor(spots: Sequence[Spot]) -> int:
    """Index of the least SRAM (of equals the fastest). At least one spot is needed."""
    return min(range(len(spots)), key=lambda i: (_key(spots[i]), i))


def fastest(spots: Sequence[Spot]) -> int:
    """Index of the least time (of equals the least SRAM)."""

    def rank(i: int) -> tuple[float, int, int, int]:
        spot = spots[i]
        return spot.time_s, spot.sram_bytes, spot.offchip_bytes, i

    return min(range(len(spots)), key=rank)


def near_fastest(spots: Sequence[Spot], within: float) -> int:
    """Index of the least SRAM whose time is at most (1 + ``within``) x the least time."""
    limit = spots[fastest(spots)].time_s * (1 + within)
    near = [i for i, spot in enumerate(spots) if spot.time_s <= limit]
    return min(near, key=lambda i: (_key(spots[i]), i))


def least_energy(spots: Sequence[Spot]) -> int:
    """Index of the least energy of the spots that none dominates."""
    return min(kept(spots), key=lambda i: (spots[i].energy_nj, _key(spots[i]), i))


def knee(spots: Sequence[Spot], within: float) -> int:
    """Index of the spot nearest to the corner of the plot where nothing costs anything.

    The curve is drawn from the least SRAM (``floor``) to the least SRAM that is fast enough
    (``near_fastest``): what lies beyond gains less than ``within`` and would only stretch the axis.
    SRAM is linear (a board has so many bytes), time logarithmic (twice as fast is twice as good,
    wherever one starts); both run from 0 to 1 between these two ends. The knee is the spot with the
    least sum of both, that is, furthest below the straight line between the ends: a step from it
    on either side gives up a larger share of one range than it gains of the other. Where nothing
    is below that line, the knee is the end with the smaller SRAM x time.
    """
    low, high = spots[floor(spots)], spots[near_fastest(spots, within)]
    wide = high.sram_bytes - low.sram_bytes
    if wide <= 0 or not 0 < high.time_s < low.time_s:
        return floor(spots)
    tall = log(low.time_s / high.time_s)

    def rank(i: int) -> tuple[float, float, tuple[int, float, int], int]:
        spot = spots[i]
        x = (spot.sram_bytes - low.sram_bytes) / wide
        y = log(spot.time_s / high.time_s) / tall
        return x + y, spot.sram_bytes * spot.time_s, _key(spot), i

    between = (i for i, spot in enumerate(spots) if spot.sram_bytes <= high.sram_bytes)
    return min(between, key=rank)


def stretches(results: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Where (limit asked, cycles) get slower with a larger limit, by limit.

    A stretch begins behind the fastest result so far and ends before one at least as fast.
    """
    found: list[Stretch] = []
    best: tuple[int, int] | None = None
    slower: list[tuple[int, int]] = []
    for asked, cycles in [*sorted(results), (0, -1)]:
        if best is not None and cycles > best[1]:
            slower.append((asked, cycles))
            continue
        if best is not None and slower:
            worst = max(slower, key=lambda each: (each[1], -each[0]))
            found.append(
                Stretch(
                    from_bytes=best[0],
                    best_cycles=best[1],
                    first_bytes=slower[0][0],
                    last_bytes=slower[-1][0],
                    worst_bytes=worst[0],
                    worst_cycles=worst[1],
                )
            )
            slower = []
        best = (asked, cycles)
    return found
