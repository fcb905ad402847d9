"""A small model that has everything a page shows, and plans of it; names as bad as they get."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

import npusched
from npusched.report.compare_types import CompareReport
from npusched.report.frontier_types import FrontierReport
from npusched.report.types import PlanReport
from npusched.tflite import Builder

TARGET = "ethos-u55-128"
SRAM = "32KiB"

HOSTILE = (
    "<script>alert(1)</script>\"'&amp;</svg></title>\n\r\t\x00\x1b[31m\u202e\u2066\u2028"
    "{{7*7}}]]><!--" + "x" * 10_000
)
"""Markup, quotes, ends of elements, control and bidi characters, a template, and no end."""

FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028]"
)
"""What must not be in a page or a figure, whatever a name has."""


def model(name: str = "") -> bytes:
    """Convolutions with padded channels, a skip connection, a CPU op; ``name`` before names."""
    b = Builder("small")
    x = b.input(f"{name}image", (1, 32, 32, 8))
    a = b.conv2d(x, 8, 3, name=f"{name}stem/Relu;a/b/c")
    y = b.depthwise_conv2d(a, 3, name=f"{name}dw")
    y = b.conv2d(y, 8, 1, name=f"{name}pw")
    z = b.add(y, a, name=f"{name}sum")
    out = b.tensor(f"{name}out", (1, 32, 32, 8), "int8", scale=0.1)
    b.custom(f"{name}Resample", [z], [out])
    b.output(out)
    return b.build()


@lru_cache
def plan(name: str = "", sram: str | None = SRAM) -> PlanReport:
    """The plan of the model within a tight budget: it has a fused chain."""
    report = npusched.plan(model(name), TARGET, sram=sram, use_vela=False)
    return msgspec.structs.replace(
        report, model=msgspec.structs.replace(report.model, name=f"{name}small.tflite")
    )


@lru_cache
def frontier(name: str = "") -> FrontierReport:
    """The frontier of the model, Vela's plans in it."""
    return npusched.frontier(model(name), TARGET)


@lru_cache
def comparison(name: str = "") -> CompareReport:
    """The model beside Vela's schedule."""
    return npusched.compare(model(name), TARGET, sram="32KiB")


def stretched(report: PlanReport, times: int) -> PlanReport:
    """The report so many times in a row: a long model without the time that planning takes."""
    steps, kernels, ops = len(report.segments), len(report.ops), len(report.source_ops)

    def moved(refs: tuple[tuple[int, int], ...], k: int) -> tuple[tuple[int, int], ...]:
        return tuple((graph, index + k * ops) for graph, index in refs)

    replace = msgspec.structs.replace
    segments, runs, sources, allocation = [], [], [], []
    for k in range(times):
        segments += [
            replace(
                s,
                index=s.index + k * steps,
                ops=tuple(v + k * kernels for v in s.ops),
                source_ops=moved(s.source_ops, k),
                reads_from=tuple(v + k * steps for v in s.reads_from),
            )
            for s in report.segments
        ]
        runs += [
            replace(
                op,
                id=op.id + k * kernels,
                segment=op.segment + k * steps,
                source_ops=moved(op.source_ops, k),
                name=f"{op.name}_{k}",
            )
            for op in report.ops
        ]
        sources += [replace(op, index=op.index + k * ops) for op in report.source_ops]
        allocation += [
            replace(
                item,
                first_step=item.first_step + k * steps,
                end_step=item.end_step + k * steps,
                tensor=f"{item.tensor}_{k}",
            )
            for item in report.allocation
        ]
    return replace(
        report,
        segments=tuple(segments),
        ops=tuple(runs),
        source_ops=tuple(sources),
        allocation=tuple(allocation),
        live_sram_bytes=report.live_sram_bytes * times,
    )
