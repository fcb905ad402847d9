"""Markdown whose cells cannot break out: names from files are inert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.units import plain_text

_SPECIAL: Final = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|!"})


def markdown_text(text: str, limit: int = 400) -> str:
    """``text`` on one line, with every character that Markdown would heed escaped."""
    return plain_text(text, limit).translate(_SPECIAL)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells of ``rows`` are escaped, ``head`` is taken as it is."""
    lines = [head, ["---"] * len(head), *([markdown_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
