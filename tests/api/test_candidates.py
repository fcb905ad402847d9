"""Vela's own schedules compete with ours: the answer is never worse, and says whose it is."""

from __future__ import annotations

import math

import pytest

import npusched
from npusched.api.options import PlanOptions
from npusched.api.planning import plan_report
from npusched.hardware import load_target
from npusched.report.types import CandidateMode
from npusched.tflite import Builder

TARGET = "ethos-u55-128"


@pytest.fixture(scope="module")
def model() -> bytes:
    """17 channels: Vela slices the weights into 16 and 1, and keeps both in one buffer."""
    builder = Builder("seventeen")
    x = builder.input("x", (1, 64, 64, 3), "int8")
    for _ in range(3):
        x = builder.conv2d(x, 17, kernel=(3, 3))
    builder.output(x)
    return builder.build()


@pytest.fixture(scope="module")
def swept(model: bytes) -> npusched.FrontierReport:
    return npusched.frontier(model, TARGET, candidates="sweep", max_compilations=80)


def test_no_plan_of_velas_betters_the_frontier(swept: npusched.FrontierReport) -> None:
    assert len(swept.vela) > 10
    for theirs in swept.vela:
        best = min(
            (p.value for p in swept.points if p.totals.sram_peak_bytes <= theirs.sram_peak_bytes),
            default=math.inf,
        )
        assert best <= theirs.value


def test_points_that_vela_wins_say_so(swept: npusched.FrontierReport) -> None:
    won = [point for point in swept.points if point.source == "vela"]
    assert won, "this model was made so that Vela wins somewhere"
    values = {(t.value, t.sram_peak_bytes, t.options) for t in swept.vela}
    for point in won:
        assert (point.value, point.totals.sram_peak_bytes, point.options) in values
        assert point.own_value is None or point.own_value > point.value
    for point in swept.points:
        if point.source == "npusched":
            assert point.own_value == point.value
            assert point.options == ""


def test_a_budget_that_vela_wins(model: bytes, swept: npusched.FrontierReport) -> None:
    point = next(point for point in swept.points if point.source == "vela")
    budget = point.totals.sram_peak_bytes

    def planned(mode: CandidateMode) -> npusched.PlanReport:
        return npusched.plan(model, TARGET, sram=budget, candidates=mode, max_compilations=80)

    with_vela, alone = planned("sweep"), planned("none")
    assert with_vela.candidates.shown == "vela"
    assert with_vela.bound.value == point.value < alone.bound.value
    assert with_vela.totals.sram_peak_bytes <= budget
    assert with_vela.candidates.ours is not None
    assert with_vela.candidates.ours.value == alone.bound.value
    assert with_vela.bound.proof == "feasible"
    assert "Vela's own schedule" in with_vela.bound.scope
    assert alone.candidates.mode == "none"
    assert alone.candidates.vela is None


def test_by_default_vela_is_asked_for_this_budget(model: bytes) -> None:
    facts = npusched.plan(model, TARGET, sram="128KiB").candidates
    assert (facts.mode, facts.results, facts.plans, facts.shown) == ("asked", 1, 1, "npusched")
    assert facts.ours is not None
    assert facts.vela is None or "arena limit 131072" in facts.vela.options


def test_without_vela_nobody_competes(model: bytes) -> None:
    facts = npusched.plan(model, TARGET, use_vela=False).candidates
    assert (facts.mode, facts.results, facts.vela) == ("none", 0, None)


def test_progress_is_told(model: bytes) -> None:
    seen: list[tuple[int, int]] = []
    plan_report(
        model,
        name="seventeen",
        target=load_target(TARGET),
        options=PlanOptions(candidates="sweep", max_compilations=5),
        progress=lambda compilations, distinct: seen.append((compilations, distinct)),
    )
    assert [compilations for compilations, _ in seen] == [1, 2, 3, 4, 5]
