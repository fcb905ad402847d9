"""Random networks: lowering and plans at random budgets compute what LiteRT computes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.plan_compare import Expected, compare_interpreter, compare_plan, expect
from benchmarks.plan_damage import moved, offset_of, together, with_rows
from npusched.api.planning import read
from npusched.errors import SimError
from npusched.hardware import load_target
from npusched.schedule import Plan, check_plan
from npusched.schedule.types import BufferKind
from npusched.sim.execute_plan import PlanExecutor, execute_plan
from tests.sim.network_strategies import WINDOWED, networks
from tests.sim.plan_kit import graph_for, inputs_for, planner_for, runs_on_npu

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

CONFIGS = st.sampled_from(("ethos-u55-128", "ethos-u65-256", "ethos-u65-512"))
BUDGETS = st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0))
"""Between the smallest feasible budget (0) and that of the plan without a limit (1)."""

BOUNDED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def expected_of(content: bytes, config: str) -> Expected:
    """What a network must compute, on two inputs; networks with CPU ops are no examples."""
    graph = graph_for(content, config)
    assume(runs_on_npu(graph))
    return expect(read(content, "model"), graph, 2)


def plan_at(content: bytes, config: str, share: float) -> Plan:
    """The plan for a budget between the smallest and the largest useful one."""
    planner = planner_for(content, config)
    smallest, largest = planner.smallest_budget_bytes(), planner.plan(None).sram_peak_bytes
    return planner.plan(smallest + int(share * (largest - smallest)))


@BOUNDED
@given(networks(), CONFIGS, BUDGETS)
def test_networks_and_plans_equal_the_reference(content: bytes, config: str, share: float) -> None:
    expected = expected_of(content, config)
    assert compare_interpreter(expected).differing == {}
    plan = plan_at(content, config, share)
    assert check_plan(expected.graph, load_target(config), plan) == []
    executor = PlanExecutor(expected.graph, plan)
    counts = compare_plan([executor.run(inputs) for inputs in expected.runs], expected)
    assert counts.differing == {}
    assert counts.tensors


@BOUNDED
@given(networks(steps=WINDOWED, count=(2, 4), height=(12, 48)), CONFIGS, st.data())
def test_one_row_fewer_is_refused(content: bytes, config: str, data: st.DataObject) -> None:
    """Refused, whatever the values are (``reports/plans.md`` says how often they would differ)."""
    graph = graph_for(content, config)
    assume(runs_on_npu(graph))
    plan = plan_at(content, config, 0.0)
    rolling = [k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.ROLLING]
    assume(rolling)
    (inputs,) = inputs_for(content, 0, 1)
    execute_plan(graph, plan, inputs)
    with pytest.raises(SimError):
        execute_plan(graph, with_rows(plan, data.draw(st.sampled_from(rolling)), -1), inputs)


@BOUNDED
@given(networks(steps=WINDOWED, count=(2, 4), height=(12, 48)), CONFIGS, st.data())
def test_overlapping_addresses_are_refused(
    content: bytes, config: str, data: st.DataObject
) -> None:
    graph = graph_for(content, config)
    assume(runs_on_npu(graph))
    plan = plan_at(content, config, data.draw(BUDGETS))
    offsets = [offset_of(plan, number) for number in range(len(plan.buffers))]
    pairs = list(together(plan, offsets))
    assume(pairs)
    first, second = data.draw(st.sampled_from(pairs))
    with pytest.raises(SimError):
        PlanExecutor(graph, moved(plan, second, offsets[first]))
