"""``npusched plan --frontier``: the best plan for every amount of SRAM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import npusched
from npusched.api import PlanOptions
from npusched.api.planning import prepare
from npusched.cli import run
from npusched.demos import demo
from npusched.errors import InfeasibleError
from npusched.hardware import load_target
from npusched.report.frontier import MAX_ROWS, read_frontier_json, spread

MODEL = "demo:ds_cnn"
TARGET = "ethos-u55-128"
ARGUMENTS = ("plan", MODEL, "-c", TARGET, "--frontier", "--no-vela")


def _out(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run([*ARGUMENTS, *arguments]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "sram"), [(TARGET, None), ("ethos-u65-256", "24KiB"), ("ethos-u85-256", "20KiB")]
)
def test_every_point_is_the_plan_of_its_budget(target: str, sram: str | None) -> None:
    report = npusched.frontier(MODEL, target, sram=sram, use_vela=False)
    peaks = [point.totals.sram_peak_bytes for point in report.points]
    values = [point.value for point in report.points]
    assert len(peaks) > 3
    assert peaks == sorted(set(peaks), reverse=True)
    assert values == sorted(set(values))
    for k in spread(len(peaks), 4):
        plan = npusched.plan(MODEL, target, sram=peaks[k], use_vela=False)
        assert plan.totals.cycles == report.points[k].totals.cycles
        assert plan.totals.sram_peak_bytes == peaks[k]
    with pytest.raises(InfeasibleError) as caught:
        npusched.plan(MODEL, target, sram=peaks[-1] - 16, use_vela=False)
    assert caught.value.values["smallest_feasible_bytes"] == peaks[-1]


def test_text_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = _out(capsys)
    form = json.loads(_out(capsys, "-f", "json"))
    report = read_frontier_json(json.dumps(form))
    rows = [row for row in text.splitlines() if row.endswith(("optimal", "%", "feasible"))]
    assert len(rows) == min(MAX_ROWS, len(report.points))
    assert len(text.splitlines()) <= 40
    assert "predicted" in text
    file = tmp_path / "frontier.txt"
    assert _out(capsys, "-o", str(file)) == ""
    assert file.read_text() == text


def test_a_budget_is_the_upper_end(capsys: pytest.CaptureFixture[str]) -> None:
    report = read_frontier_json(_out(capsys, "-f", "json", "--sram", "20KiB"))
    assert report.budget_bytes == 20 << 10
    assert report.points[0].totals.sram_peak_bytes <= 20 << 10


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    error = json.loads(_out(capsys, "-f", "json", "--sram", "64", code=1))["error"]
    assert error["kind"] == "infeasible"


def test_rows_are_spread_with_both_ends() -> None:
    assert spread(3, 5) == [0, 1, 2]
    assert spread(101, 5) == [0, 25, 50, 75, 100]


@pytest.mark.parametrize(("target", "sram"), [(TARGET, None), ("ethos-u65-256", "24KiB")])
def test_a_thinned_frontier_is_a_part_of_the_whole(target: str, sram: str | None) -> None:
    """No more plans than asked for, down to the floor, each the best for its SRAM."""
    resolved = load_target(target)
    options = PlanOptions(sram=sram, use_vela=False)
    ready = prepare(demo("ds_cnn"), name="m", target=resolved, options=options)
    planner = options.planner(ready.graph, resolved, ready.sizes.of)
    budget = options.budget_bytes(resolved)
    whole = {plan.sram_peak_bytes: plan.objective for plan in planner.frontier(budget)}
    assert len(whole) > 4
    for most in (4, 8):
        thin = planner.frontier(budget, most=most)
        assert len(thin) <= most
        peaks = [plan.sram_peak_bytes for plan in thin]
        assert peaks == sorted(set(peaks), reverse=True)
        assert peaks[-1] == min(whole)
        for plan in thin:
            best = min(value for peak, value in whole.items() if peak <= plan.sram_peak_bytes)
            assert plan.objective == pytest.approx(best)
