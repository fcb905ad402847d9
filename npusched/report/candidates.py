"""Vela's own schedules beside ours, in published form."""

from __future__ import annotations

from npusched.report.types import Contestant
from npusched.schedule import Plan
from npusched.vela.candidates import Candidate, describe


def contestant(plan: Plan, candidate: Candidate | None = None) -> Contestant:
    """The figures that decide; ``candidate``: where the plan comes from, None = ours."""
    return Contestant(
        value=plan.objective,
        cycles=plan.amounts.npu_cycles,
        sram_peak_bytes=plan.sram_peak_bytes,
        options="" if candidate is None else describe(candidate),
    )
