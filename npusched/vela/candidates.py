"""Vela's own schedules as plans that compete with ours, costed stripe by stripe like ours."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.hardware.target import Target
from npusched.ir import Model
from npusched.schedule import check_plan
from npusched.schedule.objective import Goal, Objective
from npusched.schedule.types import Plan
from npusched.vela.options import VelaOptions
from npusched.vela.result import VelaResult
from npusched.vela.schedule import Unmatched, from_vela, read_schedule


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Vela's schedule as a plan, and the options that give it (``arena_limit_bytes`` in effect)."""

    plan: Plan
    options: VelaOptions
    arena_limit_bytes: int


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """All candidates found, how many results were looked at, and why some are no plans of ours."""

    found: tuple[Candidate, ...] = ()
    results: int = 0
    reasons: tuple[str, ...] = ()


def candidates_of(
    results: Iterable[VelaResult],
    model: Model,
    graph: OpGraph,
    target: Target,
    objective: Objective,
) -> Candidates:
    """Vela's schedules as checked plans of ``graph``. Raises VelaError for unreadable results."""
    found: list[Candidate] = []
    reasons: list[str] = []
    count = 0
    for result in results:
        count += 1
        plan = from_vela(read_schedule(result, model, graph, target), objective)
        if isinstance(plan, Unmatched):
            reasons += plan.reasons or (f"{len(plan.ops)} ops do not match",)
            continue
        faults = check_plan(graph, target, plan)
        if faults:
            reasons.append(faults[0])
            continue
        limit = result.arena_limit_bytes
        found.append(Candidate(plan=plan, options=result.options, arena_limit_bytes=limit))
    return Candidates(found=tuple(found), results=count, reasons=tuple(dict.fromkeys(reasons)))


def best_within(
    candidates: Candidates, budget_bytes: int | None, objective: Objective
) -> Candidate | None:
    """The best candidate whose peak is within the budget (of equals the one with less SRAM)."""
    fitting = [
        each
        for each in candidates.found
        if budget_bytes is None or each.plan.sram_peak_bytes <= budget_bytes
    ]
    return min(fitting, key=lambda each: rank(each.plan, objective), default=None)


def rank(plan: Plan, objective: Objective) -> tuple[float, float]:
    """Sort key of plans under an objective: the lower the better."""
    if objective.goal is Goal.SRAM:
        return (plan.sram_peak_bytes, plan.objective)
    return (plan.objective, plan.sram_peak_bytes)


_UNLIMITED_BYTES = 1 << 32
"""Limits from here on are none (the address space of the smallest accelerator)."""


def describe(candidate: Candidate) -> str:
    """The options of a candidate in words: strategy, arena limit, features switched off."""
    options = candidate.options
    limit = f"arena limit {candidate.arena_limit_bytes}"
    if candidate.arena_limit_bytes >= _UNLIMITED_BYTES:
        limit = "no arena limit"
    return f"{options.optimise}, {limit}{_disabled(options)}"


def describe_options(options: VelaOptions) -> str:
    """Options in words, the arena limit apart."""
    return f"{options.optimise}{_disabled(options)}"


def _disabled(options: VelaOptions) -> str:
    return "".join(f", without {feature}" for feature in options.disable)
