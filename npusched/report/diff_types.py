"""The published form of a difference: what ``npusched diff --format json`` prints."""

from __future__ import annotations

from typing import Literal, TypeAlias

from npusched.report.figures import Unit
from npusched.report.types import Published

DIFF_SCHEMA_VERSION = "1.0"

Placement: TypeAlias = Literal["npu", "cpu", "view", "folded"]
ChangedPart: TypeAlias = Literal["kind", "placement", "time", "chain", "stripes"]
"""What of an op may differ: ``chain`` is which ops run together with it."""


class DiffSide(Published, frozen=True, kw_only=True):
    """One of the two plans: its file, its model, and where it runs."""

    file: str
    model: str
    sha256: str
    target: str
    npusched_version: str
    vela_version: str | None
    op_count: int


class TotalChange(Published, frozen=True, kw_only=True):
    """A total of both plans. ``relative`` is change / before."""

    metric: str
    unit: Unit
    before: int | float
    after: int | float
    change: int | float
    relative: float | None


class SettingChange(Published, frozen=True, kw_only=True):
    """A setting that differs, by its path in the plan's JSON; values as JSON text."""

    setting: str
    before: str
    after: str


class OpSide(Published, frozen=True, kw_only=True):
    """An op of the file in one plan.

    ``cycles`` at the NPU's clock and ``cpu_cycles`` are sums over its kernels; ``time_s`` has both.
    ``chain_ops`` source ops run in its segment (1: alone, 0: it has no kernel), ``stripe_rows`` at
    a time.
    """

    index: int
    kind: str
    placement: Placement
    kernels: int
    cycles: int
    cpu_cycles: int
    time_s: float
    chain_ops: int
    stripe_rows: int
    stripes: int


class OpChange(Published, frozen=True, kw_only=True):
    """An op that is not the same in both plans.

    ``before`` is null if it was added, ``after`` if it was removed. ``matched_by``: how
    the two were found to be one op.
    """

    state: Literal["added", "removed", "changed"]
    name: str
    matched_by: Literal["index", "name", "order", ""]
    changed: tuple[ChangedPart, ...]
    change_s: float
    before: OpSide | None
    after: OpSide | None


class DiffReport(Published, frozen=True, kw_only=True):
    """What changed from one plan to another, in total and op by op.

    ``ops`` are those that are not the same, the largest change of time first.
    """

    schema_version: str
    npusched_version: str
    before: DiffSide
    after: DiffSide
    same_model: bool
    totals: tuple[TotalChange, ...]
    settings: tuple[SettingChange, ...]
    ops: tuple[OpChange, ...]
    unchanged_ops: int

    def _repr_html_(self) -> str:
        """Show the text form in a notebook, everything in it escaped."""
        from html import escape

        from npusched.report.diff_text import render_diff_text

        return f"<pre>{escape(render_diff_text(self))}</pre>"
