"""Inspections and proofs as published: read back, in 40 lines, at any width."""

from __future__ import annotations

import json

import msgspec
import pytest

from npusched.api import inspect_report, prove_report
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.report.execution_text import (
    render_execution_json,
    render_inspect_text,
    render_prove_text,
)
from npusched.report.execution_types import (
    DifferenceFacts,
    HazardFacts,
    InspectReport,
    OutputFacts,
    ProveReport,
)
from npusched.report.layout import cell_width
from npusched.sim.hazards import HazardKind
from npusched.sim.proof import Verdict
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

HAZARD = HazardFacts(
    operator=0,
    kind=HazardKind.MISSING_DMA_WAIT,
    offset_bytes=12,
    where="kernel 0 (conv)",
    why="reads what DMA 0 writes",
)


@pytest.fixture(scope="module")
def inspected() -> InspectReport:
    target = load_target("ethos-u55-128")
    made = compile_model(demo("ds_cnn"), target, cache=None).compiled
    return inspect_report(made, name="ds_cnn_vela.tflite", target=target)


@pytest.fixture(scope="module")
def proved() -> ProveReport:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    target = load_target("ethos-u65-512")
    return prove_report(demo("ds_cnn"), name="ds_cnn", target=target, inputs=2, use_cache=False)


def test_an_inspection_reads_back(inspected: InspectReport) -> None:
    text = render_execution_json(inspected)
    assert msgspec.json.decode(text, type=InspectReport) == inspected
    form = json.loads(text)
    form["totals"]["cycels"] = 1
    with pytest.raises(msgspec.ValidationError, match="cycels"):
        msgspec.json.decode(json.dumps(form), type=InspectReport)


def test_a_proof_reads_back(proved: ProveReport) -> None:
    assert msgspec.json.decode(render_execution_json(proved), type=ProveReport) == proved


@pytest.mark.parametrize("width", [40, 80, 140])
def test_an_inspection_fits_the_terminal(inspected: InspectReport, width: int) -> None:
    text = render_inspect_text(inspected, width=width, colour=False)
    assert max(cell_width(row) for row in text.splitlines()) <= width
    assert "made for ethos-u55-128" in text
    assert width == 40 or len(text.splitlines()) <= 40


def test_findings_are_counted_and_the_first_ones_shown(inspected: InspectReport) -> None:
    many = msgspec.structs.replace(inspected, hazards=(HAZARD,) * 50)
    text = render_inspect_text(many, width=100, colour=False)
    assert "50 missing dma wait" in text
    assert text.count("reads what DMA 0 writes") == 4
    assert len(text.splitlines()) <= 40


def test_a_proof_in_text(proved: ProveReport) -> None:
    text = render_prove_text(proved, width=100, colour=False)
    assert "equal on 2 inputs (seed 0), proof mode" in text
    assert "hazards   none" in text
    assert len(text.splitlines()) <= 40


def test_a_failed_proof_in_text(proved: ProveReport) -> None:
    """Output, first kernel, place and values, the known exception; terminal codes are escaped."""
    difference = DifferenceFacts(
        operator=0,
        kernel="kernel 3 (conv)",
        offset_bytes=96,
        tensor="evil\x1b[31m",
        op=2,
        kind="CONV_2D",
        row=1,
        column=2,
        channel=3,
        got=-5,
        expected=7,
        differing=4,
        total=100,
    )
    failed = msgspec.structs.replace(
        proved,
        verdict=Verdict.DIFFERENT,
        outputs_equal=False,
        outputs=(OutputFacts(name="y", values=24, differing=4, largest=12.0),),
        difference=difference,
        exceptions=("8-bit SUM: known",),
    )
    text = " ".join(render_prove_text(failed, width=100, colour=False).split())
    assert "different on 2 inputs" in text
    assert "0 of 1 equal y: 4 of 24 values differ, by 12 at most" in text
    assert "row 1, column 2, channel 3: -5 instead of 7; 4 of 100 values" in text
    assert "8-bit SUM: known" in text
    assert "\x1b" not in text
