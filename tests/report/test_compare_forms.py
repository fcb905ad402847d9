"""A comparison in all its forms: JSON by its schema, text in 40 lines, Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest

from npusched import api
from npusched.report.compare_docs import COMPARE_DOCS
from npusched.report.compare_json import (
    COMPARE_SCHEMA_FILE,
    compare_schema,
    compare_schema_text,
    read_compare_json,
    render_compare_json,
)
from npusched.report.compare_md import render_compare_md
from npusched.report.compare_text import MAX_LINES, render_compare_text
from npusched.report.compare_types import CompareReport
from npusched.vela.options import Feature, Optimise, VelaOptions

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

CASES: list[tuple[str, str, str | None, VelaOptions | None]] = [
    ("demo:mobilenet", "ethos-u55-128", "48KiB", None),
    ("demo:resnet8", "ethos-u65-512", "24KiB", VelaOptions(optimise=Optimise.SIZE)),
    ("demo:ds_cnn", "ethos-u85-256", None, VelaOptions(disable=(Feature.CASCADING,))),
    ("demo:unet", "renesas-ra8p1", None, None),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def report(request: pytest.FixtureRequest) -> CompareReport:
    model, target, sram, options = request.param
    return api.compare(model, target, sram=sram, vela_options=options, use_cache=False)


def test_json_is_valid_and_reads_back(report: CompareReport) -> None:
    schema = compare_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    text = render_compare_json(report)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert read_compare_json(text) == report
    form = json.loads(text)
    form["totals"]["vela"]["cycels"] = 1
    with pytest.raises(jsonschema.ValidationError, match="cycels"):
        jsonschema.validate(form, schema)
    with pytest.raises(msgspec.ValidationError, match="cycels"):
        read_compare_json(json.dumps(form))


def test_the_shipped_schema_is_the_generated_one(golden: Callable[[Path, str], None]) -> None:
    golden(COMPARE_SCHEMA_FILE, compare_schema_text())


def test_every_field_is_documented() -> None:
    definitions = compare_schema()["$defs"]
    assert isinstance(definitions, dict)
    for name, docs in COMPARE_DOCS.items():
        assert list(definitions[name]["properties"]) == list(docs), name
        assert all(text.endswith(".") and len(text) < 120 for text in docs.values())
    assert all(part["description"] for part in definitions.values())


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_text_is_short_at_any_width(report: CompareReport, width: int) -> None:
    text = render_compare_text(report, width=width)
    lines = text.splitlines()
    assert all(len(row) <= width for row in lines)
    assert len(lines) <= (MAX_LINES if width >= 80 else 70)
    assert "Vela as reported" in text
    assert "\x1b" not in text
    assert "\x1b[" in render_compare_text(report, width=width, colour=True)


def test_text_lists_what_was_asked_for(report: CompareReport) -> None:
    few, all_ = (render_compare_text(report, width=120, top=n) for n in (2, 1000))
    assert "more op" in few
    assert "more op" not in all_
    busy = [op for op in report.ops if op.npusched or op.vela]
    assert sum(row.startswith("  #") for row in all_.splitlines()) == len(busy)


def test_markdown_has_the_tables(report: CompareReport) -> None:
    page = render_compare_md(report)
    assert page.startswith("# demo:")
    assert "| Vela as reported |" in page
    assert "## Ops, the largest difference first" in page
    for row in page.splitlines():
        assert not row.startswith("|") or row.endswith("|")


def test_totals_are_those_of_the_rows(report: CompareReport) -> None:
    """Both sides' rows add up to their totals, ours and Vela's; one basis costs both."""
    totals = report.totals
    assert totals.vela_compatible is not None
    assert totals.vela_recosted is not None
    assert report.vela.is_plan
    for name in ("npusched", "vela", "vela_compatible", "vela_recosted"):
        sides = [side for op in report.ops if (side := getattr(op, name)) is not None]
        total = getattr(totals, name)
        copies = sum(stray.cycles for stray in report.only_vela) if "vela" in name else 0
        assert sum(side.cycles for side in sides) + copies == total.cycles, name
        assert sum(side.npu_cycles for side in sides) == total.npu_cycles or copies, name
    assert totals.vela.cycles == totals.vela_compatible.cycles
    assert totals.vela.npu_cycles == totals.vela_compatible.npu_cycles
    assert totals.vela.flash_bytes == totals.vela_compatible.flash_bytes
    assert totals.vela.dram_bytes == totals.vela_compatible.dram_bytes
    assert totals.vela.cpu_cycles == 0


def test_executed_figures_stand_beside_the_others(report: CompareReport) -> None:
    """Staged bytes are exactly Vela's; the U85 is said to be left out."""
    found, text = report.executed, render_compare_text(report, width=100)
    if "u85" in report.target.name:
        assert found is None
        assert report.not_executed == "streams for Ethos-U85 are not modelled"
        assert "not counted (streams for Ethos-U85" in text
        assert "not counted" in render_compare_md(report)
        return
    assert found is not None
    assert report.not_executed == ""
    assert found.staged_bytes == found.vela_staged_bytes == found.predicted_staged_bytes
    assert found.dma_bytes >= found.staged_bytes
    assert found.kernels > 5
    peak = report.totals.vela.sram_peak_bytes
    assert peak is not None
    assert peak - 16 < found.sram_peak_bytes <= peak  # Vela's is aligned to 16
    for row in found.rows:
        assert row.once_bytes <= row.read_bytes, row
        if row.purpose == "weights":
            assert row.written_bytes == row.vela_written_bytes
            # Vela costs cascaded ops whole; in stripes their weights are read again.
            assert row.read_bytes >= row.vela_read_bytes
            assert report.vela.cascades or row.read_bytes == row.vela_read_bytes
    assert "executed by Vela's stream" in text
    assert "| executed by Vela's stream |" in render_compare_md(report)
