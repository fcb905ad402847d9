"""Staged weights: borders by hand, and the waiting formula against the full cost."""

from __future__ import annotations

import pytest

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.errors import InfeasibleError
from npusched.graph.build import build_graph
from npusched.graph.types import ScheduledOp
from npusched.hardware import load_target
from npusched.schedule import Planner, check_plan
from npusched.schedule.staging import slice_borders
from npusched.tflite import Builder, read_model


def _sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    assert op.weights is not None
    assert block.ofm_block.c > 0
    return WeightBytes(weights=op.weights.elements // 16 * 16, scales=10 * op.weights.shape[0])


def _planner(target: str) -> Planner:
    builder = Builder("staged")
    x = builder.input("x", (1, 8, 8, 32), "int8")
    for _ in range(4):
        x = builder.conv2d(x, 64, kernel=(3, 3))
    builder.output(x)
    loaded = load_target(target)
    assert loaded.accelerator is not None
    graph = build_graph(read_model(builder.build(), "staged"), loaded.accelerator.family)
    return Planner.of(graph, loaded, _sizes)


@pytest.mark.parametrize(
    ("depth", "count", "borders"),
    [
        (64, 2, (0, 32, 64)),
        (64, 3, (0, 32, 64)),
        (100, 3, (0, 48, 96, 100)),
        (16, 4, (0, 16)),
        (40, 2, (0, 32, 40)),
    ],
)
def test_borders_by_hand(depth: int, count: int, borders: tuple[int, ...]) -> None:
    """100 / 3 = 34, rounded up to 48: slices of 48, 48 and 4 channels."""
    assert slice_borders(depth, count, 16) == borders


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_waiting_formula_equals_the_cost(target: str) -> None:
    planner = _planner(target)
    segments = planner.segments
    staged = segments.staged
    assert staged is not None
    places = segments.places_of(2, 2, 2, {})
    ways = staged.ways(2, places)
    assert len(ways) >= 3
    for index in range(len(ways)):
        hidden = staged.hidden(2, places, index).score
        for slack in (0, 100, 1000, 5000, 20_000, 100_000):
            exact = staged.cost(2, places, index, slack).score - hidden
            assert staged.wait(2, places, index, slack) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256"])
def test_staging_pays_and_is_checked(target: str) -> None:
    """A plan with staged weights is no worse than one without, and passes the checker."""
    planner = _planner(target)
    graph, loaded = planner.segments.graph, planner.segments.target
    plain = Planner.of(graph, loaded, _sizes, staged=False)
    for budget in (None, 64 * 1024, 40 * 1024):
        best = planner.plan(budget)
        assert check_plan(graph, loaded, best) == []
        assert best.objective <= plain.plan(budget).objective
    prefetched = [
        run.buffering
        for segment in planner.plan(None).segments
        for run in segment.runs
        if run.buffering is not None and run.buffering.prefetched
    ]
    assert prefetched
    for budget in range(0, 64 * 1024, 4096):
        try:
            plan = planner.plan(budget)
        except InfeasibleError:
            continue
        moved = sum(plan.amounts.moved(m.name) for m in loaded.memories if m.name != "sram")
        assert plan.objective == pytest.approx(plan.amounts.npu_cycles + 0.1 * moved)
    total = sum(s.amounts.npu_cycles for s in planner.plan(None).segments)
    assert total == planner.plan(None).amounts.npu_cycles
