"""Declared limits and the reasons made from them.

A ``Constraint`` says what the hardware path allows; if an op breaks it, its text is made from the
constraint itself, the failing value and the limit, so that text and rule cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from npusched.hardware.target import Family, Value
from npusched.ir import Shape
from npusched.ops.operands import Operand, Operands

RULES_VERSION = "5.2"
"""The Vela release whose placement these limits mirror."""

Finding: TypeAlias = "Callable[[Operands], str | None]"
"""Returns the value that breaks the limit, as text, or None if the op keeps to it."""


class Reason(Value, frozen=True, kw_only=True):
    """Why an op stays on the CPU. ``limit`` is a stable id, ``value`` what broke it."""

    limit: str
    value: str
    text: str
    fix: str


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. ``what`` names the quantity, ``allowed`` what the NPU runs (both go in the text).

    After a ``gate`` fails, later limits of the op are not looked at: they would be noise.
    """

    limit: str
    what: str
    allowed: str
    fix: str
    find: Finding
    gate: bool = False

    def check(self, operands: Operands, family: Family) -> Reason | None:
        """Return the reason if ``operands`` break the limit, else None."""
        value = self.find(operands)
        if value is None:
            return None
        text = (
            f"{operands.kind} {self.what} {value}: {family_label(family)} runs {self.allowed}"
            f" (as Vela {RULES_VERSION})"
        )
        return Reason(limit=self.limit, value=value, text=text, fix=self.fix)


def at_most(
    limit: str, what: str, maximum: int, measure: Callable[[Operands], int | None], *, fix: str
) -> Constraint:
    """Return the limit ``measure(op) <= maximum``; None = the limit does not apply to the op."""

    def find(operands: Operands) -> str | None:
        value = measure(operands)
        return None if value is None or value <= maximum else str(value)

    return Constraint(limit=limit, what=what, allowed=f"at most {maximum}", fix=fix, find=find)


def family_label(family: Family) -> str:
    """Return the product name, such as Ethos-U55."""
    return "Ethos-" + family.value.removeprefix("ethos-").upper()


def shape_text(shape: Shape) -> str:
    """Return a shape as text: 1x8x8x16, or scalar."""
    return "x".join(str(size) for size in shape) if shape else "scalar"


def named(operand: Operand, value: str) -> str:
    """Return ``value`` with the tensor's role and (shortened) name."""
    name = " ".join(operand.tensor.name.split())
    short = name if len(name) <= 60 else name[:28] + "..." + name[-28:]
    return f"{value} ({operand.role} '{short}')" if short else f"{value} ({operand.role})"


def broken(
    limits: tuple[Constraint, ...], operands: Operands, family: Family
) -> tuple[Reason, ...]:
    """Return the reasons of all limits that break, in declared order, up to a gate."""
    reasons: list[Reason] = []
    for limit in limits:
        reason = limit.check(operands, family)
        if reason is not None:
            reasons.append(reason)
            if limit.gate:
                break
    return tuple(reasons)
