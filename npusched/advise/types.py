"""One piece of advice."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much it matters."""

    INFO = "info"
    WARNING = "warning"


class Confidence(StrEnum):
    """How sure the predicted effect is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted change if the advice is followed; None = not predicted."""

    sram_bytes: int | None = None
    cycles: int | None = None
    energy_nj: float | None = None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth changing. ``id`` names the rule and stays the same for ever."""

    id: str
    severity: Severity
    message: str
    effect: Effect
    confidence: Confidence
