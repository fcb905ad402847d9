"""From advice as it was found to the published form."""

from __future__ import annotations

import msgspec

from npusched import __version__
from npusched import advise as advising
from npusched.report.advice_types import ADVICE_SCHEMA_VERSION, AdviceFigures, AdviceReport
from npusched.report.types import Advice, Delta


class AdviceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is made of. ``tried``: changes planned; ``asked_bytes``: the user's budget."""

    case: advising.Case
    before: advising.Figures
    found: tuple[advising.Found, ...]
    tried: int
    asked_bytes: int | None
    vela_version: str | None
    warnings: tuple[str, ...]


def published(advice: advising.Advice) -> Advice:
    """One advice that planned nothing: a note."""
    effect = advice.effect
    return Advice(
        id=advice.id,
        severity=advice.severity.value,
        message=advice.message,
        delta=Delta(**msgspec.structs.asdict(effect)),
        confidence=advice.confidence.value,
        band=advising.BANDS[advice.confidence],
    )


def published_found(found: advising.Found) -> Advice:
    """One advice with the change that was planned."""
    change = found.proposal.change
    return msgspec.structs.replace(
        published(found.advice),
        changes="model"
        if change.content is not None
        else "target"
        if change.target is not None
        else "budget",
        gain=found.gain,
    )


def build_advice(inputs: AdviceInputs) -> AdviceReport:
    """Return the report."""
    case = inputs.case
    target, plan = case.target, case.plan
    return AdviceReport(
        schema_version=ADVICE_SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=inputs.vela_version,
        model=case.model.name,
        sha256=case.model.sha256,
        target=target.name,
        clock_hz=target.clock_hz,
        system_config=target.system_config,
        memory_mode=target.memory_mode_name or target.memory_mode.value,
        objective=case.objective,
        budget_memory=plan.budget_memory,
        budget_bytes=inputs.asked_bytes,
        fits=case.fits,
        before=AdviceFigures(**msgspec.structs.asdict(inputs.before)),
        advice=tuple(published_found(each) for each in inputs.found),
        planned_changes=inputs.tried,
        rules=tuple(rule.id for rule in advising.RULES),
        warnings=(*case.model.notes, *inputs.warnings, *plan.notes),
    )
