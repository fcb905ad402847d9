"""The search against an exact solver (CP-SAT) that knows nothing of paths and states."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.schedule import Planner
from npusched.schedule.search import NO_PREFETCH, Problem, Search
from tests.schedule.cp_oracle import GRAIN, Oracle
from tests.schedule.networks import NETWORKS, TARGETS, branchy, graph_of, network, sizes
from tests.schedule.test_search import problems

SHARES = (0.0, 0.3, 0.6, 1.0)
"""Budgets, as shares of the way from the smallest to what the best plan of all takes."""


def _planner(content: bytes, target: str) -> Planner:
    return Planner.of(graph_of(content, TARGETS[target]), TARGETS[target], sizes)


def _grain(problem: Problem) -> float:
    """How far sums of rounded scores may be off: a score and a wait per op, in either sum."""
    return 2 * problem.op_count / GRAIN


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("name", NETWORKS)
def test_planner_equals_the_exact_optimum(name: str, target: str) -> None:
    planner = _planner(network(name), target)
    problem = planner.search.problem
    oracle = Oracle(problem)
    smallest = planner.search.smallest().peak_bytes
    assert oracle.smallest() == smallest
    free = planner.search.solve(None)
    assert free is not None
    assert smallest < 16 or oracle.least(smallest - 16) is None
    for share in SHARES:
        budget = smallest + int((free.peak_bytes - smallest) * share)
        expected = oracle.least(budget)
        solution = planner.search.solve(budget)
        assert solution is not None
        assert solution.score == pytest.approx(expected, rel=0, abs=_grain(problem))
        if budget >= planner.smallest_budget_bytes():
            plan = planner.plan(budget)
            assert plan.bound.objective == pytest.approx(expected, rel=0, abs=_grain(problem))
            assert plan.objective == pytest.approx(plan.bound.objective * (1 + plan.bound.gap))


def test_the_instances_use_every_ingredient() -> None:
    """Fused, resident, prefetched, sliced, in place, and maps of either memory."""
    seen = set()
    for name in NETWORKS:
        for target in TARGETS:
            planner = _planner(network(name), target)
            for extra in (0, 2048, 8192):
                plan = planner.plan(planner.smallest_budget_bytes() + extra)
                seen |= {home for _, home in plan.homes}
                seen |= {"in place" for b in plan.buffers if b.in_place_of is not None}
                seen |= {"fused" for segment in plan.segments if len(segment.ops) > 1}
                for run in (run for segment in plan.segments for run in segment.runs):
                    seen.add(str(run.weight_mode))
                    if run.buffering is not None:
                        seen |= {"prefetched"} & {"prefetched" * run.buffering.prefetched}
                        seen |= {"sliced"} & {"sliced" * (run.buffering.slices > 1)}
    wanted = {"fused", "resident", "streamed", "prefetched", "sliced", "in place", "sram", "dram"}
    assert wanted <= seen


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 120))
def test_search_equals_the_exact_optimum(problem: Problem, budget: int) -> None:
    oracle, solution = Oracle(problem), Search(problem).solve(budget)
    expected = oracle.least(budget)
    assert (solution is None) == (expected is None)
    if solution is not None:
        assert solution.score == pytest.approx(expected, rel=0, abs=_grain(problem))


@settings(max_examples=25, deadline=None)
@given(branchy(), st.sampled_from(sorted(TARGETS)), st.floats(0.0, 1.0))
def test_random_branches_equal_the_exact_optimum(content: bytes, name: str, share: float) -> None:
    search = _planner(content, name).search
    free, smallest = search.solve(None), search.smallest().peak_bytes
    assert free is not None
    budget = smallest + int((free.peak_bytes - smallest) * share)
    solution = search.solve(budget)
    assert solution is not None
    expected = Oracle(search.problem).least(budget)
    assert solution.score == pytest.approx(expected, rel=0, abs=_grain(search.problem))


def test_prefetches_are_part_of_the_instances() -> None:
    problem = _planner(network("heavy"), "shared").search.problem
    assert any(problem.prefetches(k) for k in range(problem.op_count))
    assert all(problem.options(k, k, (), NO_PREFETCH) for k in range(problem.op_count))
