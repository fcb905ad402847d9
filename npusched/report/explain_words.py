"""How explanations call ops of the file."""

from __future__ import annotations

from collections.abc import Sequence

from npusched.report.units import log_text

Ref = tuple[int, int]


def op_label(ref: Ref, kind: str) -> str:
    """``#7 SOFTMAX``."""
    return f"#{ref[1]} {log_text(kind, 30)}"


def ops_label(refs: Sequence[Ref], kinds: Sequence[str]) -> str:
    """``#7 SOFTMAX`` for one op, ``#3-#5`` for several in a row, else ``#3, #5, ...``."""
    if not refs:
        return "no op of the file"
    if len(refs) == 1:
        return op_label(refs[0], kinds[0]) if kinds else f"#{refs[0][1]}"
    indices = [ref[1] for ref in refs]
    if indices == list(range(indices[0], indices[-1] + 1)):
        return f"#{indices[0]}-#{indices[-1]}"
    shown = ", ".join(f"#{index}" for index in indices[:4])
    return shown + (", ..." if len(indices) > 4 else "")
