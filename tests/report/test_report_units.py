"""Figures and names for people."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    human_seconds,
    log_text,
    percent,
    plain_text,
    plural,
    short_name,
    signed,
)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (human_bytes(0), "0 B"),
        (human_bytes(1023), "1023 B"),
        (human_bytes(1024), "1.00 KiB"),
        (human_bytes(74480), "72.7 KiB"),
        (human_bytes(1023.9 * 1024), "1.00 MiB"),
        (human_bytes(-2048), "-2.00 KiB"),
        (human_bytes(5 << 30), "5.00 GiB"),
        (human_count(0), "0"),
        (human_count(4.2), "4.2"),
        (human_count(999.4), "999"),
        (human_count(999.6), "1.00 k"),
        (human_count(7_491_972), "7.49 M"),
        (human_count(1e16), "10000 T"),
        (human_seconds(0.99996e-3), "1.00 ms"),
        (human_seconds(0.0004417), "442 µs"),
        (human_seconds(2.5), "2.50 s"),
        (human_energy(0), "0.00 nJ"),
        (human_energy(74_200), "74.2 µJ"),
        (human_energy(-22_400), "-22.4 µJ"),
        (human_energy(5.38e6), "5.38 mJ"),
        (human_energy(2e9), "2.00 J"),
        (group_digits(220870), "220 870"),
        (group_digits(-1000), "-1 000"),
        (percent(1, 3), "33.3 %"),
        (percent(1, 0), "-"),
        (plural(1, "op"), "1 op"),
        (plural(65985, "kernel call"), "65 985 kernel calls"),
        (signed("-5"), "-5"),
        (signed("5"), "+5"),
    ],
)
def test_figures(shown: str, wanted: str) -> None:
    assert shown == wanted


@given(st.integers(0, 10**13))
def test_bytes_keep_three_digits(size: int) -> None:
    """The shown figure is within half a percent (three digits) of the true one."""
    number, unit = human_bytes(size).split()
    scale = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
    assert abs(float(number) * scale - size) <= 0.0051 * size
    assert len(number.replace(".", "")) <= 5


HOSTILE = {
    "\x1b[31mred": "\\x1b[31mred",
    "a\nb\r\tc": "a\\x0ab\\x0d\\x09c",
    "\u202egnp.exe": "\\u202egnp.exe",
    "\u2066isolate\u2069": "\\u2066isolate\\u2069",
    "zero\u200bwidth": "zero\\u200bwidth",
    "line\u2028sep": "line\\u2028sep",
    "\x9b31m": "\\x9b31m",
    "half \ud800": "half \\ud800",
    "tag \U000e0041": "tag \\U000e0041",
    "[bold]x[/bold]": "[bold]x[/bold]",
    "e\u0301a": "e\u0301a",
    "z\u0301\u0301\u0301": "z\u0301\u0301\\u0301",
    "日本": "日本",
}


@pytest.mark.parametrize(("name", "wanted"), HOSTILE.items())
def test_names_cannot_move_the_cursor(name: str, wanted: str) -> None:
    assert plain_text(name) == wanted


@given(st.text(st.characters(exclude_categories=()), max_size=200), st.integers(1, 80))
def test_plain_text_is_printable_and_short(name: str, limit: int) -> None:
    shown = plain_text(name, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    assert not any(unicodedata.category(c).startswith(("C", "Zl", "Zp")) for c in shown)


@given(st.text(":#[]ax\n ", max_size=60), st.integers(1, 80))
def test_logs_get_no_commands(name: str, limit: int) -> None:
    """What a build runner would obey: ``::x::`` at the start of a line, ``##[x]`` anywhere."""
    shown = log_text(name, limit)
    assert "::" not in shown
    assert "##[" not in shown
    assert len(shown) <= limit
    assert log_text(shown, limit) == shown


def test_logs_show_other_names_as_they_are() -> None:
    assert log_text("a/b:0;c #1 [x]") == "a/b:0;c #1 [x]"
    assert log_text("::error::x") == ":\\x3aerror:\\x3ax"
    assert log_text("##[group]") == "##\\x5bgroup]"


def test_endless_names_are_cut_without_reading_them_all() -> None:
    assert plain_text("x" * 10_000, 20) == "x" * 19 + "…"
    assert len(plain_text("\x00" * 10_000_000, 20)) == 20


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model/conv2d_1/Relu;model/bn/add;x", "conv2d_1"),
        ("StatefulPartitionedCall:0", "StatefulPartitionedCall…"),
        ("Relu", "Relu"),
        ("", ""),
        ("a/b/", "b"),
    ],
)
def test_short_names(name: str, wanted: str) -> None:
    assert short_name(name) == wanted
