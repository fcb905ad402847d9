"""The published form of a check: what ``npusched check --format json`` prints."""

from __future__ import annotations

from typing import Literal

from npusched.report.diff_types import SettingChange
from npusched.report.figures import Unit
from npusched.report.types import Published, Totals

CHECK_SCHEMA_VERSION = "1.0"


class Gate(Published, frozen=True, kw_only=True):
    """A figure of the plan held against a limit, given or made from a baseline.

    ``excess``: by how much the value is above the limit, 0 if it passed. ``baseline``: the figure
    of the baseline (of a regression gate).
    """

    id: str
    kind: Literal["limit", "regression"]
    metric: str
    title: str
    unit: Unit
    value: int | float
    limit: int | float
    excess: int | float
    baseline: int | float | None
    passed: bool
    text: str
    help: str


class CheckBaseline(Published, frozen=True, kw_only=True):
    """The plan that regressions are held against. ``settings`` differ between the two plans."""

    file: str
    model: str
    sha256: str
    max_regression: float
    settings: tuple[SettingChange, ...]


class CheckReport(Published, frozen=True, kw_only=True):
    """A model's plan held against gates.

    ``fits`` False: no plan fits the budget (or the limit on off-chip bytes); figures are those of
    the plan for the smallest one that is feasible.
    """

    schema_version: str
    npusched_version: str
    vela_version: str | None
    verdict: Literal["pass", "fail"]
    model: str
    sha256: str
    target: str
    clock_hz: float
    system_config: str
    memory_mode: str
    objective: str
    budget_memory: str
    budget_bytes: int | None
    fits: bool
    totals: Totals
    cpu_ops: int
    gates: tuple[Gate, ...]
    baseline: CheckBaseline | None
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show the text form in a notebook, everything in it escaped."""
        from html import escape

        from npusched.report.check_text import render_check_text

        return f"<pre>{escape(render_check_text(self))}</pre>"
