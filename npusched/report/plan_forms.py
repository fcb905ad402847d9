"""A plan, or a list of plans, in every form that there is: one place that knows them all."""

from __future__ import annotations

import msgspec

from npusched.report.frontier import render_frontier, render_frontier_json
from npusched.report.frontier_forms import render_frontier_csv, render_frontier_md
from npusched.report.frontier_types import FrontierReport
from npusched.report.json_form import render_json
from npusched.report.plan_csv import render_plan_csv
from npusched.report.plan_findings import render_plan_github, render_plan_sarif
from npusched.report.plan_md import render_plan_md
from npusched.report.plan_overlay import OverlayMetric, render_plan_overlay
from npusched.report.plan_trace import render_plan_trace
from npusched.report.text import DEFAULT_TOP, render_text
from npusched.report.types import PlanReport


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How to show it: columns and colour of the text form, ops to list, the model's path.

    ``path`` is of the model in the repository for GitHub and SARIF, "" if it has none; ``metric``
    is what the overlay shows.
    """

    width: int = 100
    colour: bool = False
    top: int = DEFAULT_TOP
    path: str = ""
    metric: OverlayMetric = "cycles"


def render(report: PlanReport | FrontierReport, form: str, view: View) -> str:
    """Return the report in the form of that name. Raises ValueError for a form it does not have."""
    if isinstance(report, FrontierReport):
        return _frontier(report, form, view)
    match form:
        case "text":
            return render_text(report, width=view.width, colour=view.colour, top=view.top)
        case "json":
            return render_json(report)
        case "md":
            return render_plan_md(report, top=view.top)
        case "csv":
            return render_plan_csv(report)
        case "github":
            return render_plan_github(report, path=view.path)
        case "sarif":
            return render_plan_sarif(report, path=view.path)
        case "trace":
            return render_plan_trace(report)
        case "overlay":
            return render_plan_overlay(report, metric=view.metric)
    raise ValueError(f"a plan has no form {form!r}")


def _frontier(report: FrontierReport, form: str, view: View) -> str:
    match form:
        case "text":
            return render_frontier(report, width=view.width, colour=view.colour)
        case "json":
            return render_frontier_json(report)
        case "md":
            return render_frontier_md(report)
        case "csv":
            return render_frontier_csv(report)
    raise ValueError(f"a list of plans has no form {form!r}")
