"""Quirks of Vela's figures that touch the model at hand, each with its size. Nothing is corrected.

Sources: VELA_SPEC §8, VELA_SPEC_2 §1 and §3-§5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from npusched.cost.types import OpCost
from npusched.hardware.target import Family, Target
from npusched.schedule.kernels import KernelCost
from npusched.vela.options import VelaOptions, address_space_bytes
from npusched.vela.protocol import PerfReport
from npusched.vela.recost import SliceSizes, compatible_costs
from npusched.vela.rows import VelaRow
from npusched.vela.schedule import VelaSchedule

Figures: TypeAlias = "dict[str, int | float | str]"


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One quirk: a stable id, a sentence with its figures, and the figures for programs."""

    id: str
    text: str
    figures: dict[str, int | float | str]


def schedule_notes(
    schedule: VelaSchedule,
    compatible: Mapping[int, OpCost],
    recosted: Mapping[int, KernelCost],
    cpu_cycles: int,
) -> list[Note]:
    """Quirks that show in the rows of a schedule."""
    notes = [
        _unstriped(schedule.in_order, recosted),
        _scales(schedule, compatible),
        _axi_width(schedule.target, schedule.in_order, compatible, schedule.slices),
        _sparse_macs(schedule.in_order),
        _decomposed(schedule),
        _free_cpu(schedule, cpu_cycles),
    ]
    return [note for note in notes if note is not None]


def result_notes(
    target: Target,
    report: PerfReport,
    options: VelaOptions,
    rows_cycles: int | None,
    sram_peak_bytes: int,
) -> list[Note]:
    """Quirks of the totals: units, the arena over its limit, rows that are missing."""
    asked = options.arena_cache_size_bytes
    family = None if target.accelerator is None else target.accelerator.family
    notes = [
        _over_budget(asked, family, sram_peak_bytes),
        _subgraphs(report, rows_cycles),
        _units(sram_peak_bytes),
    ]
    return [note for note in notes if note is not None]


def _unstriped(rows: Sequence[VelaRow], recosted: Mapping[int, KernelCost]) -> Note | None:
    cascaded = [row for row in rows if row.cascade and row.id in recosted]
    if not cascaded:
        return None
    reported = sum(row.op_cycles for row in cascaded)
    again = sum(recosted[row.id].cycles for row in cascaded)
    return Note(
        id="unstriped_cascades",
        text=(
            f"Vela costs its {len(cascaded)} cascaded ops as if they ran whole: it reports "
            f"{reported} cycles, stripe by stripe they take {again} ({_change(again, reported)})"
        ),
        figures={
            "ops": len(cascaded),
            "reported_cycles": reported,
            "recosted_cycles": again,
        },
    )


def _scales(schedule: VelaSchedule, compatible: Mapping[int, OpCost]) -> Note | None:
    """Staged scales are read from SRAM; Vela charges their cycles to the constants' memory."""
    const, cache = schedule.target.const, schedule.target.cache
    if const.name == cache.name:
        return None
    cycles = size = 0
    for op in schedule.ops:
        if schedule.rows[op.id].staged:
            cycles += op.traffic_of(const.vela_name, "Scales").access_cycles
            size += op.traffic_of(cache.vela_name, "Scales").read_bytes
    if not cycles:
        return None
    honest = compatible_costs(
        schedule.target, schedule.in_order, schedule.slices, honest_scales=True
    )
    booked, own = (sum(cost.cycles for cost in costs.values()) for costs in (compatible, honest))
    return Note(
        id="scales_booked_to_constants",
        text=(
            f"{size} bytes of staged scales are read from {cache.vela_name}, but Vela books "
            f"{cycles} cycles for them to {const.vela_name}: {booked} cycles in total, "
            f"{own} where they belong"
        ),
        figures={
            "access_cycles": cycles,
            "bytes": size,
            "vela_cycles": booked,
            "honest_cycles": own,
        },
    )


def _axi_width(
    target: Target,
    rows: Sequence[VelaRow],
    compatible: Mapping[int, OpCost],
    slices: Mapping[int, SliceSizes],
) -> Note | None:
    """Vela takes 8 bytes per AXI beat only if the system config's name begins with Ethos_U55."""
    wrong = [
        memory
        for memory in target.memories
        if memory.vela_bandwidth_bytes_per_cycle != memory.bandwidth_bytes_per_cycle
    ]
    if not wrong or target.accelerator is None:
        return None
    memories = tuple(
        msgspec.structs.replace(m, vela_bandwidth_bytes_per_cycle=m.bandwidth_bytes_per_cycle)
        for m in target.memories
    )
    honest = msgspec.structs.replace(target, memories=memories, name=f"{target.name} (physical)")
    physical = sum(cost.cycles for cost in compatible_costs(honest, rows, slices).values())
    named = sum(cost.cycles for cost in compatible.values())
    factor = wrong[0].vela_bandwidth_bytes_per_cycle / wrong[0].bandwidth_bytes_per_cycle
    return Note(
        id="axi_width_by_name",
        text=(
            f"the system config is called {target.system_config}, so Vela takes "
            f"{factor:g} times the real AXI width: {named} cycles, {physical} with the real one"
        ),
        figures={
            "factor": factor,
            "vela_cycles": named,
            "physical_cycles": physical,
        },
    )


def _sparse_macs(rows: Sequence[VelaRow]) -> Note | None:
    sparse = [row for row in rows if row.op.sparse]
    if not sparse:
        return None
    macs = sum(row.macs for row in sparse)
    return Note(
        id="sparse_macs_halved",
        text=f"Vela counts half the MACs of its {len(sparse)} ops with 2:4 sparse weights ({macs})",
        figures={"ops": len(sparse), "macs": macs},
    )


def _decomposed(schedule: VelaSchedule) -> Note | None:
    """One source op, many kernels: op counts of Vela and of the file differ."""
    counts = Counter(op.source_ref for op in schedule.ops if not op.is_cpu and op.source_ref)
    many = {ref: count for ref, count in counts.items() if count > 1}
    if not many:
        return None
    ref, most = max(many.items(), key=lambda item: item[1])
    kernels = sum(counts.values())
    return Note(
        id="decomposed_ops",
        text=(
            f"Vela counts {kernels} NPU ops for {len(counts)} ops of the file: "
            f"{len(many)} were decomposed, #{ref[1]} into {most}"
        ),
        figures={"kernels": kernels, "source_ops": len(counts), "largest": most},
    )


def _free_cpu(schedule: VelaSchedule, cpu_cycles: int) -> Note | None:
    on_cpu = sum(1 for op in schedule.ops if op.is_cpu)
    if not on_cpu:
        return None
    seconds = cpu_cycles / schedule.target.cpu.clock_hz
    return Note(
        id="cpu_ops_are_free",
        text=(
            f"Vela's totals leave out {on_cpu} ops on the CPU: by our estimate they take "
            f"{cpu_cycles} cycles of the {schedule.target.cpu.name} ({seconds * 1e3:.3g} ms)"
        ),
        figures={"ops": on_cpu, "cpu_cycles": cpu_cycles, "cpu_s": seconds},
    )


def _over_budget(asked: int | None, family: Family | None, used: int) -> Note | None:
    if asked is None or used <= asked:
        return None
    if family is not None and asked >= address_space_bytes(f"Ethos{family.name}"):
        return None
    return Note(
        id="arena_over_budget",
        text=f"Vela was asked for {asked} bytes and uses {used}: {used - asked} more, no error",
        figures={"asked_bytes": asked, "used_bytes": used},
    )


def _subgraphs(report: PerfReport, rows_cycles: int | None) -> Note | None:
    if rows_cycles is None or rows_cycles == report.total_cycles:
        return None
    return Note(
        id="rows_of_one_subgraph",
        text=(
            f"the file has several subgraphs: Vela's total ({report.total_cycles} cycles) counts "
            f"them all, its rows ({rows_cycles}) are those of one"
        ),
        figures={"total_cycles": report.total_cycles, "rows_cycles": rows_cycles},
    )


def _units(peak: int) -> Note | None:
    if not peak:
        return None
    return Note(
        id="kib_called_kb",
        text=(
            f"Vela's summary calls KiB KB and GiB/s GB/s: its {peak / 1024:.2f} KB of SRAM "
            f"are {peak} bytes"
        ),
        figures={"kib": peak / 1024, "bytes": peak},
    )


def _change(new: int, old: int) -> str:
    return f"{100 * (new - old) / old:+.1f} %" if old else "-"
