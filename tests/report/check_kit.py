"""Plans and hostile names that the tests of checks and differences share."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

import npusched
from npusched import PlanReport

TARGET: Final = "ethos-u55-128"

HOSTILE: Final = (
    "::error::x",
    "##[add-path]x",
    "%0A::warning::x",
    "\x1b[31mred\x1b[2J",
    "a\nb\r::set-output name=x::y",
    "</failure><x a='1'>&amp;]]>\x00",
    "q\"uo'te",
    "| **b** [l](http://e) `c` <img src=x> |",
    "@org/team https://e.x/y www.e.x a@e.x",
    "\u202egnp\u2028z",
    "€ 日本 \x85\ufeff",
    "x" * 5000,
)


@cache
def planned(
    model: str = "demo:ds_cnn", target: str = TARGET, sram: str | int | None = None
) -> PlanReport:
    """A plan without Vela, so that it is the same everywhere."""
    return npusched.plan(model, target, sram=sram, use_vela=False)


def renamed(report: PlanReport, name: str) -> PlanReport:
    """The plan of a model that is called ``name``, and so is everything in it."""
    replace = msgspec.structs.replace
    return replace(
        report,
        model=replace(report.model, name=name),
        target=replace(report.target, system_config=name),
        npusched_version=name,
        source_ops=tuple(replace(op, name=name, kind=name) for op in report.source_ops),
        ops=tuple(replace(op, name=name) for op in report.ops),
        warnings=(name,),
    )
