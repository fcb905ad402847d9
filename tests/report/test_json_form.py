"""The published JSON: exact, validated by the shipped schema, read back to the same value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest

import npusched
from npusched.report import types
from npusched.report.field_docs import FIELD_DOCS
from npusched.report.json_form import SCHEMA_FILE, plan_schema, read_json, render_json, schema_text

PLANS = [
    ("demo:mobilenet", "ethos-u55-128", "64KiB"),
    ("demo:unet", "ethos-u65-256", None),
    ("demo:resnet8", "ethos-u85-256", "100KiB"),
    ("demo:ds_cnn", "cortex-m4", None),
    ("demo:block", "renesas-ra8p1", None),
]


@pytest.fixture(scope="module", params=PLANS, ids=lambda plan: f"{plan[0]}-{plan[1]}")
def report(request: pytest.FixtureRequest) -> npusched.PlanReport:
    model, target, sram = request.param
    return npusched.plan(model, target, sram=sram, use_vela=False)


def published_types() -> list[type[types.Published]]:
    found = [
        value
        for value in vars(types).values()
        if isinstance(value, type)
        and issubclass(value, types.Published)
        and value is not types.Published
    ]
    assert len(found) >= 15
    return found


def test_output_is_valid_by_the_schema(report: npusched.PlanReport) -> None:
    schema = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(render_json(report)))


def test_output_reads_back_to_the_same_value(report: npusched.PlanReport) -> None:
    assert read_json(render_json(report)) == report


def test_the_schema_refuses_what_is_not_published(report: npusched.PlanReport) -> None:
    form = json.loads(render_json(report))
    form["totals"]["cycels"] = 1
    with pytest.raises(jsonschema.ValidationError, match="cycels"):
        jsonschema.validate(form, plan_schema())
    with pytest.raises(msgspec.ValidationError, match="cycels"):
        read_json(json.dumps(form))


def test_the_shipped_schema_is_the_generated_one(golden: Callable[[Path, str], None]) -> None:
    golden(SCHEMA_FILE, schema_text())
    assert json.loads(SCHEMA_FILE.read_text())["$id"].endswith(types.SCHEMA_VERSION)


def test_every_field_is_documented_and_nothing_else() -> None:
    fields = {each.__name__: list(each.__struct_fields__) for each in published_types()}
    assert {name: list(docs) for name, docs in FIELD_DOCS.items()} == fields
    for docs in FIELD_DOCS.values():
        assert all(text.endswith(".") and len(text) < 120 for text in docs.values())


def test_every_type_in_the_schema_has_a_description() -> None:
    definitions = plan_schema()["$defs"]
    assert isinstance(definitions, dict)
    lacking = [name for name, part in definitions.items() if not part.get("description")]
    assert lacking == []


def test_totals_are_the_sums_of_the_parts(report: npusched.PlanReport) -> None:
    """Cycles and bytes add up over segments, and over ops."""
    totals = report.totals
    assert totals.cycles == sum(s.cycles for s in report.segments)
    assert totals.cycles == sum(op.cycles for op in report.ops)
    assert totals.cpu_cycles == sum(op.cpu_cycles for op in report.ops)
    assert totals.dram_bytes == sum(s.dram_bytes for s in report.segments)
    assert totals.flash_bytes == sum(s.flash_bytes for s in report.segments)
    assert totals.npu_cycles <= totals.cycles
    assert totals.energy_nj.low <= totals.energy_nj.typical <= totals.energy_nj.high
    assert report.fusion_levels[-1].level == "plan"


def test_references_between_parts_hold(report: npusched.PlanReport) -> None:
    """Ops name their segment, segments their buffers, source ops their kernels."""
    assert [op.id for op in report.ops] == list(range(len(report.ops)))
    for segment in report.segments:
        assert all(report.ops[op].segment == segment.index for op in segment.ops)
        for buffer in segment.buffers:
            alive = report.allocation[buffer]
            assert alive.first_step <= segment.index < alive.end_step
    for source in report.source_ops:
        assert all(0 <= op < len(report.ops) for op in source.scheduled_ops)
    assert len(report.live_sram_bytes) == len(report.segments)


def test_the_peak_is_the_highest_address(report: npusched.PlanReport) -> None:
    """No demo here shares constants with the budget memory, so the peak is the arena's end."""
    ends = [
        item.offset + item.size_bytes
        for item in report.allocation
        if item.memory == report.budget_memory
    ]
    assert report.totals.sram_peak_bytes == max(ends)
    assert report.totals.sram_bound_bytes == max(report.live_sram_bytes)
    if report.budget_bytes is not None:
        assert report.totals.sram_peak_bytes <= report.budget_bytes
