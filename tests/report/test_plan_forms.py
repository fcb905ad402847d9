"""A plan as Markdown, CSV, GitHub commands, SARIF, trace and overlay: golden, valid, inert."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

import npusched
from npusched.cli import options
from npusched.report.frontier_types import FrontierReport
from npusched.report.plan_findings import findings
from npusched.report.plan_forms import View, render
from npusched.report.plan_overlay import OVERLAY_METRICS, OverlayMetric
from npusched.report.plan_trace import MOST_SLICES
from npusched.report.types import PlanReport
from npusched.tflite import Builder, read_model
from npusched.vela.files import parse_layers
from tests.report.check_kit import HOSTILE as CHECK_HOSTILE
from tests.report.sarif_schema import SARIF

HOSTILE = (*CHECK_HOSTILE, "=HYPERLINK(1)", "+1", "-1", "@SUM(1)")
GOLDEN = Path(__file__).parent / "golden"
FORMS = {
    "md": "plan.md",
    "csv": "plan.csv",
    "github": "plan.github.txt",
    "sarif": "plan.sarif",
    "trace": "plan.trace.json",
    "overlay": "plan.overlay.json",
}


def _mixed(name: str = "op") -> bytes:
    """Two fused convolutions, one with 17 channels, and an op for the CPU."""
    b = Builder("mixed")
    x = b.input(name, (1, 16, 16, 8))
    x = b.conv2d(x, 17, 3, name=f"{name} a")
    x = b.conv2d(x, 8, 3, name=f"{name} b")
    y = b.tensor(f"{name} y", (1, 16, 16, 8), "int8", scale=0.1)
    b.custom(f"{name} custom", [x], [y])
    b.output(y)
    return b.build()


@lru_cache
def _plan(name: str = "op") -> PlanReport:
    return npusched.plan(_mixed(name), "ethos-u55-128", sram="10KiB", use_vela=False)


@lru_cache
def _frontier(name: str = "op") -> FrontierReport:
    return npusched.frontier(_mixed(name), "ethos-u55-128", use_vela=False)


@pytest.mark.parametrize("form", FORMS)
def test_golden(form: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / FORMS[form], render(_plan(), form, View(path="models/mixed.tflite")))


@pytest.mark.parametrize(("form", "file"), [("md", "frontier.md"), ("csv", "frontier.csv")])
def test_golden_frontier(form: str, file: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / file, render(_frontier(), form, View()))


def test_forms_of_the_command_line_are_those_there_are() -> None:
    assert tuple(options.OVERLAY_METRICS) == OVERLAY_METRICS == get_args(OverlayMetric)
    for form in set(options.PLAN_FORMATS) - {"html"}:  # a page has more than the plan
        assert render(_plan(), form, View())
    for form in options.FRONTIER_FORMATS:
        assert render(_frontier(), form, View())
    with pytest.raises(ValueError, match="no form 'yaml'"):
        render(_plan(), "yaml", View())
    with pytest.raises(ValueError, match="no form 'trace'"):
        render(_frontier(), "trace", View())


def test_csv_is_read_like_a_file_of_vela() -> None:
    """By the reader of Vela's own per-layer files, with the very figures of the plan."""
    plan = _plan()
    layers = parse_layers(render(plan, "csv", View()), "plan.csv")
    ops = {op.id: op for op in plan.ops}
    order = [ops[number] for segment in plan.segments for number in segment.ops]
    assert [layer.op_cycles for layer in layers] == [op.cycles for op in order]
    assert [layer.npu_cycles for layer in layers] == [op.npu_cycles for op in order]
    assert [layer.mac_count for layer in layers] == [op.macs for op in order]
    assert [layer.placement for layer in layers] == [op.placement.upper() for op in order]
    assert layers[-1].source_operator == "op custom"


def test_sarif_validates_and_says_all() -> None:
    plan = _plan()
    log = json.loads(render(plan, "sarif", View(path="a b/mixed.tflite")))
    jsonschema.validate(log, SARIF)
    results = log["runs"][0]["results"]
    assert [r["message"]["text"] for r in results] == [item.text for item in findings(plan)]
    assert {r["ruleId"] for r in results} >= {"NS101", "NS-CPU"}
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert uris == {"a%20b/mixed.tflite"}
    quiet = msgspec.structs.replace(plan, advice=(), source_ops=(), warnings=())
    log = json.loads(render(quiet, "sarif", View()))
    jsonschema.validate(log, SARIF)
    assert log["runs"][0]["results"] == []


def test_github_has_a_command_per_finding() -> None:
    plan = _plan()
    lines = render(plan, "github", View(path="m.tflite")).splitlines()
    assert lines[0].startswith("::notice file=m.tflite,title=npusched%3A ")
    assert len(lines) == 1 + len(findings(plan))
    assert all(line.startswith(("::notice ", "::warning ")) for line in lines)


@pytest.mark.parametrize("name", ["mixed", "demo:mobilenet", "demo:resnet8"])
def test_trace_nests(name: str) -> None:
    """On each thread every slice lies inside the one before it that is still open, or after it."""
    plan = _plan() if name == "mixed" else npusched.plan(name, "ethos-u55-128", sram="48KiB")
    trace = json.loads(render(plan, "trace", View()))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for track in {e["tid"] for e in slices}:
        _assert_nested([e for e in slices if e["tid"] == track])
    deep = [s for s in plan.segments if 1 < s.stripes <= MOST_SLICES // len(s.ops)]
    assert any("stripe 2 of" in e["name"] for e in slices) == bool(deep)
    whole = plan.totals.cycles / plan.target.clock_hz
    whole += plan.totals.cpu_cycles / plan.target.cpu.clock_hz
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(whole * 1e6, rel=1e-3)


def _assert_nested(slices: list[dict[str, Any]]) -> None:
    open_ends: list[int] = []
    for event in slices:
        begin = round(event["ts"] * 1000)
        end = begin + round(event["dur"] * 1000)
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], event["name"]
        if end > begin:
            open_ends.append(end)


@pytest.mark.parametrize("metric", OVERLAY_METRICS)
def test_overlay_is_keyed_by_op_index(metric: OverlayMetric) -> None:
    plan = npusched.plan("demo:resnet8", "ethos-u55-128", use_vela=False)
    form = json.loads(render(plan, "overlay", View(metric=metric)))
    assert list(form) == [plan.model.subgraph_name] == ["resnet8"]
    results = form["resnet8"]["results"]
    assert set(results) <= {str(op.index) for op in plan.source_ops}
    busy = {str(op.index) for op in plan.source_ops if op.placement in ("npu", "cpu")}
    fused = {
        str(index) for op in plan.ops for _, index in op.source_ops[1:]
    }  # counted with what they are fused into
    assert set(results) >= busy - fused
    if metric == "cycles":
        total = sum(each["value"] for each in results.values())
        assert total == sum(op.cycles + op.cpu_cycles for op in plan.ops if op.source_ops)
    unnamed = msgspec.structs.replace(
        plan, model=msgspec.structs.replace(plan.model, subgraph_name="")
    )
    assert list(json.loads(render(unnamed, "overlay", View(metric=metric)))) == ["main"]
    if metric == "placement":
        assert {each["value"] for each in results.values()} == {"npu"}


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_inert(name: str) -> None:
    content = _mixed(name)
    read_model(content, "m")
    plan, frontier = _plan(name), _frontier(name)
    plan = msgspec.structs.replace(
        plan, model=msgspec.structs.replace(plan.model, name=name), warnings=(name,)
    )
    for form in FORMS:
        _assert_inert(render(plan, form, View(path=name)), form)
    for form in ("md", "csv"):
        _assert_inert(render(frontier, form, View()), form)


def _assert_inert(text: str, form: str) -> None:
    for character in text:
        assert character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl")
    longest = {"trace": 10**9, "overlay": 10**9}.get(form, 12_000)
    assert max(len(line) for line in text.splitlines()) < longest
    match form:
        case "md":
            assert "<script" not in text
            assert not any(mark in text for mark in ("://", "www."))
            assert not re.search(r"(?<!\\)\]\(", text)
        case "csv":
            for row in csv.reader(io.StringIO(text)):
                assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
        case "github":
            assert all(line.startswith("::") for line in text.splitlines())
        case "sarif":
            jsonschema.validate(json.loads(text), SARIF)
        case _:
            json.loads(text)
