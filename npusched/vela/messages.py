"""What Vela prints about ops that it leaves on the CPU, as values.

Format of Vela 5.2.0 (tflite_supported_operators.cpp): a warning line with operator and result
name, ``Reason:`` and the failing value, then the text of the constraint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from npusched.vela.result import VelaResult

_WARNING = re.compile(
    r"^Warning \(supported operators\) operator: (?P<kind>.*), ofm: '(?P<ofm>.*)'$"
)
_REASON = "Reason: "


@dataclass(frozen=True, slots=True)
class CpuReason:
    """Why Vela refused an op: ``reason`` has the failing value, ``constraint`` the rule's text.

    ``operator`` is Vela's name of the op (ARGMAX for ARG_MAX, None for unknown ones), ``ofm`` the
    name of its first result. ``constraint`` is empty for types that the NPU never runs.
    """

    operator: str
    ofm: str
    reason: str
    constraint: str


def cpu_reasons(result: VelaResult) -> tuple[CpuReason, ...]:
    """Return the printed refusals in order; an op may be refused more than once."""
    reasons = []
    lines = [line.strip() for line in result.printed.splitlines()]
    for position, line in enumerate(lines):
        found = _WARNING.match(line)
        if found is None:
            continue
        reason, constraint = "", []
        for text in lines[position + 1 :]:
            if not text or _WARNING.match(text):
                break
            if text.startswith(_REASON):
                reason = text.removeprefix(_REASON)
            else:
                constraint.append(text)
        reasons.append(CpuReason(found["kind"], found["ofm"], reason, " ".join(constraint)))
    return tuple(reasons)
