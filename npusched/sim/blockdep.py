"""BLOCKDEP: how far a kernel may run ahead of its predecessor's last blocks (SIM.md §5).

Jobs are OFM blocks, channels fastest, then columns, then rows; a convolution and a sum over
channels take one job per IFM depth block. With BLOCKDEP b, job i of a kernel may run beside the
j-th last job of its predecessor wherever i + j < b; there they must not touch the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from npusched.graph.types import Upscale
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Storage
from npusched.sim.program import LoadedKernel, Program, Wait
from npusched.sim.state import KernelState
from npusched.sim.views import Pool, View
from npusched.vela.stream import StreamOpKind

MAX_BLOCK_DEPENDENCY = 3
"""Largest value of the register (VELA_SPEC §1.1)."""


@dataclass(frozen=True, slots=True)
class Job:
    """Rows, columns and channels (half-open) of an OFM block."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    channels: tuple[int, int]


def _cut(size: int, step: int, index: int) -> tuple[int, int]:
    return index * step, min((index + 1) * step, size)


def ofm_jobs(state: KernelState, count: int, *, last: bool) -> list[Job]:
    """Return the first (or last, the very last one last) ``count`` OFM blocks of a kernel."""
    ofm, block = state.ofm, state.block
    deep, wide, high = -(-ofm.c // block.c), -(-ofm.w // block.w), -(-ofm.h // block.h)
    total = deep * wide * high
    numbers = range(max(0, total - count), total) if last else range(min(count, total))
    return [
        Job(
            _cut(ofm.h, block.h, number // (deep * wide)),
            _cut(ofm.w, block.w, number // deep % wide),
            _cut(ofm.c, block.c, number % deep),
        )
        for number in numbers
    ]


def ifm_jobs(state: KernelState, view: View, count: int) -> list[Job]:
    """Return what the first ``count`` jobs of a kernel read of one IFM."""
    sums = state.kind is StreamOpKind.CONV or state.function is Pool.REDUCE_SUM
    depth = 16 if state.is_part_kernel or state.ifm.dtype.itemsize == 2 else 32
    steps = -(-view.c // depth) if sums else 1
    jobs: list[Job] = []
    for job in ofm_jobs(state, count, last=False):
        rows = _reach(state, job.rows, view.h, vertical=True)
        columns = _reach(state, job.columns, view.w, vertical=False)
        for step in range(steps):
            channels = _cut(view.c, depth, step) if sums else job.channels
            if view.c == 1:
                channels = (0, 1)
            jobs.append(Job(rows, columns, channels))
    return jobs[:count]


def _reach(
    state: KernelState, part: tuple[int, int], size: int, *, vertical: bool
) -> tuple[int, int]:
    """Return the IFM rows (or columns) that OFM rows read."""
    window = state.window
    if state.kind is StreamOpKind.ELEMENTWISE:
        return (0, 1) if size == 1 else part
    stride, extent, pad = (
        (window.stride_h, window.dilated_h, window.pad_top)
        if vertical
        else (window.stride_w, window.dilated_w, window.pad_left)
    )
    low, high = part[0] * stride - pad, (part[1] - 1) * stride + extent - pad
    if state.upscale is not Upscale.NONE:
        low, high = low // 2, -(-high // 2)
    return max(low, 0), min(max(high, 0), size)


class BlockDependency:
    """Checks each kernel against its predecessor, on bytes."""

    def __init__(self, sizes: Mapping[int, int], keys: Mapping[int, int]) -> None:
        self._keys = keys
        self._shadows = {key: np.zeros(size, np.int8) for key, size in sizes.items()}
        self._previous: LoadedKernel | None = None

    def check(
        self,
        kernel: LoadedKernel,
        runs: bool,
        report: Callable[[LoadedKernel, str], None],
    ) -> None:
        """Report if BLOCKDEP lets a kernel read what its predecessor has not written yet.

        ``runs``: the predecessor may still be in flight.
        """
        previous, self._previous = self._previous, kernel
        limit = kernel.state.block_dependency
        if previous is None or not runs or limit == 0:
            return
        if limit > MAX_BLOCK_DEPENDENCY:
            report(kernel, f"BLOCKDEP is {limit}, at most {MAX_BLOCK_DEPENDENCY} is possible")
            return
        for why in self.conflicts(kernel, previous, limit):
            report(kernel, why)

    def conflicts(self, kernel: LoadedKernel, previous: LoadedKernel, limit: int) -> list[str]:
        """What the first jobs of a kernel read too early of the last ones of an earlier kernel."""
        key = self._keys[previous.ofm.view.region]
        readers = [each for each in kernel.reads if self._keys[each.view.region] == key]
        readers = [each for each in readers if _overlaps(each, previous.ofm)]
        if not readers:
            return []
        jobs = ofm_jobs(previous.state, limit, last=True)
        shadow = self._shadows[key]
        numbers = np.zeros((previous.ofm.view.h, previous.ofm.view.w, previous.ofm.view.c), np.int8)
        for back, job in enumerate(reversed(jobs), 1):
            numbers[slice(*job.rows), slice(*job.columns), slice(*job.channels)] = back
        previous.ofm.mark(shadow, numbers)
        found = [_conflict(kernel.state, storage, shadow, limit) for storage in readers]
        previous.ofm.mark(shadow, np.zeros_like(numbers))
        return [why for why in found if why]


def find_early_blocks(program: Program) -> tuple[str, ...]:
    """Return the kernels that BLOCKDEP lets run ahead of blocks of any earlier kernel.

    Stricter than what Vela guarantees: with kernels of one block each, BLOCKDEP can reach past the
    kernel before (EMIT.md §5). Waits for kernels end what came before them.
    """
    checker = BlockDependency(
        {region.key: region.size_bytes for region in program.regions.values()},
        {index: region.key for index, region in program.regions.items()},
    )
    found = []
    earlier: list[LoadedKernel] = []
    for command in program.commands:
        if isinstance(command, Wait):
            if command.is_kernel:
                earlier = earlier[len(earlier) - min(command.outstanding, len(earlier)) :]
        elif isinstance(command, LoadedKernel):
            limit = command.state.block_dependency
            for previous in reversed(earlier):
                if limit <= 0:
                    break
                found += [
                    f"{command.state.label} behind {previous.state.label}: {why}"
                    for why in checker.conflicts(command, previous, limit)
                ]
                limit -= len(ofm_jobs(previous.state, MAX_BLOCK_DEPENDENCY, last=True))
            earlier = [*earlier, command][-MAX_BLOCK_DEPENDENCY:]
    return tuple(found)


def _overlaps(first: Storage, second: Storage) -> bool:
    return first.span[0] < second.span[1] and second.span[0] < first.span[1]


def _conflict(state: KernelState, storage: Storage, shadow: Array, limit: int) -> str:
    """Return why BLOCKDEP ``limit`` is too much, "" if it is not."""
    jobs = ifm_jobs(state, storage.view, limit)
    for byte in range(storage.view.dtype.itemsize):
        values = storage.read_byte(shadow, byte)
        for ahead, job in enumerate(jobs):
            part = values[slice(*job.rows), slice(*job.columns), slice(*job.channels)]
            allowed = part[part > 0]
            if allowed.size and ahead + int(allowed.min()) - 1 < limit:
                back = int(allowed.min()) - 1
                return (
                    f"BLOCKDEP {limit} lets job {ahead} read what job {back} before the "
                    f"predecessor's last one writes"
                )
    return ""
