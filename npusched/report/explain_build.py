"""An explanation as a whole: the facts of its subject, the plan's figures, and the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from npusched import __version__
from npusched.report.build import model_facts, totals
from npusched.report.explain_inputs import Explained
from npusched.report.explain_sentences import sentences_of
from npusched.report.explain_types import (
    EXPLAIN_SCHEMA_VERSION,
    ExplainReport,
    FallbackFacts,
    FusionFacts,
    ModeFacts,
    OpExplanation,
    PeakFacts,
    PlanFigures,
    Subject,
)
from npusched.report.explain_vela_types import VelaExplanation


def build_explanation(
    about: Explained,
    subject: Subject,
    *,
    peak: PeakFacts | None = None,
    op: OpExplanation | None = None,
    fallbacks: FallbackFacts | None = None,
    modes: Sequence[ModeFacts] = (),
    fusion: FusionFacts | None = None,
    vela: VelaExplanation | None = None,
    vela_version: str | None = None,
    warnings: Sequence[str] = (),
) -> ExplainReport:
    """Return the report; exactly the facts of its subject are given."""
    report = ExplainReport(
        schema_version=EXPLAIN_SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=vela_version,
        subject=subject,
        model=model_facts(about.model, about.given.subgraph),
        target=about.target,
        budget_memory=about.plan.budget_memory,
        budget_bytes=about.plan.budget_bytes,
        objective=about.own.segments.kernels.objective.goal.value,
        plan=_figures(about),
        sentences=(),
        peak=peak,
        op=op,
        fallbacks=fallbacks,
        modes=tuple(modes),
        fusion=fusion,
        vela=vela,
        warnings=(*about.model.notes, *warnings, *about.plan.notes),
    )
    return replace(report, sentences=tuple(sentences_of(report)))


def _figures(about: Explained) -> PlanFigures:
    sums = totals(about.subgraph, about.graph, about.target, about.plan)
    return PlanFigures(
        shown=about.shown,
        sram_peak_bytes=sums.sram_peak_bytes,
        cycles=sums.cycles,
        cpu_cycles=sums.cpu_cycles,
        latency_s=sums.latency_s,
        energy_nj=sums.energy_nj,
        dram_bytes=sums.dram_bytes,
        flash_bytes=sums.flash_bytes,
        constant_bytes=sums.constant_bytes,
    )
