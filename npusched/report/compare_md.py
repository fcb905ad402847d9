"""A comparison as Markdown: all totals, every op with kernels, all notes."""

from __future__ import annotations

from npusched.report.compare_text import (
    EXECUTED_TITLES,
    executed_rows,
    measured_cells,
    op_cells,
    ranked_ops,
    total_cells,
    total_rows,
)
from npusched.report.compare_types import CompareReport
from npusched.report.markdown import markdown_table, markdown_text
from npusched.report.units import human_frequency

MARKDOWN_OPS = 50
"""Most ops in the table."""


def render_compare_md(report: CompareReport) -> str:
    """Return the comparison as a Markdown page."""
    target, vela = report.target, report.vela
    name = f"Vela {vela.version}" if vela.source == "run" else "Vela's files"
    ranked = ranked_ops(report)
    parts = [
        f"# {markdown_text(report.model.name)}: npusched and {markdown_text(name)}",
        f"{markdown_text(target.name)} at {human_frequency(target.clock_hz)}, "
        f"{markdown_text(target.system_config)}, {markdown_text(target.memory_mode_name)}",
        markdown_table(
            ("total", "cycles", "NPU only", "NPU time", "CPU time", "SRAM peak", "DRAM", "flash"),
            [(title.strip(), *total_cells(total)) for title, total in total_rows(report)],
        ),
        *_executed(report),
        "## Ops, the largest difference first",
        markdown_table(
            (
                "op",
                "npusched",
                "striped",
                "reported",
                "difference",
                "npusched runs",
                "Vela runs",
                "name",
            ),
            [op_cells(op) for op in ranked[:MARKDOWN_OPS]],
        ),
    ]
    if len(ranked) > MARKDOWN_OPS:
        parts.append(f"{len(ranked) - MARKDOWN_OPS} more ops.")
    strays = [
        f"- only {side}: {markdown_text(stray.kind)} {markdown_text(stray.name)}: "
        f"{markdown_text(stray.reason)}"
        for side, found in (
            ("only npusched", report.only_npusched),
            ("only Vela", report.only_vela),
        )
        for stray in found[:MARKDOWN_OPS]
    ]
    if strays:
        parts += ["## On one side only", "\n".join(strays)]
    notes = [f"- {markdown_text(text)}" for text in (*vela.mismatches, *report.warnings)]
    notes += [f"- {markdown_text(note.text)}" for note in report.notes]
    if notes:
        parts += ["## Notes", "\n".join(notes)]
    if report.measured:
        head = ("measured", "value", "npusched/measured", "Vela/measured", "striped/measured")
        rows = [measured_cells(entry) for entry in report.measured]
        parts += ["## Measured", markdown_table(head, rows)]
    parts.append(
        f"npusched {report.npusched_version}: its figures are predicted, Vela's are estimated."
    )
    return "\n\n".join(parts) + "\n"


def _executed(report: CompareReport) -> list[str]:
    """What Vela's streams move, or why it was not counted."""
    if report.executed is None:
        return [f"Executed: not counted ({markdown_text(report.not_executed)})."]
    return [markdown_table(EXECUTED_TITLES, executed_rows(report))]
