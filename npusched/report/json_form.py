"""A plan as JSON, and the JSON Schema of that form."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from npusched.report.field_docs import FIELD_DOCS
from npusched.report.schema_form import schema_of, text_of
from npusched.report.types import SCHEMA_VERSION, PlanReport

SCHEMA_FILE: Final = Path(__file__).with_name("schemas") / f"plan-{SCHEMA_VERSION}.json"
"""The schema as shipped; equal to ``plan_schema()``."""


def render_json(report: PlanReport) -> str:
    """Return the report as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def read_json(text: str | bytes) -> PlanReport:
    """Return the report of a plan's JSON. Raises msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=PlanReport)


def plan_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of ``render_json``'s output."""
    return schema_of(
        PlanReport, FIELD_DOCS, form="plan", version=SCHEMA_VERSION, title="npusched plan"
    )


def schema_text() -> str:
    """Return the schema as the text of ``SCHEMA_FILE``."""
    return text_of(plan_schema())
