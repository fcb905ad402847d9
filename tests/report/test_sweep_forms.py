"""A sweep in its forms: the schema, sums, and a text that fits a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npusched.report.sweep_build import build_sweep
from npusched.report.sweep_docs import SWEEP_DOCS
from npusched.report.sweep_json import SWEEP_SCHEMA_FILE, sweep_schema, sweep_schema_text
from npusched.report.sweep_text import render_sweep
from npusched.report.sweep_types import SweepReport, SweepRow, SweepStatus


def _row(
    model: str, target: str, budget: int | None, latency_s: float | None, error: str = ""
) -> SweepRow:
    missing: SweepStatus = "error" if error else "infeasible"
    return SweepRow(
        key=f"{model}-{target}-{budget}",
        model=model,
        model_sha256=model,
        target=target,
        target_sha256=target,
        setting_sha256="s",
        budget_bytes=budget,
        status=missing if latency_s is None else "ok",
        latency_s=latency_s,
        proof=None if latency_s is None else "optimal",
        plan_source=None if latency_s is None else "npusched",
        error=error,
        npusched_version="0",
        vela_version=None,
        finished_at="",
        seconds=0.0,
    )


def _report(rows: list[SweepRow]) -> SweepReport:
    return build_sweep(rows, store="r.sqlite", settings={"s": "{}"}, copies=1, known_before=2)


def test_the_shipped_schema_is_the_generated_one(golden: Callable[[Path, str], None]) -> None:
    golden(SWEEP_SCHEMA_FILE, sweep_schema_text())


def test_every_field_is_documented() -> None:
    definitions: Any = sweep_schema()["$defs"]
    assert set(definitions) == set(SWEEP_DOCS)
    for name, part in definitions.items():
        assert list(part["properties"]) == list(SWEEP_DOCS[name])


def test_sums_by_hand() -> None:
    """Target t, budget 8: a takes 4 s (least 1), b takes 9 s (its least): mean 6, slower by 2."""
    report = _report(
        [
            _row("a", "t", 8, 4.0),
            _row("a", "t", 16, 1.0),
            _row("b", "t", 8, 9.0),
            _row("b", "t", 16, None),
            _row("c", "t", 8, None, "broken"),
            _row("c", "t", 16, None, "broken"),
            _row("a", "u", 8, 100.0),
        ]
    )
    first, second = report.targets
    assert (first.models, first.jobs, first.ok, first.infeasible, first.errors) == (3, 6, 3, 1, 2)
    assert first.geomean_latency_s == pytest.approx(36.0 ** (1 / 3))
    assert (second.target, second.jobs, second.slowdown) == ("u", 1, 1.0)
    eight = report.budgets[0]
    assert (eight.budget_bytes, eight.jobs, eight.ok, eight.optimal) == (8, 3, 2, 2)
    assert eight.geomean_latency_s == pytest.approx(6.0)
    assert eight.slowdown == pytest.approx(2.0)
    empty = _report([_row("c", "t", 8, None, "broken")]).targets[0]
    assert (empty.geomean_latency_s, empty.slowdown) == (None, None)


def test_a_large_sweep_fits_a_screen() -> None:
    rows = [
        _row(f"m{model}", f"t{target}", budget, None if model % 2 else 1.0, "no \x1b[2J" * 9)
        for model in range(40)
        for target in range(3)
        for budget in (*(1 << k for k in range(10, 20)), None)
    ]
    for width in (40, 80, 100, 200):
        lines = render_sweep(_report(rows), width=width).splitlines()
        assert all(len(line) <= width for line in lines)
        assert "\x1b" not in "".join(lines)
    assert len(render_sweep(_report(rows), width=100).splitlines()) <= 40
    assert "14 more, see --format json" in "\n".join(lines)


def test_names_of_models_cannot_move_the_cursor() -> None:
    text = render_sweep(_report([_row("m\x1b[1A\n", "t\r", 8, None, "broken")]), colour=False)
    assert "\x1b" not in text
    assert "\r" not in text
