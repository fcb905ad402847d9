"""Figures and foreign names for people: three significant digits, nothing that moves a cursor."""

from __future__ import annotations

import unicodedata

from npusched.errors import escaped


def human_bytes(count: float) -> str:
    """Binary units: 72.7 KiB. Below 1 KiB exact: 640 B."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < (1024 if unit == "B" else 1023.5) or unit == "GiB":
            break
        size /= 1024
    return f"{int(size)} B" if unit == "B" else f"{_digits(size)} {unit}"


def human_count(count: float) -> str:
    """Decimal units: 7.49 M. Below 1000 whole, except below 10: 4.2."""
    size = float(count)
    if abs(size) < 999.5:
        return f"{size:.0f}" if abs(size) >= 10 or size == int(size) else f"{size:.1f}"
    for unit in ("k", "M", "G", "T"):
        size /= 1000
        if abs(size) < 999.5 or unit == "T":
            break
    return f"{_digits(size)} {unit}"


def human_seconds(seconds: float) -> str:
    """Time in s, ms or µs."""
    if seconds >= 0.9995:
        return f"{_digits(seconds)} s"
    if seconds >= 0.9995e-3:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} µs"


def human_energy(nanojoules: float) -> str:
    """Energy in nJ, µJ, mJ or J, with its sign."""
    size = abs(nanojoules)
    for unit, scale in (("J", 1e9), ("mJ", 1e6), ("µJ", 1e3)):
        if size >= 0.9995 * scale:
            return f"{_digits(nanojoules / scale)} {unit}"
    return f"{_digits(nanojoules)} nJ"


def human_frequency(hertz: float) -> str:
    """Frequency in MHz or GHz."""
    return f"{hertz / 1e9:g} GHz" if hertz >= 1e9 else f"{hertz / 1e6:g} MHz"


def group_digits(count: int) -> str:
    """Exact count in groups: 220 870."""
    return f"{count:,}".replace(",", " ")


def signed(text: str) -> str:
    """A change with its sign: +4.2 µJ; the minus is a hyphen, so that it can be searched for."""
    return text if text.startswith("-") else f"+{text}"


def percent(part: float, whole: float) -> str:
    """Share in percent; '-' where there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def percent_change(value: float, base: float) -> str:
    """How far ``value`` is from ``base``: +12.0 %; '-' where there is no base."""
    return f"{100 * (value / base - 1):+.1f} %" if base else "-"


def plural(count: int, noun: str) -> str:
    """1 kernel, 2 kernels."""
    return f"{group_digits(count)} {noun}{'' if count == 1 else 's'}"


def plain_text(text: str, limit: int = 60) -> str:
    """``text`` fit for one line of a terminal, cut to ``limit`` characters.

    Names in a model file are chosen by whoever wrote it: they must not move the cursor, change
    colours, reverse the reading direction or pile up marks. Whatever is not printable (control
    and format characters, line separators, unassigned and private code points, half surrogates)
    is escaped, and so is every combining mark after the second in a row.
    """
    out: list[str] = []
    length = marks = 0
    for character in text:
        if length > limit:
            break
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        safe = character if character.isprintable() and marks <= 2 else escaped(character)
        out.append(safe)
        length += len(safe)
    plain = "".join(out)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def log_text(text: str, limit: int = 60) -> str:
    """``plain_text`` without what a build runner that reads the log would take for a command.

    GitHub's runner heeds ``::command::`` at the start of a line, wrapped lines included, and
    ``##[command]`` anywhere in it.
    """
    plain = plain_text(text, 4 * limit).replace("::", ":\\x3a").replace("##[", "##\\x5b")
    return plain_text(plain, limit)


def short_name(name: str, limit: int = 24) -> str:
    """Last meaningful part of a tensor name such as ``a/b/conv2d_1/Relu;a/b/…``."""
    first = name.split(";")[0].rstrip("/")
    parts = [p for p in first.split("/") if p and p not in _NOISE]
    return plain_text(parts[-1] if parts else first, limit)


def _digits(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


_NOISE = frozenset({"Relu", "Relu6", "BiasAdd", "Conv2D", "MatMul", "depthwise", "PartitionedCall"})
