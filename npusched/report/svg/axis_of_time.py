"""The time axis that the memory map and the timeline share: segments one after the other."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from npusched.report.svg.draw import Scale, nice_ticks
from npusched.report.types import PlanReport, SegmentFacts

WIDTH: Final = 1000
LEFT: Final = 78
RIGHT: Final = WIDTH - 12


class TimeAxis:
    """Where each step begins and ends; ``total_s`` is the time of all segments."""

    def __init__(self, report: PlanReport) -> None:
        spans = [segment_seconds(report, segment) for segment in report.segments]
        self.starts = [0.0, *accumulate(spans)]
        self.total_s = self.starts[-1]
        self.scale = Scale(0, self.total_s or 1, LEFT, RIGHT)

    def step(self, index: int) -> float:
        """Pixel at which a step begins (the end for steps after the last)."""
        return self.scale.at(self.starts[min(index, len(self.starts) - 1)])

    def ticks(self) -> list[float]:
        """Round times."""
        return nice_ticks(0, self.total_s, 8) if self.total_s else [0.0]


def segment_seconds(report: PlanReport, segment: SegmentFacts) -> float:
    """Time of a segment: its NPU cycles and its CPU cycles, each at its clock."""
    target = report.target
    return segment.cycles / target.clock_hz + segment.cpu_cycles / target.cpu.clock_hz
