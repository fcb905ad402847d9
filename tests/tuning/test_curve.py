"""What curves say, on invented points: against slow definitions, and by eye."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.tuning.curve import (
    Spot,
    dominators,
    fastest,
    floor,
    kept,
    knee,
    least_energy,
    near_fastest,
    stretches,
)

SPOTS = st.lists(
    st.builds(
        Spot,
        st.integers(0, 12).map(lambda k: 16 * k),
        st.integers(1, 12).map(float),
        st.integers(0, 4),
        st.integers(1, 9).map(float),
    ),
    min_size=1,
    max_size=12,
)


def figures(spot: Spot) -> tuple[int, float, int]:
    return spot.sram_bytes, spot.time_s, spot.offchip_bytes


def betters(one: Spot, other: Spot) -> bool:
    """The definition of dominance."""
    pairs = list(zip(figures(one), figures(other), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def curve(*pairs: tuple[int, float]) -> list[Spot]:
    return [Spot(sram, time, 0, 1.0) for sram, time in pairs]


@given(SPOTS)
def test_dominance_is_its_definition(spots: list[Spot]) -> None:
    found = dominators(spots)
    for index, spot in enumerate(spots):
        other = found[index]
        assert (other is None) == (not any(betters(each, spot) for each in spots))
        if other is not None:
            assert betters(spots[other], spot)
            assert found[other] is None, "the dominator named is not dominated itself"


@given(SPOTS, st.sampled_from([0.0, 0.01, 0.5]))
def test_what_is_chosen_is_never_dominated(spots: list[Spot], within: float) -> None:
    best = kept(spots)
    chosen = [
        floor(spots),
        fastest(spots),
        near_fastest(spots, within),
        least_energy(spots),
        knee([spots[i] for i in best], within),
    ]
    assert set(chosen[:4]) <= set(best)
    assert 0 <= chosen[4] < len(best)


@given(SPOTS, st.sampled_from([0.0, 0.01, 0.5]))
def test_choices_are_their_definitions(spots: list[Spot], within: float) -> None:
    least = min(spot.time_s for spot in spots)
    assert spots[floor(spots)].sram_bytes == min(spot.sram_bytes for spot in spots)
    assert spots[fastest(spots)].time_s == least
    near = spots[near_fastest(spots, within)]
    assert near.time_s <= least * (1 + within)
    assert not any(
        spot.sram_bytes < near.sram_bytes and spot.time_s <= least * (1 + within) for spot in spots
    )
    energies = [spots[i].energy_nj for i in kept(spots)]
    assert spots[least_energy(spots)].energy_nj == min(energies)


@pytest.mark.parametrize(
    ("spots", "sram"),
    [
        # 752 bytes make it 12 times as fast, the rest 2 %: no doubt
        (curve((5904, 720.6), (6656, 60.8), (7280, 59.7), (8992, 59.5)), 6656),
        # the same with a tail that gains 0.1 %: the end of the axis does not move the knee
        (curve((5904, 720.6), (6656, 60.8), (7280, 59.7), (80000, 59.64)), 6656),
        # an L: the corner
        (curve((10, 100.0), (11, 10.0), (100, 9.0)), 11),
        # a straight line (SRAM linear, time logarithmic) has none: the smaller product
        (curve((10, 100.0), (20, 10.0), (30, 1.0)), 30),
        # above the line: no knee; SRAM buys nothing until the last byte
        (curve((10, 100.0), (20, 99.0), (30, 90.0)), 10),
        # a floor of no SRAM at all (Dedicated_Sram)
        (curve((0, 400.0), (20, 260.0), (75, 240.0)), 20),
        # one point
        (curve((64, 3.0)), 64),
        # all are near enough: the least SRAM
        (curve((10, 100.0), (20, 99.9), (30, 99.8)), 10),
    ],
)
def test_the_knee_by_eye(spots: list[Spot], sram: int) -> None:
    assert spots[knee(spots, 0.01)].sram_bytes == sram


def test_scale_does_not_move_the_knee() -> None:
    spots = curve((5, 100.0), (7, 30.0), (9, 20.0), (14, 12.0), (20, 11.0))
    large = [Spot(4096 * s.sram_bytes, 1e-6 * s.time_s, 0, 1.0) for s in spots]
    assert knee(spots, 0.01) == knee(large, 0.01)


def test_steps_the_wrong_way() -> None:
    """By limit: 100, 90 (best), then 95 and 110, again 90; a faster 80; at the end 81."""
    results = [(16, 100), (32, 90), (48, 95), (64, 110), (80, 90), (96, 80), (112, 81)]
    first, second = stretches(results[::-1])
    assert (first.from_bytes, first.best_cycles) == (32, 90)
    assert (first.first_bytes, first.last_bytes) == (48, 64)
    assert (first.worst_bytes, first.worst_cycles) == (64, 110)
    assert (second.from_bytes, second.first_bytes, second.last_bytes) == (96, 112, 112)


@given(st.dictionaries(st.integers(1, 20), st.integers(0, 5), max_size=12))
def test_no_stretch_means_monotone(results: dict[int, int]) -> None:
    ordered = sorted(results.items())
    wrong = any(
        later > earlier for k, (_, earlier) in enumerate(ordered) for _, later in ordered[k + 1 :]
    )
    found = stretches(ordered)
    assert bool(found) == wrong
    for each in found:
        assert results[each.from_bytes] == each.best_cycles < each.worst_cycles
        assert each.from_bytes < each.first_bytes <= each.worst_bytes <= each.last_bytes
