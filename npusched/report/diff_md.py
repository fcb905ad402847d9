"""A difference of two plans as Markdown, e.g. for a comment on a change."""

from __future__ import annotations

from typing import Final

from npusched.report.diff_text import (
    count_text,
    op_cells,
    shown_totals,
    side_parts,
    total_cells,
)
from npusched.report.diff_types import DiffReport, OpChange
from npusched.report.markdown import markdown_table, markdown_text

MARKDOWN_OPS: Final = 50
"""Most ops in the table."""

MARKDOWN_SETTINGS: Final = 50
"""Most settings in the table."""


def render_diff_md(report: DiffReport) -> str:
    """Return the difference as a Markdown page."""
    parts = [
        "# Plans: what changed",
        "\n".join(
            f"- {title}: {markdown_text(' '.join(side_parts(side)))}"
            for title, side in (("before", report.before), ("after", report.after))
        ),
        markdown_table(
            ("total", "before", "after", "change", "relative"),
            [total_cells(total) for total in shown_totals(report)],
        ),
    ]
    if report.settings:
        settings = [(s.setting, s.before, s.after) for s in report.settings[:MARKDOWN_SETTINGS]]
        parts += ["## Settings", markdown_table(("setting", "before", "after"), settings)]
        if len(report.settings) > MARKDOWN_SETTINGS:
            parts.append(f"{len(report.settings) - MARKDOWN_SETTINGS} more settings differ.")
    parts += ["## Ops, the largest change first", f"{markdown_text(count_text(report))}."]
    if report.ops:
        head = ("op", "before", "after", "change", "what changed", "name")
        rows = [_cells(op) for op in report.ops[:MARKDOWN_OPS]]
        parts.append(markdown_table(head, rows))
    if len(report.ops) > MARKDOWN_OPS:
        parts.append(f"{len(report.ops) - MARKDOWN_OPS} more ops.")
    parts.append(f"npusched {markdown_text(report.npusched_version)}: all figures are predicted.")
    return "\n\n".join(parts) + "\n"


def _cells(change: OpChange) -> list[str]:
    """As in the text; without the number sign, which GitHub takes for that of an issue."""
    label, *others = op_cells(change)
    return [label.removeprefix("#"), *others]
