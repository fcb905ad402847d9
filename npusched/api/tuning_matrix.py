"""The same model on several targets: ``npusched tune --configs a,b --memory-modes all``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npusched.api.options import PlanOptions
from npusched.api.tuning import command_path, curves_of
from npusched.errors import InfeasibleError, TargetError
from npusched.tuning.probing import DEFAULT_COMPILATIONS

if TYPE_CHECKING:
    from npusched.api.candidates import Progress
    from npusched.hardware import Target
    from npusched.report.tune_matrix_types import TuneMatrix

ALL_MODES = "all"


def targets_of(configs: Sequence[str], memory_modes: Sequence[str] = ()) -> list[Target]:
    """Every target in every memory mode: its default one, those named, or ``all`` that it knows.

    Raises TargetError for unknown names, and for a mode that none of the targets knows.
    """
    from npusched.hardware import describe_target, load_target

    found: list[Target] = []
    for config in configs:
        if not memory_modes:
            found.append(load_target(config))
            continue
        if ALL_MODES in memory_modes:
            described = describe_target(config)
            default = described.target
            first = default.memory_mode_name or default.memory_mode.value
            modes = sorted(described.memory_modes, key=lambda name: (name != first, name))
            found += _legal(config, modes or [first])
        else:
            found += [load_target(config, memory_mode=mode) for mode in memory_modes]
    return found


def _legal(config: str, modes: Sequence[str]) -> list[Target]:
    from npusched.hardware import load_target

    found = []
    for mode in modes:
        try:
            found.append(load_target(config, memory_mode=mode))
        except TargetError:
            continue  # a mode of Vela's file that this accelerator does not have
    return found or [load_target(config)]


def tune_matrix(
    content: bytes,
    *,
    name: str,
    targets: Sequence[Target],
    options: PlanOptions | None = None,
    within_percent: float = 1.0,
    points: int = DEFAULT_COMPILATIONS,
    progress: Progress | None = None,
) -> TuneMatrix:
    """Tune for every target and put the results side by side; ``options.sram`` is the budget.

    A target that no plan fits is a row that says why. Raises ModelError, TargetError.
    """
    from npusched.report.tune_build import Limits, build_tune
    from npusched.report.tune_matrix import Tried, build_matrix

    options = options or PlanOptions()
    tried = []
    for target in targets:
        try:
            curves = curves_of(
                content, name=name, target=target, options=options, points=points, progress=progress
            )
        except InfeasibleError as error:
            tried.append(Tried(target, None, f"{error.what}: {error.why}"))
            continue
        report = build_tune(
            curves,
            target,
            Limits(within_percent=within_percent),
            model_path=command_path(name),
            objective=options.objective,
        )
        tried.append(Tried(target, report))
    budget = None
    if options.sram is not None:
        budget = options.budget_bytes(targets[0])
    return build_matrix(tried, budget_bytes=budget)
