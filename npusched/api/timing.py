"""Timelines of streams as published figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npusched.cost.cpu import npu_call_cycles
from npusched.errors import SimError
from npusched.report.execution_types import TIMING_COVERS, TimingFacts
from npusched.sim.timeline import Timeline, simulate

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.sim.memory import Span
    from npusched.sim.program import Program


def predicted(
    programs: Sequence[Program],
    inputs: Sequence[Sequence[tuple[int, Span]]],
    target: Target,
) -> tuple[TimingFacts | None, tuple[Timeline, ...], str]:
    """Predict all operators on a target: the figures, the timelines, and why there are none."""
    try:
        timelines = tuple(
            simulate(program, target, spans)
            for program, spans in zip(programs, inputs, strict=True)
        )
    except SimError as error:
        return None, (), error.why
    cycles = sum(each.total_cycles for each in timelines)
    facts = TimingFacts(
        basis="predicted",
        covers=TIMING_COVERS,
        target=target.name,
        system_config=target.system_config,
        memory_mode=target.memory_mode_name or target.memory_mode.value,
        clock_hz=target.clock_hz,
        cycles=cycles,
        latency_s=cycles / target.clock_hz,
        kernel_cycles=sum(each.kernel_cycles for each in timelines),
        idle_cycles=sum(each.idle_cycles for each in timelines),
        dma_cycles=sum(each.dma_cycles for each in timelines),
        operator_cycles=tuple(each.total_cycles for each in timelines),
        call_s=sum(call_seconds(each, target) for each in timelines),
    )
    return facts, timelines, ""


def call_seconds(timeline: Timeline, target: Target) -> float:
    """Estimated time of one NPU call on the host: driver, and cache maintenance (GROUND_TRUTH §5).

    The bytes that change hands are those that the stream reads first and its results.
    """
    handed = sum(each.read_first_bytes + each.result_bytes for each in timeline.occupancy)
    return npu_call_cycles(target.cpu, handed) / target.cpu.clock_hz


def operator_times(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """Start and end cycle of each kernel and DMA, by its place in the program."""
    kernels = {run.command: (run.start, run.end) for run in timeline.kernels}
    return kernels | {run.command: (run.start, run.end) for run in timeline.dmas}
