"""A sweep as JSON and CSV, and the JSON Schema of that form."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from npusched.report.csv_form import csv_text
from npusched.report.schema_form import schema_of, text_of
from npusched.report.sweep_docs import SWEEP_DOCS
from npusched.report.sweep_types import SWEEP_SCHEMA_VERSION, SweepReport, SweepRow

SWEEP_SCHEMA_FILE: Final = (
    Path(__file__).with_name("schemas") / f"sweep-{SWEEP_SCHEMA_VERSION}.json"
)
"""The schema as shipped; equal to ``sweep_schema()``."""


def render_sweep_json(report: SweepReport) -> str:
    """Return the sweep as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_sweep_csv(report: SweepReport) -> str:
    """Return the rows as CSV (RFC 4180, but lines end in LF); what is null is an empty cell."""
    return csv_text(
        [SweepRow.__struct_fields__, *(msgspec.structs.astuple(row) for row in report.rows)]
    )


def sweep_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of ``render_sweep_json``'s output."""
    return schema_of(
        SweepReport,
        SWEEP_DOCS,
        form="sweep",
        version=SWEEP_SCHEMA_VERSION,
        title="npusched sweep",
    )


def sweep_schema_text() -> str:
    """Return the schema as the text of ``SWEEP_SCHEMA_FILE``."""
    return text_of(sweep_schema())
