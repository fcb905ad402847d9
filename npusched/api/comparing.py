"""Our plan beside Vela's: bytes -> both schedules -> joined rows and totals on one basis."""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from npusched.api.options import PlanOptions
from npusched.api.planning import content_of, graph_of, read
from npusched.errors import TargetError

if TYPE_CHECKING:
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Model, Shape
    from npusched.report.compare_build import Ours, Theirs
    from npusched.report.compare_types import CompareReport
    from npusched.vela.files import VelaOutput
    from npusched.vela.options import VelaOptions
    from npusched.vela.result import VelaResult


def compare(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    vela_options: VelaOptions | None = None,
    vela_output: str | Path | None = None,
    measured: str | Path | None = None,
    use_cache: bool = True,
) -> CompareReport:
    """Compare our plan with Vela's schedule and return the report.

    ``model``, ``target``, ``sram``: as in ``plan``. ``vela_options``: as Vela is run;
    ``vela_output``: read this folder of a ``vela`` run instead. ``measured``: a CSV or JSON file of
    your own figures. Raises VelaError if Vela fails, else like ``plan``.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return compare_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            max_offchip_bytes=max_offchip_bytes,
            allow=tuple(allow),
            signature=signature,
            input_shapes=input_shapes,
            use_cache=use_cache,
        ),
        vela_options=vela_options,
        vela_output=None if vela_output is None else Path(vela_output),
        measured=None if measured is None else Path(measured),
    )


def compare_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    vela_options: VelaOptions | None = None,
    vela_output: Path | None = None,
    measured: Path | None = None,
) -> CompareReport:
    """Like ``compare``, for bytes and a resolved target."""
    from npusched.report.compare_build import build_comparison, build_from_layers
    from npusched.vela.files import read_vela_output
    from npusched.vela.measured import read_measurements

    if target.accelerator is None:
        raise TargetError(
            f"{target.name} has no NPU",
            "Vela compiles for Ethos-U only",
            "name an Ethos-U target with --config (npusched configs lists them)",
        )
    options = options or PlanOptions()
    model = read(content, name, options.input_shapes)
    output = None
    if vela_output is not None:
        output = read_vela_output(vela_output, _network(vela_output, name))
    result = _vela_result(content, target, options, vela_options, output)
    ours = _our_side(
        model,
        target,
        graph_of(model, target, options.signature),
        msgspec.structs.replace(options, use_vela=output is None),
        warnings=_strange(target, output),
    )
    entries = () if measured is None else read_measurements(measured, ours.graph.subgraph)
    if result is None:
        assert output is not None
        return build_from_layers(ours, output, entries)
    return build_comparison(ours, _their_side(ours, result, output), entries)


def _vela_result(
    content: bytes,
    target: Target,
    options: PlanOptions,
    run: VelaOptions | None,
    output: VelaOutput | None,
) -> VelaResult | None:
    """Compile, with the budget as arena limit, or take files; None for files without rows."""
    import hashlib

    from npusched.vela.cache import VelaCache
    from npusched.vela.from_files import result_of
    from npusched.vela.options import VelaOptions
    from npusched.vela.runner import compile_model, config_of

    if output is not None:
        return result_of(output, config_of(target), hashlib.sha256(content).hexdigest())
    run = run or VelaOptions()
    if run.arena_cache_size_bytes is None and options.sram is not None:
        run = msgspec.structs.replace(run, arena_cache_size_bytes=options.budget_bytes(target))
    return compile_model(content, target, run, cache=VelaCache() if options.use_cache else None)


def _our_side(
    model: Model,
    target: Target,
    graph: OpGraph,
    options: PlanOptions,
    *,
    warnings: Sequence[str],
) -> Ours:
    """Our plan, with weight sizes as exact as in ``plan``."""
    from concurrent.futures import ThreadPoolExecutor

    from npusched.api.weights import ask_vela, weight_table
    from npusched.report.compare_build import Ours
    from npusched.schedule import check_plan, with_given_ids

    found_warnings = list(warnings)
    if options.allowed:
        names = ", ".join(options.allowed)
        found_warnings.append(f"our plan may use {names}: what that gains rests on Vela's model")
    asked = None
    if options.use_vela:
        with ThreadPoolExecutor(max_workers=1) as pool:
            asked = ask_vela(model, target, pool, use_cache=options.use_cache)
    sizes = weight_table(graph, target, asked, found_warnings)
    plan = options.planner(graph, target, sizes.of).plan(options.budget_bytes(target))
    faults = check_plan(graph, target, plan)
    if faults:
        raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    return Ours(
        model=model,
        graph=graph,
        target=target,
        plan=with_given_ids(plan),
        objective=options.objective,
        warnings=found_warnings,
    )


def _their_side(ours: Ours, result: VelaResult, output: VelaOutput | None) -> Theirs:
    """Vela's schedule: read, matched, as a plan, and costed twice."""
    from npusched.report.compare_build import Theirs
    from npusched.report.compare_executed import count_streams
    from npusched.vela.compiled import source_placement
    from npusched.vela.from_files import sram_peak_of
    from npusched.vela.recost import compatible_costs, recost_rows
    from npusched.vela.schedule import from_vela, read_schedule

    target = ours.target
    schedule = read_schedule(result, ours.model, ours.graph, target)
    summary = None if output is None else output.summary
    compatible = compatible_costs(target, schedule.in_order, schedule.slices)
    return Theirs(
        result=result,
        schedule=schedule,
        plan=from_vela(schedule),
        compatible=compatible,
        recosted=recost_rows(target, schedule.in_order, schedule.slices),
        placement=source_placement(result, ours.model) if result.compiled else {},
        is_run=output is None,
        executed=count_streams(
            result.compiled, target, ours.graph.subgraph, compatible, schedule.ops
        ),
        sram_peak_bytes=None if summary is None else sram_peak_of(target, summary),
    )


def _network(folder: Path, name: str) -> str | None:
    """The model's name if the folder has files of it, None to take whatever is there."""
    stem = Path(name).stem
    has_files = any(folder.glob(f"{glob.escape(stem)}_*")) if folder.is_dir() else False
    return stem if has_files else None


def _strange(target: Target, output: VelaOutput | None) -> list[str]:
    """Where the files speak of another target than the user does."""
    summary = None if output is None else output.summary
    if summary is None or target.accelerator is None:
        return []
    pairs = (
        ("accelerator", summary.accelerator.lower().replace("_", "-"), target.accelerator.name),
        ("system config", summary.system_config, target.system_config),
        ("memory mode", summary.memory_mode, target.memory_mode_name),
    )
    return [
        f"Vela's files are for {what} {theirs}, the target has {mine}"
        for what, theirs, mine in pairs
        if theirs and theirs.lower() not in mine.lower()
    ]
