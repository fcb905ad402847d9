"""A frontier from its plans, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from npusched import __version__
from npusched.graph.opgraph import OpGraph
from npusched.hardware.target import Target
from npusched.ir import Model
from npusched.report.build import model_facts, totals, weights_provenance
from npusched.report.candidates import contestant
from npusched.report.frontier_types import (
    FRONTIER_SCHEMA_VERSION,
    FrontierPoint,
    FrontierReport,
)
from npusched.report.layout import Column, Line, flow, line, paint, table
from npusched.report.types import CandidateMode, Provenance
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_frequency,
    human_seconds,
    plain_text,
    plural,
)
from npusched.schedule import Plan
from npusched.vela.candidates import Candidate, Candidates, describe

MAX_ROWS: Final = 30
"""Most plans that the text form lists."""

COLUMNS: Final = (
    Column(title="SRAM", right=True),
    Column(title="NPU cycles", right=True),
    Column(title="latency", right=True),
    Column(title="DRAM", right=True, rank=1),
    Column(title="flash", right=True, rank=1),
    Column(title="fused ops", right=True, rank=2),
    Column(title="proof", rank=3),
)


def build_frontier(
    *,
    model: Model,
    graph: OpGraph,
    target: Target,
    points: Sequence[tuple[Plan, Candidate | None]],
    own: Sequence[Plan],
    candidates: Candidates,
    candidates_mode: CandidateMode,
    budget_bytes: int | None,
    objective: str,
    max_offchip_bytes: int | None = None,
    allowed: Sequence[str] = (),
    vela_version: str | None,
    warnings: Sequence[str],
) -> FrontierReport:
    """Return the report of plans (at least one), from the most SRAM to the least.

    ``points`` pairs each with the candidate of Vela's that it is; ``own`` is our own frontier.
    """
    subgraph = model.subgraphs[graph.subgraph]
    first = next((plan for plan, theirs in points if theirs is None), points[0][0])
    return FrontierReport(
        schema_version=FRONTIER_SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=vela_version,
        provenance=Provenance(
            cycles="predicted",
            bytes="predicted",
            energy="predicted",
            weights=weights_provenance(first),
        ),
        model=model_facts(model, graph.subgraph),
        target=target,
        budget_memory=first.budget_memory,
        budget_bytes=budget_bytes,
        objective=objective,
        max_offchip_bytes=max_offchip_bytes,
        allowed=tuple(allowed),
        scope=first.bound.scope,
        points=tuple(
            FrontierPoint(
                totals=totals(subgraph, graph, target, plan),
                value=plan.objective,
                gap=plan.bound.gap,
                proof=plan.bound.proof.value,
                segments=len(plan.segments),
                fused_ops=sum(len(s.ops) for s in plan.segments if len(s.ops) > 1),
                source="npusched" if theirs is None else "vela",
                options="" if theirs is None else describe(theirs),
                own_value=_own_value(own, plan),
            )
            for plan, theirs in points
        ),
        candidates_mode=candidates_mode,
        vela_results=candidates.results,
        vela=tuple(contestant(each.plan, each) for each in sorted(candidates.found, key=_by_sram)),
        warnings=(*model.notes, *warnings),
    )


def _by_sram(candidate: Candidate) -> tuple[float, float]:
    return candidate.plan.sram_peak_bytes, candidate.plan.objective


def _own_value(own: Sequence[Plan], plan: Plan) -> float | None:
    """Objective of our best plan with no more SRAM than ``plan``."""
    return min(
        (each.objective for each in own if each.sram_peak_bytes <= plan.sram_peak_bytes),
        default=None,
    )


def render_frontier_json(report: FrontierReport) -> str:
    """Return the frontier as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def read_frontier_json(text: str | bytes) -> FrontierReport:
    """Return the frontier of its JSON. Raises msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=FrontierReport)


def render_frontier(
    report: FrontierReport, *, width: int = 100, colour: bool = False, rows: int = MAX_ROWS
) -> str:
    """Return the frontier as a table of at most ``rows`` plans, spread evenly over all."""
    width = max(width, 40)
    shown = spread(len(report.points), rows)
    lines: list[Line] = [
        *_header(report, width),
        line(""),
        *table(COLUMNS, [point_cells(report.points[k]) for k in shown], width=width),
    ]
    if len(shown) < len(report.points):
        left = plural(len(report.points) - len(shown), "more plan")
        lines.append(line((f"  … {left} between them (--format json)", "dim")))
    lines += [line(""), *_footer(report, width)]
    return paint(lines, width=width, colour=colour)


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` (at least 2) of ``count`` indices, evenly, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def _header(report: FrontierReport, width: int) -> list[Line]:
    target = report.target
    mode = target.memory_mode_name or target.memory_mode.value
    first = report.points[0].totals.sram_peak_bytes
    last = report.points[-1].totals.sram_peak_bytes
    return [
        *flow(
            [
                (plain_text(report.model.name, 48), "bold"),
                plural(report.model.op_count, "op"),
                plural(len(report.points), "plan"),
                f"{human_bytes(last)} to {human_bytes(first)} of {report.budget_memory}",
            ],
            width,
        ),
        *flow(
            [
                f"{plain_text(target.name, 40)} @ {human_frequency(target.clock_hz)}",
                plain_text(target.system_config, 40),
                plain_text(mode, 40),
            ],
            width,
        ),
    ]


def point_cells(point: FrontierPoint) -> list[str]:
    """What ``COLUMNS`` show of a plan."""
    sums = point.totals
    proof = point.proof if point.gap == 0 else f"{point.proof}, {100 * point.gap:.2f} %"
    if point.source == "vela":
        proof = "Vela's own" + _lead(point)
    return [
        human_bytes(sums.sram_peak_bytes),
        group_digits(sums.cycles),
        human_seconds(sums.latency_s),
        human_bytes(sums.dram_bytes),
        human_bytes(sums.flash_bytes),
        str(point.fused_ops),
        proof,
    ]


def _competition(report: FrontierReport) -> list[str]:
    if report.candidates_mode == "none":
        return []
    won = sum(point.source == "vela" for point in report.points)
    return [f"{plural(len(report.vela), 'plan')} of Vela's competed: {won or 'none'} won"]


def _lead(point: FrontierPoint) -> str:
    """How much better Vela's plan is than our best one with no more SRAM."""
    if point.own_value is None:
        return ", none of ours fits"
    return f", {100 * (1 - point.value / point.own_value):.2g} % better than ours"


def _conditions(report: FrontierReport) -> list[str]:
    """The limit on off-chip bytes and what was allowed, if anything was."""
    found = []
    if report.max_offchip_bytes is not None:
        found.append(f"at most {human_bytes(report.max_offchip_bytes)} off the chip")
    if report.allowed:
        found.append(f"with {', '.join(report.allowed)}: gains under Vela's model")
    return found


def _footer(report: FrontierReport, width: int) -> list[Line]:
    aim = "cycles + λ × off-chip bytes" if report.objective == "cycles" else report.objective
    return flow(
        [
            f"each plan has the least {aim} for its SRAM",
            *_competition(report),
            *_conditions(report),
            f"npusched {report.npusched_version}",
            "all figures predicted",
        ],
        width,
    )
