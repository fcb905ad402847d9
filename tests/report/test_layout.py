"""Columns stay straight and lines stay narrow, whatever is in them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from npusched.report.layout import Column, cell_width, fit, flow, line, pad, paint, table, wrap

WORDS = st.text(st.sampled_from("ab 日\u0301…"), max_size=12)


def test_widths_count_cells() -> None:
    """A wide character takes two cells, a combining mark none."""
    assert cell_width("abc") == 3
    assert cell_width("日本") == 4
    assert cell_width("e\u0301") == 1
    assert pad("日", 4) == "日  "
    assert pad("日", 4, right=True) == "  日"


@given(WORDS, st.integers(1, 12))
def test_fit_never_exceeds(text: str, width: int) -> None:
    shown = fit(text, width)
    assert cell_width(shown) <= width
    assert shown == text or shown.endswith("…")


def test_styles_do_not_count_as_width() -> None:
    lines = [line("a", ("bcd", "bold"), "ef")]
    assert paint(lines, width=6, colour=True) == "a\x1b[1mbcd\x1b[0mef\n"
    assert paint(lines, width=4, colour=False) == "abc…\n"
    assert paint(lines, width=4, colour=True) == "a\x1b[1mbc…\x1b[0m\n"
    assert paint(lines, width=5, colour=False) == "abcd…\n"


def test_flow_breaks_between_parts_only() -> None:
    rows = ["".join(text for text, _ in row) for row in flow(["aaaa", "bbb", "cc"], 10)]
    assert rows == ["aaaa · bbb", "cc"]


COLUMNS = [
    Column(title="op", least=6),
    Column(title="cycles", right=True),
    Column(title="share", right=True, rank=1),
    Column(title="name", least=4, rank=2),
]


def rows_of(width: int) -> list[str]:
    cells = [("Conv2D+Relu", "1 234", "50.0 %", "a long name"), ("Add", "7", "0.1 %", "b")]
    return paint(table(COLUMNS, cells, width=width), width=width, colour=False).splitlines()


def test_tables_give_way_from_the_right() -> None:
    """Names are cut, then columns of high rank are left out, then the op is cut."""
    assert rows_of(60)[1] == "  Conv2D+Relu   1 234  50.0 %  a long name"
    assert rows_of(36)[1] == "  Conv2D+Relu   1 234  50.0 %  a lo…"
    assert rows_of(28)[1] == "  Conv2D+Re…   1 234  50.0 %"
    assert rows_of(20)[1] == "  Conv2D+Re…   1 234"


@given(st.integers(16, 80), st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), max_size=4))
def test_tables_never_exceed_the_width(width: int, rows: list[tuple[str, ...]]) -> None:
    lines = paint(table(COLUMNS, rows, width=width), width=width, colour=False).split("\n")
    assert len(lines) == len(rows) + 2
    assert all(cell_width(text) <= width for text in lines)


def test_prose_is_indented_after_the_first_line() -> None:
    lines = paint(wrap("why: " + "word " * 12, 30, indent=5), width=30, colour=False)
    assert re.fullmatch(r"why: (word ?)+\n(     (word ?)+\n)+", lines)


def test_prose_breaks_words_that_are_too_long() -> None:
    lines = paint(wrap("x" * 75, 30, indent=2), width=30, colour=False).splitlines()
    assert "".join(text.strip() for text in lines) == "x" * 75
