"""The limit on off-chip bytes against brute force, and what a user is told about it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.demos import demo
from npusched.errors import InfeasibleError
from npusched.graph.build import build_graph
from npusched.graph.types import ScheduledOp
from npusched.hardware import Target, load_target
from npusched.schedule import Goal, Objective, Planner, WeightMode, check_plan
from npusched.schedule import offchip as offchip_module
from npusched.schedule.kernels import Sizes
from npusched.schedule.offchip import OffchipSearch
from npusched.schedule.offchip_limit import offchip_bytes
from npusched.schedule.offchip_segments import Stairs, front_of_options
from npusched.schedule.rows import Policy, stripe_candidates
from npusched.schedule.search import NO_PREFETCH, Homes, Option, Problem
from npusched.schedule.segments import Segments
from npusched.tflite import Builder, read_model
from tests.schedule.test_search import FAST, problems

TARGETS = {
    "shared": load_target("ethos-u55-128", memory_mode="Shared_Sram"),
    "dedicated": load_target("ethos-u65-256", memory_mode="Dedicated_Sram_384KB"),
}

Pair = tuple[float, int]


def _counted(problem: Problem, seed: int) -> Problem:
    """The problem with options that move bytes off the chip, cheap ones most."""

    def options(i: int, j: int, homes: Homes, prefetch: int) -> list[Option]:
        mix = zlib.crc32(repr((seed, i, j, homes, prefetch)).encode()) * 2654435761
        found = [
            Option(
                (mix >> (5 * k)) % 40 + 40 * (prefetch != NO_PREFETCH),
                float((mix >> (7 * k + 3)) % 50 + 10 * (j == i)),
                k,
                cycles=float((mix >> (3 * k + 1)) % 30),
                offchip_bytes=(mix >> (2 * k + 4)) % 60,
            )
            for k in range(5)
        ]
        return front_of_options(found)

    return replace(problem, options=options)


def _chains(
    problem: Problem,
    parts: list[tuple[int, int]],
    homes: tuple[str, ...],
    budget: float,
    at: int = 0,
    prefetch: int = NO_PREFETCH,
) -> Iterator[Pair]:
    """(score, off-chip bytes) of every choice of options and prefetches."""
    if at == len(parts):
        yield 0.0, 0
        return
    i, j = parts[at]
    live = sum(
        item.size_bytes
        for t, item in enumerate(problem.items)
        if homes[t] == FAST and (item.first < i <= item.last or i <= item.first <= j < item.last)
    )
    touched = tuple((t, homes[t]) for t in problem.touched(i, j))
    for option in problem.options(i, j, touched, prefetch):
        carried = [(NO_PREFETCH, 0, 0.0)]
        if at + 1 < len(parts) and parts[at + 1][0] == parts[at + 1][1]:
            there = tuple((t, homes[t]) for t in problem.touched(j + 1, j + 1))
            carried += [
                (k, p.size_bytes, p.penalty(there, option.cycles))
                for k, p in enumerate(problem.prefetches(j + 1))
            ]
        for index, size, wait in carried:
            if live + option.sram_bytes + size <= budget:
                for score, moved in _chains(problem, parts, homes, budget, at + 1, index):
                    yield score + option.score + wait, moved + option.offchip_bytes


def _everything(problem: Problem, budget: float) -> Stairs:
    """Front of (score, off-chip bytes) over all plans within the budget."""
    n, front = problem.op_count, Stairs()
    for cuts in product([False, True], repeat=n - 1):
        bounds = [0, *[k + 1 for k, cut in enumerate(cuts) if cut], n]
        parts = [(a, b - 1) for a, b in pairwise(bounds)]
        if all(j in problem.ends(i) for i, j in parts):
            for homes in product(*[item.homes for item in problem.items]):
                for score, moved in _chains(problem, parts, homes, budget):
                    front.add(score, moved)
    return front


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 10**6), st.integers(20, 120))
def test_search_equals_brute_force(problem: Problem, seed: int, budget: int) -> None:
    problem = _counted(problem, seed)
    if problem.op_count > 4:
        return
    front = _everything(problem, budget)
    search = OffchipSearch(problem)
    least = search.least_offchip(budget)
    assert (least is None) == (not front.scores)
    if least is None:
        assert search.solve_within(budget, 10**6) is None
        return
    assert sum(step.option.offchip_bytes for step in least.steps) == front.offchip[-1]
    assert search.solve_within(budget, front.offchip[-1] - 1) is None
    for limit in range(front.offchip[-1], front.offchip[0] + 2):
        best = min(
            score
            for score, moved in zip(front.scores, front.offchip, strict=True)
            if moved <= limit
        )
        found = search.solve_within(budget, limit)
        assert found is not None
        assert found.least is None
        assert found.score == pytest.approx(best, abs=1e-9)
        assert sum(step.option.offchip_bytes for step in found.steps) <= limit
        assert found.peak_bytes <= budget


def test_stairs_keep_what_nothing_beats() -> None:
    stairs = Stairs()
    assert stairs.add(5.0, 50)
    assert not stairs.add(5.0, 50)
    assert not stairs.add(6.0, 50)
    assert stairs.add(7.0, 20)
    assert stairs.add(5.0, 40)
    assert stairs.add(1.0, 30)
    assert (stairs.scores, stairs.offchip) == ([1.0, 7.0], [30, 20])


def _sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    """Any sizes do, as long as they depend on the block."""
    assert op.weights is not None
    return WeightBytes(weights=16 * (op.weights.elements // 24 + block.ofm_block.c), scales=10 * 16)


@st.composite
def _networks(draw: st.DrawFn) -> bytes:
    builder = Builder("random", seed=draw(st.integers(0, 99)))
    x = builder.input("x", (1, draw(st.integers(4, 10)), draw(st.integers(3, 7)), 8), "int8")
    for _ in range(draw(st.integers(1, 3))):
        before = x
        kind = draw(st.sampled_from(["conv", "wide", "depthwise", "residual"]))
        if kind == "depthwise":
            x = builder.depthwise_conv2d(x, kernel=(3, 3))
        elif kind == "residual":
            x = builder.add(builder.conv2d(x, x.shape[-1], kernel=(3, 3)), before)
        else:
            size = 1 if kind == "wide" else 3
            x = builder.conv2d(x, draw(st.sampled_from([8, 16, 24])), kernel=(size, size))
    builder.output(x)
    return builder.build()


def _planner(
    content: bytes,
    target: Target,
    limit: int | None = None,
    *,
    plain: bool = False,
    objective: Objective | None = None,
) -> Planner:
    assert target.accelerator is not None
    graph = build_graph(read_model(content, "random"), target.accelerator.family)
    return Planner.of(
        graph,
        target,
        _sizes,
        in_place=not plain,
        staged=not plain,
        max_offchip_bytes=limit,
        objective=objective,
    )


def _part_pairs(
    segments: Segments, i: int, j: int, homes: dict[int, str], budget: float
) -> Iterator[Pair]:
    """(score, off-chip bytes) of every way to run ops [i..j] that fits."""
    kernels, live = segments.kernels, 0
    for t, life in segments.lives.items():
        alive = life.first < i <= life.last or i <= life.first <= j
        inside = i <= life.first and life.last <= j
        if alive and not inside and homes.get(t, life.homes[0]) == segments.target.roles.cache:
            live += life.size_bytes
    heights = stripe_candidates(segments.windows[j].ofm_rows) if j > i else (0,)
    for rows, policy in product(heights, Policy if j > i else [Policy.ALIGNED]):
        rolling = 0
        for v in range(i, j):
            fm = segments.graph.feature_maps[segments.graph.ops[v].final_ofm.tensor]
            if segments.lives[fm.id].last <= j:
                kept = segments.fusing.run(v, j, rows, policy).kept_rows
                rolling += -(-kept * fm.row_bytes // 16) * 16
        for modes in product(*[segments.modes(v) for v in range(i, j + 1)]):
            size, score, moved = live + rolling, 0.0, 0
            for v, mode in zip(range(i, j + 1), modes, strict=True):
                places = segments.places_of(v, i, j, homes)
                height = segments.windows[v].ofm_rows
                sizes: Sizes = ((0, height, 1),)
                if j > i:
                    height, sizes = segments.sizes(v, j, rows, policy)
                cost = kernels.run(v, height, sizes, places, mode)
                score += cost.score
                moved += kernels.offchip_bytes(cost)
                if mode is WeightMode.RESIDENT:
                    size += -(-kernels.weights(v, height, places).total // 16) * 16
            if size <= budget:
                yield score, moved


def _all_plans(planner: Planner, budget: float) -> Stairs:
    segments, front = planner.segments, Stairs()
    n = len(segments.graph.ops)
    free = [t for t in segments.tensors if len(segments.lives[t].homes) > 1]
    for cuts in product([False, True], repeat=n - 1):
        bounds = [0, *[k + 1 for k, cut in enumerate(cuts) if cut], n]
        parts = [(a, b - 1) for a, b in pairwise(bounds)]
        if not all(j in segments.ends(i) for i, j in parts):
            continue
        for choice in product(*[segments.lives[t].homes for t in free]):
            homes = dict(zip(free, choice, strict=True))
            sums: list[Pair] = [(0.0, 0)]
            for i, j in parts:
                own, stairs = Stairs(), Stairs()
                for score, moved in _part_pairs(segments, i, j, homes, budget):
                    own.add(score, moved)
                for score, moved in sums:
                    for more, bytes_ in zip(own.scores, own.offchip, strict=True):
                        stairs.add(score + more, moved + bytes_)
                sums = list(zip(stairs.scores, stairs.offchip, strict=True))
            for score, moved in sums:
                front.add(score, moved)
    return front


@settings(max_examples=25, deadline=None)
@given(_networks(), st.sampled_from(sorted(TARGETS)), st.floats(0.4, 1.2))
def test_plans_equal_brute_force(content: bytes, name: str, share: float) -> None:
    plain = _planner(content, TARGETS[name], plain=True)
    budget = int(plain.plan(None).sram_peak_bytes * share)
    front = _all_plans(plain, budget)
    for score, moved in zip(front.scores, front.offchip, strict=True):
        limited = _planner(content, TARGETS[name], moved, plain=True)
        assert limited.offchip is not None
        found = limited.offchip.solve(budget)
        assert found is not None
        assert found.score == pytest.approx(score, rel=1e-12)
    if front.offchip:
        limited = _planner(content, TARGETS[name], front.offchip[-1] - 1, plain=True)
        assert limited.offchip is not None
        assert limited.offchip.solve(budget) is None


@settings(max_examples=15, deadline=None)
@given(_networks(), st.sampled_from(sorted(TARGETS)), st.integers(0, 4096))
def test_limits_are_kept_and_cost_more_the_tighter(content: bytes, name: str, extra: int) -> None:
    target = TARGETS[name]
    free = _planner(content, target)
    budget = free.smallest_budget_bytes() + extra
    plan = free.plan(budget)
    used = offchip_bytes(target, plan)
    same = _planner(content, target, used).plan(budget)
    assert replace(same, bound=plan.bound) == plan
    with pytest.raises(InfeasibleError) as caught:
        _planner(content, target, 0).plan(budget)
    least = caught.value.values["smallest_feasible_offchip_bytes"]
    assert isinstance(least, int)
    scores = []
    for limit in sorted({least, (least + used) // 2, used - 1, used} - {least - 1}):
        found = _planner(content, target, limit).plan(budget)
        assert check_plan(free.segments.graph, target, found) == []
        assert offchip_bytes(target, found) <= limit
        assert found.sram_peak_bytes <= budget
        scores.append(found.objective)
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(InfeasibleError):
        _planner(content, target, least - 1).plan(budget)


@settings(max_examples=10, deadline=None)
@given(_networks(), st.sampled_from(sorted(TARGETS)))
def test_frontier_keeps_the_limit(content: bytes, name: str) -> None:
    target = TARGETS[name]
    roomy = offchip_bytes(target, _planner(content, target).plan(None))
    plans = _planner(content, target, roomy).frontier()
    assert all(offchip_bytes(target, plan) <= roomy for plan in plans)
    assert [p.objective for p in plans] == sorted(p.objective for p in plans)
    sram = Objective(goal=Goal.SRAM)
    smallest = _planner(content, target, roomy, objective=sram).plan(None)
    assert offchip_bytes(target, smallest) <= roomy
    assert smallest.sram_bound_bytes <= plans[-1].sram_bound_bytes


def test_a_search_that_is_cut_off_states_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no labels at all the multiplier's bound and best plan remain."""
    content = demo("ds_cnn")
    target = TARGETS["dedicated"]
    free = _planner(content, target)
    budget = 24 * 1024
    used = offchip_bytes(target, free.plan(budget))
    with pytest.raises(InfeasibleError) as caught:
        _planner(content, target, 0).plan(budget)
    least = caught.value.values["smallest_feasible_offchip_bytes"]
    assert isinstance(least, int)
    limit = (least + used) // 2
    exact = _planner(content, target, limit).plan(budget)
    monkeypatch.setattr(offchip_module, "LABEL_CAP", 0)
    rough = _planner(content, target, limit).plan(budget)
    assert offchip_bytes(target, rough) <= limit
    assert rough.bound.objective <= exact.objective <= rough.objective
    assert rough.objective == pytest.approx(rough.bound.objective * (1 + rough.bound.gap))


@settings(max_examples=15, deadline=None)
@given(_networks(), st.sampled_from(sorted(TARGETS)), st.integers(0, 4096))
def test_objectives_minimise_what_they_say(content: bytes, name: str, extra: int) -> None:
    """At one budget no other objective's plan has less of what an objective minimises."""
    target = TARGETS[name]
    budget = _planner(content, target).smallest_budget_bytes() + extra
    plans = {
        goal: _planner(content, target, objective=Objective(goal=goal)).plan(budget)
        for goal in Goal
    }
    plain = Objective(lambda_cycles_per_byte=0.0)
    fastest = _planner(content, target, objective=plain).plan(budget)
    for plan in (*plans.values(), fastest):
        if plans[Goal.ENERGY].bound.gap == 0:
            least = plans[Goal.ENERGY].amounts.energy_nj[1]
            assert least <= plan.amounts.energy_nj[1] * (1 + 1e-9)
        if plans[Goal.OFFCHIP].bound.gap == 0:
            assert offchip_bytes(target, plans[Goal.OFFCHIP]) <= offchip_bytes(target, plan)
        assert plans[Goal.SRAM].sram_bound_bytes <= plan.sram_bound_bytes
        if fastest.bound.gap == 0:
            assert fastest.amounts.npu_cycles <= plan.amounts.npu_cycles
    with pytest.raises(InfeasibleError) as caught:
        _planner(content, target, 0).plan(budget)
    if plans[Goal.OFFCHIP].bound.gap == 0:
        least_bytes = caught.value.values["smallest_feasible_offchip_bytes"]
        assert offchip_bytes(target, plans[Goal.OFFCHIP]) == least_bytes
