"""Fronts of weight choices for the ops of a segment, merged op by op."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from npusched.schedule.types import WeightMode

Entry = tuple[int, float, float, int]
"""(bytes, score, cycles that hide a copy, ops with resident weights) of a suffix of a segment.

The ops are a bit mask: bit v for op v.
"""


def merged(mine: Sequence[Entry], rest: Sequence[Entry], limit_bytes: float) -> list[Entry]:
    """Pareto front of all sums of one entry of each list, without those above the limit."""
    _, score, hiding, _ = mine[0]
    sums = [(a, b + score, c + hiding, m) for a, b, c, m in rest]
    if len(mine) == 1:
        return sums
    size, score, hiding, mask = mine[1]
    sums += [
        (a + size, b + score, c + hiding, m | mask)
        for a, b, c, m in rest
        if a + size <= limit_bytes
    ]
    sums.sort()  # two sorted runs: one pass
    front: list[Entry] = []
    best = inf
    for entry in sums:
        if entry[1] < best:
            best = entry[1]
            front.append(entry)
    return front


@lru_cache(maxsize=1 << 16)
def modes_of(mask: int, i: int, j: int) -> tuple[WeightMode, ...]:
    """Weight modes of ops i..j from the mask of those with resident weights."""
    return tuple(
        WeightMode.RESIDENT if mask >> v & 1 else WeightMode.STREAMED for v in range(i, j + 1)
    )
