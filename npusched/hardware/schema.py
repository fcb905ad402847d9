"""The file format of ``hw_configs/*.toml``: what may stand in a target file, and nothing else.

A file is one target. It names an accelerator (or defines it), the system configs and memory modes
that it knows, a host CPU and an energy class. Files whose name begins with ``_`` are shared
tables, not targets: ``_arm.toml`` (Arm's system configs and memory modes), ``_energy.toml``.
``docs/adding-a-board.md`` shows the format by example.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, field

from npusched.hardware.target import (
    AcceleratorU55,
    AcceleratorU85,
    Family,
    HostCpu,
    MemoryKind,
    MemoryMode,
    NonNegative,
    Uncertain,
    Value,
)

MAX_CLOCK_HZ = 1e12
MAX_CLOCK_SCALE = 1e3
MAX_COUNT = 1 << 40
"""Bounds that only nonsense exceeds; they keep all arithmetic finite."""

Clock: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_CLOCK_HZ)]
Scale: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_CLOCK_SCALE)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


class MemoryEntry(Value, frozen=True, kw_only=True):
    """One memory of a system config.

    ``port`` is Vela's virtual AXI port (0 or 1; several memories may share one). Bandwidth in bytes
    per NPU cycle = ``clock_scale`` x width of the port x ``ports``. ``port_bytes`` overrides the
    width of the accelerator's AXI ports. ``capacity`` is a size such as "2MiB". ``vela_name`` is
    the memory area that stands for it in a vela.ini; by default it follows from ``kind``.
    """

    kind: MemoryKind
    port: Annotated[int, Meta(ge=0, le=1)]
    clock_scale: Scale
    ports: AtLeastOne = 1
    port_bytes: AtLeastOne | None = None
    burst_bytes: AtLeastOne
    read_latency_cycles: Count
    write_latency_cycles: Count
    max_reads: Count = 1
    max_writes: Count = 1
    capacity: str | None = None
    vela_name: str | None = None
    source: str = ""


class SystemConfigEntry(Value, frozen=True, kw_only=True):
    """A named system config: NPU clock and memories by name. ``family`` None = fits any."""

    clock_hz: Clock
    memories: dict[str, MemoryEntry]
    source: str
    family: Family | None = None


class MemoryModeEntry(Value, frozen=True, kw_only=True):
    """A named memory mode: who lies where, by memory name, or by "axi0" and "axi1".

    ``mode`` is what Vela is told. ``arena_cache_bytes`` is the size stated for the arena or cache.
    """

    mode: MemoryMode
    const: str
    arena: str
    cache: str
    source: str
    arena_cache_bytes: AtLeastOne | None = None


class HostEntry(Value, frozen=True, kw_only=True):
    """The host CPU of a target: the name of a file with a ``[cpu]`` table, and its clock."""

    cpu: str
    clock_hz: Clock
    source: str


class SharedTables(Value, frozen=True, kw_only=True):
    """Contents of ``_arm.toml``."""

    system_configs: dict[str, SystemConfigEntry]
    memory_modes: dict[str, MemoryModeEntry]


class EnergyClass(Value, frozen=True, kw_only=True):
    """Energies of one technology class, in pJ (``static_mw`` in mW).

    The energy of an NPU cycle is ``npu_cycle_base`` + ``npu_cycle_per_mac`` x MACs per cycle, known
    within ``npu_cycle_base.factor``. CPU energies are keyed by CPU name, "other" being the default.
    """

    mac: Uncertain
    shram_byte: Uncertain
    npu_cycle_base: Uncertain
    npu_cycle_per_mac: NonNegative
    static_mw: Uncertain
    cpu_wait_cycle: Uncertain
    cpu_active_cycle: dict[str, Uncertain]
    memory_read: dict[MemoryKind, Uncertain]
    memory_write: dict[MemoryKind, Uncertain]


class EnergyOverride(Value, frozen=True, kw_only=True):
    """Energies that a target knows better than its class. Memories are keyed by name."""

    mac: Uncertain | None = None
    shram_byte: Uncertain | None = None
    npu_cycle: Uncertain | None = None
    static_mw: Uncertain | None = None
    cpu_wait_cycle: Uncertain | None = None
    cpu_active_cycle: Uncertain | None = None
    memory_read: dict[str, Uncertain] = field(default_factory=dict)
    memory_write: dict[str, Uncertain] = field(default_factory=dict)


class TargetFile(Value, frozen=True, kw_only=True):
    """One target file.

    ``accelerator`` is a table, or the name of the target that defines it, or absent (host-only).
    A file with own ``system_configs`` or ``memory_modes`` knows those and no others; without, it
    knows Arm's that fit its family. ``cpu`` is the host's own table; else ``host`` names one.
    """

    title: str
    system_config: str
    memory_mode: str
    energy: str
    accelerator: str | AcceleratorU55 | AcceleratorU85 | None = None
    host: HostEntry | None = None
    cpu: HostCpu | None = None
    system_configs: dict[str, SystemConfigEntry] = field(default_factory=dict)
    memory_modes: dict[str, MemoryModeEntry] = field(default_factory=dict)
    energy_override: EnergyOverride = EnergyOverride()
    source: str = ""
