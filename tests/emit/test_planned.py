"""Plans emitted: at budgets, with forced cascades, at random; exact, clean, within the promise."""

from __future__ import annotations

import random

import pytest

from benchmarks.emit_plans import forced_plan, random_plan, with_random_blocks
from npusched.emit.gate import used_bytes
from npusched.schedule import Plan
from npusched.schedule.rows import Policy
from npusched.schedule.types import BufferKind
from npusched.sim.proof import Verdict, prove_compiled
from npusched.tflite import Builder
from tests.emit.emitting_kit import Ready, ready, ready_from

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")


def check(made: Ready, plan: Plan, inputs: int = 2) -> None:
    """The file passes the gate and equals the reference, intermediates included."""
    emitted = made.emit(plan)
    written, gate = made.gate(emitted)
    assert [(each.name, each.findings[:2]) for each in gate.failed] == []
    proof = prove_compiled(made.content, written, inputs)
    assert proof.verdict is Verdict.EQUAL
    assert proof.intermediates.missing == ()


@pytest.mark.parametrize(
    ("name", "config", "allow"),
    [
        ("resnet8", "ethos-u55-128", ()),
        ("resnet8", "ethos-u55-64", ("overlap",)),
        ("resnet8", "ethos-u65-512", ("staged-input",)),
    ],
)
def test_plans_at_budgets(name: str, config: str, allow: tuple[str, ...]) -> None:
    """Without a limit, and with the least SRAM; at most what was promised is used."""
    made = ready(name, config, allow)
    largest = made.planner.plan(None)
    for plan in (largest, made.planner.plan(made.planner.smallest_budget_bytes())):
        check(made, plan)
        assert used_bytes(made.emit(plan), made.target) <= plan.sram_peak_bytes


@pytest.mark.parametrize(("rows", "policy"), [(1, Policy.DEMAND), (3, Policy.ALIGNED)])
def test_forced_cascades_with_residual_joins(rows: int, policy: Policy) -> None:
    made = ready("resnet8", "ethos-u55-128")
    ends = [j for j in made.planner.segments.ends(0) if j > 3]
    plan = forced_plan(made.planner, {0: (max(ends), rows, policy)})
    rolling = [b for b in plan.buffers if b.kind is BufferKind.ROLLING]
    assert len(rolling) >= 4
    check(made, plan)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("resnet8", "ethos-u55-128"),
        ("ds_cnn", "ethos-u55-32"),
        ("resnet8", "ethos-u65-256"),
        ("unet", "ethos-u65-512"),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_random_plans(name: str, config: str, seed: int) -> None:
    rng = random.Random(f"{name} {config} {seed}")
    made = ready(name, config)
    plan = random_plan(made.planner, rng)
    if seed % 2:
        plan = with_random_blocks(plan, made.template, dict(made.match.kernels), rng)
    check(made, plan, 1)


def test_the_same_plan_gives_the_same_file() -> None:
    made = ready("resnet8", "ethos-u55-128")
    plan = made.planner.plan(None)
    assert made.gate(made.emit(plan))[0] == made.gate(made.emit(plan))[0]


def test_average_pools_that_are_padded_above_and_below_only_run_whole() -> None:
    """In the middle they would have no padding, and the NPU would divide in another way."""
    b = Builder()
    x = b.input("x", (1, 24, 12, 16))
    x = b.conv2d(x, 16, (3, 3))
    x = b.avg_pool2d(x, (3, 1), stride=1, padding="SAME")
    x = b.conv2d(x, 16, (3, 3))
    b.output(x)
    made = ready_from(b.build(), "ethos-u55-128")
    plan = made.planner.plan(made.planner.smallest_budget_bytes())
    assert [s.ops for s in plan.segments if 1 in s.ops] == [(1,)]
    check(made, plan)
