"""SRAM-resident against a DRAM round trip, by hand, for two 1x1 convolutions on Ethos-U65-256."""

from __future__ import annotations

import pytest

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.graph.build import build_graph
from npusched.graph.types import ScheduledOp
from npusched.hardware import Target, load_target
from npusched.schedule import Plan, Planner, check_plan
from npusched.tflite import Builder, read_model


def _sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    assert op.weights is not None
    assert block.ofm_block.c == 16
    return WeightBytes(weights=256, scales=160)


@pytest.fixture(scope="module")
def target() -> Target:
    """SRAM 16 B/cycle, latency 32/32; DRAM 3.75 B/cycle, latency 500/250; 1 GHz; 256 MAC/cycle."""
    return load_target(
        "ethos-u65-256",
        system_config="Ethos_U65_High_End",
        memory_mode="Dedicated_Sram_384KB",
    )


@pytest.fixture(scope="module")
def planner(target: Target) -> Planner:
    builder = Builder("two")
    x = builder.input("x", (1, 32, 32, 16), "int8")
    y = builder.conv2d(builder.conv2d(x, 16, kernel=(1, 1)), 16, kernel=(1, 1))
    builder.output(y)
    model = read_model(builder.build(), "two")
    assert target.accelerator is not None
    graph = build_graph(model, target.accelerator.family)
    return Planner.of(graph, target, _sizes)


def _cycles(plan: Plan) -> list[int]:
    return [run.amounts.npu_cycles for segment in plan.segments for run in segment.runs]


def test_round_trip_by_hand(planner: Planner, target: Target) -> None:
    """Budget 0: both maps of 32*32*16 = 16,384 B cross DRAM in each convolution.

    Block 8x32x16: weights and scales (416 B) are read ceil(32/8) = 4 times = 1,664 B. DRAM is busy
    (16,384 + 1,664 + 16,384) / 3.75 = 9,181 cycles, more than the NPU needs: 2 * 9,181 = 18,362.
    Energy, pJ: 524,288 MAC * 0.3 + 68,864 B * 80 (DRAM) + 2 * 68,864 B * 0.6 (SHRAM) + 18,362
    cycles * (50.72 NPU + 10 CPU wait) + 18.362 us * 10 mW = 7,047,603.84.
    """
    plan = planner.plan(0)
    assert check_plan(planner.segments.graph, target, plan) == []
    assert _cycles(plan) == [9_181, 9_181]
    assert plan.amounts.moved("dram") == 68_864
    assert plan.amounts.moved("sram") == 0
    assert plan.amounts.energy_nj[1] == pytest.approx(7_047.60384, rel=1e-12)


def test_resident_by_hand(planner: Planner, target: Target) -> None:
    """The map between lies in SRAM (16,384 B). 4 blocks of 8*32*16 = 4,096 elements.

    MACs per block: 64 micro-blocks * 4 cycles * 2 = 512; output: 4,096 * 0.25 = 1,024.
    First: fill 500 + 4,096/3.75 = 1,592, drain 32 + 4,096/16 = 288, command overhead
    (|288 - 1,592| + 512 + 1,024) / 4 = 710: 4 * 1,024 + 710 + 1,592 + 288 = 6,686.
    Second: fill 288, drain 250 + 1,092 = 1,342, overhead (1,054 + 1,536) / 4 = 647:
    4,096 + 647 + 288 + 1,342 = 6,373. Sum 13,059: 5,303 cycles less than the round trip.
    Energy, pJ: 524,288 * 0.3 + 36,096 * 80 (DRAM) + 32,768 * 4 (SRAM) + 2 * 68,864 * 0.6
    + 13,059 * 60.72 + 13.059 us * 10 mW = 4,182,207.68.
    """
    plan = planner.plan(16_384)
    assert check_plan(planner.segments.graph, target, plan) == []
    assert _cycles(plan) == [6_686, 6_373]
    assert plan.sram_peak_bytes == 16_384
    assert (plan.amounts.moved("dram"), plan.amounts.moved("sram")) == (36_096, 32_768)
    assert plan.amounts.energy_nj[1] == pytest.approx(4_182.20768, rel=1e-12)


def test_one_byte_less_must_stripe(planner: Planner, target: Target) -> None:
    """16,383 B do not hold the map, but rows of it: the plan fuses instead of spilling."""
    plan = planner.plan(16_383)
    assert check_plan(planner.segments.graph, target, plan) == []
    assert [len(segment.ops) for segment in plan.segments] == [2]
    assert plan.sram_peak_bytes <= 16_383
    assert plan.amounts.moved("dram") < 68_864
