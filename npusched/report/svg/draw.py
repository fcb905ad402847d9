"""Pieces of SVG as text: numbers, marks, axes. Every text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

from npusched.report.units import human_bytes, human_count, human_seconds, plain_text

TITLE_LIMIT: Final = 400
"""Most characters of a text that is shown on hover."""

CHARACTER_WIDTH: Final = 6.1
"""Pixels of an average character of small text (11 px); labels are cut by it."""

_XML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


class Drawing(NamedTuple):
    """A figure: a stable name, a heading, one sentence that says what it shows, and its inside.

    ``body`` is the content of an ``<svg>`` of ``width`` x ``height`` pixels, ``legend`` pairs of a
    class of ``theme.FIGURE_CSS`` and what it stands for.
    """

    name: str
    title: str
    summary: str
    width: int
    height: int
    body: str
    legend: tuple[tuple[str, str], ...] = ()


def escape(text: str, limit: int = TITLE_LIMIT) -> str:
    """``text`` as the content of an element or of an attribute: harmless, and cut to ``limit``."""
    return plain_text(text, limit).translate(_XML)


def lines_title(lines: Iterable[str]) -> str:
    """A ``<title>`` of several lines, which viewers show on hover and read out."""
    return "<title>" + "\n".join(escape(line) for line in lines) + "</title>"


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, classes: str = "") -> str:
    """A rectangle."""
    named = f' class="{classes}"' if classes else ""
    return f'<rect x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}"{named}/>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    return f'<path d="M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}" class="{classes}"/>'


def label(
    x: float, y: float, text: str, classes: str = "t", *, limit: int = 80, anchor: str = ""
) -> str:
    """A text whose baseline begins (or ends, with anchor "end") at a point."""
    where = f' text-anchor="{anchor}"' if anchor else ""
    shown = escape(text, limit)
    return f'<text x="{num(x)}" y="{num(y)}" class="{classes}"{where}>{shown}</text>'


def box(x: float, y: float, width: float, height: float) -> str:
    """Path data of a rectangle."""
    return f"M{num(x)} {num(y)}h{num(width)}v{num(height)}h-{num(width)}z"


def mark(path: str, lines: Iterable[str], classes: str = "") -> str:
    """A shape (path data) with what is shown on hover; it belongs in a group of ``marks``."""
    named = f' class="{classes}"' if classes else ""
    return f'<path d="{path}"{named}>{lines_title(lines)}</path>'


def marks(parts: Iterable[str], classes: str = "") -> str:
    """A group of marks, which pages let people walk through; "" for none."""
    inside = "".join(parts)
    return f'<g class="{f"mm {classes}".strip()}">{inside}</g>' if inside else ""


def boxes(rows: Iterable[tuple[float, float, float, float]], classes: str) -> str:
    """Many rectangles (x, y, width, height) as one path; "" for none."""
    path = "".join(box(*row) for row in rows)
    return f'<path d="{path}" class="{classes}"/>' if path else ""


def shortened(text: str, width: float) -> str:
    """``text`` cut to what fits in ``width`` pixels."""
    return plain_text(text, max(int(width / CHARACTER_WIDTH), 2))


class Scale(NamedTuple):
    """A value's place on an axis: ``low`` at pixel ``start``, ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Pixel of a value; values outside are clipped by log axes at ``low`` only."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values (1, 2, 5 x 10^k) between two values, at most ``most`` steps."""
    if high <= low:
        return [low]
    step = 10 ** floor(log10((high - low) / most))
    while (high - low) / step > most:
        step *= 2 if str(f"{step:e}")[0] != "2" else 2.5
    return _multiples(low, high, step)


def byte_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Powers of two times 1, and their multiples, between two sizes."""
    step = 1.0
    while (high - low) / step > most:
        step *= 2
    return _multiples(low, high, step)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values; with 2 and 5 if there are fewer than three."""
    tens = range(floor(log10(low)), ceil(log10(high)) + 1)
    powers = [10.0**k for k in tens if low <= 10.0**k <= high]
    if len(powers) >= 3:
        return powers
    return [f * 10.0**k for k in tens for f in (1, 2, 5) if low <= f * 10.0**k <= high]


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


Format = Callable[[float], str]


def size_label(value: float) -> str:
    """Bytes of a tick: 32 KiB, not 32.0 KiB."""
    return human_bytes(value).replace(".00 ", " ").replace(".0 ", " ")


def time_label(value: float) -> str:
    """Seconds of a tick."""
    if not value:
        return "0"
    number, unit = human_seconds(value).split(" ")
    return f"{float(number):g} {unit}"


def count_label(value: float) -> str:
    """A count of a tick: 1 k, 1.5 M; small ones with the digits that they have."""
    if 0 < value < 1:
        return f"{value:g}"
    number, *unit = human_count(value).split(" ")
    return " ".join([f"{float(number):g}", *unit])


def x_axis(
    scale: Scale, ticks: Sequence[float], y: float, top: float, text: Format, title: str
) -> str:
    """Grid lines from ``top`` down to ``y``, their values below, and the axis' title."""
    parts = []
    last = -1e9
    for tick, shown in zip(ticks, _distinct(ticks, text), strict=True):
        x = scale.at(tick)
        parts.append(line(x, top, x, y, "g"))
        if x - last > CHARACTER_WIDTH * (len(shown) + 1):
            parts.append(label(x, y + 15, shown, "t", anchor="middle"))
            last = x
    middle = (scale.start + scale.end) / 2
    parts.append(label(middle, y + 31, title, "a", anchor="middle"))
    return "".join(parts)


def y_axis(
    scale: Scale, ticks: Sequence[float], x: float, right: float, text: Format, title: str
) -> str:
    """Grid lines from ``x`` to ``right``, their values on the left, and the title on top."""
    parts = [label(0, scale.end - 10, title, "a")]
    for tick, shown in zip(ticks, _distinct(ticks, text), strict=True):
        y = scale.at(tick)
        parts.append(line(x, y, right, y, "g"))
        parts.append(label(x - 6, y + 3.5, shown, "t", anchor="end"))
    return "".join(parts)


def _distinct(ticks: Sequence[float], text: Format) -> list[str]:
    """Labels of ticks; to more digits where three would make two of them equal."""
    shown = [text(tick) for tick in ticks]
    if len(set(shown)) == len(shown):
        return shown
    return [f"{tick:,.7g}".replace(",", " ") for tick in ticks]


def stairs(points: Sequence[tuple[float, float]]) -> str:
    """Path of a step line through points: level until the next one's x."""
    if not points:
        return ""
    x, y = points[0]
    path = f"M{num(x)} {num(y)}"
    for _, (x, y) in pairwise(points):
        path += f"H{num(x)}V{num(y)}"
    return path


_SHAPES: Final = (
    "M{l} {y}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
    "M{l} {t}h{d}v{d}h-{d}z",
    "M{x} {t}l{r} {d}h-{d}z",
    "M{x} {t}l{r} {r}l-{r} {r}l-{r} -{r}z",
    "M{x} {b}l-{r} -{d}h{d}z",
)
"""Circle, square, triangle, diamond, triangle on its head."""


def dot(x: float, y: float, radius: float, shape: int) -> str:
    """Path data of a point; kinds differ in shape, so that colour alone need not tell them."""
    r = radius if shape % 5 == 0 else radius * (0.9 if shape % 5 == 1 else 1.15)
    return _SHAPES[shape % 5].format(
        x=num(x), y=num(y), l=num(x - r), t=num(y - r), b=num(y + r), r=num(r), d=num(2 * r)
    )
