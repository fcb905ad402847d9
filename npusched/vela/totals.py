"""Four totals of one network: our plan, Vela's report, and our two costs of Vela's schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from npusched.cost.types import OpCost
from npusched.hardware.target import MemoryKind, Target
from npusched.schedule.kernels import KernelCost
from npusched.schedule.types import Amounts, Plan
from npusched.vela.protocol import PerfReport
from npusched.vela.row_fields import memory_names

FLASH = frozenset({MemoryKind.ON_CHIP_FLASH, MemoryKind.OFF_CHIP_FLASH})


class SideTotals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One total. Cycles at the NPU clock, ``cpu_cycles`` at the CPU's; seconds without hand-offs.

    ``sram_peak_bytes``: high-water mark of the budget memory, constants included if they share it.
    ``dram_bytes``, ``flash_bytes``: moved per inference; Vela's own (``vela``,
    ``vela_compatible``) include burst inflation. None = not known (only files without a schedule).
    """

    cycles: int | None
    npu_cycles: int | None
    cpu_cycles: int
    npu_s: float | None
    cpu_s: float
    sram_peak_bytes: int | None
    dram_bytes: int | None
    flash_bytes: int | None


def of_plan(target: Target, plan: Plan) -> SideTotals:
    """Totals of a plan, ours or Vela's schedule as one."""
    amounts = plan.amounts
    moved = [(memory.name, amounts.moved(memory.name)) for memory in target.memories]
    return _totals(
        target,
        amounts.npu_cycles,
        amounts.core_cycles,
        amounts.cpu_cycles,
        plan.sram_peak_bytes,
        moved,
    )


def of_report(target: Target, report: PerfReport, sram_peak_bytes: int | None) -> SideTotals:
    """Totals as Vela reports them. Vela does not cost CPU ops, so they take no time."""
    names = memory_names(target)
    moved = [
        (names[name], access.read_bytes + access.written_bytes)
        for name, use in report.memories.items()
        if name in names
        for access in use.accesses.values()
    ]
    return _totals(target, report.total_cycles, report.npu_cycles, 0, sram_peak_bytes, moved)


def of_costs(
    target: Target, costs: Mapping[int, OpCost], cpu_cycles: int, sram_peak_bytes: int | None
) -> SideTotals:
    """Totals of our vela-compatible costs; bytes as Vela counts them."""
    moved = [
        (move.memory, move.inflated_read + move.inflated_written)
        for cost in costs.values()
        for move in cost.transfers
    ]
    return _totals(
        target,
        sum(cost.cycles for cost in costs.values()),
        sum(cost.npu_cycles for cost in costs.values()),
        cpu_cycles,
        sram_peak_bytes,
        moved,
    )


def of_recosted(
    target: Target, costs: Mapping[int, KernelCost], cpu: Amounts, sram_peak_bytes: int | None
) -> SideTotals:
    """Totals of our striped costs of Vela's rows, where its schedule is no plan of ours."""
    moved = [
        pair
        for cost in costs.values()
        for sums in (cost.read, cost.written)
        for pair in sums.items()
    ]
    moved += [*cpu.bytes_read, *cpu.bytes_written]
    return _totals(
        target,
        sum(cost.cycles for cost in costs.values()),
        sum(cost.core_cycles for cost in costs.values()),
        cpu.cpu_cycles,
        sram_peak_bytes,
        moved,
    )


def vela_sram_peak(target: Target, report: PerfReport) -> int:
    """High-water mark of the budget memory as our plans count it.

    With everything in one memory (Sram_Only) the read-only data counts, too; the C++ core reports
    it together with the arena (VELA_SPEC §8.10).
    """
    use = report.memories.get(target.cache.vela_name)
    return 0 if use is None else use.peak_bytes


def _totals(
    target: Target,
    cycles: int,
    npu_cycles: int,
    cpu_cycles: int,
    sram_peak_bytes: int | None,
    moved: Iterable[tuple[str, int]],
) -> SideTotals:
    kinds = {memory.name: memory.kind for memory in target.memories}
    dram = flash = 0
    for name, count in moved:
        dram += count if kinds[name] is MemoryKind.DRAM else 0
        flash += count if kinds[name] in FLASH else 0
    return SideTotals(
        cycles=cycles,
        npu_cycles=npu_cycles,
        cpu_cycles=cpu_cycles,
        npu_s=cycles / target.clock_hz,
        cpu_s=cpu_cycles / target.cpu.clock_hz,
        sram_peak_bytes=sram_peak_bytes,
        dram_bytes=dram,
        flash_bytes=flash,
    )
