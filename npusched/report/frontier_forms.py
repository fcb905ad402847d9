"""A frontier as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.csv_form import csv_text
from npusched.report.frontier import COLUMNS, MAX_ROWS, point_cells, spread
from npusched.report.frontier_types import FrontierPoint, FrontierReport
from npusched.report.markdown import markdown_table, markdown_text
from npusched.report.units import human_frequency, plural

POINT_COLUMNS: Final = (
    "sram_peak_bytes",
    "cycles",
    "cpu_cycles",
    "latency_s",
    "energy_nj_low",
    "energy_nj_typical",
    "energy_nj_high",
    "dram_bytes",
    "flash_bytes",
    "constant_bytes",
    "value",
    "gap",
    "proof",
    "segments",
    "fused_ops",
    "source",
    "options",
)


def render_frontier_csv(report: FrontierReport) -> str:
    """Return all plans, one a row, from the most SRAM to the least; figures are exact."""
    rows: list[Sequence[object]] = [POINT_COLUMNS]
    return csv_text(rows + [_cells(point) for point in report.points])


def _cells(point: FrontierPoint) -> Sequence[object]:
    totals = point.totals
    return (
        totals.sram_peak_bytes,
        totals.cycles,
        totals.cpu_cycles,
        totals.latency_s,
        totals.energy_nj.low,
        totals.energy_nj.typical,
        totals.energy_nj.high,
        totals.dram_bytes,
        totals.flash_bytes,
        totals.constant_bytes,
        point.value,
        point.gap,
        point.proof,
        point.segments,
        point.fused_ops,
        point.source,
        point.options,
    )


def render_frontier_md(report: FrontierReport, *, rows: int = MAX_ROWS) -> str:
    """Return a table of at most ``rows`` plans, spread evenly over all."""
    target = report.target
    shown = spread(len(report.points), rows)
    head = [column.title for column in COLUMNS]
    parts = [
        f"## {markdown_text(report.model.name, 100)}: {plural(len(report.points), 'plan')}",
        f"{markdown_text(target.name, 60)} @ {human_frequency(target.clock_hz)}, the best plan for "
        f"every amount of {markdown_text(report.budget_memory, 40)}",
        markdown_table(head, [point_cells(report.points[k]) for k in shown]),
    ]
    if len(shown) < len(report.points):
        left = plural(len(report.points) - len(shown), "more plan")
        parts.append(f"{left} between them are in the CSV and JSON forms.")
    parts.append(f"npusched {report.npusched_version}: all figures are predicted.")
    return "\n\n".join(parts) + "\n"
