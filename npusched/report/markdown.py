"""Markdown whose cells cannot break out: names from files are inert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.units import plain_text

_SPECIAL: Final = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|!"})


_LINKS: Final = (("@", "\\x40"), ("://", ":\\x2f/"), ("www.", "www\\x2e"))
"""What GitHub makes a link or a mention of, escaped or not -> what stands there instead."""


def markdown_text(text: str, limit: int = 400) -> str:
    """``text`` on one line: no markup, no link, nobody mentioned."""
    plain = plain_text(text, limit)
    for link, shown in _LINKS:
        plain = plain.replace(link, shown)
    return plain.translate(_SPECIAL)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells of ``rows`` are escaped, ``head`` is taken as it is."""
    lines = [head, ["---"] * len(head), *([markdown_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
