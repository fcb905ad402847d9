"""A plan held against gates: limits that are given, and a plan of before that it must not trail."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from npusched.api.options import DEFAULT_MAX_COMPILATIONS, PlanOptions
from npusched.api.plan_files import read_plan
from npusched.api.planning import content_of, plan_report
from npusched.errors import InfeasibleError, NpuschedError, TargetError
from npusched.report.check_build import Baseline, Limits, build_check
from npusched.report.diff_build import target_changes
from npusched.report.figures import exact
from npusched.report.units import human_bytes, plain_text

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report import PlanReport
    from npusched.report.check_types import CheckReport
    from npusched.report.types import CandidateMode

_SETTINGS_NAMED = 3
"""Settings of another target that an error names."""


def check(
    model: str | Path | bytes,
    target: str | Target,
    *,
    max_sram: str | int | None = None,
    max_latency: str | float | None = None,
    max_flash: str | int | None = None,
    max_dram_bytes: str | int | None = None,
    max_cpu_ops: int | None = None,
    max_energy: str | float | None = None,
    baseline: str | Path | PlanReport | None = None,
    max_regression: str | float | Fraction = "0%",
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
    max_compilations: int = DEFAULT_MAX_COMPILATIONS,
) -> CheckReport:
    """Plan a model and hold the plan against limits; the report's ``verdict`` is pass or fail.

    ``max_sram`` is also the plan's budget if ``sram`` is not given. ``max_latency``: "5ms", or
    seconds; ``max_flash``: the model's constants as stored; ``max_dram_bytes``: moved to and from
    DRAM per inference; ``max_energy``: "120uJ", or nanojoules, of the typical energy. ``baseline``:
    a plan, or a file that ``npusched plan --format json`` wrote, for the same target; cycles,
    latency, SRAM, flash and energy may each be ``max_regression`` ("2%", or a share) above it.
    All else as for ``plan``.

    A budget that no plan fits is a failed gate. Raises NpuschedError if there is nothing to check,
    or for a baseline that is no plan or of another target, OSError for one that cannot be read;
    ModelError and TargetError as ``plan``.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return check_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        limits=limits_of(
            max_sram=max_sram,
            max_latency=max_latency,
            max_flash=max_flash,
            max_dram_bytes=max_dram_bytes,
            max_cpu_ops=max_cpu_ops,
            max_energy=max_energy,
        ),
        baseline=None if baseline is None else _baseline_of(baseline, max_regression),
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
            max_compilations=max_compilations,
        ),
    )


def limits_of(
    *,
    max_sram: str | int | None = None,
    max_latency: str | float | None = None,
    max_flash: str | int | None = None,
    max_dram_bytes: str | int | None = None,
    max_cpu_ops: int | None = None,
    max_energy: str | float | None = None,
) -> Limits:
    """Limits as users write them; see ``check``. Raises TargetError, also for negative numbers."""
    from npusched.hardware import parse_energy, parse_size, parse_time

    def size(text: str | int | None) -> int | None:
        """Bytes; unlike a budget a limit may be 0."""
        if not isinstance(text, str):
            return text
        return 0 if text.strip() == "0" else parse_size(text)

    limits = Limits(
        sram_bytes=size(max_sram),
        latency_s=parse_time(max_latency) if isinstance(max_latency, str) else max_latency,
        flash_bytes=size(max_flash),
        dram_bytes=size(max_dram_bytes),
        cpu_ops=max_cpu_ops,
        energy_nj=parse_energy(max_energy) if isinstance(max_energy, str) else max_energy,
    )
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and not 0 <= value < math.inf:
            raise TargetError(
                f"the limit {name} is {value:g}",
                "a limit is a number that is not negative",
                "leave it out for no limit",
            )
    return limits


def baseline_of(form: bytes, file: str, max_regression: str | float | Fraction) -> Baseline:
    """A baseline from the content of its file. Raises NpuschedError or TargetError."""
    return _baseline(read_plan(form, file), file, max_regression)


def _baseline_of(plan: str | Path | PlanReport, max_regression: str | float | Fraction) -> Baseline:
    if isinstance(plan, (str, Path)):
        path = Path(plan)
        return baseline_of(path.read_bytes(), path.name, max_regression)
    return _baseline(plan, "", max_regression)


def _baseline(plan: PlanReport, file: str, share: str | float | Fraction) -> Baseline:
    from npusched.hardware import parse_percent

    if isinstance(share, str):
        share = parse_percent(share)
    if not 0 <= share < math.inf:
        raise TargetError(
            f"max_regression is {share}", "it is a share that is not negative", 'e.g. "2%" or 0.02'
        )
    return Baseline(plan=plan, file=file, max_regression=Fraction(share))


def check_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    limits: Limits,
    baseline: Baseline | None = None,
    options: PlanOptions | None = None,
) -> CheckReport:
    """Like ``check``, for bytes, a resolved target, and limits and a baseline as values."""
    options = options or PlanOptions()
    if baseline is None and limits == Limits():
        raise NpuschedError(
            "there is nothing to check",
            "no limit and no baseline was given",
            "give a limit, e.g. --max-sram 64KiB, or --baseline plan.json",
        )
    if options.sram is None and limits.sram_bytes is not None:
        options = msgspec.structs.replace(options, sram=limits.sram_bytes)
    report, broken = _planned(content, name, target, options)
    if baseline is not None:
        _check_target(baseline, report)
    found = build_check(report, limits, broken=broken, baseline=baseline)
    failed = {gate.id for gate in found.gates if not gate.passed}
    helps = {} if broken else _helps(content, name, target, options, limits, report, failed)
    if not helps:
        return found
    return build_check(report, limits, broken=broken, baseline=baseline, helps=helps)


def _planned(
    content: bytes, name: str, target: Target, options: PlanOptions
) -> tuple[PlanReport, list[InfeasibleError]]:
    """The plan, and the budgets that had to be given up for it, each for the smallest feasible."""
    broken: list[InfeasibleError] = []
    while True:
        try:
            return plan_report(content, name=name, target=target, options=options), broken
        except InfeasibleError as error:
            broken.append(error)
            if len(broken) > 2:  # one per limit: SRAM, off-chip bytes
                raise
            sram = error.values.get("smallest_feasible_bytes")
            offchip = error.values.get("smallest_feasible_offchip_bytes")
            if isinstance(sram, int):
                options = msgspec.structs.replace(options, sram=sram, candidates="none")
            elif isinstance(offchip, int):
                options = msgspec.structs.replace(options, max_offchip_bytes=offchip)
            else:
                raise


def _check_target(baseline: Baseline, report: PlanReport) -> None:
    """Refuse a baseline of another target; its model may be another, that is what is checked."""
    changes = target_changes(baseline.plan, report)
    if not changes:
        return
    named = [
        f"{change.setting.removeprefix('target.')} {change.before}, now {change.after}"
        for change in changes[:_SETTINGS_NAMED]
    ]
    if len(changes) > _SETTINGS_NAMED:
        named.append(f"{len(changes) - _SETTINGS_NAMED} more")
    raise NpuschedError(
        f"the baseline {baseline.file} is of another target".replace("  ", " "),
        f"it is for {plain_text(baseline.plan.target.name)}, the check for "
        f"{plain_text(report.target.name)}: {plain_text('; '.join(named), 400)}",
        "plan the baseline again with --config and the options of this target",
        baseline_target=baseline.plan.target.name,
        target=report.target.name,
    )


def _helps(
    content: bytes,
    name: str,
    target: Target,
    options: PlanOptions,
    limits: Limits,
    report: PlanReport,
    failed: set[str],
) -> dict[str, str]:
    """What would help a latency or an energy that is too large: more SRAM, or nothing here."""
    helps: dict[str, str] = {}
    wanted = failed & {"max-latency", "max-energy"}
    if "max-latency" in wanted and limits.latency_s is not None:
        least = report.bound.cycles / target.clock_hz
        if target.accelerator is not None and least > limits.latency_s:
            helps["max-latency"] = (
                f"no plan can: the work of the NPU alone takes {exact(least, 's')} at this clock"
            )
            wanted.discard("max-latency")
    if not wanted or options.sram is None:
        return helps
    roomy, _ = _planned(
        content, name, target, msgspec.structs.replace(options, sram=None, candidates="none")
    )
    sums = roomy.totals
    room = f"with {human_bytes(sums.sram_peak_bytes)} of {plain_text(roomy.budget_memory)}"
    if "max-latency" in wanted and sums.latency_s < report.totals.latency_s:
        helps["max-latency"] = f"{room} it takes {exact(sums.latency_s, 's')}"
    typical = sums.energy_nj.typical
    if "max-energy" in wanted and typical < report.totals.energy_nj.typical:
        helps["max-energy"] = f"{room} it takes {exact(typical, 'nJ')}"
    return helps
