"""What may be allowed: never worse, checked, computes the same, and leaves other plans alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.plan_damage import differing, moved, offset_of
from npusched.cli.options import SWITCHES
from npusched.demos import demo
from npusched.errors import SimError
from npusched.hardware import load_target
from npusched.schedule import Plan, Planner, Switch, check_plan
from npusched.schedule.offchip_limit import offchip_bytes
from npusched.sim.execute_plan import execute_plan
from tests.sim.plan_kit import graph_for, interpreted, runs_on_npu, sizes
from tests.sim.sim_models import corpus_model

CONFIGS = ("ethos-u55-128", "ethos-u65-256")
DEMOS = ("ds_cnn", "block", "unet")


@lru_cache(maxsize=16)
def _planner(content: bytes, config: str, *switches: Switch) -> Planner:
    target = load_target(config)
    return Planner.of(graph_for(content, config), target, sizes, switches=frozenset(switches))


def _budgets(planner: Planner) -> list[int]:
    low, high = planner.smallest_budget_bytes(), planner.plan(None).sram_peak_bytes
    return [low, (3 * low + high) // 4, (low + high) // 2, high]


def _never_worse(content: bytes, config: str, switch: Switch) -> list[Plan]:
    """Plans with the switch at several budgets; each at least as good as without it."""
    plain, more = _planner(content, config), _planner(content, config, switch)
    graph, target = graph_for(content, config), load_target(config)
    plans = []
    for budget in _budgets(plain):
        plan = more.plan(budget)
        assert check_plan(graph, target, plan) == []
        assert plan.objective <= plain.plan(budget).objective * (1 + 1e-12)
        plans.append(plan)
    assert more.smallest_budget_bytes() <= plain.smallest_budget_bytes()
    return plans


@pytest.mark.parametrize("switch", list(Switch))
@pytest.mark.parametrize("config", [*CONFIGS, "ethos-u85-256"])
@pytest.mark.parametrize("name", DEMOS)
def test_never_worse(name: str, config: str, switch: Switch) -> None:
    content = demo(name)
    for plan in _never_worse(content, config, switch):
        if config in CONFIGS and runs_on_npu(graph_for(content, config)):
            inputs, values = interpreted(content, config)
            assert differing(execute_plan(graph_for(content, config), plan, inputs), values) == []


@pytest.mark.parametrize("switch", list(Switch))
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["mlpt_kws", "mlpt_resnet8"])
def test_never_worse_on_corpus(corpus_dir: Path, name: str, config: str, switch: Switch) -> None:
    content = corpus_model(corpus_dir, name)
    inputs, values = interpreted(content, config)
    for plan in _never_worse(content, config, switch)[::2]:
        assert differing(execute_plan(graph_for(content, config), plan, inputs), values) == []


@pytest.mark.parametrize("config", CONFIGS)
def test_all_together(config: str) -> None:
    content = demo("ds_cnn")
    graph, target = graph_for(content, config), load_target(config)
    plain, more = _planner(content, config), _planner(content, config, *Switch)
    inputs, values = interpreted(content, config)
    for budget in _budgets(plain):
        plan = more.plan(budget)
        assert check_plan(graph, target, plan) == []
        assert plan.objective <= plain.plan(budget).objective
        for switch in Switch:
            alone = _planner(content, config, switch).plan(budget).objective
            assert plan.objective <= alone * (1 + 1e-9)
        assert differing(execute_plan(graph, plan, inputs), values) == []
        for switch in Switch:
            assert switch.value.replace("-", " ") in plan.bound.scope


def test_the_command_line_knows_all() -> None:
    assert [switch.value for switch in Switch] == SWITCHES


def test_a_staged_input_is_copied_once_and_pays() -> None:
    content, config = demo("mobilenet"), "ethos-u65-256"
    graph, target = graph_for(content, config), load_target(config)
    before = _planner(content, config).plan(128 * 1024)
    after = _planner(content, config, Switch.STAGED_INPUT).plan(128 * 1024)
    assert after.objective < 0.7 * before.objective
    (copy,) = after.segments[0].copies
    assert (copy.tensor, copy.source, copy.destination) == (*graph.inputs, "dram", "sram")
    assert not any(segment.copies for segment in after.segments[1:])
    assert dict(after.homes)[copy.tensor] == "dram"
    moved = after.amounts.npu_cycles - sum(
        run.amounts.npu_cycles for segment in after.segments for run in segment.runs
    )
    assert moved == copy.amounts.npu_cycles > copy.size_bytes / 16
    lost = replace(after.segments[0], copies=())
    broken = replace(after, segments=(lost, *after.segments[1:]))
    assert check_plan(graph, target, broken) != []


def test_a_staged_input_counts_off_the_chip() -> None:
    """The copy is part of what is limited; without room for it the input stays."""
    content, config = demo("ds_cnn"), "ethos-u65-256"
    graph, target = graph_for(content, config), load_target(config)
    free = _planner(content, config, Switch.STAGED_INPUT).plan(16 * 1024)
    used = offchip_bytes(target, free)
    stays = _planner(content, config).plan(16 * 1024)
    for limit in (used, used - 1):
        planner = Planner.of(
            graph,
            target,
            sizes,
            switches=frozenset({Switch.STAGED_INPUT}),
            max_offchip_bytes=limit,
        )
        plan = planner.plan(16 * 1024)
        assert check_plan(graph, target, plan) == []
        assert offchip_bytes(target, plan) <= limit
        assert free.objective <= plan.objective
        assert planner.offchip is not None
        least = planner.offchip.search.least_offchip(16 * 1024)
        assert least is not None
        assert least.offchip_bytes <= offchip_bytes(target, stays)


def _overlapped(config: str) -> tuple[Plan, int]:
    """A plan with a result over its input, and the number of that buffer."""
    plan = _planner(demo("ds_cnn"), config, Switch.OVERLAP).plan(
        _planner(demo("ds_cnn"), config, Switch.OVERLAP).smallest_budget_bytes()
    )
    return plan, next(k for k, buffer in enumerate(plan.buffers) if buffer.shift_bytes)


def test_overlap_needs_less_sram() -> None:
    config = "ethos-u55-128"
    plan, number = _overlapped(config)
    plain = _planner(demo("ds_cnn"), config).smallest_budget_bytes()
    assert plan.sram_peak_bytes < 0.9 * plain
    buffer = plan.buffers[number]
    old = next(b for b in plan.buffers if b.tensor == buffer.in_place_of)
    at, old_at = (offset_of(plan, plan.buffers.index(b)) for b in (buffer, old))
    assert at == old_at - buffer.shift_bytes
    assert at + buffer.size_bytes > old_at


def test_one_row_more_is_refused() -> None:
    """A smaller shift lets the result run into rows that are still needed."""
    content, config = demo("ds_cnn"), "ethos-u55-128"
    graph, target = graph_for(content, config), load_target(config)
    plan, number = _overlapped(config)
    inputs, values = interpreted(content, config)
    assert check_plan(graph, target, plan) == []
    assert differing(execute_plan(graph, plan, inputs), values) == []
    row_bytes = graph.feature_maps[plan.buffers[number].tensor].row_bytes
    assert plan.buffers[number].shift_bytes % row_bytes == 0  # so 16 bytes less reach a row more
    buffers = list(plan.buffers)
    shift = buffers[number].shift_bytes - 16
    buffers[number] = replace(buffers[number], shift_bytes=shift)
    at = offset_of(plan, number) + 16
    broken = moved(replace(plan, buffers=tuple(buffers)), number, at)
    assert any("over which" in fault for fault in check_plan(graph, target, broken))
    with pytest.raises(SimError):
        execute_plan(graph, broken, inputs)


def test_an_overlap_is_no_excuse() -> None:
    """Elsewhere, undeclared, or while the input is still needed: refused."""
    content, config = demo("ds_cnn"), "ethos-u55-128"
    graph, target = graph_for(content, config), load_target(config)
    plan, number = _overlapped(config)
    buffers = list(plan.buffers)
    undeclared = [*buffers]
    undeclared[number] = replace(buffers[number], in_place_of=None, shift_bytes=0)
    old = next(k for k, b in enumerate(buffers) if b.tensor == buffers[number].in_place_of)
    longer = [*buffers]
    longer[old] = replace(buffers[old], end_step=buffers[old].end_step + 1)
    elsewhere = moved(plan, number, offset_of(plan, number) + 16)
    for broken in (
        replace(plan, buffers=tuple(undeclared)),
        replace(plan, buffers=tuple(longer)),
        elsewhere,
    ):
        assert check_plan(graph, target, broken) != []


@pytest.mark.parametrize("seed", [0, 1, 3, 6, 8, 11, 14, 16, 21, 30])
def test_random_networks_with_all_switches(seed: int) -> None:
    """Seed 16: a shorter op hides less of a copy, so chosen blocks alone are worse there."""
    pytest.importorskip("ai_edge_litert", reason="the module of the networks needs LiteRT")
    from tests.sim.test_random_networks import network

    content, _ = network(seed)
    config = CONFIGS[seed % 2]
    graph, target = graph_for(content, config), load_target(config)
    if not runs_on_npu(graph):
        pytest.skip("a part of this network runs on the CPU")
    inputs, values = interpreted(content, config)
    plain, more = _planner(content, config), _planner(content, config, *Switch)
    for budget in (*_budgets(plain), None):
        plan = more.plan(budget)
        assert check_plan(graph, target, plan) == []
        assert differing(execute_plan(graph, plan, inputs), values) == []
        assert plan.objective <= plain.plan(budget).objective * (1 + 1e-12)
    smallest = more.plan(more.smallest_budget_bytes())
    assert check_plan(graph, target, smallest) == []
    assert differing(execute_plan(graph, smallest, inputs), values) == []
