"""Gates from a plan: limits that were given, and what a baseline may lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Final

import msgspec

from npusched import __version__
from npusched.errors import InfeasibleError
from npusched.report.check_types import (
    CHECK_SCHEMA_VERSION,
    CheckBaseline,
    CheckReport,
    Gate,
)
from npusched.report.diff_build import build_diff, relative_change, setting_changes
from npusched.report.figures import FIGURES, Number, cpu_ops, exact
from npusched.report.types import PlanReport
from npusched.report.units import (
    human_seconds,
    percent_change,
    plain_text,
    plural,
    short_name,
)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Most that a plan may have of each; None for no limit.

    ``flash_bytes`` limits the constants of the model as they are stored, ``dram_bytes`` what one
    inference moves to and from DRAM, ``energy_nj`` the typical energy of one.
    """

    sram_bytes: int | None = None
    latency_s: float | None = None
    flash_bytes: int | None = None
    dram_bytes: int | None = None
    cpu_ops: int | None = None
    energy_nj: float | None = None


LIMITED: Final = {
    "sram_bytes": ("max-sram", "sram_peak_bytes"),
    "latency_s": ("max-latency", "latency_s"),
    "flash_bytes": ("max-flash", "constant_bytes"),
    "dram_bytes": ("max-dram-bytes", "dram_bytes"),
    "cpu_ops": ("max-cpu-ops", "cpu_ops"),
    "energy_nj": ("max-energy", "energy_nj"),
}
"""Field of ``Limits`` -> the gate's id (its option), the figure that it limits."""

REGRESSED: Final = {
    "cycles": "cycles",
    "latency_s": "latency",
    "sram_peak_bytes": "sram",
    "constant_bytes": "flash",
    "energy_nj": "energy",
}
"""Figures that are held against a baseline -> how the gate's id ends."""

_TITLES: Final = {"constant_bytes": "flash"}
_NAMED: Final = 3
"""CPU ops that a gate names."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that this one must not fall behind by more than ``max_regression`` (a share)."""

    plan: PlanReport
    file: str
    max_regression: Fraction


def build_check(
    report: PlanReport,
    limits: Limits,
    *,
    broken: Sequence[InfeasibleError] = (),
    baseline: Baseline | None = None,
    helps: Mapping[str, str] | None = None,
) -> CheckReport:
    """Return the check of a plan.

    ``broken``: budgets that no plan keeps, ``report`` then being the plan without them. ``helps``:
    what would help, by gate id, where the caller knows more than the plan says.
    """
    gates = [*_broken_gates(broken, limits), *_limit_gates(report, limits)]
    gates = list({gate.id: gate for gate in reversed(gates)}.values())[::-1]
    if baseline is not None:
        gates += _regression_gates(report, baseline)
    gates = [
        gate
        if gate.passed
        else msgspec.structs.replace(gate, help=(helps or {}).get(gate.id) or gate.help)
        for gate in gates
    ]
    target = report.target
    return CheckReport(
        schema_version=CHECK_SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=report.vela_version,
        verdict="pass" if all(gate.passed for gate in gates) else "fail",
        model=report.model.name,
        sha256=report.model.sha256,
        target=target.name,
        clock_hz=target.clock_hz,
        system_config=target.system_config,
        memory_mode=target.memory_mode_name or target.memory_mode.value,
        objective=report.objective,
        budget_memory=report.budget_memory,
        budget_bytes=report.budget_bytes,
        fits=not broken,
        totals=report.totals,
        cpu_ops=cpu_ops(report),
        gates=tuple(gates),
        baseline=None
        if baseline is None
        else CheckBaseline(
            file=baseline.file,
            model=baseline.plan.model.name,
            sha256=baseline.plan.model.sha256,
            max_regression=float(baseline.max_regression),
            settings=setting_changes(baseline.plan, report),
        ),
        warnings=report.warnings,
    )


def _broken_gates(broken: Sequence[InfeasibleError], limits: Limits) -> list[Gate]:
    """A failed gate per budget that no plan keeps; the SRAM budget may be that of --max-sram."""
    found = []
    for error in broken:
        values = error.values
        off_chip = "need_offchip_bytes" in values
        unit = "_offchip_bytes" if off_chip else "_bytes"
        need, have = values[f"need{unit}"], values[f"have{unit}"]
        assert isinstance(need, int)
        assert isinstance(have, int)
        gate_id = "max-offchip-bytes" if off_chip else "sram"
        if not off_chip and have == limits.sram_bytes:
            gate_id = "max-sram"
        found.append(
            Gate(
                id=gate_id,
                kind="limit",
                metric="offchip_bytes" if off_chip else "sram_peak_bytes",
                title="off-chip traffic" if off_chip else "SRAM peak",
                unit="bytes",
                value=need,
                limit=have,
                excess=need - have,
                baseline=None,
                passed=False,
                text=plain_text(f"{error.what}: {error.why}", 400),
                help=_levers(
                    error,
                    f"allow {need} bytes, or shrink the tensors alive at the peak"
                    if gate_id == "max-sram"
                    else "",
                ),
            )
        )
    return found


def _levers(error: InfeasibleError, instead: str) -> str:
    """``instead`` or the hint of an infeasible budget, and the lever that is worth most."""
    levers = error.values.get("levers")
    worth = [
        (int(lever["bytes"]), str(lever["text"]))
        for lever in (levers if isinstance(levers, (list, tuple)) else ())
        if isinstance(lever, dict) and isinstance(lever["bytes"], int)
    ]
    hint = instead or error.hint
    if not worth:
        return plain_text(hint, 400)
    size, text = max(worth)
    return plain_text(f"{hint}, e.g. {text} ({exact(size, 'bytes')})", 400)


def _limit_gates(report: PlanReport, limits: Limits) -> list[Gate]:
    return [
        _gate(gate_id, report, metric, limit)
        for field, (gate_id, metric) in LIMITED.items()
        if (limit := getattr(limits, field)) is not None
    ]


def _gate(gate_id: str, report: PlanReport, metric: str, limit: Number) -> Gate:
    figure = FIGURES[metric]
    value, title = figure.of(report), _TITLES.get(metric, figure.title)
    passed = value <= limit
    over = "" if passed else f", {exact(value - limit, figure.unit)} more"
    return Gate(
        id=gate_id,
        kind="limit",
        metric=metric,
        title=title,
        unit=figure.unit,
        value=value,
        limit=limit,
        excess=0 if passed else value - limit,
        baseline=None,
        passed=passed,
        text=f"{title}: {exact(value, figure.unit)}, the limit {exact(limit, figure.unit)}{over}",
        help="" if passed else _help(report, metric),
    )


def _help(report: PlanReport, metric: str) -> str:
    """What the plan itself says about a figure that is too large."""
    match metric:
        case "cpu_ops":
            return _cpu_help(report)
        case "constant_bytes":
            return _constants_help(report)
        case "dram_bytes":
            return "--max-offchip-bytes makes the plan keep a limit on what moves off the chip"
        case "sram_peak_bytes":
            return "leave --sram out: the plan is then made for --max-sram"
        case _:
            return ""


def _cpu_help(report: PlanReport) -> str:
    """The first CPU ops, with the limit that keeps each off the NPU and what would lift it."""
    on_cpu = [op for op in report.source_ops if op.placement == "cpu"]
    texts = []
    for op in on_cpu[:_NAMED]:
        reasons = [f"{reason.text}; fix: {reason.fix}" for reason in op.cpu_reasons[:1]]
        texts.append(": ".join([f"#{op.index} {op.kind}", *reasons]))
    if len(on_cpu) > _NAMED:
        texts.append(f"{len(on_cpu) - _NAMED} more")
    return plain_text(" | ".join(texts), 600)


def _constants_help(report: PlanReport) -> str:
    """The op with the most encoded weights."""
    weights = [w for segment in report.segments for w in segment.weights]
    if not weights:
        return ""
    largest = max(weights, key=lambda w: w.size_bytes)
    op = next((op for op in report.ops if op.id == largest.op), None)
    name = "" if op is None else f" of {op.kind} {short_name(op.name)}"
    return f"the largest are the weights{name}: {exact(largest.size_bytes, 'bytes')}"


def _regression_gates(report: PlanReport, baseline: Baseline) -> list[Gate]:
    gates = [_regression(report, baseline, metric) for metric in REGRESSED]
    if all(gate.passed for gate in gates):
        return gates
    slower = _slower_ops(report, baseline)
    return [
        msgspec.structs.replace(gate, help=slower) if gate.unit in ("cycles", "s") else gate
        for gate in gates
    ]


def _slower_ops(report: PlanReport, baseline: Baseline) -> str:
    """The ops that take most more time than in the baseline."""
    found = build_diff(baseline.plan, report, before_file="", after_file="")
    slower = [
        f"#{change.after.index} {change.after.kind} +{human_seconds(change.change_s)}"
        for change in found.ops
        if change.after is not None and change.change_s > 0
    ]
    if not slower:
        return ""
    left = len(slower) - _NAMED
    more = f" and {plural(left, 'more op')}" if left > 0 else ""
    return plain_text(f"slower: {', '.join(slower[:_NAMED])}{more} (npusched diff)", 600)


def _regression(report: PlanReport, baseline: Baseline, metric: str) -> Gate:
    figure = FIGURES[metric]
    before, value = figure.of(baseline.plan), figure.of(report)
    title = _TITLES.get(metric, figure.title)
    allowed = Fraction(before) * (1 + baseline.max_regression)
    limit = float(allowed) if figure.unit in ("s", "nJ") else floor(allowed)
    passed = Fraction(value) <= allowed
    share = f"{100 * float(baseline.max_regression):g} %"
    change = "new" if relative_change(before, value) is None else percent_change(value, before)
    return Gate(
        id=f"max-regression-{REGRESSED[metric]}",
        kind="regression",
        metric=metric,
        title=title,
        unit=figure.unit,
        value=value,
        limit=limit,
        excess=0 if passed else value - limit,
        baseline=before,
        passed=passed,
        text=f"{title}: {exact(value, figure.unit)}, {exact(before, figure.unit)} before "
        f"({'unchanged' if value == before else change}; {share} more is allowed)",
        help="",
    )
