"""Executed figures of a comparison: the same bytes as an inspection of the file counts."""

from __future__ import annotations

from collections import Counter

import pytest

from npusched import api
from npusched.api.comparing import compare_report
from npusched.api.options import PlanOptions
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.report.compare_executed import count_streams
from npusched.report.compare_types import ExecutedStreams
from npusched.sim.figures import Purpose
from npusched.tflite import Builder
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")


@pytest.mark.parametrize("arena", [None, 16384])
@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-512"])
def test_the_bytes_are_those_of_an_inspection(config: str, arena: int | None) -> None:
    content, target = demo("resnet8"), load_target(config)
    options = VelaOptions(arena_cache_size_bytes=arena)
    report = compare_report(
        content, name="m", target=target, vela_options=options, options=PlanOptions(use_cache=False)
    )
    found = report.executed
    assert found is not None
    compiled = compile_model(content, target, options, cache=None).compiled
    inspected = api.inspect_report(compiled, name="m").totals
    assert (found.kernels, found.dmas) == (inspected.npu_ops, inspected.dmas)
    assert found.dma_bytes == inspected.dma_bytes
    assert found.sram_peak_bytes == inspected.sram_peak_bytes
    sums: Counter[str] = Counter()
    for traffic in inspected.traffic:
        if traffic.memory != "shram":
            sums["read"] += traffic.fetched_bytes
            sums["once"] += traffic.read_bytes
            sums["written"] += traffic.written_bytes
        if traffic.purpose is Purpose.WEIGHTS or traffic.purpose is Purpose.SCALES:
            sums["again"] += traffic.fetched_bytes - traffic.read_bytes
    assert sum(row.read_bytes for row in found.rows) == sums["read"]
    assert sum(row.once_bytes for row in found.rows) == sums["once"]
    assert sum(row.written_bytes for row in found.rows) == sums["written"]
    assert found.reread_bytes == sums["again"]
    assert found.staged_bytes == found.vela_staged_bytes


def test_nothing_on_the_npu_is_a_reason() -> None:
    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 8, 8, 4), "float32")))
    report = compare_report(
        b.build(),
        name="m",
        target=load_target("ethos-u55-128"),
        options=PlanOptions(use_cache=False),
    )
    assert report.executed is None
    assert "no NPU operator" in report.not_executed


def test_a_damaged_file_is_a_reason() -> None:
    target = load_target("ethos-u55-128")
    compiled = compile_model(demo("chain:4"), target, cache=None).compiled
    found = count_streams(compiled[:700], target, 0, {}, ())
    assert isinstance(found, str)
    assert found
    whole = count_streams(compiled, target, 0, {}, ())
    assert isinstance(whole, ExecutedStreams)
    assert whole.predicted_staged_bytes == 0
