"""``load_target``: a name and options in, one resolved ``Target`` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from npusched.errors import TargetError
from npusched.hardware.choose import Choice, choose, choose_from_ini
from npusched.hardware.energy import energy_table
from npusched.hardware.names import MEMORY_NAMES, unknown_name
from npusched.hardware.schema import MAX_CLOCK_HZ, MemoryEntry, TargetFile
from npusched.hardware.store import (
    accelerator_of,
    canonical_name,
    host_of,
    read_target_file,
    target_names,
)
from npusched.hardware.target import (
    Accelerator,
    AcceleratorU85,
    Memory,
    MemoryKind,
    MemoryMode,
    Roles,
    Target,
)
from npusched.hardware.units import check_factor, parse_size
from npusched.hardware.width import vela_axi_bytes, vela_bandwidth

__all__ = ["load_target", "target_names"]

_HOST_PORT_BYTES = 8
_VELA_NAMES = {kind: area for area, (_, kind) in MEMORY_NAMES.items()}


def load_target(
    name: str,
    *,
    system_config: str | None = None,
    memory_mode: str | None = None,
    vela_config: Path | None = None,
    clock_hz: float | None = None,
    derate: Mapping[str, float] | None = None,
) -> Target:
    """Return the target of that name (or of the TOML file at that path), fully resolved.

    ``system_config`` and ``memory_mode`` are names that the target knows, or their short forms
    ("High_End"); they default to what the target's file says. ``vela_config`` replaces the known
    names by the sections of that vela.ini. ``clock_hz`` replaces the NPU's clock (the CPU's, for a
    host-only target); figures per cycle stay, as in Vela. ``derate`` gives, by memory name, the
    share of the bandwidth that is left, in (0, 1].

    Raises TargetError for unknown or ill-fitting names, unreadable files and senseless numbers.
    """
    file = read_target_file(name)
    short = canonical_name(name)
    accelerator = accelerator_of(short, file)
    if vela_config is None:
        choice = choose(short, file, accelerator, system_config, memory_mode)
    elif accelerator is None:
        raise TargetError(
            f"target {short!r} has no NPU",
            "a vela.ini describes an Ethos-U system",
            "drop --vela-config, or choose one of the ethos-u targets",
        )
    else:
        choice = choose_from_ini(short, file, accelerator, system_config, memory_mode, vela_config)
    return _assemble(short, file, accelerator, choice, clock_hz, dict(derate or {}))


def _assemble(
    name: str,
    file: TargetFile,
    accelerator: Accelerator | None,
    choice: Choice,
    clock_hz: float | None,
    derate: dict[str, float],
) -> Target:
    notes = list(choice.notes)
    clock = _clock(choice, clock_hz)
    if clock != choice.system.clock_hz and accelerator is not None:
        notes.append(
            f"clock {clock / 1e6:g} MHz instead of {choice.system.clock_hz / 1e6:g} MHz: memories"
            " scale with it (bytes and latencies per cycle stay, as in Vela); use --derate for one"
            " that does not"
        )
    mode = choice.mode
    roles = Roles(
        const=_memory_of(choice, mode.const),
        arena=_memory_of(choice, mode.arena),
        cache=_memory_of(choice, mode.cache),
    )
    _check_derating(name, choice, derate, notes)
    memories = tuple(
        _memory(each, entry, choice, accelerator, derate.get(each, 1.0), roles)
        for each, entry in choice.system.memories.items()
    )
    cpu = host_of(name, file)
    if accelerator is None:
        cpu = replace(cpu, clock_hz=clock)
    else:
        _check_vela_names(choice, memories, roles)
        notes += _surprises(accelerator, choice, memories, roles)
    return Target(
        name=name,
        accelerator=accelerator,
        clock_hz=clock,
        memories=memories,
        roles=roles,
        memory_mode=mode.mode,
        system_config=choice.system_name,
        energy=energy_table(file, accelerator, memories, cpu.name),
        cpu=cpu,
        notes=tuple(notes),
        memory_mode_name=choice.mode_name,
        arena_cache_bytes=mode.arena_cache_bytes,
    )


def _clock(choice: Choice, clock_hz: float | None) -> float:
    if clock_hz is None:
        return choice.system.clock_hz
    if not 0 < clock_hz <= MAX_CLOCK_HZ:
        raise TargetError(
            f"clock {clock_hz:g} Hz is not possible",
            "a clock is above 0 Hz and at most 1 THz",
            "write for example --clock 500MHz",
        )
    return clock_hz


def _memory_of(choice: Choice, where: str) -> str:
    """Return the memory name of a role: a name, or "axi0"/"axi1" for what is on that port."""
    memories = choice.system.memories
    if where in memories:
        return where
    on_port = [each for each, entry in memories.items() if f"axi{entry.port}" == where]
    if len(on_port) == 1:
        return on_port[0]
    if where in ("axi0", "axi1"):
        raise TargetError(
            f"memory mode {choice.mode_name!r} does not fit system config {choice.system_name!r}",
            f"{len(on_port) or 'no'} memories are on {where}",
            "name the memory itself in the memory mode",
        )
    raise unknown_name("memory", where, tuple(memories), f"memory mode {choice.mode_name}")


def _check_derating(
    name: str, choice: Choice, derate: Mapping[str, float], notes: list[str]
) -> None:
    for memory, factor in derate.items():
        if memory not in choice.system.memories:
            raise unknown_name("memory", memory, tuple(choice.system.memories), name)
        check_factor(memory, factor)
        if factor != 1:
            notes.append(f"{memory} is derated to {factor:g} of its bandwidth")


def _memory(
    name: str,
    entry: MemoryEntry,
    choice: Choice,
    accelerator: Accelerator | None,
    factor: float,
    roles: Roles,
) -> Memory:
    width = entry.port_bytes or (accelerator.axi_bytes if accelerator else _HOST_PORT_BYTES)
    scale = entry.clock_scale * factor
    physical = scale * width * entry.ports
    capacity = None if entry.capacity is None else parse_size(entry.capacity)
    stated = choice.mode.arena_cache_bytes
    if name == roles.cache and stated is not None:
        capacity = stated if capacity is None else min(stated, capacity)
    return Memory(
        name=name,
        kind=entry.kind,
        vela_name=entry.vela_name or _VELA_NAMES[entry.kind],
        axi_port=entry.port,
        bandwidth_bytes_per_cycle=physical,
        vela_bandwidth_bytes_per_cycle=(
            vela_bandwidth(choice.system_name, scale, entry.ports) if accelerator else physical
        ),
        read_latency_cycles=entry.read_latency_cycles,
        write_latency_cycles=entry.write_latency_cycles,
        burst_bytes=entry.burst_bytes,
        max_reads=max(1, entry.max_reads),
        max_writes=max(1, entry.max_writes),
        ports=entry.ports,
        capacity_bytes=capacity,
        clock_scale=scale,
    )


def _check_vela_names(choice: Choice, memories: Sequence[Memory], roles: Roles) -> None:
    """Refuse two memories with a role that Vela could not tell apart."""
    told = {roles.arena, roles.cache}
    if choice.mode.mode is not MemoryMode.SRAM_ONLY:
        told.add(roles.const)
    areas = [memory.vela_name for memory in memories if memory.name in told]
    for area in areas:
        if areas.count(area) > 1 or area not in MEMORY_NAMES:
            raise TargetError(
                f"memory mode {choice.mode_name!r} cannot be said to Vela",
                f"two memories are {area!r}"
                if area in MEMORY_NAMES
                else f"Vela has no memory {area!r}",
                f"set vela_name to distinct ones of {', '.join(MEMORY_NAMES)}",
            )


def _surprises(
    accelerator: Accelerator, choice: Choice, memories: Sequence[Memory], roles: Roles
) -> list[str]:
    """Return notes on what Vela takes silently and a reader would not expect."""
    notes = []
    believed = vela_axi_bytes(choice.system_name)
    if believed != accelerator.axi_bytes:
        notes.append(
            f"Vela counts {believed} bytes per cycle and port because of the name"
            f" {choice.system_name!r}; a port of {accelerator.name} has {accelerator.axi_bytes}"
        )
    notes += [
        f"{memory.name} has clock_scale {memory.clock_scale:g}: more than its port can carry"
        for memory in memories
        if memory.clock_scale > 1
    ]
    if isinstance(accelerator, AcceleratorU85):
        for memory in memories:
            on_chip = memory.kind is MemoryKind.SRAM
            have = accelerator.sram_ports if on_chip else accelerator.external_ports
            if memory.ports > have:
                notes.append(
                    f"{choice.system_name} uses {memory.ports} ports for {memory.name};"
                    f" {accelerator.name} has {have}"
                )
    if choice.mode.mode is MemoryMode.SRAM_ONLY and roles.const != roles.arena:
        notes.append(f"constants lie in {roles.const}; Vela is told that they lie in {roles.arena}")
    return notes
