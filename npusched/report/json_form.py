"""A plan as JSON, and the JSON Schema of that form."""

from __future__ import annotations

import msgspec

from npusched.report.types import SCHEMA_VERSION, PlanReport


def render_json(report: PlanReport) -> str:
    """Return the report as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def plan_schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of ``render_json``'s output."""
    schema: dict[str, object] = msgspec.json.schema(PlanReport)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:npusched:plan:{SCHEMA_VERSION}",
        "title": "npusched plan",
        **schema,
    }
