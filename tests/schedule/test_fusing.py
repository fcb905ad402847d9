"""Which ops may be striped together."""

from __future__ import annotations

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.demos import demo
from npusched.graph.build import build_graph
from npusched.graph.types import ScheduledOp
from npusched.hardware import load_target
from npusched.schedule import Planner, check_plan
from npusched.tflite import Builder, read_model


def _sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:  # noqa: ARG001 - any sizes do
    return WeightBytes(weights=64, scales=80, exact=True)


def test_ops_that_write_every_second_row_run_whole() -> None:
    """U85 makes a transposed convolution of ops that fill every second row each."""
    target = load_target("ethos-u85-256")
    assert target.accelerator is not None
    graph = build_graph(read_model(demo("unet"), "unet"), target.accelerator.family)
    skipping = {op.id for op in graph.ops if any(a.step_h > 1 for a in op.writes)}
    assert skipping
    planner = Planner.of(graph, target, _sizes)
    for budget in (None, planner.smallest_budget_bytes()):
        for segment in planner.plan(budget).segments:
            assert len(segment.ops) == 1 or not skipping & set(segment.ops)


def test_a_result_may_take_the_place_of_a_graph_input() -> None:
    """The memory of an input is free after its last read, as in Vela's plans."""
    b = Builder("in place")
    b.output(b.leaky_relu(b.input("x", (1, 8, 8, 16), "int16")))
    target = load_target("ethos-u55-128")
    assert target.accelerator is not None
    graph = build_graph(read_model(b.build(), "m"), target.accelerator.family)
    plan = Planner.of(graph, target, _sizes).plan(None)
    assert plan.sram_peak_bytes == 8 * 8 * 16 * 2
    assert check_plan(graph, target, plan) == []
