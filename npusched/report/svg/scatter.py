"""Frame of a plot of points: two axes, linear or logarithmic, chosen from the points."""

from __future__ import annotations

from typing import Final

from npusched.report.svg.draw import (
    Format,
    Scale,
    byte_ticks,
    log_ticks,
    nice_ticks,
    size_label,
    x_axis,
    y_axis,
)

WIDTH: Final = 490
HEIGHT: Final = 330
LEFT: Final = 52
RIGHT: Final = WIDTH - 14
TOP: Final = 30
BOTTOM: Final = HEIGHT - 40

STEEP: Final = 6.0
"""An axis is logarithmic if its largest value is this many times its smallest."""


def spanned(low: float, high: float, start: float, end: float) -> Scale:
    """An axis a little longer than its values."""
    if low > 0 and high / low >= STEEP:
        return Scale(low / 1.15, high * 1.15, start, end, is_log=True)
    room = max(0.06 * (high - low), 0.01 * abs(high)) or 1.0
    return Scale(max(low - room, 0), high + room, start, end)


def framed(x: Scale, y: Scale, x_title: str, y_title: str, y_text: Format) -> str:
    """Axes of a plot whose x is bytes."""
    sizes = byte_log_ticks(x) if x.is_log else byte_ticks(x.low, x.high)
    return x_axis(x, sizes, BOTTOM, TOP, size_label, x_title) + y_axis(
        y, value_ticks(y), LEFT, RIGHT, y_text, y_title
    )


def value_ticks(scale: Scale) -> list[float]:
    """Ticks of an axis of numbers."""
    if scale.is_log:
        return log_ticks(scale.low, scale.high)
    return nice_ticks(scale.low, scale.high, 6)


def byte_log_ticks(scale: Scale) -> list[float]:
    """Powers of two of a logarithmic axis of bytes, every second or more if there are many."""
    powers = [2.0**k for k in range(64) if scale.low <= 2.0**k <= scale.high]
    stride = max(1, -(-len(powers) // 8))
    return powers[::stride]
