"""Traces: valid JSON in the trace event format, nested, disjoint, as long as the figure says."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from npusched.api import inspect_trace
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.report.execution_types import InspectReport
from npusched.report.trace import FIRST_DMA_TRACK, NPU_TRACK
from npusched.tflite import Builder
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")


def two_operators() -> bytes:
    """An op that stays on the host between two that do not."""
    b = Builder("split")
    x = b.conv2d(b.input("x", (1, 16, 16, 8)), 16)
    b.output(b.conv2d(b.quantize(b.dequantize(x)), 8))
    return b.build()


@pytest.fixture(scope="module", params=["ds_cnn-u55", "ds_cnn-u65", "two-u55"])
def traced(request: pytest.FixtureRequest) -> tuple[InspectReport, dict[str, Any]]:
    """A report and its trace, read back."""
    name, family = request.param.split("-")
    target = load_target("ethos-u55-128" if family == "u55" else "ethos-u65-256")
    content = two_operators() if name == "two" else demo(name)
    options = VelaOptions()
    made = compile_model(content, target, options, cache=None).compiled
    report, trace = inspect_trace(made, name=name, target=target)
    assert (report.totals.npu_operators > 1) == (name == "two")
    form = json.loads(trace)
    assert isinstance(form, dict)
    return report, form


def tracks(form: dict[str, Any]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """(begin, end, name) of slices in nanoseconds, by operator and track."""
    found = defaultdict(list)
    for event in form["traceEvents"]:
        if event["ph"] == "X":
            begin = round(1000 * event["ts"])
            end = begin + round(1000 * event["dur"])
            found[event["pid"], event["tid"]].append((begin, end, event["name"]))
    return dict(found)


def test_slices_nest_and_do_not_overlap(traced: tuple[InspectReport, dict[str, Any]]) -> None:
    """Any two slices of a track are apart, or one holds the other; kernels are apart."""
    report, form = traced
    kernels = 0
    for (_, track), slices in tracks(form).items():
        assert all(begin <= end for begin, end, _ in slices)
        for number, (begin, end, _) in enumerate(slices):
            for other_begin, other_end, _ in slices[number + 1 :]:
                apart = end <= other_begin or other_end <= begin
                inside = begin <= other_begin and other_end <= end
                assert apart or inside
        if track == NPU_TRACK:
            whole, *inner = slices
            assert whole[2].startswith("operator")
            assert all(a[1] <= b[0] for a, b in pairwise(inner))
            kernels += len(inner)
    assert kernels == report.totals.npu_ops


def test_the_trace_ends_with_the_figure(traced: tuple[InspectReport, dict[str, Any]]) -> None:
    report, form = traced
    assert report.timing is not None
    total = round(1e9 * report.timing.latency_s)
    assert max(end for slices in tracks(form).values() for _, end, _ in slices) == total
    counters = [event for event in form["traceEvents"] if event["ph"] == "C"]
    assert max(round(1000 * event["ts"]) for event in counters) == total
    assert form["otherData"]["cycles"] == report.timing.cycles
    assert sum(report.timing.operator_cycles) == report.timing.cycles
    assert sum(report.timing.operator_cycles) >= report.timing.kernel_cycles


def test_tracks_have_names_and_events_the_fields_of_the_format(
    traced: tuple[InspectReport, dict[str, Any]],
) -> None:
    """Every slice is on a named track; DMAs are all there, with their bytes."""
    report, form = traced
    named = {
        (event["pid"], event["tid"])
        for event in form["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert set(tracks(form)) <= named
    dmas = 0
    for event in form["traceEvents"]:
        assert event["ph"] in ("M", "X", "C")
        assert {"name", "pid"} <= set(event)
        if event["ph"] == "X" and event["tid"] >= FIRST_DMA_TRACK:
            dmas += event["args"]["bytes"]
        if event["ph"] == "C":
            assert event["args"]["bytes"] >= 0
    assert dmas == report.totals.dma_bytes
    times = [event["ts"] for event in form["traceEvents"] if event["ph"] == "C"]
    assert len(set(times)) > 2


def test_ops_have_their_times(traced: tuple[InspectReport, dict[str, Any]]) -> None:
    """The times of the ops in the report are those of the slices."""
    report, form = traced
    assert report.timing is not None
    clock = report.timing.clock_hz
    slices = tracks(form)
    for op in report.ops:
        assert op.start_cycle is not None
        assert op.end_cycle is not None
        before = sum(report.timing.operator_cycles[: op.operator])
        begin = round((before + op.start_cycle) / clock * 1e9)
        end = round((before + op.end_cycle) / clock * 1e9)
        mine = [each for (pid, _), found in slices.items() if pid == op.operator for each in found]
        assert any(each[:2] == (begin, end) for each in mine)
