"""The published form of a sweep: what ``npusched sweep --format json`` prints, and its store keeps.

A row is flat, so that it is a line of CSV and a row of a table as it stands.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from npusched.report.types import Published

SWEEP_SCHEMA_VERSION = "1.0"

SweepStatus: TypeAlias = Literal["ok", "infeasible", "error"]


class SweepRow(Published, frozen=True, kw_only=True):
    """One job: a model on a target within a budget. Figures are null where there is no plan."""

    key: str
    model: str
    model_sha256: str
    target: str
    target_sha256: str
    setting_sha256: str
    budget_bytes: int | None
    status: SweepStatus
    cycles: int | None = None
    npu_cycles: int | None = None
    cpu_cycles: int | None = None
    latency_s: float | None = None
    sram_peak_bytes: int | None = None
    dram_bytes: int | None = None
    flash_bytes: int | None = None
    energy_low_nj: float | None = None
    energy_nj: float | None = None
    energy_high_nj: float | None = None
    macs: int | None = None
    source_ops: int | None = None
    cpu_ops: int | None = None
    npu_invocations: int | None = None
    smallest_feasible_bytes: int | None = None
    value: float | None = None
    gap: float | None = None
    proof: Literal["optimal", "bounded", "feasible"] | None = None
    plan_source: Literal["npusched", "vela"] | None = None
    weights: Literal["exact", "estimated", "mixed", "none"] | None = None
    error_kind: str = ""
    error: str = ""
    warnings: str = ""
    npusched_version: str
    vela_version: str | None
    finished_at: str
    seconds: float


class SweepGroup(Published, frozen=True, kw_only=True):
    """Jobs counted together: those of a target, or of a target at one budget.

    ``slowdown``: geometric mean, over the jobs with a plan, of the latency divided by the same
    model's least on that target.
    """

    target: str
    target_sha256: str
    budget_bytes: int | None
    models: int
    jobs: int
    ok: int
    infeasible: int
    errors: int
    optimal: int
    vela_plans: int
    geomean_latency_s: float | None
    slowdown: float | None


class SweepReport(Published, frozen=True, kw_only=True):
    """Every job of a sweep, and its targets summed up.

    ``settings``: planning options as JSON, by their hash. ``known_before``: jobs that were in the
    store already; ``copies``: files with the content of another.
    """

    schema_version: str
    npusched_version: str
    store: str
    models: int
    copies: int
    known_before: int
    targets: tuple[SweepGroup, ...]
    budgets: tuple[SweepGroup, ...]
    settings: dict[str, str]
    rows: tuple[SweepRow, ...]
