"""A plan to look at: the HTML page with what goes beside the plan, and single figures."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from npusched.api.options import PlanOptions
from npusched.errors import ModelError, VelaError

if TYPE_CHECKING:
    from npusched.api.candidates import Progress
    from npusched.hardware import Target
    from npusched.report import PlanReport
    from npusched.report.compare_types import CompareReport
    from npusched.report.frontier_types import FrontierReport
    from npusched.report.svg.theme import Theme

PagePart: TypeAlias = Literal["frontier", "compare"]
FigureName: TypeAlias = Literal[
    "memory", "timeline", "roofline", "fusion", "graph", "frontier", "compare"
]

FRONTIER_KERNELS: Final = 160
STAGED_FRONTIER_KERNELS: Final = 64
"""A page has a frontier unless told otherwise up to so many kernels: more may take minutes.

The second where a cache is staged (Dedicated_Sram), which makes every plan search much longer.
"""

Stage: TypeAlias = Callable[[str], None]
"""Is told what is being done, before it is."""


class Page(NamedTuple):
    """A page and the plan's warnings."""

    html: str
    warnings: tuple[str, ...]


def plan_page(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    parts: Collection[PagePart] | None = None,
    stage: Stage = lambda _: None,
    progress: Progress | None = None,
) -> Page:
    """The HTML page of a plan; errors as for ``plan``.

    ``parts``: what it shows beside the plan; None: what is quick enough and works. A part that was
    asked for by name and fails is an error (VelaError, TargetError).
    """
    from npusched.api.planning import plan_report
    from npusched.report import render_html

    options = options or PlanOptions()
    stage("planning")
    report = plan_report(content, name=name, target=target, options=options, progress=progress)
    why = _left_out(report, options, parts)
    frontier: FrontierReport | None = None
    comparison: CompareReport | None = None
    if "frontier" not in why:
        stage("finding the best plan for every amount of SRAM")
        frontier = wider_frontier(content, name=name, target=target, options=options)
    if "compare" not in why:
        stage("comparing with Vela")
        try:
            comparison = _comparison(content, name, target, options)
        except VelaError as error:
            if parts is not None:
                raise
            why["compare"] = f"Not compared: {error.what}. {error.why}"
    stage("drawing")
    html = render_html(report, frontier=frontier, comparison=comparison, missing=why)
    return Page(html, report.warnings)


def _left_out(
    report: PlanReport, options: PlanOptions, parts: Collection[PagePart] | None
) -> dict[str, str]:
    """Parts that the page goes without, and why."""
    if parts is not None:
        known: tuple[PagePart, ...] = ("frontier", "compare")
        return {part: "Not computed: not asked for." for part in known if part not in parts}
    why: dict[str, str] = {}
    is_staged = report.target.roles.cache != report.target.roles.arena
    if len(report.ops) > (STAGED_FRONTIER_KERNELS if is_staged else FRONTIER_KERNELS):
        why["frontier"] = (
            f"Not computed: a frontier of {len(report.ops)} kernels may take minutes. "
            "Ask for it with --with frontier (and --with compare for both)."
        )
    if report.target.accelerator is None:
        why["compare"] = "Not compared: Vela compiles for Ethos-U only."
    elif not options.use_vela:
        why["compare"] = "Not compared: Vela was not to be asked (--no-vela)."
    return why


def wider_frontier(
    content: bytes, *, name: str, target: Target, options: PlanOptions
) -> FrontierReport:
    """The frontier up to what the target has, or up to the budget if that is more."""
    from npusched.api.budgets import frontier_report

    capacity, budget = target.sram_budget_bytes, options.budget_bytes(target)
    if budget is not None and (capacity is None or budget <= capacity):
        options = msgspec.structs.replace(options, sram=None)
    return frontier_report(content, name=name, target=target, options=options)


def _comparison(content: bytes, name: str, target: Target, options: PlanOptions) -> CompareReport:
    from npusched.api.comparing import compare_report

    return compare_report(content, name=name, target=target, options=options)


def figure_svg(
    figure: FigureName,
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    theme: Theme = "auto",
    stage: Stage = lambda _: None,
    progress: Progress | None = None,
) -> str:
    """One figure of a plan as an SVG file; errors as for ``plan``, ``frontier`` and ``compare``.

    Raises ModelError if there is nothing to draw.
    """
    from npusched.api.planning import plan_report
    from npusched.report import svg

    options = options or PlanOptions()
    if figure == "compare":
        stage("comparing with Vela")
        drawing = svg.draw_compare(_comparison(content, name, target, options))
    else:
        stage("planning")
        report = plan_report(content, name=name, target=target, options=options, progress=progress)
        if figure == "frontier":
            stage("finding the best plan for every amount of SRAM")
            curve = wider_frontier(content, name=name, target=target, options=options)
            drawing = svg.draw_frontier(curve, report)
        else:
            drawing = svg.PLAN_FIGURES[figure](report)
    if drawing is None:
        raise ModelError(
            f"there is no {figure} figure for this plan",
            "nothing in the plan would be in it",
            "the figures of a plan are listed by 'npusched plot --help'",
        )
    return svg.standalone(drawing, theme=theme)
