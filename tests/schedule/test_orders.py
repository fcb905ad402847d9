"""Op orders: by hand, against brute force over every order, and what plans make of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from npusched.errors import InfeasibleError
from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.hardware import Target
from npusched.schedule import OrderedPlanner, Planner, Proof, check_plan, with_given_ids
from npusched.schedule.check_order import order_faults
from npusched.schedule.lifetimes import lifetimes
from npusched.schedule.orders import (
    branchy_regions,
    dependences,
    depth_first_orders,
    least_peak_order,
)
from npusched.sim.execute_plan import execute_plan
from npusched.sim.interpret import Interpreter
from npusched.sim.reference import random_inputs
from npusched.tflite import Builder, read_model
from tests.schedule.networks import TARGETS, branchy, graph_of, network, sizes

SHARED = TARGETS["shared"]


def two_heads() -> bytes:
    """One head makes 65536 bytes that are kept, the other needs as many for a moment.

    The input takes 4096 bytes and the other head's result 256. Vela runs the last output first,
    which is the wrong way round: 4096 + 65536 + 65536 = 135168 bytes at once, instead of
    4096 + 256 + 65536 = 69888.
    """
    b = Builder("heads")
    x = b.input("x", (1, 16, 16, 16), "int8")
    small = b.max_pool2d(b.conv2d(x, 256, 1), 16, stride=16)
    large = b.conv2d(x, 256, 1)
    b.output(small)
    b.output(large)
    return b.build()


def _live_peak(graph: OpGraph, target: Target) -> int:
    lives = lifetimes(graph, target).values()
    return max(
        sum(life.size_bytes for life in lives if life.first <= op.id <= life.last)
        for op in graph.ops
    )


def _all_orders(graph: OpGraph) -> list[tuple[int, ...]]:
    return [
        order for order in permutations(range(len(graph.ops))) if not order_faults(graph, order)
    ]


def test_the_other_head_first_halves_the_peak() -> None:
    graph = graph_of(two_heads(), SHARED)
    assert _live_peak(graph, SHARED) == 135168
    order = least_peak_order(graph, SHARED)
    assert (order.given_bytes, order.peak_bytes, order.capped) == (135168, 69888, 0)
    assert _live_peak(reordered(graph, order.ops), SHARED) == 69888
    kinds = [graph.ops[op].kind.value for op in order.ops]
    assert kinds == ["Conv2D", "MaxPool", "Conv2D"]


def test_plans_use_the_better_order() -> None:
    """Without fusing, the smallest budgets are the peaks of the two orders."""
    graph = graph_of(two_heads(), SHARED)
    alone = Planner.of(graph, SHARED, sizes, cap=1, staged=False)
    both = OrderedPlanner(graph, SHARED, sizes, cap=1, staged=False)
    assert alone.smallest_budget_bytes() == 135168
    assert both.smallest_budget_bytes() == 69888
    plan = both.plan(69888)
    assert check_plan(graph, SHARED, plan) == []
    assert plan.order
    assert plan.bound.scope.startswith("2 op orders (no further order needs less memory), seg")
    roomy = both.plan(None)
    assert roomy.objective <= both.given.plan(None).objective
    assert roomy.bound.scope == plan.bound.scope
    with pytest.raises(InfeasibleError) as caught:
        both.plan(69888 - 16)
    assert caught.value.values["smallest_feasible_bytes"] == 69888


def test_a_cap_is_reported() -> None:
    graph = graph_of(two_heads(), SHARED)
    capped = least_peak_order(graph, SHARED, cap=1)
    assert (capped.capped, capped.ops, capped.peak_bytes) == (1, (0, 1, 2), 135168)
    planner = OrderedPlanner(graph, SHARED, sizes, order_cap=1, cap=1)
    scope = planner.plan(140000).bound.scope
    assert scope.startswith("2 op orders (too many to find the one of least memory), segments")


@settings(max_examples=40, deadline=None)
@given(branchy(), st.sampled_from(sorted(TARGETS)))
def test_least_peak_equals_brute_force(content: bytes, name: str) -> None:
    target = TARGETS[name]
    graph = graph_of(content, target)
    if len(graph.ops) > 6:
        return
    orders = _all_orders(graph)
    assert tuple(range(len(graph.ops))) in orders
    shared = replace(target, roles=replace(target.roles, arena=target.roles.cache))
    peaks = {order: _live_peak(reordered(graph, order), shared) for order in orders}
    found = least_peak_order(graph, shared)
    assert found.capped == 0
    assert peaks[found.ops] == min(peaks.values())
    assert set(depth_first_orders(graph)) <= set(orders)
    is_free = len(orders) > 1
    assert bool(branchy_regions(dependences(graph).before)) == is_free


@settings(max_examples=25, deadline=None)
@given(branchy(), st.sampled_from(sorted(TARGETS)), st.floats(0.0, 1.0))
def test_orders_never_make_a_plan_worse(content: bytes, name: str, share: float) -> None:
    target = TARGETS[name]
    graph = graph_of(content, target)
    alone, both = Planner.of(graph, target, sizes), OrderedPlanner(graph, target, sizes)
    smallest = alone.smallest_budget_bytes()
    assert both.smallest_budget_bytes() <= smallest
    budget = smallest + int((alone.plan(None).sram_peak_bytes - smallest) * share)
    plan = both.plan(budget)
    assert plan.objective <= alone.plan(budget).objective
    assert plan.bound.objective <= plan.objective * (1 + 1e-12)
    assert both.plan(None).objective <= plan.objective
    assert check_plan(graph, target, plan) == []


def test_a_frontier_takes_the_best_of_both() -> None:
    graph = graph_of(two_heads(), SHARED)
    both = OrderedPlanner(graph, SHARED, sizes, cap=1)
    merged = both.frontier()
    assert merged[-1].order == least_peak_order(graph, SHARED).ops
    peaks = [plan.sram_peak_bytes for plan in merged]
    scores = [plan.objective for plan in merged]
    assert peaks == sorted(set(peaks), reverse=True)
    assert scores == sorted(set(scores))
    for plan in merged:
        assert check_plan(graph, SHARED, plan) == []
        assert plan.bound.proof is Proof.OPTIMAL
    for plan in Planner.of(graph, SHARED, sizes, cap=1).frontier():
        better = [p for p in merged if p.sram_peak_bytes <= plan.sram_peak_bytes]
        assert min(p.objective for p in better) <= plan.objective


def test_a_chain_has_one_order() -> None:
    graph = graph_of(network("chain"), SHARED)
    planner = OrderedPlanner(graph, SHARED, sizes)
    plan = planner.plan(planner.smallest_budget_bytes())
    assert not planner.is_branchy
    assert plan.bound.scope.startswith("the only op order, segments of at most 12 ops")
    assert replace(plan, bound=replace(plan.bound, scope="")) == replace(
        planner.given.plan(plan.sram_peak_bytes), bound=replace(plan.bound, scope="")
    )


def test_another_order_is_executed_bit_exactly() -> None:
    content = two_heads()
    graph = graph_of(content, SHARED)
    planner = OrderedPlanner(graph, SHARED, sizes)
    plan = planner.plan(planner.smallest_budget_bytes())
    order = least_peak_order(graph, SHARED).ops
    plan = replace(planner.planner_of(order).plan(None), order=order)
    subgraph = read_model(content, "heads").subgraphs[0]
    drawn = random_inputs(subgraph, 1, 0)
    inputs = [drawn[index][0] for index in subgraph.inputs]
    wanted = Interpreter(graph).run(inputs).outputs
    made = execute_plan(reordered(graph, plan.order), plan, inputs).outputs
    for a, b in zip(made, wanted, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        ((0, 1), "the order is no permutation of 3 ops"),
        ((0, 2, 1), "op 2 runs before op 1, which touches the same map"),
    ],
)
def test_wrong_orders_are_caught(order: Sequence[int], fault: str) -> None:
    graph = graph_of(two_heads(), SHARED)
    plan = Planner.of(graph, SHARED, sizes).plan(None)
    assert check_plan(graph, SHARED, replace(plan, order=tuple(order))) == [fault]


def test_plans_in_the_ids_of_the_graph() -> None:
    graph = graph_of(two_heads(), SHARED)
    planner = OrderedPlanner(graph, SHARED, sizes, cap=1, staged=False)
    plan = planner.plan(69888)
    listed = with_given_ids(plan)
    ran = [run.op for segment in listed.segments for run in segment.runs]
    assert tuple(ran) == plan.order
    assert listed.order == ()
    own = planner.given.plan(None)
    assert with_given_ids(own) == own
