"""``load_target``: a name and options in, one resolved ``Target`` out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npusched.errors import TargetError
from npusched.hardware import vela_read
from npusched.hardware.energy import energy_table
from npusched.hardware.names import family_of_name, match_name, resolve_name, unknown_name
from npusched.hardware.schema import (
    MemoryEntry,
    MemoryModeEntry,
    SystemConfigEntry,
    TargetFile,
)
from npusched.hardware.store import (
    accelerator_of,
    arm_tables,
    host_of,
    read_target_file,
    target_names,
)
from npusched.hardware.target import (
    Accelerator,
    AcceleratorU85,
    Family,
    Memory,
    MemoryKind,
    MemoryMode,
    Roles,
    Target,
)
from npusched.hardware.units import check_factor, parse_size
from npusched.hardware.vela_write import vela_bandwidth

__all__ = ["load_target", "modes_of", "system_configs_of", "target_names"]

LEGAL_MODES: dict[Family, tuple[MemoryMode, ...]] = {
    Family.U55: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM),
    Family.U65: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM, MemoryMode.DEDICATED_SRAM),
    Family.U85: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM, MemoryMode.DEDICATED_SRAM),
}
"""DESIGN "Planning". An Ethos-U55 only reads through its second port, so its arena is in SRAM."""

_VELA_NAMES = {kind: area for area, (_, kind) in vela_read.MEMORY_NAMES.items()}


@dataclass(frozen=True)
class _Choice:
    """The system config and memory mode that were chosen, with their names and notes."""

    system_name: str
    system: SystemConfigEntry
    mode_name: str
    mode: MemoryModeEntry
    notes: tuple[str, ...] = ()


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
    short = Path(name).stem if name.endswith(".toml") else name
    accelerator = accelerator_of(short, file)
    choice = (
        _choose(short, file, accelerator, system_config, memory_mode)
        if vela_config is None
        else _choose_from_ini(short, file, accelerator, system_config, memory_mode, vela_config)
    )
    _check_mode(short, accelerator, choice)
    return _assemble(short, file, accelerator, choice, clock_hz, dict(derate or {}))


def system_configs_of(
    file: TargetFile, accelerator: Accelerator | None
) -> dict[str, SystemConfigEntry]:
    """Return the system configs that a target knows: its own, else Arm's that fit its family."""
    if file.system_configs or accelerator is None:
        return file.system_configs
    known = arm_tables().system_configs
    return {name: entry for name, entry in known.items() if entry.family is accelerator.family}


def modes_of(file: TargetFile, accelerator: Accelerator | None) -> dict[str, MemoryModeEntry]:
    """Return the memory modes that a target knows: its own, else Arm's that its family can do."""
    if file.memory_modes or accelerator is None:
        return file.memory_modes
    legal = LEGAL_MODES[accelerator.family]
    known = arm_tables().memory_modes
    return {name: entry for name, entry in known.items() if entry.mode in legal}


def _choose(
    name: str,
    file: TargetFile,
    accelerator: Accelerator | None,
    system_config: str | None,
    memory_mode: str | None,
) -> _Choice:
    configs = system_configs_of(file, accelerator)
    wanted = file.system_config if system_config is None else system_config
    _check_family(name, accelerator, wanted, tuple(configs))
    system_name = resolve_name(f"system config of {name}", wanted, tuple(configs))
    modes = modes_of(file, accelerator)
    mode = file.memory_mode if memory_mode is None else memory_mode
    _check_mode_name(name, accelerator, mode, tuple(modes))
    mode_name = resolve_name(f"memory mode of {name}", mode, tuple(modes))
    return _Choice(system_name, configs[system_name], mode_name, modes[mode_name])


def _choose_from_ini(
    name: str,
    file: TargetFile,
    accelerator: Accelerator | None,
    system_config: str | None,
    memory_mode: str | None,
    path: Path,
) -> _Choice:
    if accelerator is None:
        raise TargetError(
            f"target {name!r} has no NPU", "a vela.ini describes Ethos-U systems", "drop the option"
        )
    ini = vela_read.read_vela_ini(path)
    if system_config is None:
        system_config = _only(ini, "system config", ini.system_configs, "--system-config")
    _check_family(name, accelerator, system_config, ini.system_configs)
    system_name = resolve_name(f"system config in {path.name}", system_config, ini.system_configs)
    system, ports, notes = vela_read.system_config(ini, system_name)
    if not ini.memory_modes:
        modes = modes_of(
            TargetFile(title="", system_config="", memory_mode="", energy=""), accelerator
        )
        wanted = file.memory_mode if memory_mode is None else memory_mode
        mode_name = resolve_name(f"memory mode of {name}", wanted, tuple(modes))
        notes.append(f"{path.name} has no memory modes: Arm's {mode_name} is taken")
        return _Choice(system_name, system, mode_name, modes[mode_name], (*ini.notes, *notes))
    if memory_mode is None:
        default = (file.memory_mode,) if file.memory_mode in ini.memory_modes else ini.memory_modes
        memory_mode = _only(ini, "memory mode", default, "--memory-mode")
    mode_name = resolve_name(f"memory mode in {path.name}", memory_mode, ini.memory_modes)
    mode = vela_read.memory_mode(ini, mode_name, ports, system)
    return _Choice(system_name, system, mode_name, mode, (*ini.notes, *notes))


def _only(ini: vela_read.VelaIni, kind: str, names: Sequence[str], option: str) -> str:
    if len(names) == 1:
        return names[0]
    raise TargetError(
        f"{ini.path.name} has {len(names)} {kind}s",
        f"known: {', '.join(names) or 'none'}",
        f"choose one with {option}" if names else f"add a section for one to {ini.path.name}",
        known=tuple(names),
    )


def _check_family(
    name: str, accelerator: Accelerator | None, system_config: str, known: Sequence[str]
) -> None:
    """Refuse a system config that another family's name is written on; Vela would take it."""
    if accelerator is None:
        return
    claimed = family_of_name(system_config)
    if claimed is None and not match_name(system_config, known):
        others = {
            family_of_name(found) for found in match_name(system_config, tuple(_arm_names()))
        } - {accelerator.family, None}
        claimed = others.pop() if len(others) == 1 else None
    if claimed is None or claimed is accelerator.family:
        return
    fitting = [each for each in known if family_of_name(each) in (None, accelerator.family)]
    raise TargetError(
        f"system config {system_config!r} does not fit {name}",
        f"it describes an {claimed} system, {accelerator.name} is an {accelerator.family}",
        f"fitting: {', '.join(fitting) or 'none'}",
        system_config=system_config,
        known=tuple(fitting),
    )


def _arm_names() -> Sequence[str]:
    return tuple(arm_tables().system_configs)


def _check_mode_name(
    name: str, accelerator: Accelerator | None, mode: str, known: Sequence[str]
) -> None:
    if accelerator is None or match_name(mode, known):
        return
    arm = arm_tables().memory_modes
    found = match_name(mode, tuple(arm))
    if len(found) == 1 and arm[found[0]].mode not in LEGAL_MODES[accelerator.family]:
        raise _illegal_mode(name, accelerator, found[0], known)


def _check_mode(name: str, accelerator: Accelerator | None, choice: _Choice) -> None:
    if accelerator is None or choice.mode.mode in LEGAL_MODES[accelerator.family]:
        return
    raise _illegal_mode(name, accelerator, choice.mode_name, LEGAL_MODES[accelerator.family])


def _illegal_mode(
    name: str, accelerator: Accelerator, mode: str, known: Sequence[str]
) -> TargetError:
    return TargetError(
        f"memory mode {mode!r} does not fit {name}",
        f"it keeps the arena outside the SRAM, which an {accelerator.family} cannot write",
        f"fitting: {', '.join(known)}",
        memory_mode=mode,
        known=tuple(known),
    )


def _assemble(
    name: str,
    file: TargetFile,
    accelerator: Accelerator | None,
    choice: _Choice,
    clock_hz: float | None,
    derate: dict[str, float],
) -> Target:
    notes = list(choice.notes)
    clock = _clock(choice, clock_hz, notes)
    roles = Roles(
        const=_role(choice, choice.mode.const),
        arena=_role(choice, choice.mode.arena),
        cache=_role(choice, choice.mode.cache),
    )
    for memory, factor in derate.items():
        if memory not in choice.system.memories:
            raise unknown_name(f"memory of {name}", memory, tuple(choice.system.memories))
        check_factor(memory, factor)
        notes.append(f"{memory}: {factor:g} of its bandwidth is left (--derate)")
    memories = tuple(
        _memory(each, entry, choice, accelerator, derate.get(each, 1.0), roles)
        for each, entry in choice.system.memories.items()
    )
    notes += _surprises(accelerator, choice, memories, roles)
    cpu = host_of(name, file)
    return Target(
        name=name,
        accelerator=accelerator,
        clock_hz=clock,
        memories=memories,
        roles=roles,
        memory_mode=choice.mode.mode,
        system_config=choice.system_name,
        energy=energy_table(file, accelerator, memories, cpu.name),
        cpu=cpu,
        notes=tuple(notes),
        memory_mode_name=choice.mode_name,
        arena_cache_bytes=choice.mode.arena_cache_bytes,
    )


def _clock(choice: _Choice, clock_hz: float | None, notes: list[str]) -> float:
    own = choice.system.clock_hz
    if clock_hz is None or clock_hz == own:
        return own
    if not math.isfinite(clock_hz) or clock_hz <= 0:
        raise TargetError(
            f"clock {clock_hz:g} Hz is not possible",
            "a clock is above 0 Hz",
            "write for example --clock 500MHz",
        )
    notes.append(
        f"clock {clock_hz / 1e6:g} MHz instead of {own / 1e6:g} MHz: all memories scale with it"
        " (bytes per cycle stay, as in Vela); use --derate for one that does not"
    )
    return clock_hz


def _role(choice: _Choice, where: str) -> str:
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
            f"{len(on_port)} memories are on {where}",
            "name the memory itself in the memory mode",
        )
    raise unknown_name(f"memory in memory mode {choice.mode_name}", where, tuple(memories))


def _memory(
    name: str,
    entry: MemoryEntry,
    choice: _Choice,
    accelerator: Accelerator | None,
    factor: float,
    roles: Roles,
) -> Memory:
    width = entry.port_bytes or (8 if accelerator is None else accelerator.axi_bytes)
    scale = entry.clock_scale * factor
    capacity = None if entry.capacity is None else parse_size(entry.capacity)
    stated = choice.mode.arena_cache_bytes
    if name == roles.cache and stated is not None:
        capacity = stated if capacity is None else min(stated, capacity)
    return Memory(
        name=name,
        kind=entry.kind,
        vela_name=entry.vela_name or _VELA_NAMES[entry.kind],
        axi_port=entry.port,
        bandwidth_bytes_per_cycle=scale * width * entry.ports,
        vela_bandwidth_bytes_per_cycle=vela_bandwidth(choice.system_name, scale, entry.ports),
        read_latency_cycles=entry.read_latency_cycles,
        write_latency_cycles=entry.write_latency_cycles,
        burst_bytes=entry.burst_bytes,
        max_reads=max(1, entry.max_reads),
        max_writes=max(1, entry.max_writes),
        ports=entry.ports,
        capacity_bytes=capacity,
        clock_scale=scale,
    )


def _surprises(
    accelerator: Accelerator | None,
    choice: _Choice,
    memories: Sequence[Memory],
    roles: Roles,
) -> list[str]:
    """Return notes on what Vela takes silently and a reader would not expect."""
    notes: list[str] = []
    if accelerator is None:
        return notes
    wide = 8 if choice.system_name.startswith("Ethos_U55") else 16
    if wide != accelerator.axi_bytes:
        notes.append(
            f"Vela counts {wide} bytes per cycle and port because of the name"
            f" {choice.system_name!r}; {accelerator.name} has {accelerator.axi_bytes}"
        )
    if isinstance(accelerator, AcceleratorU85):
        for memory in memories:
            on_chip = memory.kind is MemoryKind.SRAM
            have = accelerator.sram_ports if on_chip else accelerator.external_ports
            if memory.ports > have:
                notes.append(
                    f"{choice.system_name} uses {memory.ports} ports for {memory.name},"
                    f" {accelerator.name} has {have}"
                )
    if choice.mode.mode is MemoryMode.SRAM_ONLY and roles.const != roles.arena:
        notes.append(f"constants lie in {roles.const}; Vela is told {choice.mode.mode}")
    return notes
