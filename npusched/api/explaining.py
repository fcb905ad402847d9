"""Explanations: what makes the peak, binds an op, ends a chain, runs on the CPU, moves Vela."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from npusched.api.options import PlanOptions
from npusched.api.planning import Planned, content_of, make_plan, prepare
from npusched.errors import InfeasibleError, ModelError, TargetError

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Shape, Subgraph
    from npusched.report.explain_inputs import Explained
    from npusched.report.explain_types import ExplainReport, Subject
    from npusched.report.types import CandidateMode
    from npusched.vela.options import VelaOptions
    from npusched.vela.result import VelaResult

FRACTIONS = (3 / 4, 1 / 2, 1 / 4, 1 / 8)
"""Limits that Vela is asked for where the user names none, as shares of what it uses unasked."""

Progress = Callable[[int, int], None]


def explain(
    model: str | Path | bytes,
    target: str | Target,
    subject: Subject = "peak",
    *,
    op: int | None = None,
    layer: str | None = None,
    arena_limits: Sequence[int] = (),
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
) -> ExplainReport:
    """Explain a plan, and return the report.

    ``subject``: peak, op (with ``op``, an index in the file, or ``layer``, a name of a result),
    fallbacks, mode (a target given by name in all its memory modes), fusion, or vela
    (``arena_limits``: what it is asked for besides). The rest: as in ``plan``.

    Raises ModelError, TargetError or InfeasibleError; VelaError if it is about Vela and that fails.
    """
    from npusched.hardware import load_target
    from npusched.hardware.relatives import memory_mode_targets

    content, name = content_of(model)
    loaded = load_target(target) if isinstance(target, str) else target
    modes: tuple[Target, ...] = (loaded,)
    if subject == "mode" and isinstance(target, str):
        modes = tuple(memory_mode_targets(loaded, target))
    return explain_report(
        content,
        name=name,
        target=loaded,
        subject=subject,
        op=op,
        layer=layer,
        modes=modes,
        arena_limits=arena_limits,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            max_offchip_bytes=max_offchip_bytes,
            allow=tuple(allow),
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
            candidates=candidates,
        ),
    )


def explain_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    subject: Subject,
    op: int | None = None,
    layer: str | None = None,
    modes: Sequence[Target] = (),
    arena_limits: Sequence[int] = (),
    options: PlanOptions | None = None,
    progress: Progress | None = None,
) -> ExplainReport:
    """Like ``explain``, for bytes and resolved targets (``modes``: the target in each mode).

    ``progress`` is called after each compilation of Vela's (subject vela).
    """
    options = options or PlanOptions()
    if subject == "vela":
        return _about_vela(content, name, target, options, arena_limits, progress)
    if subject == "mode":
        return _about_modes(content, name, target, modes or (target,), options)
    planned = make_plan(content, name=name, target=target, options=options)
    return _about_plan(planned, target, subject, op, layer)


def _about_plan(
    planned: Planned, target: Target, subject: Subject, op: int | None, layer: str | None
) -> ExplainReport:
    """Explanations that one plan suffices for."""
    from npusched.report.explain_build import build_explanation

    warnings = list(planned.ready.warnings)
    version = planned.ready.sizes.vela_version
    match subject:
        case "peak":
            from npusched.report.explain_peak import build_peak

            about = _explained(planned, target)
            peak = build_peak(about)
            return build_explanation(
                about, subject, peak=peak, vela_version=version, warnings=warnings
            )
        case "fallbacks":
            from npusched.report.explain_fallbacks import build_fallbacks

            about = _explained(planned, target)
            return build_explanation(
                about,
                subject,
                fallbacks=build_fallbacks(about),
                vela_version=version,
                warnings=warnings,
            )
        case "fusion":
            from npusched.report.explain_fusion import build_fusion

            about = _explained(planned, target, warnings=warnings)
            fusion = build_fusion(about)
            return build_explanation(
                about, subject, fusion=fusion, vela_version=version, warnings=warnings
            )
        case _:
            from npusched.hardware.relatives import larger_accelerator
            from npusched.report.explain_op import build_op

            about = _explained(planned, target, warnings=warnings)
            index = op_index(about.subgraph, op, layer)
            larger = None
            if target.accelerator is not None:
                larger = larger_accelerator(target.accelerator)
            found = build_op(about, index, larger)
            return build_explanation(
                about, subject, op=found, vela_version=version, warnings=warnings
            )


def _explained(planned: Planned, target: Target, *, warnings: list[str] | None = None) -> Explained:
    """The plan and its origin. With ``warnings`` our own plan, where Vela's is the better one."""
    from npusched.report.explain_inputs import Explained

    ready, plan, shown = planned.ready, planned.plan, planned.candidates.shown
    if shown == "vela" and warnings is not None:
        plan, shown = planned.planner.plan(plan.budget_bytes), "npusched"
        warnings.append(
            "npusched plan shows Vela's own schedule here, which is better; this explains our best"
        )
    return Explained(
        model=ready.model,
        given=ready.graph,
        target=target,
        planner=planned.planner,
        plan=plan,
        shown=shown,
    )


def _about_modes(
    content: bytes, name: str, target: Target, modes: Sequence[Target], options: PlanOptions
) -> ExplainReport:
    """The model planned in every mode; the target's own comes first and must fit."""
    from npusched.report.explain_build import build_explanation
    from npusched.report.explain_mode import build_modes

    tried: list[tuple[Target, Explained | InfeasibleError]] = []
    own: Planned | None = None
    for mode in modes:
        try:
            planned = make_plan(content, name=name, target=mode, options=options)
        except InfeasibleError as error:
            tried.append((mode, error))
            continue
        own = own or planned
        tried.append((mode, _explained(planned, mode)))
    fitting = [found for _, found in tried if not isinstance(found, InfeasibleError)]
    if own is None:
        raise next(found for _, found in tried if isinstance(found, InfeasibleError))
    return build_explanation(
        fitting[0],
        "mode",
        modes=build_modes(tried, target),
        vela_version=own.ready.sizes.vela_version,
        warnings=own.ready.warnings,
    )


def _about_vela(
    content: bytes,
    name: str,
    target: Target,
    options: PlanOptions,
    arena_limits: Sequence[int],
    progress: Progress | None,
) -> ExplainReport:
    """What Vela does with limits; our plan beside it is that of the least SRAM if none fits."""
    from npusched.report.explain_build import build_explanation
    from npusched.report.explain_inputs import Explained
    from npusched.report.explain_vela import build_vela

    if target.accelerator is None:
        raise TargetError(
            f"{target.name} has no NPU",
            "Vela compiles for Ethos-U only",
            "name an Ethos-U target with --config (npusched configs lists them)",
        )
    options = replace(options, use_vela=True, candidates="none")
    ready = prepare(content, name=name, target=target, options=options)
    budget = options.budget_bytes(target)
    planner = options.planner(ready.graph, target, ready.sizes.of)
    warnings = list(ready.warnings)
    try:
        plan = planner.plan(budget)
    except InfeasibleError as error:
        plan = planner.plan(planner.smallest_budget_bytes())
        warnings.append(f"{error.what}: our figures are of the smallest feasible budget")
    about = Explained(
        model=ready.model, given=ready.graph, target=target, planner=planner, plan=plan
    )
    results = _compiled(content, target, options, arena_limits, progress)
    return build_explanation(
        about,
        "vela",
        vela=build_vela(about, results),
        vela_version=results[0][1].vela_version,
        warnings=warnings,
    )


def _compiled(
    content: bytes,
    target: Target,
    options: PlanOptions,
    arena_limits: Sequence[int],
    progress: Progress | None,
) -> list[tuple[VelaOptions, VelaResult]]:
    """Vela as asked for, without a limit, optimised for size, and with other limits."""
    from npusched.vela.cache import VelaCache
    from npusched.vela.options import Optimise, VelaOptions, address_space_bytes
    from npusched.vela.runner import compile_model, config_of
    from npusched.vela.totals import vela_sram_peak

    cache = VelaCache() if options.use_cache else None
    asked = None if options.sram is None else options.budget_bytes(target)
    space = address_space_bytes(config_of(target).architecture)
    wanted = [
        VelaOptions(arena_cache_size_bytes=asked),
        VelaOptions(arena_cache_size_bytes=space),
        VelaOptions(optimise=Optimise.SIZE),
    ]
    wanted += [VelaOptions(arena_cache_size_bytes=limit) for limit in arena_limits]
    found: list[tuple[VelaOptions, VelaResult]] = []
    seen: set[tuple[str, int]] = set()

    def compile_all(which: Sequence[VelaOptions]) -> None:
        for each in which:
            result = compile_model(content, target, each, cache=cache)
            key = (str(each.optimise), result.arena_limit_bytes)
            if key not in seen:
                seen.add(key)
                found.append((each, result))
            if progress is not None:
                progress(len(found), len(found))

    compile_all(wanted)
    if asked is None and not arena_limits:
        used = vela_sram_peak(target, found[0][1].report)
        limits = [int(used * share) // 16 * 16 for share in FRACTIONS]
        compile_all([VelaOptions(arena_cache_size_bytes=limit) for limit in limits if limit])
    return found


def subject_of(word: str) -> Subject:
    """The subject that a word of the command line asks for; a layer is an op. Raises KeyError."""
    subjects: dict[str, Subject] = {
        "peak": "peak",
        "op": "op",
        "layer": "op",
        "fallbacks": "fallbacks",
        "mode": "mode",
        "fusion": "fusion",
        "vela": "vela",
    }
    return subjects[word]


def op_index(subgraph: Subgraph, op: int | None, layer: str | None) -> int:
    """Index of an op, by number or by the name of a result. Raises ModelError.

    A name may be left incomplete (its last part, or any part) if only one op fits.
    """
    count = len(subgraph.ops)
    if layer is None:
        if op is None or not 0 <= op < count:
            raise ModelError(
                f"the model has no op {op}",
                f"its ops are numbered 0 to {count - 1}" if count else "it has no ops",
                "'npusched plan' lists them with their numbers",
            )
        return op
    names = [[subgraph.tensors[t].name for t in each.outputs if t >= 0] for each in subgraph.ops]
    matches: tuple[Callable[[str], bool], ...] = (
        lambda name: name == layer,
        lambda name: layer in (name.split("/")[-1], name.split(";")[0].split("/")[-1]),
        lambda name: layer in name,
    )
    for fits in matches if layer else ():
        found = [k for k, mine in enumerate(names) if any(map(fits, mine))]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(f"#{k} {names[k][0][:60]}" for k in found[:6])
            raise ModelError(
                f"{len(found)} ops match '{layer[:100]}'",
                shown + (", ..." if len(found) > 6 else ""),
                "give more of the name, or the number with 'op N'",
            )
    import difflib

    every = [name for mine in names for name in mine]
    close = difflib.get_close_matches(layer[:200], [name[:200] for name in every], 1)
    raise ModelError(
        f"no op makes a tensor called '{layer[:100]}'",
        "names are those of the ops' results in the file",
        f"did you mean '{close[0]}'?" if close else "'npusched plan' lists the ops",
    )
