"""JSON Schemas of all commands but ``plan`` and ``compare``, which have modules of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from npusched.report.advice_docs import ADVICE_DOCS
from npusched.report.advice_types import ADVICE_SCHEMA_VERSION, AdviceReport
from npusched.report.check_docs import CHECK_DOCS
from npusched.report.check_types import CHECK_SCHEMA_VERSION, CheckReport
from npusched.report.diff_types import DIFF_SCHEMA_VERSION, DiffReport
from npusched.report.emit_docs import EMIT_DOCS
from npusched.report.emit_types import EMIT_SCHEMA_VERSION, EmitReport
from npusched.report.execution_docs import EXECUTION_DOCS
from npusched.report.execution_types import (
    EXECUTION_SCHEMA_VERSION,
    InspectReport,
    ProveReport,
    RunReport,
)
from npusched.report.explain_docs import EXPLAIN_DOCS
from npusched.report.explain_types import EXPLAIN_SCHEMA_VERSION, ExplainReport
from npusched.report.field_docs import FIELD_DOCS
from npusched.report.frontier_types import FRONTIER_SCHEMA_VERSION, FrontierReport
from npusched.report.plan_proof_types import PLAN_PROOF_SCHEMA_VERSION, PlanProofReport
from npusched.report.schema_form import schema_of, text_of
from npusched.report.tune_docs import TUNE_DOCS
from npusched.report.tune_matrix_types import TUNE_MATRIX_SCHEMA_VERSION, TuneMatrix
from npusched.report.tune_types import TUNE_SCHEMA_VERSION, TuneReport
from npusched.report.types import Published


class Form(NamedTuple):
    """One published form: the command that prints it, its type, and the schema's version."""

    command: str
    type: type[Published]
    version: str


FORMS: Final = {
    "advice": Form("advise", AdviceReport, ADVICE_SCHEMA_VERSION),
    "check": Form("check", CheckReport, CHECK_SCHEMA_VERSION),
    "diff": Form("diff", DiffReport, DIFF_SCHEMA_VERSION),
    "explain": Form("explain", ExplainReport, EXPLAIN_SCHEMA_VERSION),
    "emit": Form("emit", EmitReport, EMIT_SCHEMA_VERSION),
    "frontier": Form("plan --frontier", FrontierReport, FRONTIER_SCHEMA_VERSION),
    "inspect": Form("inspect", InspectReport, EXECUTION_SCHEMA_VERSION),
    "prove": Form("prove", ProveReport, EXECUTION_SCHEMA_VERSION),
    "prove-plan": Form("prove --plan", PlanProofReport, PLAN_PROOF_SCHEMA_VERSION),
    "run": Form("run", RunReport, EXECUTION_SCHEMA_VERSION),
    "tune": Form("tune", TuneReport, TUNE_SCHEMA_VERSION),
    "tune-matrix": Form("tune --configs", TuneMatrix, TUNE_MATRIX_SCHEMA_VERSION),
}
"""By name of the schema's file."""

FORM_DOCS: Final = {
    **EXECUTION_DOCS,
    **CHECK_DOCS,
    **EXPLAIN_DOCS,
    **TUNE_DOCS,
    **ADVICE_DOCS,
    **EMIT_DOCS,
}
"""What the fields of these forms mean, those that a plan has, too, left out."""


def form_schema(name: str) -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of one of ``FORMS``."""
    form = FORMS[name]
    return schema_of(
        form.type,
        {**FIELD_DOCS, **FORM_DOCS},
        form=name,
        version=form.version,
        title=f"npusched {form.command}",
    )


def form_schema_file(name: str) -> Path:
    """The schema as shipped; its text is ``form_schema_text``."""
    return Path(__file__).with_name("schemas") / f"{name}-{FORMS[name].version}.json"


def form_schema_text(name: str) -> str:
    """Return the schema as the text of its file."""
    return text_of(form_schema(name))
