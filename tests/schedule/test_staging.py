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


def test_a_slice_takes_as_long_as_its_maps_are_far() -> None:
    """What hides the next copy follows from where maps lie, not from Vela's scheduling time.

    Vela takes every map to be in DRAM then; on that basis ops in SRAM lent more than they last.
    """
    planner = _planner("ethos-u65-256")
    segments = planner.segments
    staged = segments.staged
    assert staged is not None
    tensors = [access.tensor for access in (*segments.graph.ops[2].ifms,)]
    tensors.append(segments.graph.ops[2].final_ofm.tensor)
    near = segments.places_of(2, 2, 2, dict.fromkeys(tensors, "sram"))
    far = segments.places_of(2, 2, 2, dict.fromkeys(tensors, "dram"))
    for index, way in enumerate(staged.ways(2, near)):
        assert staged.lag_cycles(2, near, index) < staged.lag_cycles(2, far, index)
        if way.buffering.prefetched and way.buffering.slices == 1:
            assert staged.lag_cycles(2, near, index) == staged.hidden(2, near, index).core_cycles


def test_memories_do_not_wait_for_a_copy_that_they_have_time_for() -> None:
    """A copy just before an op adds nothing if a memory is busy for longer than copy and op."""
    builder = Builder("bound by DRAM")
    x = builder.input("x", (1, 64, 64, 16), "int8")
    builder.output(builder.conv2d(x, 16, kernel=(1, 1)))
    target = load_target("ethos-u65-256")
    assert target.accelerator is not None
    graph = build_graph(read_model(builder.build(), "bound"), target.accelerator.family)
    plan = Planner.of(graph, target, _sizes).plan(None)
    (run,) = (run for segment in plan.segments for run in segment.runs)
    assert run.amounts.npu_cycles == max(dict(run.memory_cycles).values())
