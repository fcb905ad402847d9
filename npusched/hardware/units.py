"""Sizes, frequencies, times, energies and shares as users write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from npusched.errors import TargetError

SIZE_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
FREQUENCY_UNITS: dict[str, int] = {"": 1, "hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}
TIME_UNITS: dict[str, int] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""In nanoseconds."""

ENERGY_UNITS: dict[str, int] = {"nj": 1, "uj": 10**3, "mj": 10**6, "j": 10**9}
"""In nanojoules."""

PERCENT_UNITS: dict[str, int] = {"%": 1}

_QUANTITY = re.compile(
    r"\s*(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,3}))?\s*([A-Za-z]*|%)\s*", re.ASCII
)
_MAX_SIZE_BYTES = 1 << 63
_MAX_AMOUNT = 10**18
_MAX_SHARE = 10**4


def parse_size(text: str) -> int:
    """Return the bytes of a size: "64KiB", "1.5MiB", "64KB" (1000 each) or "65536" (bytes).

    Underscores between digits are allowed, case does not matter. Raises TargetError if the text is
    not a size, is zero, is no whole number of bytes or does not fit 63 bits.
    """
    value = _quantity(text, SIZE_UNITS, "size", "64KiB, 1.5MiB, 64KB or a number of bytes")
    if value.denominator != 1:
        raise TargetError(
            f"size {text!r} is not a whole number of bytes",
            f"it is {float(value):.6g} bytes",
            "KiB = 1024, KB = 1000; give a size that comes out even",
            text=text,
        )
    if not 0 < value < _MAX_SIZE_BYTES:
        raise TargetError(
            f"size {text!r} is out of range",
            f"it is {int(value)} bytes",
            "give a size between 1 byte and 8 EiB",
            text=text,
        )
    return int(value)


def parse_frequency(text: str) -> float:
    """Return the hertz of a frequency: "500MHz", "1GHz", "500e6" or "500000000" (Hz).

    Raises TargetError if the text is not a frequency or is zero.
    """
    value = _quantity(text, FREQUENCY_UNITS, "frequency", "500MHz, 1GHz or a number of hertz")
    if value <= 0:
        raise TargetError(
            f"frequency {text!r} is not positive",
            "nothing runs at 0 Hz",
            "give a frequency such as 500MHz",
            text=text,
        )
    return float(value)


def parse_time(text: str) -> float:
    """Return the seconds of a time: "5ms", "800us", "0.02s". Raises TargetError for anything else.

    A unit is wanted: whether a bare number means seconds or milliseconds is a matter of opinion.
    """
    return float(_positive(text, TIME_UNITS, "time", "5ms, 800us or 0.02s") / 10**9)


def parse_energy(text: str) -> float:
    """Return the nanojoules of an energy: "120uJ", "1.5mJ". Raises TargetError for others."""
    return float(_positive(text, ENERGY_UNITS, "energy", "120uJ or 1.5mJ"))


def parse_percent(text: str) -> Fraction:
    """Return the share that a percentage is: "2%" is 1/50, "0%" is 0. Raises TargetError."""
    value = _quantity(text, PERCENT_UNITS, "percentage", "2% or 0.5%") / 100
    if value > _MAX_SHARE:
        raise TargetError(
            f"percentage {text!r} is out of range",
            f"it is more than {100 * _MAX_SHARE} %",
            "write for example 2%",
            text=text,
        )
    return value


def _positive(text: str, units: dict[str, int], kind: str, examples: str) -> Fraction:
    value = _quantity(text.replace("µ", "u").replace("μ", "u"), units, kind, examples)
    if not 0 < value < _MAX_AMOUNT:
        raise TargetError(
            f"{kind} {text!r} is out of range",
            "it is not positive, or endless",
            f"write for example {examples}",
            text=text,
        )
    return value


def parse_derate(text: str | Iterable[str]) -> dict[str, float]:
    """Return factors by memory name from "sram=0.5", "sram=0.5,dram=0.8" or several such texts.

    Raises TargetError if a part is no ``name=factor``, a factor is outside (0, 1] or a memory is
    named twice. Whether the target has such a memory is checked by ``load_target``.
    """
    factors: dict[str, float] = {}
    texts = [text] if isinstance(text, str) else list(text)
    for part in (part for line in texts for part in line.split(",") if part.strip()):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not number:
            raise TargetError(
                f"derating {part.strip()!r} is not MEMORY=FACTOR",
                "a derating names a memory and the share of its bandwidth that is left",
                "write for example --derate sram=0.5",
                text=part,
            )
        if name in factors:
            raise TargetError(
                f"derating names {name!r} twice",
                f"factors {factors[name]:g} and {number}",
                "give one factor per memory",
                text=part,
            )
        factors[name] = _factor(name, number)
    return factors


def check_factor(name: str, factor: float) -> float:
    """Return a derating factor if it is in (0, 1]. Raises TargetError otherwise."""
    if not 0 < factor <= 1:
        raise TargetError(
            f"derating {name}={factor:g} is out of range",
            "a factor is the share of the bandwidth that is left: above 0, at most 1",
            f"write for example --derate {name}=0.5",
            memory=name,
        )
    return factor


def _factor(name: str, number: str) -> float:
    try:
        factor = float(number)
    except ValueError:
        raise TargetError(
            f"derating factor {number!r} of {name!r} is not a number",
            "a factor is the share of the bandwidth that is left: above 0, at most 1",
            f"write for example --derate {name}=0.5",
            memory=name,
        ) from None
    return check_factor(name, factor)


def _quantity(text: str, units: dict[str, int], kind: str, examples: str) -> Fraction:
    found = _QUANTITY.fullmatch(re.sub(r"(?<=\d)_(?=\d)", "", text))
    if found is None:
        raise TargetError(
            f"{text!r} is not a {kind}",
            "a number and a unit are expected" + _sign_remark(text),
            f"write for example {examples}",
            text=text,
        )
    number, exponent, unit = found.groups()
    if unit.lower() not in units:
        known = ", ".join(_spelled(name) for name in units if name)
        raise TargetError(
            f"{text!r} has the unknown unit {unit!r}" if unit else f"{text!r} has no unit",
            f"known units: {known}",
            f"write for example {examples}",
            text=text,
        )
    return Fraction(number) * Fraction(10) ** int(exponent or 0) * units[unit.lower()]


def _sign_remark(text: str) -> str:
    return ", not a negative one" if text.strip().startswith("-") else ""


def _spelled(unit: str) -> str:
    if unit in TIME_UNITS or unit in PERCENT_UNITS:
        return unit
    if unit in ENERGY_UNITS:
        return unit[:-1] + "J"
    return {"hz": "Hz", "khz": "kHz", "mhz": "MHz", "ghz": "GHz", "b": "B"}.get(
        unit, unit[0].upper() + unit[1:-1] + "B"
    )
