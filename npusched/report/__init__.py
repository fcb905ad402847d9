"""Reports: published values, and renderers that return strings.

Members are imported on first use: an error message or a list of targets needs no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.report.build import PlanInputs, build_report, model_facts
    from npusched.report.configs import render_config, render_config_list
    from npusched.report.error_text import render_error, render_warning
    from npusched.report.frontier import build_frontier, render_frontier, render_frontier_json
    from npusched.report.html import render_html
    from npusched.report.json_form import plan_schema, render_json
    from npusched.report.text import render_text
    from npusched.report.types import SCHEMA_VERSION, Advice, PlanReport

__all__ = [
    "SCHEMA_VERSION",
    "Advice",
    "PlanInputs",
    "PlanReport",
    "build_frontier",
    "build_report",
    "model_facts",
    "plan_schema",
    "render_config",
    "render_config_list",
    "render_error",
    "render_frontier",
    "render_frontier_json",
    "render_html",
    "render_json",
    "render_text",
    "render_warning",
]

_HOMES = {
    "SCHEMA_VERSION": "types",
    "Advice": "types",
    "PlanInputs": "build",
    "PlanReport": "types",
    "build_frontier": "frontier",
    "build_report": "build",
    "model_facts": "build",
    "plan_schema": "json_form",
    "render_config": "configs",
    "render_config_list": "configs",
    "render_error": "error_text",
    "render_frontier": "frontier",
    "render_frontier_json": "frontier",
    "render_html": "html",
    "render_json": "json_form",
    "render_text": "text",
    "render_warning": "error_text",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
