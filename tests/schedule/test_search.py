"""The search against brute force over every partition, home and option."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.schedule.search import (
    NO_PREFETCH,
    Homes,
    Item,
    Option,
    Prefetch,
    Problem,
    Search,
    pareto,
)

FAST, SLOW = "fast", "slow"


def _longer(copy: float, homes: Homes, cycles: float) -> float:
    """What a copy of ``copy`` cycles takes beyond ``cycles``; homes in fast memory hide less."""
    return max(copy + 7 * sum(home == FAST for _, home in homes) - cycles, 0.0)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n = draw(st.integers(1, 6))
    items = []
    for op in range(-1, n):
        for _ in range(draw(st.integers(0 if op >= 0 else 1, 1 if op >= 0 else 2))):
            last = draw(st.integers(max(op, 0) + (op >= 0), n))
            homes = draw(st.sampled_from([(FAST,), (SLOW,), (FAST, SLOW)]))
            items.append(Item(draw(st.integers(1, 30)), op, last, homes))
    seed = draw(st.integers(0, 10**6))

    def touched(i: int, j: int) -> tuple[int, ...]:
        return tuple(
            t
            for t, item in enumerate(items)
            if (item.first < i <= item.last and item.last <= j) or i <= item.first <= j < item.last
        )

    def options(i: int, j: int, homes: Homes, prefetch: int) -> list[Option]:
        mix = zlib.crc32(repr((seed, i, j, homes, prefetch)).encode()) * 2654435761
        found = [
            Option(
                (mix >> (5 * k)) % 40 + 40 * (prefetch != NO_PREFETCH),
                float((mix >> (7 * k + 3)) % 50 + 10 * (j == i)),
                k,
                cycles=float((mix >> (3 * k + 1)) % 30),
            )
            for k in range(3)
        ]
        return pareto(found)

    def prefetches(k: int) -> list[Prefetch]:
        mix = zlib.crc32(repr((seed, k)).encode())
        return [Prefetch(mix % 13 + n, partial(_longer, float(mix % 40))) for n in range(mix % 3)]

    return Problem(
        op_count=n,
        items=tuple(items),
        budget_memory=FAST,
        ends=lambda i: range(i, min(n, i + 4)),
        touched=touched,
        options=options,
        prefetches=prefetches,
    )


def brute_force(problem: Problem, budget: float) -> tuple[float | None, float]:
    """Least score within the budget (None: infeasible), and the least possible peak."""
    n = problem.op_count
    best: float | None = None
    lowest = float("inf")
    for cuts in product([False, True], repeat=n - 1):
        bounds = [0, *[k + 1 for k, cut in enumerate(cuts) if cut], n]
        segments = [(a, b - 1) for a, b in pairwise(bounds)]
        if any(j not in problem.ends(i) for i, j in segments):
            continue
        for homes in product(*[item.homes for item in problem.items]):
            live = [
                sum(
                    item.size_bytes
                    for t, item in enumerate(problem.items)
                    if homes[t] == FAST
                    and (item.first < i <= item.last or (i <= item.first <= j < item.last))
                )
                for i, j in segments
            ]
            plain = [_found(problem, i, j, homes, NO_PREFETCH) for i, j in segments]
            peaks = [a + min(o.sram_bytes for o in f) for a, f in zip(live, plain, strict=True)]
            lowest = min(lowest, max(peaks))
            score = _best_chain(problem, segments, live, homes, budget, 0, NO_PREFETCH)
            if score is not None and (best is None or score < best):
                best = score
    return best, lowest


def _found(
    problem: Problem, i: int, j: int, homes: tuple[str, ...], prefetch: int
) -> Sequence[Option]:
    touched = tuple((t, homes[t]) for t in problem.touched(i, j))
    return problem.options(i, j, touched, prefetch)


def _best_chain(
    problem: Problem,
    segments: list[tuple[int, int]],
    live: list[int],
    homes: tuple[str, ...],
    budget: float,
    at: int,
    prefetch: int,
) -> float | None:
    """Try every option of segment ``at`` with every prefetch for the next one, recursively."""
    if at == len(segments):
        return 0.0
    i, j = segments[at]
    best: float | None = None
    for option in _found(problem, i, j, homes, prefetch):
        choices: list[tuple[int, int, float]] = [(NO_PREFETCH, 0, 0.0)]
        if at + 1 < len(segments) and segments[at + 1][0] == segments[at + 1][1]:
            touched = tuple((t, homes[t]) for t in problem.touched(j + 1, j + 1))
            choices += [
                (k, p.size_bytes, p.penalty(touched, option.cycles))
                for k, p in enumerate(problem.prefetches(j + 1))
            ]
        for carried, size, wait in choices:
            if live[at] + option.sram_bytes + size > budget:
                continue
            rest = _best_chain(problem, segments, live, homes, budget, at + 1, carried)
            if rest is not None and (best is None or option.score + wait + rest < best):
                best = option.score + wait + rest
    return best


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(0, 120))
def test_search_equals_brute_force(problem: Problem, budget: int) -> None:
    best, lowest = brute_force(problem, budget)
    search = Search(problem)
    solution = search.solve(budget)
    assert (solution is None) == (best is None)
    if solution is not None:
        assert solution.score == pytest.approx(best)
        assert solution.peak_bytes <= budget
    assert search.smallest().peak_bytes == lowest
    assert (best is not None) == (budget >= lowest)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_more_memory_is_never_worse(problem: Problem) -> None:
    search = Search(problem)
    scores = [s.score for b in range(0, 200, 10) if (s := search.solve(b)) is not None]
    assert scores == sorted(scores, reverse=True)
    unlimited = search.solve(None)
    assert unlimited is not None
    assert not scores or scores[-1] >= unlimited.score


def test_pareto_keeps_the_front() -> None:
    options = [Option(4, 1.0, 0), Option(2, 3.0, 1), Option(2, 2.0, 2), Option(8, 1.0, 3)]
    assert [(o.sram_bytes, o.score) for o in pareto(options)] == [(2, 2.0), (4, 1.0)]
