"""Output files of a ``vela`` run as a result like that of our own runner, as far as they go."""

from __future__ import annotations

import msgspec

from npusched.hardware.target import MemoryMode, Target
from npusched.vela.files import SummaryMemory, VelaOutput, VelaSummary
from npusched.vela.options import VelaConfig, VelaOptions
from npusched.vela.protocol import Access, MemoryUse, PerfReport
from npusched.vela.reader import read_ops
from npusched.vela.result import VelaResult

UNKNOWN_VERSION = "unknown"
"""No file that Vela writes names its version."""

_NAMES = {
    "sram": "Sram",
    "dram": "Dram",
    "on_chip_flash": "OnChipFlash",
    "off_chip_flash": "OffChipFlash",
}
"""The summary's column prefixes, and the memories' names in system configs."""


def result_of(output: VelaOutput, config: VelaConfig, sha256: str) -> VelaResult | None:
    """The result of a run by its files; None without a database of the C++ core.

    Totals come from the summary, else from the rows. The compiled file may be missing: then what
    needs command streams (bytes of single depth slices) is not known.
    """
    if "perf" not in output.database.names:
        return None
    tables = output.database
    columns = {
        name: {
            cell: msgspec.Raw(msgspec.msgpack.encode(tables.table(name).column(cell)))
            for cell in tables.table(name).header
        }
        for name in tables.names
    }
    summary = output.summary
    arena = None if summary is None else summary.arena_cache_size_bytes
    result = VelaResult(
        vela_version=UNKNOWN_VERSION,
        core=output.core,
        model_sha256=sha256,
        config=config,
        options=VelaOptions(arena_cache_size_bytes=arena),
        arena_limit_bytes=arena or 0,
        compiled=output.compiled or b"",
        raw=None,
        report=_empty_report(),
        columns=columns,
        printed="",
        seconds=0.0,
    )
    report = report_of(summary) if summary is not None else _sums(result)
    return msgspec.structs.replace(result, report=_with_counts(result, report))


def report_of(summary: VelaSummary) -> PerfReport:
    """The summary as totals. Scales are what ``total_bytes`` has beyond the other columns."""
    memories = {
        _NAMES[area]: _memory(use)
        for area, use in summary.memories.items()
        if use.used_bytes or use.total_bytes or use.access_cycles
    }
    flash = sum(use.used_bytes for area, use in summary.memories.items() if area.endswith("flash"))
    return msgspec.structs.replace(
        _empty_report(),
        npu_cycles=round(summary.npu_cycles),
        total_cycles=round(summary.total_cycles),
        mac_count=summary.macs,
        original_weights_bytes=summary.original_weights_bytes,
        encoded_weights_bytes=summary.encoded_weights_bytes,
        read_only_peak_bytes=flash,
        memories=memories,
    )


def sram_peak_of(target: Target, summary: VelaSummary) -> int:
    """High-water mark of the budget memory, as our plans count it.

    In Sram_Only the summary shows the constants under on-chip flash (VELA_SPEC §8.10).
    """
    areas = {name: area for area, name in _NAMES.items()}
    used = summary.memories[areas[target.cache.vela_name]].used_bytes
    if target.memory_mode is MemoryMode.SRAM_ONLY and target.const.name == target.cache.name:
        used += summary.memories["on_chip_flash"].used_bytes
    return used


def _memory(use: SummaryMemory) -> MemoryUse:
    maps = round(use.feature_map_read_bytes), round(use.feature_map_written_bytes)
    weights = round(use.weights_read_bytes), round(use.weights_written_bytes)
    rest = max(round(use.total_bytes) - sum(maps) - sum(weights), 0)
    return MemoryUse(
        peak_bytes=use.used_bytes,
        access_cycles=round(use.access_cycles),
        accesses={
            name: Access(read_bytes=read, written_bytes=written, access_cycles=0)
            for name, (read, written) in (
                ("FeatureMap", maps),
                ("Weights", weights),
                ("Scales", (rest, 0)),
            )
            if read or written
        },
    )


def _empty_report() -> PerfReport:
    return PerfReport(
        npu_cycles=0,
        cpu_cycles=0,
        total_cycles=0,
        mac_count=0,
        npu_ops=0,
        cpu_ops=0,
        cascades=0,
        cascaded_ops=0,
        original_weights_bytes=0,
        encoded_weights_bytes=0,
        read_only_peak_bytes=0,
        staging_memory="",
        memories={},
    )


def _sums(result: VelaResult) -> PerfReport:
    """Totals as the sums of the rows, where no summary is at hand."""
    ops = read_ops(result.database)
    moved: dict[str, list[int]] = {}
    for op in ops:
        for entry in op.traffic:
            sums = moved.setdefault(entry.memory, [0, 0])
            sums[0] += entry.read_bytes
            sums[1] += entry.written_bytes
    return msgspec.structs.replace(
        _empty_report(),
        npu_cycles=sum(op.npu_cycles for op in ops),
        total_cycles=sum(op.op_cycles for op in ops),
        mac_count=sum(op.mac_count for op in ops),
        memories={
            name: MemoryUse(
                peak_bytes=0,
                access_cycles=0,
                accesses={"All": Access(read_bytes=read, written_bytes=written, access_cycles=0)},
            )
            for name, (read, written) in moved.items()
        },
    )


def _with_counts(result: VelaResult, report: PerfReport) -> PerfReport:
    ops = read_ops(result.database)
    return msgspec.structs.replace(
        report,
        npu_ops=sum(1 for op in ops if not op.is_cpu),
        cpu_ops=sum(1 for op in ops if op.is_cpu),
        cascades=len({op.cascade for op in ops if op.cascade}),
        cascaded_ops=sum(1 for op in ops if op.cascade),
    )
