"""A timeline in the Chrome JSON trace event format, which Perfetto and chrome://tracing show.

One process per NPU operator, one thread per track: kernels (inside a slice for the whole
operator), each DMA channel, waits of the command processor; a counter per memory for the bytes
alive. Operators follow each other; time of the host between them is not in the trace. Times are
microseconds, rounded to nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from npusched.report.execution_types import InspectReport
from npusched.sim.program import LoadedDma, LoadedKernel, Program
from npusched.sim.timeline import Timeline

Event: TypeAlias = dict[str, object]

NPU_TRACK, WAIT_TRACK, FIRST_DMA_TRACK = 1, 2, 3
"""Thread numbers; DMA channel c is FIRST_DMA_TRACK + c."""


def trace_json(
    report: InspectReport, programs: Sequence[Program], timelines: Sequence[Timeline]
) -> bytes:
    """Return the trace of a report that has a timing. Raises ValueError if it has none."""
    timing = report.timing
    if timing is None:
        raise ValueError("a report without timing has no trace")
    events: list[Event] = []
    begin = 0
    for number, (program, timeline) in enumerate(zip(programs, timelines, strict=True)):
        scale = _Scale(timing.clock_hz, begin)
        events += _operator(number, program, timeline, scale)
        begin += timeline.total_cycles
    form = {
        "displayTimeUnit": "ns",
        "otherData": {
            "name": report.name,
            "target": timing.target,
            "cycles": timing.cycles,
            "clock_hz": timing.clock_hz,
            "basis": timing.basis,
            "covers": timing.covers,
        },
        "traceEvents": events,
    }
    return json.dumps(form, separators=(",", ":")).encode() + b"\n"


class _Scale:
    """Cycles of one operator to microseconds of the trace."""

    def __init__(self, clock_hz: float, begin: int) -> None:
        self._clock_hz = clock_hz
        self._begin = begin

    def at(self, cycle: int) -> float:
        """Time of a cycle."""
        return self._nanoseconds(cycle) / 1000

    def slice(self, start: int, end: int) -> Event:
        """Begin and duration of what runs between two cycles."""
        low, high = self._nanoseconds(start), self._nanoseconds(end)
        return {"ph": "X", "ts": low / 1000, "dur": (high - low) / 1000}

    def _nanoseconds(self, cycle: int) -> int:
        return round((self._begin + cycle) / self._clock_hz * 1e9)


def _operator(number: int, program: Program, timeline: Timeline, scale: _Scale) -> Iterator[Event]:
    """Return the events of one NPU operator."""
    yield _named("process_name", number, 0, f"NPU operator {number}")
    yield _named("thread_name", number, NPU_TRACK, "NPU")
    yield _named("thread_name", number, WAIT_TRACK, "command processor waits")
    for channel in sorted({run.channel for run in timeline.dmas}):
        yield _named("thread_name", number, FIRST_DMA_TRACK + channel, f"DMA channel {channel}")
    whole: Event = {"name": f"operator {number}", "args": {"cycles": timeline.total_cycles}}
    yield _on(number, NPU_TRACK) | scale.slice(0, timeline.total_cycles) | whole
    for kernel in timeline.kernels:
        loaded = program.commands[kernel.command]
        assert isinstance(loaded, LoadedKernel)
        args = {
            "byte": loaded.state.offset_bytes,
            "cycles": kernel.end - kernel.start,
            "npu_cycles": kernel.cost.npu_cycles,
            "memory_cycles": dict(kernel.cost.memory_cycles),
        }
        named: Event = {"name": loaded.state.label, "args": args}
        yield _on(number, NPU_TRACK) | scale.slice(kernel.start, kernel.end) | named
    for dma in timeline.dmas:
        moved = program.commands[dma.command]
        assert isinstance(moved, LoadedDma)
        args = {"byte": moved.offset_bytes, "bytes": moved.total_bytes}
        named = {"name": f"DMA {moved.index}", "args": args}
        track = FIRST_DMA_TRACK + dma.channel
        yield _on(number, track) | scale.slice(dma.start, dma.end) | named
    for wait in timeline.waits:
        yield _on(number, WAIT_TRACK) | scale.slice(wait.start, wait.end) | {"name": wait.reason}
    for memory in timeline.occupancy:
        for cycle, size in memory.steps:
            yield {
                "ph": "C",
                "pid": number,
                "name": f"{memory.memory} bytes alive",
                "ts": scale.at(cycle),
                "args": {"bytes": size},
            }


def _on(operator: int, track: int) -> Event:
    return {"pid": operator, "tid": track, "cat": "npu"}


def _named(kind: str, operator: int, track: int, name: str) -> Event:
    return {"ph": "M", "pid": operator, "tid": track, "name": kind, "args": {"name": name}}
