"""Which of Vela's own plans compete with ours: asked for, compiled meanwhile, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from npusched.api.options import PlanOptions
from npusched.api.weights import WEIGHTS_FAILED
from npusched.errors import VelaError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from npusched.hardware import Target
    from npusched.ir import Model
    from npusched.report.types import CandidateFacts, CandidateMode
    from npusched.schedule import OrderedPlanner, Plan
    from npusched.vela.candidates import Candidate, Candidates
    from npusched.vela.options import VelaOptions
    from npusched.vela.result import VelaResult

Progress = Callable[[int, int], None]
"""Called with (compilations so far, distinct results so far)."""


class AskedCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """Compilations under way (or to be made by a sweep) whose schedules compete with ours."""

    model: Model
    target: Target
    options: PlanOptions
    futures: tuple[Future[VelaResult], ...] = ()

    def collect(
        self,
        planner: OrderedPlanner,
        warnings: list[str],
        progress: Progress | None = None,
    ) -> Candidates:
        """Wait for the results and read them; what fails is a warning.

        Only plans that keep the planner's off-chip limit compete.
        """
        segments = planner.given.segments
        from npusched.vela.candidates import Candidates, candidates_of

        if self.options.candidates == "none":
            return Candidates()
        try:
            if self.options.candidates == "sweep":
                results = _swept(self.model, self.target, self.options, progress)
            else:
                results = [future.result() for future in self.futures]
            found = candidates_of(
                results, self.model, segments.graph, self.target, segments.kernels.objective
            )
            kept = tuple(each for each in found.found if planner.given.keeps_limits(each.plan))
            return replace(found, found=kept)
        except VelaError as error:
            if any(text.startswith(WEIGHTS_FAILED) for text in warnings):
                return Candidates()  # said already
            why = f" ({error.why})" if error.why else ""
            warnings.append(f"Vela's own plans are not considered: {error.what}{why}")
            return Candidates()


def ask_candidates(
    model: Model, target: Target, options: PlanOptions, pool: Executor, *, is_frontier: bool
) -> AskedCandidates:
    """Submit the compilations of ``candidates="asked"``: Vela as its user would run it.

    For one budget with that arena limit; for a frontier with both strategies.
    """
    wanted: list[VelaOptions] = []
    if options.candidates == "asked" and not options.input_shapes:
        from npusched.vela.options import Optimise, VelaOptions

        limit = None if options.sram is None else options.budget_bytes(target)
        wanted.append(VelaOptions(arena_cache_size_bytes=limit))
        if is_frontier:
            wanted.append(VelaOptions(optimise=Optimise.SIZE))
    futures = tuple(pool.submit(_compile, model, target, options, each) for each in wanted)
    return AskedCandidates(model=model, target=target, options=options, futures=futures)


def _compile(model: Model, target: Target, options: PlanOptions, asked: VelaOptions) -> VelaResult:
    from npusched.api.weights import VELA_LIMIT_S
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import compile_model

    cache = VelaCache() if options.use_cache else None
    return compile_model(model.content, target, asked, cache=cache, limit_s=VELA_LIMIT_S)


def _swept(
    model: Model, target: Target, options: PlanOptions, progress: Progress | None
) -> list[VelaResult]:
    """Every distinct result that a sweep finds; without a cache they are compiled once more."""
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import compile_model
    from npusched.vela.sweep import sweep

    cache = VelaCache() if options.use_cache else None
    found = sweep(
        model.content,
        target,
        cache=cache,
        progress=progress,
        max_compiles=options.max_compilations,
    )
    return [
        compile_model(model.content, target, point.options, cache=cache) for point in found.distinct
    ]


def best_of(
    ours: Plan | None, candidates: Candidates, budget_bytes: int | None, planner: OrderedPlanner
) -> tuple[Candidate | None, Plan | None]:
    """(best candidate, best plan of all within the budget; ours if Vela's is no better)."""
    from npusched.vela.candidates import best_within, rank

    objective = planner.given.segments.kernels.objective
    theirs = best_within(candidates, budget_bytes, objective)
    if theirs is None or (
        ours is not None and rank(ours, objective) <= rank(theirs.plan, objective)
    ):
        return theirs, ours
    return theirs, _as_answer(ours, theirs, budget_bytes, planner)


def _as_answer(
    ours: Plan | None, theirs: Candidate, budget_bytes: int | None, planner: OrderedPlanner
) -> Plan:
    """Vela's plan as the answer, with what is known about it."""
    from npusched.schedule.bound import compulsory_cycles
    from npusched.schedule.types import Bound, Proof
    from npusched.vela.candidates import describe

    value = theirs.plan.objective
    least = value if ours is None else min(ours.bound.objective, value)
    bound = Bound(
        cycles=compulsory_cycles(planner.given.segments),
        objective=least,
        gap=value / least - 1 if least else 0.0,
        proof=Proof.FEASIBLE,
        scope=f"Vela's own schedule ({describe(theirs)}), which no plan of our scope betters",
    )
    return replace(theirs.plan, budget_bytes=budget_bytes, bound=bound)


def facts_of(
    candidates: Candidates,
    mode: CandidateMode,
    ours: Plan | None,
    theirs: Candidate | None,
    *,
    is_ours: bool,
) -> CandidateFacts:
    """The published form: who competed, and who won."""
    from npusched.report.candidates import contestant
    from npusched.report.types import CandidateFacts

    return CandidateFacts(
        mode=mode,
        results=candidates.results,
        plans=len(candidates.found),
        reasons=candidates.reasons,
        shown="npusched" if is_ours else "vela",
        ours=None if ours is None else contestant(ours),
        vela=None if theirs is None else contestant(theirs.plan, theirs),
    )


def merged(
    plans: Sequence[Plan], candidates: Candidates, budget_bytes: int | None
) -> list[tuple[Plan, Candidate | None]]:
    """Our frontier with Vela's plans in it: from the most SRAM to the least, none dominated.

    Of equals ours is kept.
    """
    entries: list[tuple[Plan, Candidate | None]] = [(plan, None) for plan in plans]
    entries += [
        (each.plan, each)
        for each in candidates.found
        if budget_bytes is None or each.plan.sram_peak_bytes <= budget_bytes
    ]
    entries.sort(key=lambda e: (e[0].sram_peak_bytes, e[0].objective, e[1] is not None))
    kept: list[tuple[Plan, Candidate | None]] = []
    for entry in entries:
        if not kept or entry[0].objective < kept[-1][0].objective:
            kept.append(entry)
    return kept[::-1]
