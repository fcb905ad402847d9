"""DMA_WAIT and KERNEL_WAIT: the two queues run beside each other unless told to wait.

Before a kernel or DMA is issued, what is still in flight and touches the same bytes (one of them
writing) must be waited for. Waiting for one waits for all that were issued before it in its queue
(EMIT.md §5, SIM.md §5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from npusched.sim.memory import Span

INTERNAL = -1
"""Key of the NPU's own memory."""

MAX_KERNELS = 2
"""Kernels in flight (VELA_SPEC §1.1)."""


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of a memory (by region, ``INTERNAL`` for the SHRAM) that are read or written."""

    memory: int
    span: Span
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """True if the order of both matters."""
        return (
            (self.writes or other.writes)
            and self.memory == other.memory
            and self.span[0] < other.span[1]
            and other.span[0] < self.span[1]
        )


Accesses: TypeAlias = tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class Needed:
    """How many of each queue may stay in flight; None = no wait."""

    dmas: int | None
    kernels: int | None


class Queues:
    """Kernels and DMAs in flight."""

    def __init__(self, max_dmas: int) -> None:
        self._max_dmas = max_dmas
        self._kernels: list[Accesses] = []
        self._dmas: list[Accesses] = []

    def kernel(self, accesses: Iterable[Access]) -> Needed:
        """Issue a kernel: return what it must wait for."""
        own = tuple(accesses)
        needed = Needed(_retire(self._dmas, own), None)
        self._kernels = [*self._kernels, own][-MAX_KERNELS:]
        return needed

    def dma(self, accesses: Iterable[Access]) -> Needed:
        """Issue a DMA: return what it must wait for."""
        own = tuple(accesses)
        needed = Needed(_retire(self._dmas, own), _retire(self._kernels, own))
        self._dmas = [*self._dmas, own][-self._max_dmas :]
        return needed


def _retire(queue: list[Accesses], own: Accesses) -> int | None:
    """Find the newest conflict, drop it and all before it; return how many come after it."""
    for newer, index in enumerate(range(len(queue) - 1, -1, -1)):
        if any(mine.conflicts(other) for mine in own for other in queue[index]):
            del queue[: index + 1]
            return newer
    return None
