"""The search against exact solvers: CP-SAT, which knows nothing of paths and states, and HiGHS."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.schedule import Planner, Proof, check_plan
from npusched.schedule.exact import Exact, settled, solve_exactly
from npusched.schedule.search import NO_PREFETCH, Problem, Search
from npusched.tflite import Builder
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


def many_maps(count: int) -> bytes:
    """``count`` results of one tensor, all made before they are added up; nothing can be fused."""
    b = Builder("many")
    x = b.fully_connected(b.input("x", (1, 64), "int8"), 64)
    made = [b.fully_connected(x, 512, scale=0.1) for _ in range(count)]
    total = made[0]
    for other in made[1:]:
        total = b.add(total, other, scale=0.1)
    b.output(total)
    return b.build()


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("name", NETWORKS)
def test_highs_equals_the_search(name: str, target: str) -> None:
    problem = _planner(network(name), target).search.problem
    search = Search(problem)
    smallest = search.smallest().peak_bytes
    free = search.solve(None)
    assert free is not None
    budget = (smallest + free.peak_bytes) // 2
    solution, exact = search.solve(budget), solve_exactly(problem, budget)
    assert solution is not None
    assert exact is not None
    assert exact.solution is not None
    assert exact.bound == pytest.approx(solution.score, rel=1e-9)
    assert exact.solution.score == pytest.approx(solution.score, rel=1e-9)
    assert exact.solution.peak_bytes <= budget


def test_highs_settles_what_the_search_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3 states per op the search misses the best plan of 5 maps; HiGHS finds and proves it."""
    monkeypatch.setattr("npusched.schedule.search.STATE_CAP", 10**6)
    whole = _planner(many_maps(5), "dedicated")
    free = whole.search.solve(None)
    assert free is not None
    budget = free.peak_bytes // 2
    best = whole.search.solve(budget)
    assert best is not None
    assert not best.capped
    monkeypatch.setattr("npusched.schedule.search.STATE_CAP", 3)
    planner = _planner(many_maps(5), "dedicated")
    capped = planner.search.solve(budget)
    assert capped is not None
    assert capped.capped
    assert capped.score > best.score
    proven = settled(planner.search.problem, budget, capped)
    assert proven.score == pytest.approx(best.score, rel=1e-9)
    assert not proven.capped
    plan = planner.plan(budget)
    assert plan.bound.objective == pytest.approx(best.score, rel=1e-9)
    assert check_plan(planner.segments.graph, TARGETS["dedicated"], plan) == []
    monkeypatch.setattr("npusched.schedule.exact.is_available", lambda: False)
    alone = planner.plan(budget)
    assert alone.bound.proof is Proof.FEASIBLE
    assert settled(planner.search.problem, budget, capped) is capped


def test_a_gap_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HiGHS only has a bound, the plan says how far it may be from it."""
    planner = _planner(many_maps(3), "dedicated")
    monkeypatch.setattr("npusched.schedule.search.STATE_CAP", 1)
    capped = planner.search.solve(None)
    assert capped is not None
    assert capped.capped
    half = Exact(bound=capped.score / 2, solution=None)
    monkeypatch.setattr("npusched.schedule.exact.solve_exactly", lambda *_: half)
    bound = planner.plan(None).bound
    assert bound.proof is Proof.BOUNDED
    assert bound.objective == capped.score / 2
    assert bound.gap == pytest.approx(1.0)


def test_programs_that_are_too_large_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _planner(network("residual"), "dedicated").search.problem
    monkeypatch.setattr("npusched.schedule.exact.COLUMN_CAP", 100)
    assert solve_exactly(problem, 10**6) is None


def test_highs_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    problem = _planner(network("chain"), "shared").search.problem
    assert solve_exactly(problem, 10**6) is not None
    assert capfd.readouterr() == ("", "")
