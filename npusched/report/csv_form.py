"""CSV whose cells a spreadsheet shows and never computes: names from files are inert."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from npusched.report.units import plain_text

_FORMULA: Final = ("=", "+", "-", "@")
"""What a spreadsheet takes for the beginning of a formula."""

_MOST: Final = 2000
"""Most characters of a cell."""


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as CSV (RFC 4180, lines end in a newline). Numbers stay as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def csv_cell(value: object) -> object:
    """A text on one line, without what is not printable; an apostrophe before a formula."""
    if not isinstance(value, str):
        return value
    text = plain_text(value, _MOST)
    return f"'{text}" if text.startswith(_FORMULA) else text
