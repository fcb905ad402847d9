"""Lines and tables for a terminal of any width, with and without colour.

A line is a tuple of spans, a span a text with an optional style. Everything is measured in cells
(a wide East Asian character takes two, a combining mark none), so that columns stay straight
whatever the names in a model are made of.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

Span: TypeAlias = tuple[str, str]
"""(text, style); style "" is plain."""

Line: TypeAlias = tuple[Span, ...]

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "good": "1;32",
    "bad": "1;31",
    "warn": "33",
    "mark": "36",
}
"""ANSI "select graphic rendition" parameters of the styles."""

_GAP: Final = "  "


def line(*parts: str | Span) -> Line:
    """Return a line of texts and spans."""
    return tuple((part, "") if isinstance(part, str) else part for part in parts)


def cell_width(text: str) -> int:
    """Return the columns that ``text`` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def fit(text: str, width: int) -> str:
    """Return ``text``, cut to ``width`` cells (at least 1) with an ellipsis if it is longer."""
    return text if cell_width(text) <= width else _cut(text, width)


def _cut(text: str, width: int) -> str:
    """As much of ``text`` as leaves room for an ellipsis, and the ellipsis."""
    kept, used = [], 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` filled with spaces to ``width`` cells; ``right`` = flush right."""
    fill = " " * max(0, width - cell_width(text))
    return fill + text if right else text + fill


def paint(lines: Iterable[Line], *, width: int, colour: bool) -> str:
    """Return the lines as text, each cut to ``width`` cells, styles as ANSI codes if ``colour``."""
    return "".join(_paint(item, width, colour) + "\n" for item in lines)


def flow(parts: Sequence[str | Span], width: int, *, separator: str = " · ") -> list[Line]:
    """Join parts to as few lines as fit; a line breaks only between parts."""
    rows: list[list[Span]] = []
    used = 0
    for part in parts:
        span = (part, "") if isinstance(part, str) else part
        need = cell_width(span[0])
        if rows and used + cell_width(separator) + need <= width:
            rows[-1] += [(separator, ""), span]
            used += cell_width(separator) + need
        else:
            rows.append([span])
            used = need
    return [tuple(row) for row in rows]


def wrap(text: str, width: int, *, indent: int = 0, style: str = "") -> list[Line]:
    """Break prose into lines; all but the first are indented."""
    rows = textwrap.wrap(
        text,
        max(width, indent + 10),
        subsequent_indent=" " * indent,
        break_long_words=True,
        break_on_hyphens=False,
    )
    return [line((row, style)) for row in rows]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table.

    ``right``: flush right; ``least``: cells that it may be cut to (None = never cut); ``rank``:
    where the width is short, columns of a higher rank are left out first (0 = never).
    """

    title: str
    right: bool = False
    least: int | None = None
    rank: int = 0


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int, indent: int = 2
) -> list[Line]:
    """Return header and rows. Columns are cut, then left out, until the table is ``width`` wide."""
    shown = list(range(len(columns)))
    sizes = [
        max([cell_width(column.title), *(cell_width(row[k]) for row in rows)])
        for k, column in enumerate(columns)
    ]
    while True:
        excess = indent + sum(sizes[k] for k in shown) + len(_GAP) * (len(shown) - 1) - width
        if excess <= 0:
            break
        room = {k: sizes[k] - (columns[k].least or sizes[k]) for k in shown}
        if excess <= sum(max(0, value) for value in room.values()):
            for k in sorted(room, key=lambda k: -room[k]):
                cut = min(excess, max(0, room[k]))
                sizes[k] -= cut
                excess -= cut
            break
        weakest = max(shown, key=lambda k: columns[k].rank)
        if columns[weakest].rank == 0:
            break
        shown.remove(weakest)
    titles = [columns[k].title for k in range(len(columns))]
    return [
        _row(columns, shown, sizes, titles, indent, "dim"),
        *(_row(columns, shown, sizes, row, indent, "") for row in rows),
    ]


def _row(
    columns: Sequence[Column],
    shown: Sequence[int],
    sizes: Sequence[int],
    cells: Sequence[str],
    indent: int,
    style: str,
) -> Line:
    texts = [pad(fit(cells[k], sizes[k]), sizes[k], right=columns[k].right) for k in shown]
    return line(((" " * indent + _GAP.join(texts)).rstrip(), style))


def _paint(item: Line, width: int, colour: bool) -> str:
    out: list[str] = []
    left = width
    too_long = sum(cell_width(text) for text, _ in item) > width
    for text, style in item:
        size = cell_width(text)
        shown = _cut(text, left) if too_long and size >= left else text
        out.append(f"\x1b[{_CODES[style]}m{shown}\x1b[0m" if colour and style and shown else shown)
        left -= size
        if left <= 0:
            break
    return "".join(out) if colour else "".join(out).rstrip()


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
