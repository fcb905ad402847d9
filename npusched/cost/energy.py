"""Energy of an op or a plan, with its interval (GROUND_TRUTH §4).

Orders of magnitude, for comparing plans on one target. Every class of events (MACs, bytes, cycles)
has a typical energy known within a factor. ``low`` is the sum of typical / factor, ``high`` the sum
of typical x factor: all classes wrong in the same direction at once, the widest interval that the
table allows. Differences between plans are much better known than the totals, because the same
errors act on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from npusched.hardware.target import Target, Uncertain

SHRAM_PASSES = 2
"""Bytes that reach the NPU are written into its SHRAM once and read once (assumption)."""

_PJ_PER_NJ = 1000.0


class EnergyPart(msgspec.Struct, frozen=True):
    """Typical energy of one class of events in nanojoules, known within ``factor``."""

    name: str
    typical_nj: float
    factor: float


class Energy(msgspec.Struct, frozen=True):
    """Energy in nanojoules: interval, and the parts of the typical value."""

    low: float
    typical: float
    high: float
    parts: tuple[EnergyPart, ...] = ()


def energy_of(
    target: Target,
    *,
    macs: int,
    npu_cycles: float,
    cpu_cycles: float,
    bytes_read: Mapping[str, int],
    bytes_written: Mapping[str, int],
    cpu_wait_cycles: float | None = None,
    shram_bytes: int | None = None,
) -> Energy:
    """Energy of so many events on ``target``.

    ``bytes_read`` and ``bytes_written``: transferred bytes of the NPU by memory name; bytes of CPU
    ops do not belong there, because a CPU cycle's energy includes its memory accesses.
    ``npu_cycles`` at the NPU's clock, ``cpu_cycles`` at the CPU's. ``cpu_wait_cycles`` default to
    the NPU's busy time, ``shram_bytes`` to two passes over all bytes moved. Raises KeyError for a
    memory that the energy table does not know.
    """
    table = target.energy
    npu_s = npu_cycles / target.clock_hz if target.accelerator is not None else 0.0
    cpu_s = cpu_cycles / target.cpu.clock_hz
    if cpu_wait_cycles is None:
        cpu_wait_cycles = npu_s * target.cpu.clock_hz
    if shram_bytes is None:
        moved = sum(bytes_read.values()) + sum(bytes_written.values())
        shram_bytes = SHRAM_PASSES * moved
    parts = [
        _part("mac", macs, table.mac),
        _part("shram", shram_bytes, table.shram_byte),
        *(_part(f"{name} read", n, table.memory_read[name]) for name, n in bytes_read.items()),
        *(_part(f"{name} write", n, table.memory_write[name]) for name, n in bytes_written.items()),
        _part("npu", npu_cycles, table.npu_cycle),
        _part("cpu active", cpu_cycles, table.cpu_active_cycle),
        _part("cpu wait", cpu_wait_cycles, table.cpu_wait_cycle),
        _static(npu_s + cpu_s, table.static_mw),
    ]
    return _sum(tuple(part for part in parts if part.typical_nj))


def add_energies(energies: tuple[Energy, ...]) -> Energy:
    """Sum of several ops' energies; intervals add, parts of the same name are merged."""
    merged: dict[str, EnergyPart] = {}
    for energy in energies:
        for part in energy.parts:
            before = merged.get(part.name)
            typical = part.typical_nj + (before.typical_nj if before else 0.0)
            merged[part.name] = EnergyPart(part.name, typical, part.factor)
    return _sum(tuple(merged.values()))


def _sum(parts: tuple[EnergyPart, ...]) -> Energy:
    return Energy(
        low=sum(part.typical_nj / part.factor for part in parts),
        typical=sum(part.typical_nj for part in parts),
        high=sum(part.typical_nj * part.factor for part in parts),
        parts=parts,
    )


def _part(name: str, events: float, each: Uncertain) -> EnergyPart:
    """Energy of ``events`` that cost ``each`` picojoules."""
    return EnergyPart(name, events * each.typical / _PJ_PER_NJ, each.factor)


def _static(seconds: float, power: Uncertain) -> EnergyPart:
    """Leakage over a time: milliwatts times seconds are millijoules, a million nanojoules each."""
    return EnergyPart("static", seconds * power.typical * 1e6, power.factor)
