"""The page: what each section shows, from the published reports to the template."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import msgspec
from markupsafe import Markup, escape

from npusched.report.compare_text import verdict_text
from npusched.report.compare_types import CompareReport
from npusched.report.frontier_types import FrontierReport
from npusched.report.html.cards import advice_items, cards, fallback_items
from npusched.report.html.embed import embedded
from npusched.report.html.tables import (
    MAX_OPS,
    Table,
    frontier_table,
    memory_table,
    op_table,
    peak_table,
    totals_table,
    worst_table,
)
from npusched.report.svg import (
    Drawing,
    draw_compare,
    draw_frontier,
    draw_graph,
    draw_memory,
    draw_roofline,
    draw_timeline,
    fusion_panels,
    inline,
)
from npusched.report.svg.theme import DARK, FIGURE_CSS, FONT, HATCH, LIGHT, swatch
from npusched.report.svg.words import bound_name
from npusched.report.text import competition_text, proof_text, type_text, weights_text
from npusched.report.types import PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_frequency,
    percent,
    plain_text,
    plural,
)

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_NOTES: Final = 30

_OPTION: Final = re.compile(r"--[a-z-]+(?: (?:frontier|compare))?")

_BREAKS: Final = re.compile(r"(?<=\d) (?=%|[kMG]?i?B\b|[KMG]iB\b|[nµm]?[sJ]\b|\d{3}\b|[kMGT]\b)")
"""Spaces between a figure and its unit, and between groups of digits."""


class _Extra(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows beside the plan; ``missing``: why "frontier" or "compare" is not there."""

    frontier: FrontierReport | None = None
    comparison: CompareReport | None = None
    missing: Mapping[str, str] = {}


def render_html(
    report: PlanReport,
    *,
    frontier: FrontierReport | None = None,
    comparison: CompareReport | None = None,
    missing: Mapping[str, str] | None = None,
) -> str:
    """Return the plan as one HTML file that needs no network; names from files are inert in it.

    ``missing``: why "frontier" or "compare" is not there, by that name.
    """
    extra = _Extra(frontier=frontier, comparison=comparison, missing=missing or {})
    script = _asset("page.js")
    context = _context(report, extra)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            **context,
            sections=_sections(context),
            style=Markup(_style()),
            hatch=Markup(
                f'<svg width="0" height="0" aria-hidden="true" class="sr nf">{HATCH}</svg>'
            ),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            embedded=_embedded(report, extra),
        )
    )


def _embedded(report: PlanReport, extra: _Extra) -> list[tuple[str, Markup]]:
    found = [("plan-json", embedded(report))]
    if extra.frontier is not None:
        found.append(("frontier-json", embedded(extra.frontier)))
    if extra.comparison is not None:
        found.append(("compare-json", embedded(extra.comparison)))
    return found


def _context(report: PlanReport, extra: _Extra) -> dict[str, object]:
    """Everything that the template names, except style and script."""
    table = op_table(report)
    fallen = fallback_items(report)
    title, peak = peak_table(report) if report.segments else ("", None)
    frontier = None if extra.frontier is None else draw_frontier(extra.frontier, report)
    return {
        "report": report,
        "name": plain_text(report.model.name, 80),
        "target_name": plain_text(report.target.name, 60),
        "model_facts": _model_facts(report),
        "target_facts": _target_facts(report),
        "cards": cards(report, extra.comparison),
        "advice": advice_items(report),
        "memory": draw_memory(report),
        "peak": {"title": title, "table": peak},
        "timeline": draw_timeline(report),
        "ops": table,
        "ops_lead": _ops_lead(report, table),
        "bounds": sorted({bound_name(op.bound_by) for op in report.ops}),
        "roofline": draw_roofline(report),
        "fusion": fusion_panels(report),
        "graph": draw_graph(report),
        "frontier": frontier,
        "frontier_table": None if extra.frontier is None else frontier_table(extra.frontier),
        "comparison": None if extra.comparison is None else _comparison(extra.comparison),
        "missing": {"compare": "", "frontier": "", **extra.missing},
        "fallbacks": fallen,
        "fallbacks_lead": _fallbacks_lead(report),
        "provenance": _provenance(report),
        "memories": memory_table(report),
        "notes": [plain_text(text, 400) for text in report.warnings[:MAX_NOTES]],
    }


_TITLES: Final = {
    "memory": "Memory map",
    "timeline": "Timeline",
    "ops": "Kernels",
    "roofline": "Roofline",
    "frontier": "What SRAM buys",
    "fusion": "Fusion",
    "graph": "Segments",
}


def _sections(context: Mapping[str, object]) -> list[tuple[str, str]]:
    """Identifiers and titles of the sections that are there, in order."""
    found = [("verdict", "Verdict"), ("advice", "Advice")]
    missing = context["missing"]
    assert isinstance(missing, dict)
    for name, title in _TITLES.items():
        shown = context[name]
        has_rows = shown.rows if isinstance(shown, Table) else shown
        if has_rows or (name == "frontier" and missing["frontier"]):
            found.append((name, title))
    found.append(("compare", "Beside Vela"))
    if context["fallbacks"]:
        found.append(("fallbacks", "On the CPU"))
    return [*found, ("provenance", "Provenance")]


def _model_facts(report: PlanReport) -> list[str]:
    model = report.model
    facts = [
        plural(model.op_count, "op"),
        f"{human_count(model.macs)} MAC",
        type_text(report),
        human_bytes(model.size_bytes),
        f"sha256 {model.sha256[:8]}",
    ]
    return [fact for fact in facts if fact]


def _target_facts(report: PlanReport) -> list[str]:
    target = report.target
    facts = [f"{plain_text(target.name, 60)} at {human_frequency(target.clock_hz)}"]
    if target.accelerator is not None:
        mode = target.memory_mode_name or target.memory_mode.value
        facts += [plain_text(target.system_config, 60), plain_text(mode, 60)]
    return facts


def _ops_lead(report: PlanReport, table: Table) -> str:
    text = "One row per kernel, in the order in which they run. # is the op of the file; a heading "
    text += "sorts, names show in full on hover."
    left = len(report.ops) - len(table.rows)
    if left:
        text += f" The {MAX_OPS} longest are listed, {left} more are in the JSON."
    return text


def _fallbacks_lead(report: PlanReport) -> str:
    cpu = sum(op.placement == "cpu" for op in report.source_ops)
    handed = report.totals.npu_invocations
    text = f"{cpu} of {plural(len(report.source_ops), 'op')} run on the CPU"
    return f"{text}; the NPU is called {plural(handed, 'time')} per inference."


def _comparison(report: CompareReport) -> dict[str, object]:
    notes = [plain_text(text, 400) for text in (*report.vela.mismatches, *_notes(report))]
    version = f"Vela {report.vela.version}" if report.vela.source == "run" else "Vela's files"
    basis = "Op for op, cycles are on our striped basis where the schedule can be costed."
    verdict = verdict_text(report)
    return {
        "verdict": f"{version}: {verdict}. {basis}" if verdict else f"{version}. {basis}",
        "totals": totals_table(report),
        "scatter": draw_compare(report),
        "worst": worst_table(report),
        "notes": notes[:MAX_NOTES],
        "notes_title": plural(len(notes), "note") + " on Vela's figures",
    }


def _notes(report: CompareReport) -> list[str]:
    return [note.text for note in report.notes]


def _provenance(report: PlanReport) -> list[tuple[str, str]]:
    vela = report.vela_version or "not asked"
    conditions = []
    if report.max_offchip_bytes is not None:
        conditions.append(f"at most {human_bytes(report.max_offchip_bytes)} off the chip")
    if report.allowed:
        conditions.append(f"with {', '.join(plain_text(a, 24) for a in report.allowed)}")
    goal = report.objective
    if goal == "cycles":
        goal = f"cycles + {report.lambda_cycles_per_byte:g} × off-chip bytes"
    rows = [
        ("Cycles, bytes, energy", "predicted by formulas; energy from a table of energies"),
        ("Weights", weights_text(report)),
        ("Objective", ", ".join([goal, *conditions])),
        ("Proof", proof_text(report)),
        ("Compulsory work", _compulsory(report)),
        ("Vela's own schedule", competition_text(report) or "did not compete"),
        ("Versions", f"npusched {report.npusched_version}, Vela {vela}"),
        ("Model", f"sha256 {report.model.sha256}"),
        ("CPU", plain_text(report.target.cpu.name, 60)),
    ]
    if report.target.accelerator is not None:
        rows.append(("Accelerator", plain_text(report.target.accelerator.source, 300)))
    return [(title, text) for title, text in rows if text]


def _compulsory(report: PlanReport) -> str:
    cycles = report.bound.cycles
    share = percent(cycles, report.totals.cycles)
    return f"no plan takes fewer than {group_digits(cycles)} NPU cycles, {share} of this one's"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("npusched.report.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_unbroken,
    )
    environment.filters["svg"] = _svg
    environment.filters["options"] = _options
    environment.filters["swatch"] = _swatch
    return environment


def _unbroken(value: object) -> object:
    """Figures and their units stay on one line."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _BREAKS.sub("\u00a0", value)
    return value


def _options(text: str) -> Markup:
    """``text`` with its command-line options as code, which does not break."""
    return Markup(_OPTION.sub(r"<code>\g<0></code>", str(escape(plain_text(text, 400)))))


def _svg(drawing: Drawing) -> Markup:
    return Markup(inline(drawing))


def _swatch(classes: str) -> Markup:
    return Markup(f'<svg class="nf" aria-hidden="true" viewBox="0 0 11 11">{swatch(classes)}</svg>')


def _asset(name: str) -> str:
    return files("npusched.report.html").joinpath("templates", name).read_text(encoding="utf-8")


def _style() -> str:
    """Colours by theme, then the figures' classes, then the page's."""
    colours = (
        f":root{{{LIGHT}}}"
        f"@media screen{{:root[data-theme=dark]{{{DARK};color-scheme:dark}}"
        ":root[data-theme=light]{color-scheme:light}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{DARK}}}}}}}"
    )
    page = _asset("page.css").replace("FONT_STACK", FONT)
    return colours + (FIGURE_CSS + page).replace("\n", "")
