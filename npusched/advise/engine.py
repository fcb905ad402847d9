"""All rules: collect what could be changed, plan it, keep what helps.

Alternatives are planned quickly, to choose among them; the best one, and what has none, just as
the user's plan was, which gives the figures of the advice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
    groups: dict[str, list[Proposal]] = {}
    for rule in rules:
        for proposal in rule.propose(case):
            groups.setdefault(proposal.group, []).append(proposal)
    total = sum(len(group) + (len(group) > 1) for group in groups.values())
    show, done = progress or _silent, 0
    show(done, total, "the model as it is")
    before = replan(Change(), False)
    if before is None:
        return None, (), 0
    found = []
    for group in groups.values():
        best, gain = group[0], 1.0
        if len(group) > 1:
            best, gain = _best(case, group, replan, partial(show, done, total))
            done += len(group)
        show(done, total, f"{best.rule} {best.what}")
        done += 1
        figures = replan(best.change, False) if gain > best.least_gain / 2 else None
        gain = 0.0 if figures is None else gain_of(case, before, figures)
        if figures is not None and gain >= best.least_gain:
            found.append(_found(best, before, figures, gain, _for_free(best, replan)))
    found.sort(key=lambda each: (each.advice.severity is Severity.INFO, -each.gain))
    return before, tuple(found), sum(len(group) for group in groups.values())


def _best(
    case: Case, group: Sequence[Proposal], replan: Replan, show: Callable[[str], None]
) -> tuple[Proposal, float]:
    """The best of several alternatives, planned quickly, and its gain (0: none gains)."""
    before = replan(Change(), True)
    best, most = group[0], 0.0
    for proposal in group:
        show(f"{proposal.rule} {proposal.what}")
        figures = None if before is None else replan(proposal.change, True)
        gain = 0.0
        if before is not None and figures is not None:
            gain = gain_of(case, before, figures)
        if gain > most:
            best, most = proposal, gain
    return best, most


def _silent(_done: int, _total: int, _what: str) -> None:
    """Progress that nobody watches."""


def gain_of(case: Case, before: Figures, after: Figures) -> float:
    """Share of the objective that is saved (negative: lost); 0 where there was nothing to save."""
    old, new = score(case, before), score(case, after)
    return (old - new) / old if old > 0 else 0.0


def score(case: Case, figures: Figures) -> float:
    """What the user minimises, in seconds (NPU and CPU), nanojoules or bytes."""
    if case.objective == "sram":
        return figures.sram_bytes
    if case.objective == "energy":
        return figures.energy_nj
    if case.objective == "offchip":
        return figures.offchip_bytes
    return figures.latency_s


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
        many = abs(change) >= 2 * old and isinstance(change, int)
        text = f"{name} {change:+,}" if many else f"{name} {change / old:+.1%}"
        (better if change < 0 else worse).append(text.replace("%", " %"))
    if effect.cpu_ops:
        text = f"{effect.cpu_ops:+} op{'' if abs(effect.cpu_ops) == 1 else 's'} on the CPU"
        (better if effect.cpu_ops < 0 else worse).append(text)
    shown = ", ".join(better) or "no figure falls by 0.5 %"
    return f"{shown}; but {', '.join(worse)}" if worse else shown


def within_band(predicted: float, found: float, before: float, confidence: Confidence) -> bool:
    """True if a change that came true is as predicted, within the band of its confidence."""
    return abs(found - predicted) <= max(BANDS[confidence] * abs(predicted), FLOOR * abs(before))
