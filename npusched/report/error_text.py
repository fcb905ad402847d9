"""Errors for people: what, why, hint, and the figures that an infeasible budget comes with."""

from __future__ import annotations

from npusched.errors import InfeasibleError, JsonValue, NpuschedError
from npusched.report.layout import Column, Line, line, paint, table, wrap
from npusched.report.units import human_bytes, plain_text, short_name

TEXT_LIMIT = 600
"""Longest text of an error that is shown; names from a file may be endless."""

ALIVE = 4
"""Tensors alive at the peak that are listed."""


def render_error(error: NpuschedError, *, width: int = 100, colour: bool = False) -> str:
    """Return an error as text: one paragraph each for what, why and hint.

    Nothing in it can move the cursor: texts may hold names from a model file. An infeasible budget
    also lists the tensors alive at the peak and what would make them smaller.
    """
    lines = wrap(f"error: {plain_text(error.what, TEXT_LIMIT)}", width, indent=2, style="bad")
    if error.why:
        lines += wrap(f"  why: {plain_text(error.why, TEXT_LIMIT)}", width, indent=7)
    if isinstance(error, InfeasibleError):
        lines += _peak(error.values, width)
    if error.hint:
        lines += wrap(f"  hint: {plain_text(error.hint, TEXT_LIMIT)}", width, indent=8)
    return paint(lines, width=width, colour=colour)


def render_warning(text: str, *, width: int = 100, colour: bool = False) -> str:
    """Return a warning as text, with nothing in it that can move the cursor."""
    lines = wrap(f"warning: {plain_text(text, TEXT_LIMIT)}", width, indent=2, style="warn")
    return paint(lines, width=width, colour=colour)


def _peak(values: dict[str, JsonValue], width: int) -> list[Line]:
    """The tensors alive at the peak of the smallest plan, and the levers."""
    peak = values.get("peak")
    live = peak.get("live") if isinstance(peak, dict) else None
    rows = []
    for item in live if isinstance(live, (list, tuple)) else ():
        if isinstance(item, dict):
            size, logical = _count(item.get("size_bytes")), _count(item.get("logical_bytes"))
            shape = item.get("shape")
            sizes = [str(part) for part in shape] if isinstance(shape, (list, tuple)) else []
            pads = f"{human_bytes(size - logical)} of it padding" if size > logical else ""
            name = short_name(str(item.get("tensor", "")), 40)
            rows.append((human_bytes(size), "×".join(sizes[1:]), pads, name))
    own = _count(peak.get("segment_bytes")) if isinstance(peak, dict) else 0
    if own:
        rows.insert(0, (human_bytes(own), "", "", "buffers of the op or chain itself"))
    if not rows:
        return []
    columns = [
        Column(title="alive there", right=True),
        Column(title="h×w×c"),
        Column(title="", rank=1),
        Column(title="tensor", least=8),
    ]
    lines = table(columns, rows[:ALIVE], width=width, indent=7)
    if len(rows) > ALIVE:
        lines.append(line(f"       … {len(rows) - ALIVE} more"))
    levers = values.get("levers")
    for lever in levers if isinstance(levers, (list, tuple)) else ():
        if isinstance(lever, dict):
            text = plain_text(str(lever.get("text", "")), 80)
            worth = human_bytes(_count(lever.get("bytes")))
            lines += wrap(f"       lever: {text} ({worth})", width, indent=14)
    return lines


def _count(value: JsonValue) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
