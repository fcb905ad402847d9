"""Which system config and memory mode a target is used with: names, fit, and a user's vela.ini."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from npusched.errors import TargetError
from npusched.hardware.names import family_of_name, match_name, resolve_name
from npusched.hardware.schema import MemoryModeEntry, SystemConfigEntry, TargetFile
from npusched.hardware.store import arm_tables
from npusched.hardware.target import Accelerator, Family, MemoryMode

LEGAL_MODES: dict[Family, tuple[MemoryMode, ...]] = {
    Family.U55: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM),
    Family.U65: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM, MemoryMode.DEDICATED_SRAM),
    Family.U85: (MemoryMode.SRAM_ONLY, MemoryMode.SHARED_SRAM, MemoryMode.DEDICATED_SRAM),
}
"""Modes per family (DESIGN "Planning"). The second port of an Ethos-U55 only reads."""


@dataclass(frozen=True)
class Choice:
    """The system config and memory mode that were chosen, with their names, and notes."""

    system_name: str
    system: SystemConfigEntry
    mode_name: str
    mode: MemoryModeEntry
    notes: tuple[str, ...] = ()


def known_system_configs(
    file: TargetFile, accelerator: Accelerator | None
) -> dict[str, SystemConfigEntry]:
    """Return the system configs that a target knows: its own, else Arm's that fit its family."""
    if file.system_configs or accelerator is None:
        return file.system_configs
    arm = arm_tables().system_configs
    return {name: entry for name, entry in arm.items() if entry.family is accelerator.family}


def known_modes(file: TargetFile, accelerator: Accelerator | None) -> dict[str, MemoryModeEntry]:
    """Return the memory modes that a target knows: its own, else Arm's that its family can do."""
    if file.memory_modes or accelerator is None:
        return file.memory_modes
    return _arm_modes(accelerator)


def choose(
    name: str,
    file: TargetFile,
    accelerator: Accelerator | None,
    system_config: str | None,
    memory_mode: str | None,
) -> Choice:
    """Return the system config and memory mode of those names, or the defaults of the target file.

    Raises TargetError if a name is unknown or is that of another family.
    """
    configs = known_system_configs(file, accelerator)
    wanted = file.system_config if system_config is None else system_config
    _refuse_other_family(name, accelerator, wanted, tuple(configs))
    system_name = resolve_name("system config", wanted, tuple(configs), name)
    modes = known_modes(file, accelerator)
    mode = file.memory_mode if memory_mode is None else memory_mode
    mode_name = _mode_name(name, accelerator, mode, tuple(modes))
    choice = Choice(system_name, configs[system_name], mode_name, modes[mode_name])
    _refuse_illegal_mode(name, accelerator, choice, modes)
    return choice


def choose_from_ini(
    name: str,
    file: TargetFile,
    accelerator: Accelerator,
    system_config: str | None,
    memory_mode: str | None,
    path: Path,
) -> Choice:
    """Return the system config and memory mode of a user's vela.ini.

    A name may be left out if the file has one section of the kind; for the memory mode, also if it
    has the target's default. A file without memory modes is used with Arm's, which is noted. Raises
    TargetError if the file or a section is not usable, or does not fit the accelerator.
    """
    from npusched.hardware import vela_read

    ini = vela_read.read_vela_ini(path)
    if system_config is None:
        system_config = _only(path, "system config", ini.system_configs, "--system-config")
    _refuse_other_family(name, accelerator, system_config, ini.system_configs)
    system_name = resolve_name("system config", system_config, ini.system_configs, path.name)
    system, ports, notes = vela_read.system_config(
        ini, system_name, outstanding_matters=accelerator.family is Family.U85
    )
    if not ini.memory_modes:
        modes = _arm_modes(accelerator)
        wanted = file.memory_mode if memory_mode is None else memory_mode
        mode_name = _mode_name(name, accelerator, wanted, tuple(modes))
        mode = modes[mode_name]
        notes.append(f"{path.name} has no memory modes: Arm's {mode_name} is taken")
    else:
        if memory_mode is None:
            known = ini.memory_modes
            default = (file.memory_mode,) if file.memory_mode in known else known
            memory_mode = _only(path, "memory mode", default, "--memory-mode")
        mode_name = resolve_name("memory mode", memory_mode, ini.memory_modes, path.name)
        mode = vela_read.memory_mode(ini, mode_name, ports, system)
    choice = Choice(system_name, system, mode_name, mode, (*ini.notes, *notes))
    _refuse_illegal_mode(name, accelerator, choice, ini.memory_modes)
    return choice


def _arm_modes(accelerator: Accelerator) -> dict[str, MemoryModeEntry]:
    legal = LEGAL_MODES[accelerator.family]
    arm = arm_tables().memory_modes
    return {name: entry for name, entry in arm.items() if entry.mode in legal}


def _only(path: Path, kind: str, names: Sequence[str], option: str) -> str:
    if len(names) == 1:
        return names[0]
    raise TargetError(
        f"{path.name} has {len(names) or 'no'} {kind}s",
        f"known: {', '.join(names) or 'none'}",
        f"choose one with {option}" if names else f"add a section for one to {path.name}",
        known=tuple(names),
    )


def _refuse_other_family(
    name: str, accelerator: Accelerator | None, system_config: str, known: Sequence[str]
) -> None:
    """Refuse a system config whose name is that of another family; Vela would take it."""
    if accelerator is None:
        return
    claimed = family_of_name(system_config)
    if claimed is None and not match_name(system_config, known):
        claimed = _arm_family(system_config, accelerator.family)
    if claimed is None or claimed is accelerator.family:
        return
    fitting = [each for each in known if family_of_name(each) in (None, accelerator.family)]
    raise TargetError(
        f"system config {system_config!r} does not fit {name}",
        f"it describes an {claimed} system, and {accelerator.name} is an {accelerator.family}",
        f"try {', '.join(fitting)}" if fitting else "leave --system-config out",
        system_config=system_config,
        known=tuple(fitting),
    )


def _arm_family(system_config: str, own: Family) -> Family | None:
    """Return the one family that has such a name among Arm's; None if ``own`` has it too."""
    arm = arm_tables().system_configs
    names = {
        family: tuple(name for name, entry in arm.items() if entry.family is family)
        for family in Family
    }
    found = [family for family in Family if match_name(system_config, names[family])]
    return found[0] if len(found) == 1 and own not in found else None


def _mode_name(name: str, accelerator: Accelerator | None, mode: str, known: Sequence[str]) -> str:
    """Resolve a memory mode's name, and tell a mode that does not fit from one that is unknown."""
    if accelerator is not None and not match_name(mode, known):
        arm = arm_tables().memory_modes
        found = match_name(mode, tuple(arm))
        if found and arm[found[0]].mode not in LEGAL_MODES[accelerator.family]:
            raise _illegal_mode(name, accelerator, found[0], known)
    return resolve_name("memory mode", mode, known, name)


def _refuse_illegal_mode(
    name: str, accelerator: Accelerator | None, choice: Choice, known: Iterable[str]
) -> None:
    if accelerator is None or choice.mode.mode in LEGAL_MODES[accelerator.family]:
        return
    others = tuple(each for each in known if each != choice.mode_name)
    raise _illegal_mode(name, accelerator, choice.mode_name, others)


def _illegal_mode(
    name: str, accelerator: Accelerator, mode: str, known: Sequence[str]
) -> TargetError:
    return TargetError(
        f"memory mode {mode!r} does not fit {name}",
        f"it puts the arena where an {accelerator.family} can only read",
        f"try {', '.join(known)}" if known else "use Sram_Only or Shared_Sram",
        memory_mode=mode,
        known=tuple(known),
    )
