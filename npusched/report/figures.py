"""The figures of a plan that gates and differences speak of: one name, unit and value each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from npusched.report.types import PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    human_seconds,
)

Unit: TypeAlias = Literal["bytes", "s", "nJ", "cycles", "ops", "count"]
Number: TypeAlias = int | float


class Figure(NamedTuple):
    """A figure of a plan: its field's name, what people call it, its unit, and how to read it."""

    metric: str
    title: str
    unit: Unit
    of: Callable[[PlanReport], Number]


def cpu_ops(report: PlanReport) -> int:
    """Ops of the file that the CPU runs."""
    return sum(op.placement == "cpu" for op in report.source_ops)


FIGURES: Final = {
    figure.metric: figure
    for figure in (
        Figure("cycles", "NPU cycles", "cycles", lambda r: r.totals.cycles),
        Figure("cpu_cycles", "CPU cycles", "cycles", lambda r: r.totals.cpu_cycles),
        Figure("latency_s", "latency", "s", lambda r: r.totals.latency_s),
        Figure("energy_nj", "energy", "nJ", lambda r: r.totals.energy_nj.typical),
        Figure("sram_peak_bytes", "SRAM peak", "bytes", lambda r: r.totals.sram_peak_bytes),
        Figure("constant_bytes", "constants", "bytes", lambda r: r.totals.constant_bytes),
        Figure("sram_bytes", "SRAM traffic", "bytes", lambda r: r.totals.sram_bytes),
        Figure("dram_bytes", "DRAM traffic", "bytes", lambda r: r.totals.dram_bytes),
        Figure("flash_bytes", "flash traffic", "bytes", lambda r: r.totals.flash_bytes),
        Figure("cpu_ops", "CPU ops", "ops", cpu_ops),
        Figure("dispatches", "kernel calls", "count", lambda r: r.totals.dispatches),
        Figure("npu_invocations", "NPU calls", "count", lambda r: r.totals.npu_invocations),
        Figure("macs", "MACs", "count", lambda r: r.totals.macs),
    )
}
"""By field name. ``energy_nj`` is the typical value; ``constant_bytes`` what flash must hold."""


def rounded(value: Number, unit: Unit) -> str:
    """The value with three digits and a fitting unit."""
    match unit:
        case "bytes":
            return human_bytes(value)
        case "s":
            return human_seconds(value)
        case "nJ":
            return human_energy(value)
        case "cycles" | "ops":
            return group_digits(int(value))
        case "count":
            return human_count(value)


def exact(value: Number, unit: Unit) -> str:
    """The value to the last digit (six of a time or an energy), so that a limit shows."""
    match unit:
        case "bytes":
            return f"{group_digits(int(value))} bytes"
        case "s":
            return f"{1e3 * value:.6g} ms"
        case "nJ":
            return f"{1e-3 * value:.6g} µJ"
        case "cycles":
            return f"{group_digits(int(value))} cycles"
        case "ops":
            return f"{group_digits(int(value))} op{'' if value == 1 else 's'}"
        case "count":
            return group_digits(int(value))
