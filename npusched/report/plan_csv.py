"""A plan as CSV under the column names of Vela's per-layer file, with ours before its last.

What reads Vela's file by names reads this one. Figures are ours: cycles of an op are those of all
its stripes (Vela's leave striping out), a memory's column has cycles like Vela's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.hardware.target import MemoryKind
from npusched.report.csv_form import csv_text
from npusched.report.types import OpFacts, PlanReport

VELA_COLUMNS: Final = (
    "Original Operator",
    "NNG Operator",
    "Target",
    "Staging Usage",
    "Peak% (Staging)",
    "Op Cycles",
    "Network% (cycles)",
    "NPU",
    "SRAM AC",
    "DRAM AC",
    "OnFlash AC",
    "OffFlash AC",
    "MAC Count",
    "Network% (MAC)",
    "Util% (MAC)",
)
"""Of the per-layer file that Vela 5.2 writes with --verbose-performance; its last is Name."""

OUR_COLUMNS: Final = (
    "Source Op",
    "Scheduled Op",
    "Segment",
    "Stripes",
    "Bound By",
    "CPU Cycles",
    "SRAM Bytes",
    "DRAM Bytes",
    "OnFlash Bytes",
    "OffFlash Bytes",
)

_AREAS: Final = (
    MemoryKind.SRAM,
    MemoryKind.DRAM,
    MemoryKind.ON_CHIP_FLASH,
    MemoryKind.OFF_CHIP_FLASH,
)


def render_plan_csv(report: PlanReport) -> str:
    """Return one row per scheduled op, in the order in which they run."""
    order = [op for segment in report.segments for op in segment.ops]
    by_id = {op.id: op for op in report.ops}
    rows: list[Sequence[object]] = [(*VELA_COLUMNS, *OUR_COLUMNS, "Name")]
    rows += [_row(report, by_id[number]) for number in order]
    return csv_text(rows)


def _row(report: PlanReport, op: OpFacts) -> Sequence[object]:
    accelerator = report.target.accelerator
    live = report.live_sram_bytes[op.segment] if report.live_sram_bytes else 0
    busy = 0.0
    if accelerator is not None and op.cycles:
        busy = 100 * op.macs / (op.cycles * accelerator.macs_per_cycle)
    moved = {
        name: op.bytes_read.get(name, 0) + op.bytes_written.get(name, 0)
        for name in (*op.bytes_read, *op.bytes_written)
    }
    return (
        _source_kind(report, op),
        "+".join((op.kind, *op.fused)),
        op.placement.upper(),
        live,
        _share(live, report.totals.sram_peak_bytes),
        op.cycles,
        _share(op.cycles, report.totals.cycles),
        op.npu_cycles,
        *_by_area(report, op.memory_cycles),
        op.macs,
        _share(op.macs, sum(other.macs for other in report.ops)),
        busy,
        " ".join(str(index) for _, index in op.source_ops),
        op.id,
        op.segment,
        report.segments[op.segment].stripes,
        op.bound_by,
        op.cpu_cycles,
        *_by_area(report, moved),
        op.name,
    )


def _source_kind(report: PlanReport, op: OpFacts) -> str:
    """Kind in the file of the first source op; the op's own if it stands for none."""
    kinds = {(source.subgraph, source.index): source.kind for source in report.source_ops}
    return next((kinds[ref] for ref in op.source_ops if ref in kinds), op.kind)


def _by_area(report: PlanReport, by_memory: dict[str, int]) -> list[int]:
    """Sums over the memories of each kind, in the order of Vela's columns."""
    kinds = {memory.name: memory.kind for memory in report.target.memories}
    return [
        sum(value for name, value in by_memory.items() if kinds.get(name) is area)
        for area in _AREAS
    ]


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
