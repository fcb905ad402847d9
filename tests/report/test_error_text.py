"""Errors for people: few lines, all figures of an infeasible budget, nothing that can do harm."""

from __future__ import annotations

import pytest

import npusched
from npusched.errors import InfeasibleError, ModelError, VelaError
from npusched.report import render_error, render_warning


def test_three_lines() -> None:
    text = render_error(ModelError("no such file: x", "it is not there", "give another"))
    assert text == "error: no such file: x\n  why: it is not there\n  hint: give another\n"


def test_empty_parts_are_left_out() -> None:
    assert render_error(VelaError("Vela crashed")) == "error: Vela crashed\n"


def test_hostile_texts_are_inert() -> None:
    text = render_error(ModelError("\x1b[2Jmodel\u202e", "a\nb", "c\x00" + "d" * 10_000), width=60)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a\\x0ab" in text
    assert max(len(line) for line in text.splitlines()) <= 60
    assert len(text.splitlines()) < 20
    assert "\x1b" not in render_warning("batch of '\x1b[2J' is dynamic")


@pytest.mark.parametrize("target", ["ethos-u55-128", "renesas-ra8p1", "cortex-m55"])
def test_an_infeasible_budget_names_what_is_alive(target: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        npusched.plan("demo:mobilenet", target, sram=1000, use_vela=False)
    error = caught.value
    text = render_error(error)
    assert f"{error.values['smallest_feasible_bytes']}" in text
    assert "alive there" in text
    assert len(text.splitlines()) <= 15
    peak = error.values["peak"]
    assert isinstance(peak, dict)
    live = peak["live"]
    assert isinstance(live, list)
    largest = live[0]
    assert isinstance(largest, dict)
    assert str(largest["tensor"]) in text
