"""The published form of a frontier: what ``npusched plan --frontier --format json`` prints."""

from __future__ import annotations

from typing import Literal

from npusched.hardware.target import Target
from npusched.report.types import (
    CandidateMode,
    Contestant,
    ModelFacts,
    Provenance,
    Published,
    Totals,
)

FRONTIER_SCHEMA_VERSION = "1.0"


class FrontierPoint(Published, frozen=True, kw_only=True):
    """The best plan for its own SRAM peak (``totals.sram_peak_bytes``).

    ``value`` is what was minimised, ``gap`` and ``proof`` say how far from the best one it may be
    (see ``BoundFacts``). ``fused_ops`` ops run in segments of several. ``source``: whose plan it
    is; of Vela's, ``options`` give it, and ``own_value`` is the objective of our best plan with no
    more SRAM (None: there is none).
    """

    totals: Totals
    value: float
    gap: float
    proof: Literal["optimal", "bounded", "feasible"]
    segments: int
    fused_ops: int
    source: Literal["npusched", "vela"]
    options: str
    own_value: float | None


class FrontierReport(Published, frozen=True, kw_only=True):
    """Every best plan within a budget and below, from the most SRAM to the least.

    ``candidates_mode``: which of Vela's schedules competed; ``vela`` are all of them that are
    plans of the same ops, costed like ours, by rising SRAM.
    """

    schema_version: str
    npusched_version: str
    vela_version: str | None
    provenance: Provenance
    model: ModelFacts
    target: Target
    budget_memory: str
    budget_bytes: int | None
    objective: str
    max_offchip_bytes: int | None
    allowed: tuple[str, ...]
    scope: str
    points: tuple[FrontierPoint, ...]
    candidates_mode: CandidateMode
    vela_results: int
    vela: tuple[Contestant, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show figures in a notebook, everything in them escaped."""
        from npusched.report.html.fragment import frontier_fragment

        return frontier_fragment(self)
