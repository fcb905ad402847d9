"""The published form of ``npusched tune`` for several targets side by side."""

from __future__ import annotations

from npusched.report.types import ModelFacts, Published

TUNE_MATRIX_SCHEMA_VERSION = "1.0"


class MatrixCell(Published, frozen=True, kw_only=True):
    """One plan in brief."""

    sram_bytes: int
    cycles: int | None
    latency_s: float
    energy_nj: float | None


class MatrixRow(Published, frozen=True, kw_only=True):
    """One target: what its curve offers (ours; Vela's knee beside it)."""

    config: str
    system_config: str
    memory_mode: str
    budget_memory: str
    holds_constants: bool
    floor: MatrixCell | None
    knee: MatrixCell | None
    fastest: MatrixCell | None
    at_budget: MatrixCell | None
    with_more: MatrixCell | None
    vela_knee: MatrixCell | None
    reason: str


class MatrixAnswer(Published, frozen=True, kw_only=True):
    """What one change of the first target would bring, at the same SRAM or with more."""

    change: str
    latency_s: float
    change_percent: float


class TuneMatrix(Published, frozen=True, kw_only=True):
    """Targets side by side."""

    schema_version: str
    npusched_version: str
    model: ModelFacts | None
    budget_bytes: int | None
    more_sram_bytes: int
    rows: tuple[MatrixRow, ...]
    answers: tuple[MatrixAnswer, ...]
    warnings: tuple[str, ...]
