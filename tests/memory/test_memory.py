"""Addresses: properties against an exhaustive oracle, and the checker's own negative controls."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.memory import LiveRange, allocate, check_allocation, live_bytes, lower_bound
from npusched.memory.allocate import _Placer


def _range(key: str, size: int, first: int, end: int) -> LiveRange:
    return LiveRange(key=key, size_bytes=size, first_step=first, end_step=end)


RANGES = st.lists(
    st.tuples(st.integers(1, 200), st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=12
).map(lambda rows: [_range(f"t{i}", s, f, f + d) for i, (s, f, d) in enumerate(rows)])


@given(RANGES)
def test_allocation_is_valid_and_between_bounds(ranges: list[LiveRange]) -> None:
    result = allocate(ranges)
    assert check_allocation(ranges, result.offsets, limit_bytes=result.peak_bytes) == []
    total = sum(-(-r.size_bytes // 16) * 16 for r in ranges)
    assert lower_bound(ranges) == result.bound_bytes <= result.peak_bytes <= total


def _best_peak(ranges: list[LiveRange]) -> int:
    """First fit over every order: some order gives an optimal allocation of aligned sizes."""
    best = 10**9
    for order in itertools.permutations(range(len(ranges))):
        placed: list[tuple[int, int]] = []
        peak = 0
        for i in order:
            size = -(-ranges[i].size_bytes // 16) * 16
            taken = sorted(
                (o, o + -(-ranges[j].size_bytes // 16) * 16)
                for j, o in placed
                if ranges[i].overlaps(ranges[j])
            )
            at = 0
            for start, end in taken:
                if start - at >= size:
                    break
                at = max(at, end)
            placed.append((i, at))
            peak = max(peak, at + size)
        best = min(best, peak)
    return best


@settings(max_examples=40, deadline=None)
@given(RANGES.filter(lambda rows: len(rows) <= 6))
def test_search_equals_exhaustive_optimum_on_six_ranges(ranges: list[LiveRange]) -> None:
    assert allocate(ranges).peak_bytes == _best_peak(ranges)


@given(RANGES, st.randoms(use_true_random=False))
def test_placing_gives_up_exactly_above_the_most(ranges: list[LiveRange], rng: Random) -> None:
    """Giving up early must not change what the search finds."""
    placer = _Placer(ranges)
    order = list(range(len(ranges)))
    rng.shuffle(order)
    placed = placer.place(order, None)
    assert placed is not None
    assert placer.place(order, placed[1]) == placed
    assert placer.place(order, placed[1] - 1) is None


def test_live_bytes_by_hand() -> None:
    """a: 10 -> 16 bytes in [0,2); b: 32 bytes in [1,3). Steps: 16, 16+32, 32."""
    ranges = [_range("a", 10, 0, 2), _range("b", 32, 1, 3)]
    assert live_bytes(ranges) == [16, 48, 32]
    assert lower_bound(ranges) == 48


def test_local_search_meets_the_bound_where_fixed_orders_do_not() -> None:
    """Alive in step 2: a 80 + d 80 + g 96 = 256, the bound; the fixed orders reach only 272."""
    ranges = [
        _range("a", 80, 2, 5),
        _range("b", 80, 5, 8),
        _range("c", 96, 4, 5),
        _range("d", 80, 2, 4),
        _range("e", 96, 1, 2),
        _range("f", 16, 4, 5),
        _range("g", 96, 1, 3),
    ]
    assert lower_bound(ranges) == 256
    assert allocate(ranges, rounds=0).peak_bytes == 272
    assert allocate(ranges).peak_bytes == 256


@pytest.mark.parametrize(
    ("offsets", "word"),
    [
        ((0, 16), "overlap"),
        ((0, 40), "multiple"),
        ((0, 992), "above"),
        ((-16, 64), "multiple"),
        ((0,), "offsets"),
    ],
)
def test_checker_finds_each_fault(offsets: tuple[int, ...], word: str) -> None:
    ranges = [_range("a", 32, 0, 2), _range("b", 32, 1, 3)]
    faults = check_allocation(ranges, offsets, limit_bytes=1000)
    assert any(word in fault for fault in faults)


def test_checker_accepts_sharing_in_time() -> None:
    ranges = [_range("a", 32, 0, 2), _range("b", 32, 2, 3)]
    assert check_allocation(ranges, (0, 0), limit_bytes=32) == []


def test_checker_rejects_empty_interval() -> None:
    assert check_allocation([_range("a", 32, 2, 2)], (0,))
