"""Address assignment: first fit over several orders, then a seeded local search towards the bound.

Offline allocation of intervals with sizes is the dynamic storage allocation problem (NP-hard).
First fit by decreasing size meets the lower bound on nearly all networks (PLANNER §7: 99 of 100);
where it does not, the ranges that make the peak are moved forward in the order and the best
result is kept. The search is deterministic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from npusched.memory.ranges import LiveRange, align_up, lower_bound

SEARCH_ROUNDS = 400
"""Reinsertions tried after the fixed orders (PLANNER §7 used as many)."""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Start address in bytes of each range (in the order given) and the high-water mark."""

    offsets: tuple[int, ...]
    peak_bytes: int
    bound_bytes: int

    @property
    def is_tight(self) -> bool:
        """True if no allocation can have a lower peak."""
        return self.peak_bytes == self.bound_bytes


def allocate(
    ranges: Sequence[LiveRange], *, limit_bytes: int | None = None, rounds: int = SEARCH_ROUNDS
) -> Allocation:
    """Give every range a 16-byte aligned offset so that ranges alive together never overlap.

    Stops as soon as the peak equals the lower bound or is within ``limit_bytes``. The caller
    compares ``peak_bytes`` with its budget; a peak above the bound is not proof that none fits.
    """
    bound = lower_bound(ranges)
    goal = bound if limit_bytes is None else max(bound, limit_bytes)
    if not ranges:
        return Allocation(offsets=(), peak_bytes=0, bound_bytes=0)
    offsets, peak = search_orders(ranges, _Placer(ranges), goal, rounds)
    return Allocation(offsets=tuple(offsets), peak_bytes=peak, bound_bytes=bound)


class Placing(Protocol):
    """Places items in a given order. ``sizes``: bytes of each."""

    sizes: list[int]

    def place(self, order: Sequence[int], most_bytes: int | None) -> tuple[list[int], int] | None:
        """Return the address of each item and the peak; None as soon as it is above the most."""
        ...


def search_orders(
    ranges: Sequence[LiveRange], placer: Placing, goal: int, rounds: int
) -> tuple[list[int], int]:
    """(addresses, peak) of the best order found, or of the first whose peak is within ``goal``."""
    best_order = _sorted_by(ranges, _ORDERS[0])
    placed = placer.place(best_order, None)
    assert placed is not None
    best_offsets, best_peak = placed
    for key in _ORDERS[1:]:
        if best_peak <= goal:
            break
        order = _sorted_by(ranges, key)
        placed = placer.place(order, best_peak - 1)
        if placed is not None:
            (best_offsets, best_peak), best_order = placed, order
    rng = random.Random(0)
    for _ in range(rounds):
        if best_peak <= goal:
            break
        order = _move_forward(best_order, best_offsets, best_peak, placer.sizes, rng)
        placed = placer.place(order, best_peak)
        if placed is not None:
            (best_offsets, best_peak), best_order = placed, order
    return best_offsets, best_peak


_ORDERS: tuple[Callable[[LiveRange], tuple[int, ...]], ...] = (
    lambda r: (-r.size_bytes, r.first_step),
    lambda r: (-r.size_bytes * (r.end_step - r.first_step), r.first_step),
    lambda r: (r.first_step, -r.size_bytes),
    lambda r: (-(r.end_step - r.first_step), -r.size_bytes),
)


def _sorted_by(
    ranges: Sequence[LiveRange], key: Callable[[LiveRange], tuple[int, ...]]
) -> list[int]:
    return sorted(range(len(ranges)), key=lambda i: key(ranges[i]))


class _Placer:
    """First fit for any order of the same ranges; neighbours in time are found once."""

    def __init__(self, ranges: Sequence[LiveRange]) -> None:
        self.sizes = [align_up(r.size_bytes) for r in ranges]
        first = np.array([r.first_step for r in ranges])
        end = np.array([r.end_step for r in ranges])
        self.neighbours = [
            np.flatnonzero((first < r.end_step) & (end > r.first_step)).tolist() for r in ranges
        ]

    def place(self, order: Sequence[int], most_bytes: int | None) -> tuple[list[int], int] | None:
        """Place ranges one by one at the lowest free address; return offsets and the peak.

        None as soon as the peak is above ``most_bytes``.
        """
        sizes, neighbours = self.sizes, self.neighbours
        spans: list[tuple[int, int] | None] = [None] * len(sizes)
        most = sum(sizes) if most_bytes is None else most_bytes
        peak = 0
        for index in order:
            size = sizes[index]
            address = 0
            for start, end in sorted([s for k in neighbours[index] if (s := spans[k])]):
                if start - address >= size:
                    break
                if end > address:
                    address = end
            end = address + size
            if end > peak:
                if end > most:
                    return None
                peak = end
            spans[index] = (address, end)
        return [span[0] for span in spans if span is not None], peak


def _move_forward(
    order: Sequence[int],
    offsets: Sequence[int],
    peak: int,
    sizes: Sequence[int],
    rng: random.Random,
) -> list[int]:
    """Return ``order`` with one range that touches the peak moved to an earlier place."""
    culprits = [
        i for i, position in enumerate(order) if offsets[position] + sizes[position] == peak
    ]
    source = rng.choice(culprits)
    moved = list(order)
    item = moved.pop(source)
    moved.insert(rng.randrange(source + 1), item)
    if rng.random() < 0.5 and len(moved) > 1:
        a, b = rng.randrange(len(moved)), rng.randrange(len(moved))
        moved[a], moved[b] = moved[b], moved[a]
    return moved
