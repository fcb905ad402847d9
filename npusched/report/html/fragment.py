"""What notebooks show of a report: the main figures and one table, styled on their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from npusched.hardware.target import Target
from npusched.report.compare_text import total_cells, total_rows, verdict_text
from npusched.report.compare_types import CompareReport
from npusched.report.frontier_types import FrontierReport
from npusched.report.html.cards import cards
from npusched.report.svg import (
    Drawing,
    draw_compare,
    draw_frontier,
    draw_fusion,
    draw_memory,
    draw_timeline,
    draw_tune,
)
from npusched.report.svg.theme import DARK, FIGURE_CSS, FONT, HATCH, LIGHT, inline, swatch
from npusched.report.tune_text import goal_texts
from npusched.report.tune_types import TuneReport
from npusched.report.types import ModelFacts, PlanReport
from npusched.report.units import human_bytes, human_seconds, plain_text

_CSS: Final = f"""
.npusched{{{LIGHT};font:14px/1.5 {FONT};color:var(--ink);background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:14px 16px;max-width:1060px}}
body[data-jp-theme-light=false] .npusched,.vscode-dark .npusched{{{DARK}}}
.npusched h4{{margin:0 0 2px;font-size:16px}}.npusched h5{{margin:14px 0 0;font-size:13.5px}}
.npusched p{{margin:0 0 6px;color:var(--soft);font-size:13px}}
.npusched svg.nf{{max-width:100%;height:auto}}.npusched td,.npusched th{{padding:2px 12px 2px 0;
text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;color:var(--ink)}}
.npusched td:first-child,.npusched th:first-child{{text-align:left}}
.npusched span svg{{width:11px;height:11px;margin:0 5px 0 12px}}
"""


def plan_fragment(report: PlanReport) -> str:
    """A plan: verdict, memory map, timeline, fusion."""
    facts = [f"{card.title} {card.value} {card.unit}".strip() for card in cards(report, None)]
    drawings = (draw_memory(report), draw_timeline(report), draw_fusion(report))
    return _fragment(_heading(report.model, report.target), facts, drawings)


def frontier_fragment(report: FrontierReport) -> str:
    """A frontier: the curve."""
    return _fragment(_heading(report.model, report.target), [], [draw_frontier(report)])


def compare_fragment(report: CompareReport) -> str:
    """A comparison: the verdict, the totals, the scatter."""
    rows = [(title.strip(), *total_cells(total)) for title, total in total_rows(report)]
    heads = ("", "cycles", "NPU only", "NPU time", "CPU time", "SRAM peak", "DRAM", "flash")
    facts = [text for text in (verdict_text(report),) if text]
    heading = _heading(report.model, report.target)
    return _fragment(heading, facts, [draw_compare(report)], _table(heads, rows))


def tune_fragment(report: TuneReport) -> str:
    """Both frontiers and what is recommended."""
    names = goal_texts(report)
    rows = []
    for choice in report.recommended:
        point = report.frontier[choice.point]
        figures = (human_bytes(point.sram_bytes), human_seconds(point.latency_s))
        rows.append((f"{names[choice.goal]}, {choice.source}", *figures))
    table = _table(("recommended", "SRAM", "latency"), rows)
    return _fragment(_heading(report.model, report.target), [], [draw_tune(report)], table)


def _heading(model: ModelFacts, target: Target) -> str:
    return f"{plain_text(model.name, 60)} on {plain_text(target.name, 40)}"


def _fragment(
    heading: str, facts: Sequence[str], drawings: Sequence[Drawing | None], table: str = ""
) -> str:
    """Heading, facts, table and figures in one element; everything from outside is escaped."""
    style = (_CSS + FIGURE_CSS).replace("\n", "")
    parts = [
        Markup('<div class="npusched"><style>{}</style>').format(Markup(style)),
        Markup('<svg width="0" height="0" style="position:absolute">{}</svg>').format(
            Markup(HATCH)
        ),
        Markup("<h4>{}</h4>").format(heading),
    ]
    if facts:
        parts.append(Markup("<p>{}</p>").format(" · ".join(facts)))
    parts.append(Markup(table))
    parts += [_figure(drawing) for drawing in drawings if drawing is not None]
    return str(Markup("").join([*parts, Markup("</div>\n")]))


def _figure(drawing: Drawing) -> Markup:
    legend = Markup("").join(
        Markup('<span><svg class="nf" viewBox="0 0 11 11">{}</svg>{}</span>').format(
            Markup(swatch(classes)), text
        )
        for classes, text in drawing.legend
    )
    return Markup("<h5>{}</h5><p>{}</p>{}<p>{}</p>").format(
        drawing.title, drawing.summary, Markup(inline(drawing)), legend
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = Markup("").join(Markup("<th>{}</th>").format(text) for text in heads)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row)
        )
        for row in rows
    )
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)
