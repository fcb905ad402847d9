"""A user's own measurements: PMU counters or latencies of the network or of single ops.

JSON: ``{"network": {...}, "ops": [{"index": 3, ...}, ...]}``, or a list of such entries. CSV: a
header and one row per entry; a row without an op index is the network. Fields are found by name
(see ``_FIELDS``), the rest is kept as counters. Nothing is inferred.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from npusched.errors import NpuschedError

MAX_FILE_BYTES = 64 << 20

_INDEX = ("index", "op", "op_index", "source_op", "layer")
_FIELDS: Mapping[str, tuple[str, float]] = {
    "cycles": ("cycles", 1),
    "npu_cycles": ("cycles", 1),
    "npu_active": ("cycles", 1),
    "npu_active_cycles": ("cycles", 1),
    "active": ("cycles", 1),
    "ethosu_pmu_cycle": ("cycles", 1),
    "latency_s": ("latency_s", 1),
    "latency_ms": ("latency_s", 1e-3),
    "latency_us": ("latency_s", 1e-6),
    "inference_time": ("latency_s", 1),
    "time_s": ("latency_s", 1),
    "time_ms": ("latency_s", 1e-3),
    "time_us": ("latency_s", 1e-6),
}
"""Accepted names of the two quantities, and the factor to our unit."""


class MeasuredError(NpuschedError):
    """A file of measurements cannot be read or has nothing usable in it."""

    kind = "measured"


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured entry. ``source_op``: [subgraph, index], null for the whole network.

    ``cycles``: NPU cycles, ``latency_s``: seconds; null = not in the file. ``counters``: every
    other number of the entry, under its own name.
    """

    source_op: tuple[int, int] | None
    cycles: float | None
    latency_s: float | None
    counters: dict[str, float]


def read_measurements(path: Path, subgraph: int = 0) -> tuple[Measurement, ...]:
    """Read a JSON or CSV file. Raises MeasuredError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _unreadable(path, f"it is larger than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from None
    return parse_measurements(text, path, subgraph)


def parse_measurements(
    text: str, path: Path = Path("measurements"), subgraph: int = 0
) -> tuple[Measurement, ...]:
    """Parse the text of such a file; ``subgraph``: that of ops that name none."""
    is_json = text.lstrip()[:1] in ("{", "[")
    entries = _json_entries(text, path) if is_json else _csv_entries(text, path)
    found = tuple(_measurement(entry, path, subgraph) for entry in entries)
    if not any(entry.cycles is not None or entry.latency_s is not None for entry in found):
        raise _unreadable(path, "no entry has cycles or a latency")
    return found


def _json_entries(text: str, path: Path) -> list[Mapping[str, object]]:
    try:
        decoded = json.loads(text)
    except ValueError as error:
        raise _unreadable(path, f"not JSON: {error}") from None
    entries: list[object] = []
    if isinstance(decoded, list):
        entries = decoded
    elif isinstance(decoded, dict) and ("network" in decoded or "ops" in decoded):
        if "network" in decoded:
            entries.append(decoded["network"])
        ops = decoded.get("ops", [])
        entries += ops if isinstance(ops, list) else [ops]
    else:
        entries = [decoded]
    objects: list[Mapping[str, object]] = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise _unreadable(path, f"an entry is {str(entry)[:40]!r}, not an object")
        objects.append(entry)
    return objects


def _csv_entries(text: str, path: Path) -> Sequence[Mapping[str, object]]:
    try:
        rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    except csv.Error as error:
        raise _unreadable(path, str(error)) from None
    if not rows:
        raise _unreadable(path, "no row below the header")
    return [{k: v for k, v in row.items() if k and v not in (None, "")} for row in rows]


def _measurement(entry: Mapping[str, object], path: Path, subgraph: int) -> Measurement:
    values: dict[str, float] = {}
    counters: dict[str, float] = {}
    index: int | None = None
    for name, value in entry.items():
        key = name.strip().lower().replace(" ", "_")
        if key in _INDEX:
            index = _whole(value, name, path)
        elif key == "subgraph":
            subgraph = _whole(value, name, path)
        elif key in _FIELDS:
            quantity, factor = _FIELDS[key]
            values[quantity] = factor * _number(value, name, path)
        elif _is_number(value):
            counters[name] = _number(value, name, path)
    return Measurement(
        source_op=None if index is None else (subgraph, index),
        cycles=values.get("cycles"),
        latency_s=values.get("latency_s"),
        counters=counters,
    )


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False


def _number(value: object, name: str, path: Path) -> float:
    if not _is_number(value) or float(str(value)) < 0:
        raise _unreadable(path, f"{name} is {str(value)[:40]!r}, not a figure of at least 0")
    return float(str(value))


def _whole(value: object, name: str, path: Path) -> int:
    number = _number(value, name, path)
    if number != int(number):
        raise _unreadable(path, f"{name} is {str(value)[:40]!r}, not a whole number")
    return int(number)


def _unreadable(path: Path, why: str) -> MeasuredError:
    return MeasuredError(
        f"cannot read measurements from {path.name}",
        why,
        'e.g. CSV "index,cycles" with an empty index for the network, or JSON '
        '{"network": {"latency_ms": 1.2}}',
    )
