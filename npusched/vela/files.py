"""Files that the ``vela`` command wrote: summary CSV, per-layer CSV, debug database (VELA_SPEC §6).

Reads what Vela 3.x to 5.x write, with the columns of the C++ core and of the legacy Python core.
Pure functions of the text; ``read_vela_output`` finds the files in a folder. No Vela is run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from npusched.errors import VelaError
from npusched.vela.protocol import Columns
from npusched.vela.tables import DebugDatabase

MAX_FILE_BYTES = 1 << 30

KIB = 1024
GIB = 1 << 30

_AREAS = ("sram", "dram", "on_chip_flash", "off_chip_flash")
_LAYER_COLUMNS = {
    "sram": "SRAM AC",
    "dram": "DRAM AC",
    "on_chip_flash": "OnFlash AC",
    "off_chip_flash": "OffFlash AC",
}
_TABLE = re.compile(r"<table name=(?P<q>['\"])(?P<name>[^'\"]*)(?P=q)>\s*<!\[CDATA\[\n?")
_TABLE_END = re.compile(r"\]\]>\s*</table>")


class VelaFileError(VelaError):
    """A file of Vela's output is missing or cannot be read."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMemory:
    """One memory in a summary. ``bandwidth_bytes_per_s`` is stated even for absent memories.

    Bytes are per inference; feature-map bytes include burst inflation; ``total_bytes`` also
    counts scales, which have no column of their own.
    """

    bandwidth_bytes_per_s: float
    used_bytes: int
    feature_map_read_bytes: float
    feature_map_written_bytes: float
    weights_read_bytes: float
    weights_written_bytes: float
    total_bytes: float
    access_cycles: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VelaSummary:
    """The one row of a summary CSV, in plain units (Vela writes KiB and GiB/s).

    Cycles are floats because the legacy core counts halves. ``memories`` is keyed by Vela's
    column prefix: sram, dram, on_chip_flash, off_chip_flash. A column that the file does not have
    is 0, "" or None.
    """

    network: str
    accelerator: str
    system_config: str
    memory_mode: str
    core_clock_hz: float
    arena_cache_size_bytes: int | None
    weights_storage_area: str
    feature_map_storage_area: str
    batch_size: int
    inference_time_s: float
    ops_before_cascading: int
    ops_after_cascading: int
    original_weights_bytes: int
    encoded_weights_bytes: int
    macs: int
    npu_cycles: float
    total_cycles: float
    memories: dict[str, SummaryMemory]


@dataclass(frozen=True, slots=True, kw_only=True)
class VelaLayer:
    """A row of the per-layer CSV. ``placement`` is NPU, CPU, or NPU where the file has no column.

    Rows of fused ops are all zero (C++ core only). ``memory_cycles`` is keyed as in
    ``VelaSummary.memories``.
    """

    source_operator: str
    operator: str
    placement: str
    staging_usage_bytes: int
    op_cycles: float
    npu_cycles: float
    memory_cycles: dict[str, float]
    mac_count: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VelaOutput:
    """What was found in a folder. ``core`` is regor or legacy; absent files are None or empty."""

    folder: Path
    network: str
    core: str
    summary: VelaSummary | None
    layers: tuple[VelaLayer, ...]
    database: DebugDatabase
    compiled: bytes | None


def parse_summary(text: str, where: str = "summary CSV") -> VelaSummary:
    """Parse a ``*_summary_*.csv``. Raises VelaFileError if it is not one."""
    rows = _csv_rows(text, where)
    if len(rows) < 2 or "cycles_total" not in rows[0]:
        raise _unreadable(where, "no header with cycles_total and a row below it")
    cells = _Cells(dict(zip(rows[0], rows[1], strict=False)), where)
    arena = cells.number("arena_cache_size") if cells.has("arena_cache_size") else None
    return VelaSummary(
        network=cells.text("network"),
        accelerator=cells.text("accelerator_configuration"),
        system_config=cells.text("system_config"),
        memory_mode=cells.text("memory_mode"),
        core_clock_hz=cells.number("core_clock"),
        arena_cache_size_bytes=None if arena is None else round(arena * KIB),
        weights_storage_area=cells.text("weights_storage_area"),
        feature_map_storage_area=cells.text("feature_map_storage_area"),
        batch_size=round(cells.number("batch_size")) or 1,
        inference_time_s=cells.number("inference_time"),
        ops_before_cascading=round(cells.number("passes_before_fusing")),
        ops_after_cascading=round(cells.number("passes_after_fusing")),
        original_weights_bytes=round(cells.number("total_original_weights")),
        encoded_weights_bytes=round(cells.number("total_npu_encoded_weights")),
        macs=round(cells.number("nn_macs")),
        npu_cycles=cells.number("cycles_npu"),
        total_cycles=cells.number("cycles_total"),
        memories={area: _summary_memory(cells, area) for area in _AREAS},
    )


def parse_layers(text: str, where: str = "per-layer CSV") -> tuple[VelaLayer, ...]:
    """Parse a ``*_per-layer.csv`` of either core. Raises VelaFileError if it is not one.

    The C++ core does not quote names with commas, the legacy core does, and repeats its header
    for every NPU subgraph.
    """
    lines = text.strip().splitlines()
    header = lines[0].split(",") if lines else []
    if "NNG Operator" not in header or header[-1] != "Name":
        raise _unreadable(where, "no header with NNG Operator and Name")
    is_legacy = "TFLite_operator" in header
    rows = _csv_rows(text, where) if is_legacy else _unquoted_rows(lines[1:], len(header))
    layers = []
    for row in rows:
        if row == header:
            continue
        if len(row) != len(header):
            raise _unreadable(where, f"a row has {len(row)} cells, the header {len(header)}")
        layers.append(_layer(_Cells(dict(zip(header, row, strict=True)), where)))
    return tuple(layers)


def parse_debug_database(text: str, where: str = "debug database") -> DebugDatabase:
    """Parse a ``*_debug.xml`` of either core. Raises VelaFileError if it is not one.

    The file is scanned for its tables, not parsed as XML: the C++ core escapes nothing, so tensor
    names may hold quotes and commas.
    """
    if "<debug" not in text[:1000]:
        raise _unreadable(where, "no <debug> element")
    columns: Columns = {}
    position = 0
    while (start := _TABLE.search(text, position)) is not None:
        end = _TABLE_END.search(text, start.end())
        if end is None:
            raise _unreadable(where, f"table {start['name']} has no end")
        columns[start["name"]] = _parse_table(text[start.end() : end.start()], where)
        position = end.end()
    return DebugDatabase(columns)


def read_vela_output(folder: Path, network: str | None = None) -> VelaOutput:
    """Read the files that ``vela --output-dir folder`` left.

    ``network`` is the model's file name without suffix; it may be omitted if the folder holds
    files of one network only. Raises VelaFileError if there is nothing to read or several.
    """
    names = _networks(folder)
    if network is None and len(names) == 1:
        (network,) = names
    if network is None or network not in names:
        raise VelaFileError(
            f"{folder} holds no Vela output for {network or 'one network'}",
            f"found: {', '.join(sorted(names)) or 'no *_summary_*.csv, *_per-layer.csv, …'}",
            "name the folder that was given to vela as --output-dir",
            found=tuple(sorted(names)),
        )
    summaries = sorted(folder.glob(f"{_glob_escape(network)}_summary_*.csv"))
    if len(summaries) > 1:
        raise VelaFileError(
            f"{folder} holds several summaries of {network}",
            ", ".join(path.name for path in summaries),
            "keep the one that belongs to the other files",
        )
    layers_path = folder / f"{network}_per-layer.csv"
    database_path = folder / f"{network}_debug.xml"
    compiled_path = folder / f"{network}_vela.tflite"
    layers_text = _read_text(layers_path) if layers_path.is_file() else ""
    database = (
        parse_debug_database(_read_text(database_path), database_path.name)
        if database_path.is_file()
        else DebugDatabase({})
    )
    is_legacy = layers_text.startswith("TFLite_operator") or (
        bool(database) and "perf" not in database.names
    )
    return VelaOutput(
        folder=folder,
        network=network,
        core="legacy" if is_legacy else "regor",
        summary=parse_summary(_read_text(summaries[0]), summaries[0].name) if summaries else None,
        layers=parse_layers(layers_text, layers_path.name) if layers_text else (),
        database=database,
        compiled=_read(compiled_path) if compiled_path.is_file() else None,
    )


class _Cells:
    """One row by column name; numbers checked, absent ones 0."""

    def __init__(self, cells: dict[str, str], where: str) -> None:
        self._cells = cells
        self._where = where

    def has(self, name: str) -> bool:
        return bool(self._cells.get(name, "").strip())

    def text(self, name: str) -> str:
        return self._cells.get(name, "").strip()

    def number(self, name: str) -> float:
        text = self.text(name)
        try:
            value = float(text) if text else 0.0
        except ValueError:
            raise _unreadable(self._where, f"{name} is {text[:40]!r}, not a number") from None
        return value if math.isfinite(value) else 0.0


def _unreadable(where: str, why: str) -> VelaFileError:
    return VelaFileError(
        f"cannot read {where}", why, "run vela again, or name the folder that holds its output"
    )


def _summary_memory(cells: _Cells, area: str) -> SummaryMemory:
    return SummaryMemory(
        bandwidth_bytes_per_s=cells.number(f"{area}_bandwidth") * GIB,
        used_bytes=round(cells.number(f"{area}_memory_used") * KIB),
        feature_map_read_bytes=cells.number(f"{area}_feature_map_read_bytes"),
        feature_map_written_bytes=cells.number(f"{area}_feature_map_write_bytes"),
        weights_read_bytes=cells.number(f"{area}_weight_read_bytes"),
        weights_written_bytes=cells.number(f"{area}_weight_write_bytes"),
        total_bytes=cells.number(f"{area}_total_bytes"),
        access_cycles=cells.number(f"cycles_{area}_access"),
    )


def _layer(cells: _Cells) -> VelaLayer:
    usage = "Staging Usage" if cells.has("Staging Usage") else "SRAM Usage"
    return VelaLayer(
        source_operator=cells.text("Original Operator") or cells.text("TFLite_operator"),
        operator=cells.text("NNG Operator"),
        placement=cells.text("Target") or "NPU",
        staging_usage_bytes=round(cells.number(usage)),
        op_cycles=cells.number("Op Cycles"),
        npu_cycles=cells.number("NPU"),
        memory_cycles={area: cells.number(column) for area, column in _LAYER_COLUMNS.items()},
        mac_count=round(cells.number("MAC Count")),
        name=cells.text("Name"),
    )


def _csv_rows(text: str, where: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise _unreadable(where, str(error)) from None


def _unquoted_rows(lines: list[str], width: int) -> Iterator[list[str]]:
    """Split rows whose last cell may hold commas; a line with too few cells continues it."""
    row: list[str] = []
    for line in lines:
        cells = line.split(",", width - 1)
        if len(cells) == width or not row:
            if row:
                yield row
            row = cells
        else:
            row[-1] += "\n" + line
    if row:
        yield row


def _parse_table(body: str, where: str) -> dict[str, msgspec.Raw]:
    """Parse a table's CSV: only the column ``name`` can hold commas, quotes or line ends."""
    lines = body.strip("\r\n").split("\n")
    header = [cell.strip().strip('"') for cell in lines[0].split(",")] if lines[0] else []
    free = header.index("name") if "name" in header else len(header)
    after = len(header) - free - 1
    columns: list[list[str]] = [[] for _ in header]
    pending = ""
    for line in lines[1:]:
        cells = (pending + line).split(",")
        if len(cells) < len(header) or (pending + line).count('"') % 2:
            pending += line + "\n"
            continue
        pending = ""
        if len(cells) > len(header):
            if free == len(header):
                raise _unreadable(where, f"a row has {len(cells)} cells, not {len(header)}")
            end = len(cells) - after
            cells = [*cells[:free], ",".join(cells[free:end]), *cells[end:]]
        for column, cell in zip(columns, cells, strict=True):
            column.append(_unquote(cell.strip()))
    if pending.strip():
        raise _unreadable(where, f"a row is cut off: {pending[:60]!r}")
    encode = msgspec.msgpack.Encoder().encode
    return {name: msgspec.Raw(encode(cells)) for name, cells in zip(header, columns, strict=True)}


def _unquote(cell: str) -> str:
    return cell[1:-1] if len(cell) >= 2 and cell[0] == cell[-1] == '"' else cell


def _networks(folder: Path) -> set[str]:
    """Return the networks that the folder has files of."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise VelaFileError(
            f"cannot read the folder {folder}",
            error.strerror or str(error),
            "name the folder that was given to vela as --output-dir",
        ) from error
    found = set()
    for name in names:
        for pattern in (r"(.+)_summary_.*\.csv", r"(.+)_per-layer\.csv", r"(.+)_debug\.xml"):
            match = re.fullmatch(pattern, name)
            if match is not None:
                found.add(match[1])
    return found


def _glob_escape(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _unreadable(path.name, f"it is larger than {MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path.name, error.strerror or str(error)) from error


def _read_text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")
