"""Reports: published values, and renderers that return strings."""

from npusched.report.build import PlanInputs, build_report, model_facts
from npusched.report.configs import render_config, render_config_list
from npusched.report.json_form import plan_schema, render_json
from npusched.report.text import render_text
from npusched.report.types import SCHEMA_VERSION, Advice, PlanReport

__all__ = [
    "SCHEMA_VERSION",
    "Advice",
    "PlanInputs",
    "PlanReport",
    "build_report",
    "model_facts",
    "plan_schema",
    "render_config",
    "render_config_list",
    "render_json",
    "render_text",
]
