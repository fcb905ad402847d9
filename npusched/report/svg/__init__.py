"""Figures of plans as SVG: functions from a report to a ``Drawing``, inline or a file.

``theme.inline`` makes an element of a page, ``theme.standalone`` a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from npusched.report.svg.compare import draw_compare
from npusched.report.svg.draw import Drawing
from npusched.report.svg.frontier import draw_frontier, draw_tune
from npusched.report.svg.fusion import draw_fusion, fusion_panels
from npusched.report.svg.graph import draw_graph
from npusched.report.svg.memory import draw_memory
from npusched.report.svg.roofline import draw_roofline
from npusched.report.svg.theme import Theme, inline, standalone
from npusched.report.svg.timeline import draw_timeline
from npusched.report.types import PlanReport

PLAN_FIGURES: Final[dict[str, Callable[[PlanReport], Drawing | None]]] = {
    "memory": draw_memory,
    "timeline": draw_timeline,
    "roofline": draw_roofline,
    "fusion": draw_fusion,
    "graph": draw_graph,
}
"""The figures that a plan alone has, by name."""

__all__ = [
    "PLAN_FIGURES",
    "Drawing",
    "Theme",
    "draw_compare",
    "draw_frontier",
    "draw_fusion",
    "draw_graph",
    "draw_memory",
    "draw_roofline",
    "draw_timeline",
    "draw_tune",
    "fusion_panels",
    "inline",
    "standalone",
]
