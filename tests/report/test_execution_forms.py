"""JSON of run, prove, check, diff and others: valid by the shipped schemas, read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import npusched
from npusched import api
from npusched.api import PlanOptions
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.report.execution_json import (
    FORM_DOCS,
    FORMS,
    form_schema,
    form_schema_file,
    form_schema_text,
)
from npusched.report.execution_text import render_execution_json
from npusched.report.layout import cell_width
from npusched.report.plan_proof_text import render_plan_proof_text
from npusched.report.plan_proof_types import PlanDifferenceFacts, PlanProofReport
from npusched.report.types import Published
from npusched.sim.proof import Verdict
from npusched.tflite import Builder
from npusched.vela.runner import compile_model

TARGET = "ethos-u55-128"


def small() -> bytes:
    b = Builder("small")
    b.output(b.dequantize(b.conv2d(b.input("x", (1, 8, 8, 3)), 4)))
    return b.build()


def made(name: str) -> Published:
    """One report of each form."""
    if name == "frontier":
        return npusched.frontier("demo:ds_cnn", TARGET, use_vela=False)
    if name == "advice":
        return npusched.advice(small(), TARGET, use_vela=False)
    if name == "check":
        before = npusched.plan("demo:ds_cnn", TARGET, use_vela=False)
        return npusched.check(
            "demo:ds_cnn", TARGET, max_sram="8KiB", max_energy=1, baseline=before, use_vela=False
        )
    if name == "diff":
        plans = (npusched.plan(f"demo:{m}", TARGET, use_vela=False) for m in ("ds_cnn", "block"))
        return npusched.diff(*plans)
    if name == "explain":
        return npusched.explain("demo:ds_cnn", TARGET, "peak", use_vela=False)
    if name == "tune-matrix":
        options = PlanOptions(use_vela=False, use_cache=False)
        targets = api.targets_of(["ethos-u55-64", "cortex-m4"])
        return api.tune_matrix(small(), name="s", targets=targets, options=options)
    if name == "tune":
        pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
        return npusched.tune(small(), "renesas-ra8p1", points=6, use_cache=False)
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    if name == "prove-plan":
        return npusched.prove_plan(small(), TARGET, inputs=2, use_vela=False)
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    target = load_target(TARGET)
    if name == "prove":
        return api.prove_report(small(), name="s", target=target, inputs=2, use_cache=False)
    if name == "emit":
        return npusched.emit(small(), TARGET, prove=2, use_cache=False).report
    compiled = compile_model(small(), target, cache=None).compiled
    if name == "run":
        return api.run_compiled(compiled, name="s")[0]
    return api.inspect_report(compiled, name="s", target=target)


@pytest.mark.parametrize("name", FORMS)
def test_json_is_valid_and_reads_back(name: str) -> None:
    schema = form_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    report = made(name)
    assert type(report) is FORMS[name].type
    text = render_execution_json(report)
    form = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(form)
    assert msgspec.json.decode(text, type=FORMS[name].type) == report
    assert form["schema_version"] == FORMS[name].version
    form["cycels"] = 1
    with pytest.raises(jsonschema.ValidationError, match="cycels"):
        jsonschema.validate(form, schema)


@pytest.mark.parametrize("name", FORMS)
def test_the_shipped_schema_is_the_generated_one(
    name: str, golden: Callable[[Path, str], None]
) -> None:
    golden(form_schema_file(name), form_schema_text(name))


def test_every_field_is_documented() -> None:
    definitions: dict[str, Any] = {}
    for name in FORMS:
        found = form_schema(name)["$defs"]
        assert isinstance(found, dict)
        definitions.update(found)
    for name, docs in FORM_DOCS.items():
        assert list(definitions[name]["properties"]) == list(docs), name
        assert all(text.endswith(".") and len(text) < 120 for text in docs.values())
    for name, part in definitions.items():
        assert part["description"], name
        assert name in FORM_DOCS or "properties" not in part or _elsewhere(name), name


def _elsewhere(name: str) -> bool:
    """Types of a plan, and those of the target."""
    schema = npusched.plan_schema()["$defs"]
    assert isinstance(schema, dict)
    return name in schema


@pytest.fixture(scope="module")
def proof() -> PlanProofReport:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    return npusched.prove_plan(demo("chain:4"), TARGET, inputs=2, use_vela=False)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_a_plan_proof_fits_the_terminal(proof: PlanProofReport, width: int) -> None:
    text = render_plan_proof_text(proof, width=width, colour=False)
    assert max(cell_width(row) for row in text.splitlines()) <= width
    assert len(text.splitlines()) <= 40


def test_a_failed_plan_proof_in_text(proof: PlanProofReport) -> None:
    """Fault, place and values are said; terminal codes are escaped."""
    difference = PlanDifferenceFacts(
        tensor="evil\x1b[31m",
        op=2,
        kernel="Conv2D",
        source_op=3,
        kind="CONV_2D",
        row=1,
        column=2,
        channel=3,
        got=-5.0,
        expected=7.0,
        differing=4,
        total=100,
        against="LiteRT",
    )
    failed = msgspec.structs.replace(
        proof,
        verdict=Verdict.DIFFERENT,
        fault="'a' does not fit its place",
        difference=difference,
        interpreter_equal=False,
        exceptions=("8-bit SUM: known",),
    )
    text = " ".join(render_plan_proof_text(failed, width=100, colour=False).split())
    assert "different on 2 inputs" in text
    assert "fault 'a' does not fit its place" in text
    assert "(op 3 CONV_2D, kernel 2 Conv2D) at row 1, column 2, channel 3: -5 instead of 7" in text
    assert "(LiteRT); 4 of 100 values" in text
    assert "differs from the interpreter" in text
    assert "8-bit SUM: known" in text
    assert "\x1b" not in text
