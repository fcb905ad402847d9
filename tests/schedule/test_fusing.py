"""Which ops may be striped together."""

from __future__ import annotations

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.demos import demo
from npusched.graph.build import build_graph
from npusched.graph.types import ScheduledOp
from npusched.hardware import load_target
from npusched.schedule import Planner
from npusched.tflite import read_model


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
