"""The planner against brute force over every plan of small random graphs."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import InfeasibleError
from npusched.graph.chains import stripe_stop
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Layout
from npusched.hardware import Target
from npusched.schedule import Planner, WeightMode, check_plan
from npusched.schedule.fusing import STRIPED_ALONE
from npusched.schedule.kernels import Sizes
from npusched.schedule.rows import Policy, stripe_candidates
from npusched.schedule.segments import Segments
from npusched.tflite import Builder
from tests.schedule.networks import TARGETS, branchy, graph_of, sizes


@st.composite
def networks(draw: st.DrawFn) -> bytes:
    """One to five ops: convolutions, depthwise ones, pools, and residual additions."""
    builder = Builder("random", seed=draw(st.integers(0, 99)))
    x = builder.input("x", (1, draw(st.integers(4, 12)), draw(st.integers(3, 9)), 8), "int8")
    for _ in range(draw(st.integers(1, 4))):
        before = x
        kind = draw(st.sampled_from(["conv", "wide", "depthwise", "pool", "residual"]))
        if kind == "depthwise":
            x = builder.depthwise_conv2d(x, kernel=(3, 3), stride=draw(st.integers(1, 2)))
        elif kind == "pool":
            x = builder.max_pool2d(x, 2, stride=2)
        elif kind == "residual":
            x = builder.add(builder.conv2d(x, x.shape[-1], kernel=(3, 3)), before)
        else:
            size = 1 if kind == "wide" else 3
            x = builder.conv2d(x, draw(st.sampled_from([8, 16, 24])), kernel=(size, size))
        if min(x.shape[1:3]) < 2:
            break
    builder.output(x)
    return builder.build()


def _planner(
    content: bytes, target: Target, *, plain: bool = False, limit: int | None = None
) -> Planner:
    return Planner.of(
        graph_of(content, target),
        target,
        sizes,
        in_place=not plain,
        staged=not plain,
        limit_bytes=limit,
    )


def brute_force(planner: Planner, budget: float) -> float | None:
    """Least objective of all plans within the budget; None if there is none."""
    segments = planner.segments
    n = len(segments.graph.ops)
    free = [t for t in segments.tensors if len(segments.lives[t].homes) > 1]
    best: float | None = None
    for cuts in product([False, True], repeat=n - 1):
        bounds = [0, *[k + 1 for k, cut in enumerate(cuts) if cut], n]
        parts = [(a, b - 1) for a, b in pairwise(bounds)]
        if not all(_is_segment(segments.graph, i, j) for i, j in parts):
            continue
        for choice in product(*[segments.lives[t].homes for t in free]):
            homes = dict(zip(free, choice, strict=True))
            total = 0.0
            for i, j in parts:
                score = _best_part(segments, i, j, homes, budget)
                if score is None:
                    break
                total += score
            else:
                best = total if best is None else min(best, total)
    return best


def _is_segment(graph: OpGraph, i: int, j: int) -> bool:
    """One op; or ops that can all be striped, each but the last read by a later one inside."""
    if i == j:
        return True
    if any(stripe_stop(graph, graph.ops[v]) not in (None, *STRIPED_ALONE) for v in range(i, j + 1)):
        return False
    for v in range(i, j):
        made = graph.feature_maps[graph.ops[v].final_ofm.tensor]
        readers = [r for r in graph.readers[made.id] if r <= j]
        if not readers or graph.writers[made.id] != (v,):
            return False
        uses = [a for r in readers for a in graph.ops[r].ifms if a.tensor == made.id]
        if any(access.is_slice or access.view != made.shape for access in uses):
            return False
        kept = made.is_graph_output or graph.readers[made.id][-1] > j
        if not kept and made.layout is not Layout.NHCWB16:
            return False
    return True


def _best_part(
    segments: Segments, i: int, j: int, homes: dict[int, str], budget: float
) -> float | None:
    """Cheapest stripes, policy and weight modes of ops [i..j] that fit, all tried."""
    memory = segments.target.roles.cache
    live = 0
    for t, life in segments.lives.items():
        inside = i <= life.first and life.last <= j
        alive = life.first < i <= life.last or i <= life.first <= j
        if alive and not inside and homes.get(t, life.homes[0]) == memory:
            live += life.size_bytes
    best: float | None = None
    heights = stripe_candidates(segments.windows[j].ofm_rows) if j > i else (0,)
    for rows, policy in product(heights, Policy if j > i else [Policy.ALIGNED]):
        rolling = 0
        for v in range(i, j):
            fm = segments.graph.feature_maps[segments.graph.ops[v].final_ofm.tensor]
            if segments.lives[fm.id].last <= j:
                kept = segments.fusing.run(v, j, rows, policy).kept_rows
                rolling += -(-kept * fm.row_bytes // 16) * 16
        for modes in product(*[segments.modes(v) for v in range(i, j + 1)]):
            size, score = live + rolling, 0.0
            for v, mode in zip(range(i, j + 1), modes, strict=True):
                places = segments.places_of(v, i, j, homes)
                height = segments.windows[v].ofm_rows
                parts: Sizes = ((0, height, 1),)
                if j > i:
                    height, parts = segments.sizes(v, j, rows, policy)
                score += segments.kernels.run(v, height, parts, places, mode).score
                if mode is WeightMode.RESIDENT:
                    total = segments.kernels.weights(v, height, places).total
                    size += -(-total // 16) * 16
            if size <= budget and (best is None or score < best):
                best = score
    return best


@settings(max_examples=60, deadline=None)
@given(st.one_of(networks(), branchy()), st.sampled_from(sorted(TARGETS)), st.floats(0.3, 1.2))
def test_plan_equals_brute_force(content: bytes, name: str, share: float) -> None:
    planner = _planner(content, TARGETS[name], plain=True)
    graph, target = planner.segments.graph, planner.segments.target
    if len(graph.ops) > 6:
        return
    roomy = planner.plan(None).sram_peak_bytes
    budget = int(roomy * share)
    expected = brute_force(planner, budget)
    solution = planner.search.solve(budget)
    assert (solution is None) == (expected is None)
    if solution is None or expected is None:
        with pytest.raises(InfeasibleError):
            planner.plan(budget)
        return
    assert solution.score == pytest.approx(expected, rel=1e-12)
    try:
        plan = planner.plan(budget)
    except InfeasibleError:  # every plan that fits by live sums may fail to pack
        assert planner.smallest_budget_bytes() > budget
        return
    assert check_plan(graph, target, plan) == []
    assert plan.objective >= expected * (1 - 1e-12)
    full = _planner(content, TARGETS[name]).plan(budget)
    assert check_plan(graph, target, full) == []
    assert full.objective <= plan.objective * (1 + 1e-12)


@settings(max_examples=20, deadline=None)
@given(st.one_of(networks(), branchy()), st.sampled_from(sorted(TARGETS)))
def test_more_sram_is_never_worse(content: bytes, name: str) -> None:
    planner = _planner(content, TARGETS[name])
    smallest = planner.smallest_budget_bytes()
    scores = [planner.plan(smallest + extra).objective for extra in range(0, 4096, 512)]
    assert scores == sorted(scores, reverse=True)
    assert planner.plan(None).objective <= scores[-1]


@settings(max_examples=20, deadline=None)
@given(st.one_of(networks(), branchy()), st.sampled_from(sorted(TARGETS)), st.integers(0, 8192))
def test_a_limit_changes_no_plan_below_it(content: bytes, name: str, extra: int) -> None:
    planner = _planner(content, TARGETS[name])
    smallest = planner.smallest_budget_bytes()
    limited = _planner(content, TARGETS[name], limit=smallest + extra)
    assert limited.plan(smallest + extra) == planner.plan(smallest + extra)
    assert limited.plan(smallest) == planner.plan(smallest)
    assert limited.plan(None) == planner.plan(None)
    tight = _planner(content, TARGETS[name], limit=max(smallest - 16, 0))
    assert tight.smallest_budget_bytes() == smallest


@settings(max_examples=20, deadline=None)
@given(st.one_of(networks(), branchy()), st.sampled_from(sorted(TARGETS)))
def test_the_named_smallest_budget_works(content: bytes, name: str) -> None:
    planner = _planner(content, TARGETS[name])
    smallest = planner.smallest_budget_bytes()
    assert planner.plan(smallest).sram_peak_bytes <= smallest
    lower = planner.search.smallest().peak_bytes - 16
    if lower >= 0:
        with pytest.raises(InfeasibleError) as caught:
            planner.plan(lower)
        assert caught.value.values["smallest_feasible_bytes"] == smallest
        assert caught.value.values["have_bytes"] == lower
