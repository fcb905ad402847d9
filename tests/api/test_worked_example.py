"""DESIGN's worked example, end to end through the general machinery, and a second block."""

from __future__ import annotations

import pytest

from npusched import api
from npusched.demos import demo, networks
from npusched.report import PlanReport


def _levels(report: PlanReport) -> dict[str, tuple[int, int]]:
    return {level.level: (level.traffic_bytes, level.dispatches) for level in report.fusion_levels}


@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_worked_example(config: str) -> None:
    """56x56x32 int8 is a = 100,352 B, 56x56x64 is b = 200,704 B.

    As stored 8 calls, 9a + 7b = 2,308,096; L0 6 calls, 7a + 5b = 1,705,984; L1 2 calls,
    3a + b = 501,760; L3 reads the input and writes the output once: a + b = 301,056, still 2 calls.
    """
    levels = _levels(api.plan(demo("block"), config, use_vela=False))
    assert levels["as_stored"] == (2_308_096, 8)
    assert levels["L0"] == (1_705_984, 6)
    assert levels["L1"] == (501_760, 2)
    assert levels["L3"] == (301_056, 2)


def test_second_block_by_hand() -> None:
    """30x20x24 -> 40 channels, 5x5 depthwise of stride 1: a = 14,400 B, b = 24,000 B.

    As stored 9a + 7b = 129,600 + 168,000 = 297,600. L0 7a + 5b = 100,800 + 120,000 = 220,800.
    L1 3a + b = 67,200. L3 a + b = 38,400.
    """
    content = networks.block(30, 20, 24, 40, kernel=5)
    levels = _levels(api.plan(content, "ethos-u55-128", use_vela=False))
    assert levels["as_stored"] == (297_600, 8)
    assert levels["L0"] == (220_800, 6)
    assert levels["L1"] == (67_200, 2)
    assert levels["L3"] == (38_400, 2)


def test_strided_block_by_hand() -> None:
    """Stride 2: 16x16x8 in (i = 2,048 B), 8x8x8 inside (a = 512 B), 8x8x16 out (b = 1,024 B).

    As stored: dw i + a; MUL, ADD, RELU6 6a; pw a + b; MUL, ADD, RELU6 6b:
    2,048 + 8 * 512 + 7 * 1,024 = 13,312. L0: i + a + 4a + a + b + 4b = 2,048 + 3,072 + 5,120
    = 10,240. L1: i + 2a + b = 4,096. L3: i + b = 3,072.
    """
    content = networks.block(16, 16, 8, 16, stride=2)
    levels = _levels(api.plan(content, "ethos-u55-128", use_vela=False))
    assert levels["as_stored"] == (13_312, 8)
    assert levels["L0"] == (10_240, 6)
    assert levels["L1"] == (4_096, 2)
    assert levels["L3"] == (3_072, 2)


def test_host_only_target_saves_calls_and_passes() -> None:
    """On a Cortex-M, fusion saves kernel calls and passes over memory."""
    report = api.plan(demo("block"), "cortex-m55", use_vela=False)
    levels = {level.level: level for level in report.fusion_levels}
    assert (levels["L0"].dispatches, levels["L1"].dispatches) == (6, 2)
    assert levels["L0"].cycles > levels["L1"].cycles > 0
    assert levels["L0"].energy_nj.typical > levels["L1"].energy_nj.typical
