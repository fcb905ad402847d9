"""Two plans side by side: what changed from one to the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npusched.api.plan_files import read_plan
from npusched.report.diff_build import build_diff

if TYPE_CHECKING:
    from npusched.report import PlanReport
    from npusched.report.diff_types import DiffReport


def diff(before: str | Path | PlanReport, after: str | Path | PlanReport) -> DiffReport:
    """Return what changed from plan ``before`` to plan ``after``, in total and op by op.

    Each is a ``PlanReport`` or a file that ``npusched plan --format json`` wrote. Models and
    targets may differ. Raises NpuschedError for a file that is no plan, OSError for one that cannot
    be read.
    """
    (a, a_name), (b, b_name) = _plan_of(before), _plan_of(after)
    return build_diff(a, b, before_file=a_name, after_file=b_name)


def diff_report(before: bytes, after: bytes, *, before_file: str, after_file: str) -> DiffReport:
    """Like ``diff``, for the contents of two files."""
    return build_diff(
        read_plan(before, before_file),
        read_plan(after, after_file),
        before_file=before_file,
        after_file=after_file,
    )


def _plan_of(plan: str | Path | PlanReport) -> tuple[PlanReport, str]:
    if isinstance(plan, (str, Path)):
        path = Path(plan)
        return read_plan(path.read_bytes(), path.name), path.name
    return plan, ""
