"""When the commands of a stream run: kernels, DMAs and waits, from the stream's own order.

The command processor issues in order. A kernel starts when the one before has ended (the striped
cost charges each kernel its own fill and drain, so kernels do not overlap); at most two are in its
queue. DMAs run beside kernels, one at a time on a U55, two on a U65: their latencies overlap,
their transfers share one path. A command that finds its queue full, and a wait, hold up all that
follows (SIM.md §5). Not modelled: the time of the commands themselves, and kernels and DMAs that
slow each other down in one memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from npusched.cost.types import OpCost
from npusched.hardware.target import Family, Target
from npusched.sim.hazards import MAX_DMAS, MAX_KERNELS
from npusched.sim.kernel_cost import CommandCosts, DmaCycles
from npusched.sim.memory import Span
from npusched.sim.occupancy import Occupancy, find_occupancy
from npusched.sim.program import Command, LoadedDma, LoadedKernel, Program, Wait


class WaitReason(StrEnum):
    """What holds up the command processor."""

    KERNEL_WAIT = "kernel_wait"
    DMA_WAIT = "dma_wait"
    KERNEL_QUEUE = "kernel_queue_full"
    DMA_QUEUE = "dma_queue_full"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """A kernel: from ``start`` to ``end`` (NPU cycles from the stream's begin).

    ``command`` is its place in the program.
    """

    command: int
    start: int
    end: int
    cost: OpCost


@dataclass(frozen=True, slots=True, kw_only=True)
class DmaRun:
    """A DMA on one of the DMA channels."""

    command: int
    channel: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRun:
    """A time in which the command processor issues nothing, and why."""

    command: int
    reason: WaitReason
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What runs when, in NPU cycles. Within one track nothing overlaps.

    ``total_cycles``: until the last kernel and DMA have ended. ``occupancy``: bytes alive per
    memory of the file, over time.
    """

    kernels: tuple[KernelRun, ...]
    dmas: tuple[DmaRun, ...]
    waits: tuple[WaitRun, ...]
    total_cycles: int
    occupancy: tuple[Occupancy, ...]

    @property
    def kernel_cycles(self) -> int:
        """Cycles in which a kernel runs."""
        return sum(run.end - run.start for run in self.kernels)

    @property
    def dma_cycles(self) -> int:
        """Cycles of all DMAs, beside kernels or not."""
        return sum(run.end - run.start for run in self.dmas)

    @property
    def idle_cycles(self) -> int:
        """Cycles in which no kernel runs: they wait for DMAs."""
        return self.total_cycles - self.kernel_cycles


Run: TypeAlias = KernelRun | DmaRun


def simulate(program: Program, target: Target, inputs: Sequence[tuple[int, Span]] = ()) -> Timeline:
    """Return when the commands of a program run on a target.

    ``inputs``: (region, span) of bytes that the host writes before. Raises SimError as
    ``CommandCosts``.
    """
    processor = _processed(program, target)
    starts = [0] * len(program.commands)
    ends = [0] * len(program.commands)
    runs: list[Run] = [*processor.kernels, *processor.dmas]
    for run in runs:
        starts[run.command], ends[run.command] = run.start, run.end
    return Timeline(
        kernels=tuple(processor.kernels),
        dmas=tuple(processor.dmas),
        waits=tuple(processor.waits),
        total_cycles=processor.now,
        occupancy=find_occupancy(program, inputs, starts, ends, processor.now),
    )


def total_cycles(program: Program, target: Target) -> int:
    """Return ``simulate(...).total_cycles`` alone, faster. Raises SimError as that."""
    return _processed(program, target).now


def _processed(program: Program, target: Target) -> _Processor:
    """Issue all commands and wait for what runs."""
    processor = _Processor(CommandCosts(program, target), program.machine.family)
    for index, command in enumerate(program.commands):
        processor.issue(index, command)
    processor.finish(len(program.commands))
    return processor


class _Processor:
    """The command processor: ``now`` is when it can issue the next command."""

    def __init__(self, costs: CommandCosts, family: Family) -> None:
        self._costs = costs
        self._channels = MAX_DMAS[family]
        self._path_free = 0
        self.now = 0
        self.kernels: list[KernelRun] = []
        self.dmas: list[DmaRun] = []
        self.waits: list[WaitRun] = []

    def issue(self, index: int, command: Command) -> None:
        """Issue one command as soon as its queue has room."""
        if isinstance(command, Wait):
            runs = self.kernels if command.is_kernel else self.dmas
            reason = WaitReason.KERNEL_WAIT if command.is_kernel else WaitReason.DMA_WAIT
            self._hold(index, reason, _end_of(runs, command.outstanding))
        elif isinstance(command, LoadedKernel):
            self._hold(index, WaitReason.KERNEL_QUEUE, _end_of(self.kernels, MAX_KERNELS - 1))
            self._kernel(index, self._costs.kernel(command.state))
        else:
            self._hold(index, WaitReason.DMA_QUEUE, _end_of(self.dmas, self._channels - 1))
            self._dma(index, command, self._costs.dma(command))

    def finish(self, index: int) -> None:
        """Wait for all that runs."""
        last = max(_end_of(self.kernels, 0), _end_of(self.dmas, 0))
        self._hold(index, WaitReason.END, last)

    def _hold(self, index: int, reason: WaitReason, until: int) -> None:
        if until > self.now:
            self.waits.append(WaitRun(command=index, reason=reason, start=self.now, end=until))
            self.now = until

    def _kernel(self, index: int, cost: OpCost) -> None:
        start = max(self.now, _end_of(self.kernels, 0))
        self.kernels.append(
            KernelRun(command=index, start=start, end=start + cost.cycles, cost=cost)
        )

    def _dma(self, index: int, dma: LoadedDma, cycles: DmaCycles) -> None:
        end = max(self.now + cycles.latency, self._path_free) + cycles.transfer
        channel = dma.index % self._channels
        self.dmas.append(DmaRun(command=index, channel=channel, start=self.now, end=end))
        self._path_free = end


def _end_of(runs: Sequence[Run], outstanding: int) -> int:
    """When at most ``outstanding`` of the runs are left; they end in the order of their issue."""
    return runs[-1 - outstanding].end if len(runs) > outstanding else 0
