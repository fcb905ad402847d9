"""A comparison as JSON, and the JSON Schema of that form."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from npusched.report.compare_docs import COMPARE_DOCS
from npusched.report.compare_types import COMPARE_SCHEMA_VERSION, CompareReport
from npusched.report.field_docs import FIELD_DOCS
from npusched.report.schema_form import schema_of, text_of

COMPARE_SCHEMA_FILE: Final = (
    Path(__file__).with_name("schemas") / f"compare-{COMPARE_SCHEMA_VERSION}.json"
)
"""The schema as shipped; equal to ``compare_schema()``."""


def render_compare_json(report: CompareReport) -> str:
    """Return the comparison as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def read_compare_json(text: str | bytes) -> CompareReport:
    """Return the comparison of its JSON. Raises msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=CompareReport)


def compare_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of ``render_compare_json``'s output."""
    return schema_of(
        CompareReport,
        {**FIELD_DOCS, **COMPARE_DOCS},
        form="compare",
        version=COMPARE_SCHEMA_VERSION,
        title="npusched compare",
    )


def compare_schema_text() -> str:
    """Return the schema as the text of ``COMPARE_SCHEMA_FILE``."""
    return text_of(compare_schema())
