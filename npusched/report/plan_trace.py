"""A plan as a timeline in the Chrome JSON trace event format, which Perfetto shows.

One thread for the NPU (a slice per segment, inside it one per stripe, inside that one per op), one
for the CPU, and a counter for the bytes alive. The cycles of an op are split evenly over its
stripes: the first and last of a chain differ a little. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, TypeAlias

from npusched.report.types import OpFacts, PlanReport, SegmentFacts
from npusched.report.units import plain_text

Event: TypeAlias = dict[str, object]

NPU_TRACK: Final = 1
CPU_TRACK: Final = 2

MOST_SLICES: Final = 200
"""Stripes x ops of a segment beyond which only its ops are shown, each as one slice."""


def render_plan_trace(report: PlanReport) -> str:
    """Return the trace: segments one after the other, NPU and CPU never at the same time."""
    form = {
        "displayTimeUnit": "ns",
        "otherData": {
            "name": plain_text(report.model.name, 400),
            "target": plain_text(report.target.name, 100),
            "cycles": report.totals.cycles,
            "cpu_cycles": report.totals.cpu_cycles,
            "clock_hz": report.target.clock_hz,
            "basis": "predicted; the cycles of an op are split evenly over its stripes; calls of "
            "the NPU and hand-offs to the CPU are left out",
        },
        "traceEvents": list(_events(report)),
    }
    return json.dumps(form, separators=(",", ":")) + "\n"


def _events(report: PlanReport) -> Iterator[Event]:
    yield _named("process_name", 0, report.model.name)
    for track, name in ((NPU_TRACK, "NPU"), (CPU_TRACK, "CPU")):
        yield _named("thread_name", track, name)
    ops = {op.id: op for op in report.ops}
    clock = _Clock()
    for segment in report.segments:
        start = clock.now_ns
        own = [ops[number] for number in segment.ops]
        track = CPU_TRACK if segment.placement == "cpu" else NPU_TRACK
        slices = list(_slices(report, segment, own, clock))
        yield _slice(track, _title(own), start, clock.now_ns, _segment_args(segment))
        for name, begin, end, args in slices:
            yield _slice(track, name, begin, end, args)
        if report.live_sram_bytes:
            yield {
                "ph": "C",
                "pid": 0,
                "name": f"{plain_text(report.budget_memory, 40)} bytes alive",
                "ts": start / 1000,
                "args": {"bytes": report.live_sram_bytes[segment.index]},
            }


class _Clock:
    """Where the trace is, in whole nanoseconds: slices that follow each other never overlap."""

    def __init__(self) -> None:
        self._seconds = 0.0

    @property
    def now_ns(self) -> int:
        return round(self._seconds * 1e9)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds


def _slices(
    report: PlanReport, segment: SegmentFacts, ops: list[OpFacts], clock: _Clock
) -> list[tuple[str, int, int, Event]]:
    """(name, begin, end, facts) of what is inside a segment, outer slices first."""
    found: list[tuple[str, int, int, Event]] = []
    stripes = segment.stripes if segment.stripes * len(ops) <= MOST_SLICES else 1
    for stripe in range(stripes):
        begin, place = clock.now_ns, len(found)
        for op in ops:
            start = clock.now_ns
            clock.run(_seconds(report, op) / stripes)
            found.append((_label(op), start, clock.now_ns, _op_args(op, stripes)))
        if stripes > 1:
            found.insert(place, (f"stripe {stripe + 1} of {stripes}", begin, clock.now_ns, {}))
    return found


def _seconds(report: PlanReport, op: OpFacts) -> float:
    return op.cycles / report.target.clock_hz + op.cpu_cycles / report.target.cpu.clock_hz


def _label(op: OpFacts) -> str:
    number = f"#{op.source_ops[0][1]} " if op.source_ops else ""
    return number + "+".join(plain_text(part, 32) for part in (op.kind, *op.fused))


def _title(ops: list[OpFacts]) -> str:
    return _label(ops[0]) if len(ops) == 1 else f"{_label(ops[0])} … {_label(ops[-1])}"


def _segment_args(segment: SegmentFacts) -> Event:
    return {
        "segment": segment.index,
        "stripes": segment.stripes,
        "stripe_rows": segment.stripe_rows,
        "sram_bytes": segment.sram_bytes,
        "cycles": segment.cycles,
        "cpu_cycles": segment.cpu_cycles,
    }


def _op_args(op: OpFacts, stripes: int) -> Event:
    return {
        "name": plain_text(op.name, 400),
        "cycles": op.cycles,
        "cpu_cycles": op.cpu_cycles,
        "stripes": stripes,
        "bound_by": op.bound_by,
        "memory_cycles": op.memory_cycles,
    }


def _slice(track: int, name: str, begin: int, end: int, args: Event) -> Event:
    return {
        "ph": "X",
        "pid": 0,
        "tid": track,
        "cat": "plan",
        "name": name,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": args,
    }


def _named(kind: str, track: int, name: str) -> Event:
    return {
        "ph": "M",
        "pid": 0,
        "tid": track,
        "name": kind,
        "args": {"name": plain_text(name, 400)},
    }
