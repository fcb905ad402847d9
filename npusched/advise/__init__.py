"""What to change, with the predicted effect: rules that look at a plan, or plan the change.

``advise`` has the few that a plan always brings (``first``); ``find_advice`` with ``RULES`` weighs
all changes by planning them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from npusched.advise.first import Situation, advise
from npusched.advise.types import (
    BANDS,
    Advice,
    Case,
    Change,
    Confidence,
    Effect,
    Figures,
    Found,
    Proposal,
    Rule,
    Severity,
)

if TYPE_CHECKING:
    from npusched.advise.engine import find_advice, within_band
    from npusched.advise.rules import RULES

__all__ = [
    "BANDS",
    "RULES",
    "Advice",
    "Case",
    "Change",
    "Confidence",
    "Effect",
    "Figures",
    "Found",
    "Proposal",
    "Rule",
    "Severity",
    "Situation",
    "advise",
    "find_advice",
    "within_band",
]

_HOMES = {"RULES": "rules", "find_advice": "engine", "within_band": "engine"}


def __getattr__(name: str) -> object:
    """Load the rules where they are used: a plan needs the first ones only."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
