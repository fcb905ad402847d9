"""The published form of advice: what ``npusched advise --format json`` prints."""

from __future__ import annotations

from npusched.report.types import Advice, Published

ADVICE_SCHEMA_VERSION = "1.0"


class AdviceFigures(Published, frozen=True, kw_only=True):
    """What the plan costs as it is."""

    sram_bytes: int
    cycles: int
    energy_nj: float
    latency_s: float
    cpu_cycles: int
    offchip_bytes: int
    constant_bytes: int
    cpu_ops: int


class AdviceReport(Published, frozen=True, kw_only=True):
    """Everything worth changing in a model on a target, by planning each change."""

    schema_version: str
    npusched_version: str
    vela_version: str | None
    model: str
    sha256: str
    target: str
    clock_hz: float
    system_config: str
    memory_mode: str
    objective: str
    budget_memory: str
    budget_bytes: int | None
    fits: bool
    before: AdviceFigures
    advice: tuple[Advice, ...]
    planned_changes: int
    rules: tuple[str, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show the text form in a notebook, everything in it escaped."""
        from html import escape

        from npusched.report.advice_text import render_advice_text

        return f"<pre>{escape(render_advice_text(self))}</pre>"
