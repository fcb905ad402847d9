"""All rules: collect what could be changed, plan it, keep what helps.

Every change is planned twice: quickly, to drop what gains nothing and to choose among
alternatives, and then just as the user's plan was, which gives the figures of the advice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from npusched.advise.types import (
    BANDS,
    FLOOR,
    Advice,
    Case,
    Change,
    Confidence,
    Effect,
    Figures,
    Found,
    Proposal,
    Replan,
    Rule,
    Severity,
)

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (plans made, plans to make, what is planned next)."""


def find_advice(
    case: Case, rules: Sequence[Rule], replan: Replan, progress: Progress | None = None
) -> tuple[Figures | None, tuple[Found, ...], int]:
    """Return (figures as it is, all advice, how many changes were planned).

    Warnings come first, then the largest gain. The figures are None if the model as it is cannot
    be planned at all.
    """
    proposals = [proposal for rule in rules for proposal in rule.propose(case)]
    show = progress or _silent
    total = len(proposals) + 1
    show(0, total, "the model as it is")
    before, quick = replan(Change(), False), replan(Change(), True)
    if before is None or quick is None:
        return before, (), 0
    best: dict[str, tuple[float, Proposal]] = {}
    for number, proposal in enumerate(proposals, 1):
        show(number, total, f"{proposal.rule} {proposal.what}")
        figures = replan(proposal.change, True)
        gain = 0.0 if figures is None else gain_of(case, quick, figures)
        known = best.get(proposal.group, (proposal.least_gain / 2, None))[0]
        if gain > known:
            best[proposal.group] = (gain, proposal)
    found = []
    for number, (_, proposal) in enumerate(best.values(), 1):
        show(total + number, total + len(best), f"{proposal.rule} {proposal.what}")
        figures = replan(proposal.change, False)
        if figures is None:
            continue
        gain = gain_of(case, before, figures)
        if gain >= proposal.least_gain:
            found.append(_found(proposal, before, figures, gain, _for_free(proposal, replan)))
    found.sort(key=lambda each: (each.advice.severity is Severity.INFO, -each.gain))
    return before, tuple(found), len(proposals)


def _silent(_done: int, _total: int, _what: str) -> None:
    """Progress that nobody watches."""


def gain_of(case: Case, before: Figures, after: Figures) -> float:
    """Share of the objective that is saved (negative: lost); 0 where there was nothing to save."""
    old, new = score(case, before), score(case, after)
    return (old - new) / old if old > 0 else 0.0


def score(case: Case, figures: Figures) -> float:
    """What the user minimises, in seconds, nanojoules or bytes.

    ``cycles`` counts NPU and CPU time, with lambda NPU cycles for every off-chip byte. Of a case
    that no plan fits only SRAM counts.
    """
    if not case.fits or case.objective == "sram":
        return figures.sram_bytes
    if case.objective == "energy":
        return figures.energy_nj
    if case.objective == "offchip":
        return figures.offchip_bytes
    waiting = case.lambda_cycles_per_byte * figures.offchip_bytes / case.target.clock_hz
    return figures.latency_s + waiting


def _for_free(proposal: Proposal, replan: Replan) -> str:
    """What is said of the change that may cost nothing, if nothing grows by more than 1 %."""
    if proposal.free is None:
        return ""
    text, change = proposal.free
    before, after = replan(Change(), True), replan(change, True)
    if before is None or after is None:
        return ""
    fields = ("sram_bytes", "cycles", "latency_s")
    costs = any(getattr(after, f) > 1.01 * getattr(before, f) for f in fields)
    return "" if costs else f"; {text}"


def _found(
    proposal: Proposal, before: Figures, after: Figures, gain: float, more: str = ""
) -> Found:
    effect = after.since(before)
    message = f"{proposal.what}: {effect_text(before, effect)}{more}"
    if proposal.price:
        message += f"; {proposal.price}"
    return Found(
        advice=Advice(
            id=proposal.rule,
            severity=proposal.severity,
            message=message,
            effect=effect,
            confidence=proposal.confidence,
        ),
        proposal=proposal,
        gain=gain,
    )


_NAMES: Final = {
    "latency_s": "time",
    "cycles": "NPU cycles",
    "sram_bytes": "SRAM",
    "energy_nj": "energy",
    "constant_bytes": "constants",
    "offchip_bytes": "off-chip bytes",
}
"""Figures that messages name, in this order."""


def effect_text(before: Figures, effect: Effect) -> str:
    """What gets better, and what gets worse by 0.5 % or more, as shares of what there was."""
    better: list[str] = []
    worse: list[str] = []
    for field, name in _NAMES.items():
        old, change = getattr(before, field), getattr(effect, field)
        if not change or abs(change) < FLOOR * old:
            continue
        text = f"{name} {change / old:+.1%}" if old else f"{name} {change:+,}"
        (better if change < 0 else worse).append(text.replace("%", " %"))
    if effect.cpu_ops:
        text = f"{effect.cpu_ops:+} op{'' if abs(effect.cpu_ops) == 1 else 's'} on the CPU"
        (better if effect.cpu_ops < 0 else worse).append(text)
    shown = ", ".join(better) or "no figure falls by 0.5 %"
    return f"{shown}; but {', '.join(worse)}" if worse else shown


def within_band(predicted: float, found: float, before: float, confidence: Confidence) -> bool:
    """True if a change that came true is as predicted, within the band of its confidence."""
    return abs(found - predicted) <= max(BANDS[confidence] * abs(predicted), FLOOR * abs(before))
