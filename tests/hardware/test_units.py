"""Sizes, frequencies, derating."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.errors import TargetError
from npusched.hardware import parse_derate, parse_duration, parse_frequency, parse_size
from npusched.hardware.units import FREQUENCY_UNITS, SIZE_UNITS


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("65536", 65536),
        ("1", 1),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("64KB", 64000),
        ("1.5MiB", 1572864),  # 1.5 x 1,048,576
        ("0.5KiB", 512),
        (".5KiB", 512),
        ("2.MiB", 2097152),
        ("1MB", 1000000),
        ("1GiB", 1073741824),
        ("393_216", 393216),
        ("1e6", 1000000),
        ("4096B", 4096),
        (" 8KiB ", 8192),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KiB",
        "64XB",
        "-64KiB",
        "64KiBs",
        "1.5",
        "0",
        "0KiB",
        "1..5MiB",
        "0x100",
        "64 Ki B",
        "nan",
        "inf",
        "1e400",
        "9999999TiB",
        "٣KiB",
        "1,5MiB",
        "64K",
        "_5",
        "0.1KiB",
    ],
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_size(text)
    assert caught.value.hint


@given(st.integers(1, 1 << 62))
def test_a_bare_number_is_bytes(size_bytes: int) -> None:
    assert parse_size(str(size_bytes)) == size_bytes
    assert parse_size(f"{size_bytes:_}") == size_bytes


@given(st.integers(1, 1 << 20), st.sampled_from(sorted(SIZE_UNITS)))
def test_units_multiply(count: int, unit: str) -> None:
    for spelled in (unit, unit.upper()):
        assert parse_size(f"{count}{spelled}") == count * SIZE_UNITS[unit]


@given(st.integers(1, 1 << 30))
def test_kibibytes_have_exact_decimals(count: int) -> None:
    """n/8 KiB is a whole number of bytes and a finite decimal."""
    assert parse_size(f"{count // 8}.{count % 8 * 125:03d}KiB") == count * 128


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_an_error(text: str) -> None:
    with suppress(TargetError):
        assert 0 < parse_size(text) < 1 << 63


@pytest.mark.parametrize(
    ("text", "hertz"),
    [
        ("500MHz", 500e6),
        ("1GHz", 1e9),
        ("0.5ghz", 500e6),
        ("200e6", 200e6),
        ("32768", 32768.0),
        ("400 kHz", 400e3),
        ("1Hz", 1.0),
    ],
)
def test_frequencies(text: str, hertz: float) -> None:
    assert parse_frequency(text) == hertz


@pytest.mark.parametrize("text", ["", "0", "0MHz", "-1GHz", "500M", "fast", "500MiB"])
def test_no_frequencies(text: str) -> None:
    with pytest.raises(TargetError):
        parse_frequency(text)


@given(st.integers(1, 10**6), st.sampled_from(sorted(FREQUENCY_UNITS)))
def test_frequency_units_multiply(count: int, unit: str) -> None:
    assert parse_frequency(f"{count}{unit}") == count * FREQUENCY_UNITS[unit]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2ms", 2e-3), ("500us", 5e-4), ("1.5 s", 1.5), ("0.002", 2e-3), ("10NS", 1e-8)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0ms", "-1ms", "5m", "fast", "5KiB"])
def test_no_durations(text: str) -> None:
    with pytest.raises(TargetError):
        parse_duration(text)


def test_derating() -> None:
    assert parse_derate("sram=0.5") == {"sram": 0.5}
    assert parse_derate("sram=0.5, dram = .25") == {"sram": 0.5, "dram": 0.25}
    assert parse_derate(["sram=1", "dram=0.8"]) == {"sram": 1.0, "dram": 0.8}
    assert parse_derate([]) == {}
    assert parse_derate("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "sram",
        "sram=",
        "=0.5",
        "sram=half",
        "sram=0",
        "sram=-1",
        "sram=1.5",
        "sram=nan",
        "sram=inf",
        "sram=0.5,sram=0.6",
        "0.5",
    ],
)
def test_no_derating(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_derate(text)
    assert caught.value.hint
