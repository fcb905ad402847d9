"""Reads a vela.ini of any vendor (Vela 5.2.0, OPTIONS.md "Configuration File").

Sections are ``[System_Config.NAME]`` and ``[Memory_Mode.NAME]``; ``inherit=`` names another section
whose keys are taken first, wherever it stands in the file. Vela ignores keys that it does not
know and fills in what is missing; here the first becomes a note, and so does the second.
Missing figures take the values of the C++ core, which is what costs (Vela 5.2.0, regor.cpp).
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass, field
from pathlib import Path

from npusched.errors import TargetError
from npusched.hardware.names import MEMORY_NAMES, suggestion
from npusched.hardware.schema import (
    MAX_CLOCK_HZ,
    MAX_CLOCK_SCALE,
    MAX_COUNT,
    MemoryEntry,
    MemoryModeEntry,
    SystemConfigEntry,
)
from npusched.hardware.target import MemoryKind, MemoryMode

_SYSTEM = "System_Config."
_MODE = "Memory_Mode."
_DEFAULTS: dict[str, float] = {
    "clock_scale": 1.0,
    "ports_used": 1,
    "burst_length": 64,
    "read_latency": 1,
    "write_latency": 1,
    "max_reads": 1,
    "max_writes": 1,
}
_ALWAYS_MATTER = ("clock_scale", "burst_length", "read_latency", "write_latency")
_MODE_KEYS = ("const_mem_area", "arena_mem_area", "cache_mem_area", "arena_cache_size")
_KNOWN_KEYS = {
    "inherit",
    "core_clock",
    "axi0_port",
    "axi1_port",
    *_MODE_KEYS,
    *(f"{area.lower()}_{key}" for area in MEMORY_NAMES for key in _DEFAULTS),
}


@dataclass(frozen=True)
class VelaIni:
    """A vela.ini: its sections by full name, keys in lower case, inheritance not yet applied."""

    path: Path
    sections: dict[str, dict[str, str]]
    notes: tuple[str, ...] = field(default=())

    @property
    def system_configs(self) -> tuple[str, ...]:
        """Names of the system configs, in the order of the file."""
        return _names(self.sections, _SYSTEM)

    @property
    def memory_modes(self) -> tuple[str, ...]:
        """Names of the memory modes, in the order of the file."""
        return _names(self.sections, _MODE)


def read_vela_ini(path: Path) -> VelaIni:
    """Return the sections of a vela.ini. Raises TargetError if it cannot be read or parsed."""
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        why = error.strerror or str(error)
        raise _bad(path, "cannot read the Vela configuration", why) from error
    except UnicodeDecodeError as error:
        raise _bad(path, "the Vela configuration is not text", "it is not UTF-8") from error
    except IniError as error:
        why = " ".join(str(error).split())
        raise _bad(path, "the Vela configuration cannot be parsed", why) from error
    sections = {name: dict(parser[name]) for name in parser.sections()}
    ini = VelaIni(path, sections, tuple(_unknown_key_notes(sections)))
    if not ini.system_configs and not ini.memory_modes:
        raise _bad(
            path,
            "the Vela configuration has no sections that Vela knows",
            f"found: {', '.join(sections) or 'none'}",
            "sections are called [System_Config.NAME] and [Memory_Mode.NAME]",
        )
    return ini


def system_config(
    ini: VelaIni, name: str, *, outstanding_matters: bool
) -> tuple[SystemConfigEntry, tuple[str, str], list[str]]:
    """Return a system config, the memories (our names) on AXI port 0 and 1, and notes.

    ``outstanding_matters``: note missing outstanding transactions too (U85). Raises TargetError if
    a port or the clock is missing, or a value makes no sense.
    """
    section = _SYSTEM + name
    keys = _inherited(ini, section)
    areas = tuple(_area(ini, section, keys, f"axi{port}_port") for port in (0, 1))
    clock = _number(ini, section, "core_clock", keys.get("core_clock"), least=1e-9)
    if clock is None:
        raise _bad_key(ini, section, "core_clock", "is missing; Vela would take 1 Hz")
    notes: list[str] = []
    memories: dict[str, MemoryEntry] = {}
    for port, area in enumerate(areas):
        our_name, kind = MEMORY_NAMES[area]
        if our_name not in memories:
            memories[our_name], missing = _memory(ini, section, keys, area, port)
            notes += _missing_notes(ini, section, area, missing, outstanding_matters)
        elif memories[our_name].kind is not kind:
            raise _bad_key(ini, section, "axi1_port", "is a second flash; Vela has no use for it")
    entry = SystemConfigEntry(
        clock_hz=clock, memories=memories, source=f"{ini.path.name} [{section}]"
    )
    return entry, (MEMORY_NAMES[areas[0]][0], MEMORY_NAMES[areas[1]][0]), notes


def memory_mode(
    ini: VelaIni, name: str, ports: tuple[str, str], system: SystemConfigEntry
) -> MemoryModeEntry:
    """Return a memory mode over the memories on port 0 and 1.

    Raises TargetError for what Vela refuses as well: constants must lie in DRAM or flash unless all
    three areas are one, the arena in SRAM or DRAM, the cache in SRAM (architecture_features.py).
    """
    section = _MODE + name
    keys = _inherited(ini, section)
    const, arena, cache = (_port(ini, section, keys, key) for key in _MODE_KEYS[:3])
    kinds = [system.memories[ports[port]].kind for port in (const, arena, cache)]
    if kinds[0] is MemoryKind.SRAM and not const == arena == cache:
        raise _bad_key(ini, section, "const_mem_area", "is SRAM, the other areas are elsewhere")
    if kinds[1] not in (MemoryKind.SRAM, MemoryKind.DRAM):
        raise _bad_key(ini, section, "arena_mem_area", f"is {kinds[1]}, not SRAM or DRAM")
    if kinds[2] is not MemoryKind.SRAM:
        raise _bad_key(ini, section, "cache_mem_area", f"is {kinds[2]}, not SRAM")
    size = _number(ini, section, "arena_cache_size", keys.get("arena_cache_size"), least=1)
    if size is not None and not float(size).is_integer():
        raise _bad_key(ini, section, "arena_cache_size", f"is {size:g}, no number of bytes")
    return MemoryModeEntry(
        mode=_kind_of_mode(const, arena, cache),
        const=ports[const],
        arena=ports[arena],
        cache=ports[cache],
        arena_cache_bytes=None if size is None else int(size),
        source=f"{ini.path.name} [{section}]",
    )


def _kind_of_mode(const: int, arena: int, cache: int) -> MemoryMode:
    if arena != cache:
        return MemoryMode.DEDICATED_SRAM
    return MemoryMode.SRAM_ONLY if const == arena else MemoryMode.SHARED_SRAM


def _names(sections: dict[str, dict[str, str]], prefix: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(prefix) for name in sections if name.startswith(prefix))


def _inherited(ini: VelaIni, section: str) -> dict[str, str]:
    """Return the keys of a section over those of its ancestors. Raises TargetError on a cycle."""
    chain = [section]
    while parent := ini.sections[chain[-1]].get("inherit"):
        if parent in chain:
            raise _bad_key(
                ini, section, "inherit", f"runs in a circle: {' > '.join(chain)} > {parent}"
            )
        if parent not in ini.sections:
            like = suggestion(parent, ini.sections)
            hint = f"; did you mean {like!r}?" if like else ""
            raise _bad_key(ini, chain[-1], "inherit", f"names the unknown section {parent!r}{hint}")
        chain.append(parent)
    merged: dict[str, str] = {}
    for name in reversed(chain):
        merged.update(ini.sections[name])
    return merged


def _memory(
    ini: VelaIni, section: str, keys: dict[str, str], area: str, port: int
) -> tuple[MemoryEntry, list[str]]:
    """Return a memory, and which of its keys are missing."""
    values: dict[str, float] = {}
    missing: list[str] = []
    for key, default in _DEFAULTS.items():
        full = f"{area}_{key}"
        found = _number(ini, section, full, keys.get(full.lower()), least=0)
        if found is None:
            missing.append(key)
        elif key != "clock_scale" and not found.is_integer():
            raise _bad_key(ini, section, full, f"is {found:g}, not a whole number")
        values[key] = default if found is None else found
    if values["clock_scale"] == 0:
        raise _bad_key(ini, section, f"{area}_clock_scale", "is 0: the memory has no bandwidth")
    entry = MemoryEntry(
        kind=MEMORY_NAMES[area][1],
        port=port,
        clock_scale=values["clock_scale"],
        ports=max(1, int(values["ports_used"])),
        burst_bytes=max(1, int(values["burst_length"])),
        read_latency_cycles=int(values["read_latency"]),
        write_latency_cycles=int(values["write_latency"]),
        max_reads=int(values["max_reads"]),
        max_writes=int(values["max_writes"]),
        vela_name=area,
    )
    return entry, missing


def _missing_notes(
    ini: VelaIni, section: str, area: str, missing: list[str], outstanding_matters: bool
) -> list[str]:
    counts = ("max_reads", "max_writes") if outstanding_matters else ()
    keys = [key for key in missing if key in (*_ALWAYS_MATTER, *counts)]
    filled = ", ".join(f"{area}_{key}={_DEFAULTS[key]:g}" for key in keys)
    return [f"{ini.path.name} [{section}] lacks {filled}: these are Vela's"] if keys else []


def _area(ini: VelaIni, section: str, keys: dict[str, str], key: str) -> str:
    text = keys.get(key)
    if text is None:
        raise _bad_key(ini, section, key, f"is missing; it is one of {', '.join(MEMORY_NAMES)}")
    for area in MEMORY_NAMES:
        if text.lower() == area.lower():
            return area
    raise _bad_key(ini, section, key, f"is {text!r}, not one of {', '.join(MEMORY_NAMES)}")


def _port(ini: VelaIni, section: str, keys: dict[str, str], key: str) -> int:
    text = keys.get(key)
    if text is None:
        raise _bad_key(ini, section, key, "is missing; it is Axi0 or Axi1")
    found = re.fullmatch(r"axi([01])", text.lower())
    if found is None:
        raise _bad_key(ini, section, key, f"is {text!r}, not Axi0 or Axi1")
    return int(found[1])


def _number(
    ini: VelaIni, section: str, key: str, text: str | None, *, least: float
) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise _bad_key(ini, section, key, f"is {text!r}, not a number") from None
    most = {"core_clock": MAX_CLOCK_HZ}.get(key, MAX_COUNT)
    most = MAX_CLOCK_SCALE if key.endswith("_clock_scale") else most
    if not least <= value <= most:
        raise _bad_key(ini, section, key, f"is {text}, out of range")
    return value


def _unknown_key_notes(sections: dict[str, dict[str, str]]) -> list[str]:
    notes = []
    for section, keys in sections.items():
        if not section.startswith((_SYSTEM, _MODE)):
            continue
        for key in sorted(set(keys) - _KNOWN_KEYS):
            like = suggestion(key, _KNOWN_KEYS)
            hint = f"; did you mean {like}?" if like else ""
            notes.append(f"[{section}] {key} is unknown and ignored{hint}")
    return notes


def _bad(path: Path, what: str, why: str, hint: str = "") -> TargetError:
    return TargetError(
        f"{path.name}: {what}",
        why,
        hint or "see the configuration file section of Vela's OPTIONS.md",
        path=str(path),
    )


def _bad_key(ini: VelaIni, section: str, key: str, why: str) -> TargetError:
    return TargetError(
        f"{ini.path.name}: [{section}] is not usable",
        f"{key} {why}",
        "see the configuration file section of Vela's OPTIONS.md",
        path=str(ini.path),
        section=section,
        key=key,
    )
