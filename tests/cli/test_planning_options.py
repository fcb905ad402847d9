"""Limits and switches of ``npusched plan``: what they do and how they are reported."""

from __future__ import annotations

import json

import pytest

import npusched
from npusched.cli import run
from npusched.errors import InfeasibleError, TargetError
from npusched.report.units import human_bytes

MODEL = "demo:ds_cnn"
ARGUMENTS = ("plan", MODEL, "-c", "ethos-u65-256", "--no-vela", "--sram", "16KiB")


def _form(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    assert run([*ARGUMENTS, *arguments, "-f", "json"]) == code
    streams = capsys.readouterr()
    form = json.loads(streams.out)
    assert isinstance(form, dict)
    return form


def _moved(form: dict[str, object]) -> int:
    totals = form["totals"]
    assert isinstance(totals, dict)
    return int(totals["dram_bytes"]) + int(totals["flash_bytes"])


def test_the_limit_is_kept_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    free = _form(capsys)
    assert free["max_offchip_bytes"] is None
    limit = _moved(free) - 1
    limited = _form(capsys, "--max-offchip-bytes", str(limit))
    assert limited["max_offchip_bytes"] == limit
    assert _moved(limited) <= limit
    assert f"at most {limit} bytes off the chip" in str(limited["bound"])
    same = _form(capsys, "--max-offchip-bytes", str(limit + 1))
    for key in ("segments", "allocation", "totals"):
        assert same[key] == free[key]


def test_a_limit_too_low_names_the_lowest(capsys: pytest.CaptureFixture[str]) -> None:
    error = _form(capsys, "--max-offchip-bytes", "100", code=1)["error"]
    assert isinstance(error, dict)
    least = error["smallest_feasible_offchip_bytes"]
    assert (error["have_offchip_bytes"], error["budget_bytes"]) == (100, 16384)
    assert error["excess_offchip_bytes"] == least - 100
    assert _moved(_form(capsys, "--max-offchip-bytes", str(least))) == least
    _form(capsys, "--max-offchip-bytes", str(least - 1), code=1)


def test_a_frontier_within_a_limit() -> None:
    free = npusched.frontier(MODEL, "ethos-u65-256", sram="16KiB", use_vela=False)
    limit = free.points[0].totals.dram_bytes + free.points[0].totals.flash_bytes
    report = npusched.frontier(
        MODEL, "ethos-u65-256", sram="16KiB", use_vela=False, max_offchip_bytes=limit
    )
    assert report.points[0] == free.points[0]
    assert all(p.totals.dram_bytes + p.totals.flash_bytes <= limit for p in report.points)
    assert f"at most {human_bytes(limit)} off the chip" in _text(report)
    with pytest.raises(InfeasibleError, match="off the chip"):
        npusched.frontier(MODEL, "ethos-u65-256", use_vela=False, max_offchip_bytes=1)


def _text(report: npusched.FrontierReport) -> str:
    from npusched.report import render_frontier

    return render_frontier(report, width=200)


def test_what_is_allowed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    free = _form(capsys)
    form = _form(capsys, "--allow", "staged-input")
    assert (free["allowed"], form["allowed"]) == ([], ["staged-input"])
    assert "with staged input (gains under Vela's model)" in str(form["bound"])
    assert run([*ARGUMENTS, "--allow", "staged-input"]) == 0
    assert "under Vela's model" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(TargetError, match="nothing is called 'magic'"):
        npusched.plan(MODEL, "ethos-u65-256", use_vela=False, allow=["magic"])
