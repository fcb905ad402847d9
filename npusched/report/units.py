"""Figures for people: bytes, counts, times and energies with three significant digits."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Binary units: 72.7 KiB. Below 1 KiB exact: 640 B."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024 or unit == "MiB":
            break
        size /= 1024
    return f"{int(size)} B" if unit == "B" else f"{_digits(size)} {unit}"


def human_count(count: float) -> str:
    """Decimal units: 7.49 M."""
    size = float(count)
    for unit in ("", "k", "M", "G", "T"):
        if abs(size) < 1000 or unit == "T":
            break
        size /= 1000
    return f"{int(size)}" if unit == "" else f"{_digits(size)} {unit}"


def human_seconds(seconds: float) -> str:
    """Time in s, ms or µs."""
    if seconds >= 1:
        return f"{_digits(seconds)} s"
    if seconds >= 1e-3:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} µs"


def human_energy(nanojoules: float) -> str:
    """Energy in nJ, µJ or mJ."""
    if nanojoules >= 1e6:
        return f"{_digits(nanojoules / 1e6)} mJ"
    if nanojoules >= 1e3:
        return f"{_digits(nanojoules / 1e3)} µJ"
    return f"{_digits(nanojoules)} nJ"


def human_frequency(hertz: float) -> str:
    """Frequency in MHz or GHz."""
    return f"{hertz / 1e9:g} GHz" if hertz >= 1e9 else f"{hertz / 1e6:g} MHz"


def group_digits(count: int) -> str:
    """Exact count with thin groups: 220 870."""
    return f"{count:,}".replace(",", " ")


def percent(part: float, whole: float) -> str:
    """Share in percent; '-' where there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plain_text(text: str, limit: int = 60) -> str:
    """``text`` fit for a terminal: control and direction characters escaped, cut to ``limit``.

    Names in a model file are chosen by whoever wrote it; they must not move the cursor, change
    colours or reverse the reading direction.
    """
    safe = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def short_name(name: str, limit: int = 24) -> str:
    """Last meaningful part of a tensor name such as ``a/b/conv2d_1/Relu;a/b/…``."""
    first = name.split(";")[0].rstrip("/")
    parts = [p for p in first.split("/") if p and p not in _NOISE]
    return plain_text(parts[-1] if parts else first, limit)


_NOISE = frozenset({"Relu", "Relu6", "BiasAdd", "Conv2D", "MatMul", "depthwise", "PartitionedCall"})
