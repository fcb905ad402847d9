"""``npusched advise``: every rule, each change planned just as the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from npusched.api.options import PlanOptions
from npusched.api.planning import Planned, content_of, make_plan
from npusched.errors import InfeasibleError, ModelError, NpuschedError

if TYPE_CHECKING:
    from npusched.advise import Case, Change, Figures, Found
    from npusched.advise.engine import Progress
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.advice_types import AdviceReport
    from npusched.report.types import CandidateMode

NO_LIMIT_BYTES = 1 << 40
"""A budget that every plan keeps, for models that fit no smaller one."""


def advice(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
) -> AdviceReport:
    """Return what to change in a model or its target, with the effect; see ``plan``.

    An effect is the difference between two plans: of the model as it is, and with the change.
    Nothing is proposed that does not lower the objective; where no plan keeps a limit, what it
    limits.

    Raises ModelError or TargetError.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return advise_model(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
            candidates=candidates,
        ),
    ).report


class Advised(NamedTuple):
    """The report, and for each of its advice the change behind it."""

    report: AdviceReport
    changes: tuple[Change, ...]


def advise_model(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    progress: Progress | None = None,
) -> Advised:
    """Like ``advice``, for bytes and a resolved target; ``progress``: see ``advise.engine``."""
    from npusched.advise import RULES, find_advice
    from npusched.report.advice_build import AdviceInputs, build_advice

    asked = (options or PlanOptions()).budget_bytes(target)
    planned, options, fits = _base(content, name, target, options or PlanOptions())
    case = _case(planned, target, options, fits=fits)
    plans = Replanner(content, name, target, options, planned)
    before, found, tried = find_advice(case, RULES, plans, progress)
    assert before is not None
    report = build_advice(
        AdviceInputs(
            case=case,
            before=before,
            found=found,
            tried=tried,
            asked_bytes=asked,
            vela_version=planned.ready.sizes.vela_version,
            warnings=tuple(planned.ready.warnings),
        )
    )
    return Advised(report, tuple(each.proposal.change for each in found))


def found_for(planned: Planned, target: Target, progress: Progress | None = None) -> list[Found]:
    """All advice about a plan that was made already (``plan --advice all``)."""
    from npusched.advise import RULES, find_advice

    options = planned.ready.options
    case = _case(planned, target, options, fits=_is_on_board(planned, target))
    model = planned.ready.model
    plans = Replanner(model.content, model.name, target, options, planned)
    return list(find_advice(case, RULES, plans, progress)[1])


def changed_model(advised: Advised, number: int) -> bytes:
    """The file with the change of advice ``number`` (from 1). Raises ModelError if it has none."""
    count = len(advised.changes)
    if not 1 <= number <= count:
        raise ModelError(
            f"there is no advice {number}",
            f"advices are numbered 1 to {count}" if count else "there is nothing to change",
            "run 'npusched advise' without --apply to see them",
        )
    content = advised.changes[number - 1].content
    if content is None:
        raise ModelError(
            f"advice {number} does not change the model",
            f"{advised.report.advice[number - 1].id} is about the target or the budget",
            "give the options that it names to 'npusched plan'",
        )
    return content


def _base(
    content: bytes, name: str, target: Target, options: PlanOptions
) -> tuple[Planned, PlanOptions, bool]:
    """The plan as it is; where none keeps the limits, the nearest one, and the options for it."""
    try:
        planned = make_plan(content, name=name, target=target, options=options)
        return planned, options, _is_on_board(planned, target)
    except InfeasibleError:
        pass
    if options.max_offchip_bytes is not None:
        near = replace(options, objective="offchip", max_offchip_bytes=None)
        try:
            return make_plan(content, name=name, target=target, options=near), near, False
        except InfeasibleError:
            options = near
    near = replace(options, sram=NO_LIMIT_BYTES, objective="sram")
    return make_plan(content, name=name, target=target, options=near), near, False


def _is_on_board(planned: Planned, target: Target) -> bool:
    """False if the plan keeps its budget, but needs more than the memory has."""
    capacity = target.cache.capacity_bytes
    return capacity is None or planned.plan.sram_peak_bytes <= capacity


def _case(planned: Planned, target: Target, options: PlanOptions, *, fits: bool) -> Case:
    from npusched.advise import Case
    from npusched.graph.reorder import reordered

    asked = None if options.sram is None else options.budget_bytes(target)
    return Case(
        model=planned.ready.model,
        graph=reordered(planned.ready.graph, planned.plan.order),
        target=target,
        plan=planned.plan,
        objective=options.objective if fits or options.objective == "offchip" else "sram",
        sram_bytes=asked,
        fits=fits,
    )


class Replanner:
    """Plans changes with the user's options, or quickly: without Vela. Figures are remembered."""

    def __init__(
        self, content: bytes, name: str, target: Target, options: PlanOptions, base: Planned
    ) -> None:
        self.content = content
        self.name = name
        self.target = target
        self.options = options
        self.exact = base.ready.sizes.vela_version is not None
        self.known: dict[tuple[bytes, str, bool], Figures | None] = {
            self._key(None, False): figures_of(base, target)
        }

    def __call__(self, change: Change, quick: bool) -> Figures | None:
        """Figures of a change (see ``advise.types.Replan``)."""
        key = self._key(change, quick)
        if key not in self.known:
            self.known[key] = self._planned(change, quick=quick)
        return self.known[key]

    def _key(self, change: Change | None, quick: bool) -> tuple[bytes, str, bool]:
        from npusched.advise import Change

        change = change or Change()
        rest = (change.target or self.target, change.sram_bytes, change.lifts_budget)
        return change.content or self.content, repr(rest), quick

    def _planned(self, change: Change, *, quick: bool) -> Figures | None:
        options = self.options
        if quick:
            options = replace(options, use_vela=False, candidates="none")
        if change.lifts_budget or change.sram_bytes is not None:
            options = replace(options, sram=change.sram_bytes)
        target = change.target or self.target
        try:
            planned = make_plan(
                change.content or self.content, name=self.name, target=target, options=options
            )
        except NpuschedError:  # the change cannot be planned: nothing to say of it
            return None
        if not quick and self.exact and planned.ready.sizes.vela_version is None:
            return None  # Vela refuses it: figures with estimated weights cannot be compared
        return figures_of(planned, target)


def figures_of(planned: Planned, target: Target) -> Figures:
    """What a plan costs, as advice compares it."""
    from npusched.advise import Figures
    from npusched.graph.opgraph import SourcePlacement
    from npusched.graph.reorder import reordered
    from npusched.report.build import totals

    graph = reordered(planned.ready.graph, planned.plan.order)
    model = planned.ready.model
    sums = totals(model.subgraphs[graph.subgraph], graph, target, planned.plan)
    return Figures(
        sram_bytes=sums.sram_peak_bytes,
        cycles=sums.cycles,
        energy_nj=sums.energy_nj.typical,
        latency_s=sums.latency_s,
        cpu_cycles=sums.cpu_cycles,
        offchip_bytes=sums.dram_bytes + sums.flash_bytes,
        constant_bytes=sums.constant_bytes,
        cpu_ops=sum(1 for s in graph.sources if s.placement is SourcePlacement.CPU),
    )
