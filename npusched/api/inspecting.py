"""Look into compiled files and bare streams: what they do, checked and counted without data."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusched import __version__
from npusched.api.timing import operator_times, predicted
from npusched.errors import SimError
from npusched.hardware.target import AcceleratorU55, MemoryMode
from npusched.report.execution_types import (
    EXECUTION_SCHEMA_VERSION,
    ExecutedFacts,
    FitFacts,
    HazardFacts,
    InspectReport,
    MemoryUse,
    StreamOpFacts,
    TimingFacts,
    TrafficFacts,
)
from npusched.sim.check import check_bare, check_executable, host_spans
from npusched.sim.figures import Figures, Purpose, count_figures, kernel_macs
from npusched.sim.occupancy import Occupancy, ordered_occupancy
from npusched.sim.program import LoadedDma, LoadedKernel, Machine, Program, load_bare
from npusched.sim.run import Executable, open_compiled
from npusched.vela.compiled import NPU_OP
from npusched.vela.stream import decode_stream

if TYPE_CHECKING:
    from pathlib import Path

    from npusched.hardware import Target
    from npusched.sim.hazards import Hazard
    from npusched.sim.memory import Span
    from npusched.sim.timeline import Timeline

_STREAMS = (b"COP1", b"COP2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is inside a compiled file, or a bare stream (it has no constants and no host ops).

    ``inputs``: per program, (region, span) of the bytes that the host writes.
    """

    accelerator: str
    programs: tuple[Program, ...]
    inputs: tuple[tuple[tuple[int, Span], ...], ...]
    host_ops: dict[str, int]
    totals: ExecutedFacts
    memory_map: tuple[MemoryUse, ...]
    hazards: tuple[HazardFacts, ...]


def file_contents(ready: Executable) -> Contents:
    """Return the contents of a compiled file."""
    accelerator = accelerator_name(ready.programs[0].machine)
    inputs = tuple(host_spans(operator) for operator in ready.file.operators)
    figures = [
        count_figures(program, spans) for program, spans in zip(ready.programs, inputs, strict=True)
    ]
    words = sum(len(operator.stream.words) for operator in ready.file.operators)
    return Contents(
        accelerator=accelerator,
        programs=ready.programs,
        inputs=inputs,
        host_ops=host_ops(ready),
        totals=_executed(figures, _constant_bytes(ready), 4 * words),
        memory_map=_memory_map(figures, ready.programs, inputs),
        hazards=_hazards(check_executable(ready, _accelerator(accelerator))),
    )


def stream_contents(payload: bytes) -> Contents:
    """Return the contents of a bare stream."""
    stream = decode_stream(payload)
    program = load_bare(stream)
    accelerator = accelerator_name(program.machine)
    figures = [count_figures(program)]
    return Contents(
        accelerator=accelerator,
        programs=(program,),
        inputs=((),),
        host_ops={},
        totals=_executed(figures, 0, 4 * len(stream.words)),
        memory_map=_memory_map(figures, (program,), ((),)),
        hazards=_hazards([check_bare(program, _accelerator(accelerator))]),
    )


def inspect(compiled: str | Path | bytes, target: str | Target | None = None) -> InspectReport:
    """Say what is inside a compiled .tflite file or a bare stream (COP1 or COP2).

    ``compiled``: a path, or the bytes. With a ``target`` (a name of ``npusched configs``, a .toml
    file, or a ``Target``) the report says whether it fits and predicts its time there. Raises
    ModelError for anything else than compiled files, SimError for what is not modelled, OSError for
    a file that cannot be read.
    """
    from npusched.api.planning import content_of
    from npusched.hardware import load_target

    content, name = content_of(compiled)
    found = load_target(target) if isinstance(target, str) else target
    return inspect_report(content, name=name, target=found)


def inspect_report(content: bytes, *, name: str, target: Target | None = None) -> InspectReport:
    """Say what is inside a compiled .tflite file or a bare stream (COP1 or COP2).

    Raises ModelError for anything else, SimError for what is not modelled.
    """
    return inspect_timed(content, name=name, target=target)[0]


def inspect_trace(content: bytes, *, name: str, target: Target) -> tuple[InspectReport, bytes]:
    """Return ``inspect_report`` and its timeline as a Chrome JSON trace (Perfetto shows it).

    Raises SimError if no time can be predicted for the target.
    """
    from npusched.report.trace import trace_json

    report, found, timelines = inspect_timed(content, name=name, target=target)
    if report.timing is None:
        raise SimError(
            "cannot write a trace", report.untimed, "name the target that it was made for"
        )
    return report, trace_json(report, found.programs, timelines)


def inspect_timed(
    content: bytes, *, name: str, target: Target | None
) -> tuple[InspectReport, Contents, tuple[Timeline, ...]]:
    """Return the report, the contents, and the timelines of all operators (none if untimed)."""
    is_stream = content[:4] in _STREAMS
    found = stream_contents(content) if is_stream else file_contents(open_compiled(content, name))
    timing, timelines, untimed = (
        (None, (), "") if target is None else predicted(found.programs, found.inputs, target)
    )
    return _report(content, name, target, found, timing, timelines, untimed), found, timelines


def _report(
    content: bytes,
    name: str,
    target: Target | None,
    found: Contents,
    timing: TimingFacts | None,
    timelines: Sequence[Timeline],
    untimed: str,
) -> InspectReport:
    """Put the report together."""
    is_stream = content[:4] in _STREAMS
    times = [operator_times(timeline) for timeline in timelines]
    return InspectReport(
        schema_version=EXECUTION_SCHEMA_VERSION,
        npusched_version=__version__,
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        form="stream" if is_stream else "tflite",
        accelerator=found.accelerator,
        fit=None if target is None else _fit(target, found),
        timing=timing,
        untimed=untimed,
        host_ops=found.host_ops,
        totals=found.totals,
        ops=tuple(
            _op(number, program, command, times[number][index] if times else (None, None))
            for number, program in enumerate(found.programs)
            for index, command in enumerate(program.commands)
            if isinstance(command, LoadedKernel | LoadedDma)
        ),
        memory_map=found.memory_map,
        hazards=found.hazards,
    )


def accelerator_name(machine: Machine) -> str:
    """Name of the accelerator that a stream was made for, e.g. ``ethos-u65-512``."""
    return f"{machine.family.value}-{machine.macs_per_cycle}"


def _accelerator(name: str) -> AcceleratorU55 | None:
    """Return the accelerator of that name, None if no such one is known."""
    from npusched.hardware import load_target, target_names

    if name not in target_names():
        return None
    accelerator = load_target(name).accelerator
    return accelerator if isinstance(accelerator, AcceleratorU55) else None


def _fit(target: Target, found: Contents) -> FitFacts:
    """Say whether accelerator and memories of the target suffice."""
    reasons = []
    own = "no NPU" if target.accelerator is None else target.accelerator.name
    if own != found.accelerator:
        reasons.append(f"it was made for {found.accelerator}, the target has {own}")
    sizes: Counter[str] = Counter()
    for use in found.memory_map:
        sizes[use.memory] = max(sizes[use.memory], use.size_bytes)
    arena, staged, constants = sizes["scratch"], sizes["scratch_fast"], found.totals.constant_bytes
    mode = target.memory_mode
    if staged and mode is not MemoryMode.DEDICATED_SRAM:
        reasons.append(
            "it has a staging memory of its own (Dedicated_Sram), the target's memory mode is "
            f"{mode.value}"
        )
    if mode is MemoryMode.SRAM_ONLY:
        arena += constants
    limits = [
        ("arena", arena, target.arena.capacity_bytes),
        ("staging memory", staged, target.cache.capacity_bytes),
        ("constants", constants, target.const.capacity_bytes),
    ]
    if mode is MemoryMode.DEDICATED_SRAM:
        limits.append(("staging memory", staged, target.arena_cache_bytes))
    else:
        limits.append(("arena", arena, target.arena_cache_bytes))
    reasons += [
        f"its {what} needs {need} bytes, the target has {have}"
        for what, need, have in limits
        if have is not None and need > have
    ]
    return FitFacts(target=target.name, fits=not reasons, reasons=tuple(dict.fromkeys(reasons)))


def _op(
    operator: int,
    program: Program,
    command: LoadedKernel | LoadedDma,
    times: tuple[int | None, int | None],
) -> StreamOpFacts:
    """Describe a kernel or DMA."""
    start, end = times
    if isinstance(command, LoadedDma):
        source, destination = command.source, command.destination
        return StreamOpFacts(
            operator=operator,
            offset_bytes=command.offset_bytes,
            kind="dma",
            dtype="",
            ifm=(0, 0, 0),
            ifm2=None,
            ofm=(0, 0, 0),
            block=(0, 0, 0),
            macs=0,
            weight_bytes=0,
            scale_bytes=0,
            dma_bytes=command.total_bytes,
            read_from=program.regions[source.region].name,
            written_to="shram"
            if destination.internal
            else program.regions[destination.region].name,
            start_cycle=start,
            end_cycle=end,
        )
    state = command.state
    ifm, ifm2, ofm, block = state.ifm, state.ifm2, state.ofm, state.block
    return StreamOpFacts(
        operator=operator,
        offset_bytes=state.offset_bytes,
        kind=str(state.kind if state.function is None else state.function.name.lower()),
        dtype=str(ifm.dtype),
        ifm=(ifm.h, ifm.w, ifm.c),
        ifm2=None if ifm2 is None else (ifm2.h, ifm2.w, ifm2.c),
        ofm=(ofm.h, ofm.w, ofm.c),
        block=(block.h, block.w, block.c),
        macs=kernel_macs(state),
        weight_bytes=sum(part.length_bytes for part in state.weights),
        scale_bytes=sum(part.length_bytes for part in state.scales),
        dma_bytes=0,
        read_from=program.regions[ifm.region].name,
        written_to=program.regions[ofm.region].name,
        start_cycle=start,
        end_cycle=end,
    )


def _memory_map(
    figures: Sequence[Figures],
    programs: Sequence[Program],
    inputs: Sequence[Sequence[tuple[int, Span]]],
) -> tuple[MemoryUse, ...]:
    alive: list[tuple[Occupancy, ...]] = [
        ordered_occupancy(program, spans) for program, spans in zip(programs, inputs, strict=True)
    ]
    peaks = {
        (number, each.memory): each.peak_bytes
        for number, found in enumerate(alive)
        for each in found
    }
    return tuple(
        MemoryUse(
            operator=number,
            memory=use.memory,
            size_bytes=use.size_bytes,
            touched_bytes=use.touched_bytes,
            high_water_bytes=use.high_water_bytes,
            peak_bytes=peaks.get((number, use.memory), use.touched_bytes),
        )
        for number, each in enumerate(figures)
        for use in each.memories
    )


def _executed(figures: Sequence[Figures], constant_bytes: int, stream_bytes: int) -> ExecutedFacts:
    """Add up the figures of all operators."""
    kernels: Counter[str] = Counter()
    traffic: dict[tuple[str, Purpose], list[int]] = {}
    peaks: Counter[str] = Counter()
    for each in figures:
        kernels.update(dict(each.kernels))
        for use in each.memories:
            peaks[use.memory] = max(peaks[use.memory], use.high_water_bytes)
        for part in each.traffic:
            sums = traffic.setdefault((part.memory, part.purpose), [0, 0, 0])
            sums[0] += part.read_bytes
            sums[1] += part.written_bytes
            sums[2] += part.fetched_bytes
    return ExecutedFacts(
        npu_operators=len(figures),
        npu_ops=sum(kernels.values()),
        kernels=dict(sorted(kernels.items())),
        macs=sum(each.macs for each in figures),
        dmas=sum(each.dmas for each in figures),
        dma_bytes=sum(each.dma_bytes for each in figures),
        waits=sum(each.waits for each in figures),
        sram_peak_bytes=peaks["scratch_fast"] or peaks["scratch"],
        constant_bytes=constant_bytes,
        stream_bytes=stream_bytes,
        traffic=tuple(
            TrafficFacts(
                memory=memory,
                purpose=purpose,
                read_bytes=read,
                written_bytes=written,
                fetched_bytes=fetched,
            )
            for (memory, purpose), (read, written, fetched) in sorted(traffic.items())
        ),
    )


def _constant_bytes(ready: Executable) -> int:
    """Bytes of read-only regions; regions that hold the same bytes count once."""
    contents = {
        hashlib.sha256(region.content).digest(): region.size_bytes
        for operator in ready.file.operators
        for region in operator.regions
        if region.content is not None
    }
    return sum(contents.values())


def host_ops(ready: Executable) -> dict[str, int]:
    """Count the ops that stay on the host, by kind."""
    counts = Counter(
        op.custom_code or str(op.kind)
        for graph in ready.file.model.subgraphs
        for op in graph.ops
        if op.custom_code != NPU_OP
    )
    return dict(sorted(counts.items()))


def _hazards(found: Sequence[Sequence[Hazard]]) -> tuple[HazardFacts, ...]:
    return tuple(
        HazardFacts(
            operator=number,
            kind=hazard.kind,
            offset_bytes=hazard.offset_bytes,
            where=hazard.where,
            why=hazard.why,
        )
        for number, hazards in enumerate(found)
        for hazard in hazards
    )
