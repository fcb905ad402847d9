"""What ``npusched configs`` shows: a target with all that it knows, and where it is from."""

from __future__ import annotations

from npusched.hardware.choose import known_modes, known_system_configs
from npusched.hardware.load import load_target
from npusched.hardware.schema import MemoryModeEntry, SystemConfigEntry, TargetFile
from npusched.hardware.store import accelerator_of, host_of, read_target_file
from npusched.hardware.target import Target, Value


class TargetDescription(Value, frozen=True, kw_only=True):
    """A target, the system configs and memory modes it can be used with, and all sources.

    ``target`` is the target with its default system config and memory mode. ``sources`` pairs each
    group of figures with the document that they are from.
    """

    name: str
    title: str
    target: Target
    system_configs: dict[str, SystemConfigEntry]
    memory_modes: dict[str, MemoryModeEntry]
    sources: tuple[tuple[str, str], ...]


def describe_target(name: str) -> TargetDescription:
    """Return the description of a target (name or path of a TOML file). Raises TargetError."""
    file = read_target_file(name)
    target = load_target(name)
    accelerator = accelerator_of(name, file)
    configs = known_system_configs(file, accelerator)
    modes = known_modes(file, accelerator)
    return TargetDescription(
        name=target.name,
        title=file.title,
        target=target,
        system_configs=configs,
        memory_modes=modes,
        sources=_sources(target, file.source, configs, modes, _host_source(name, file)),
    )


def _host_source(name: str, file: TargetFile) -> str:
    tables = host_of(name, file).source
    return tables if file.host is None else f"{tables}; clock: {file.host.source}"


def _sources(
    target: Target,
    file_source: str,
    configs: dict[str, SystemConfigEntry],
    modes: dict[str, MemoryModeEntry],
    host: str,
) -> tuple[tuple[str, str], ...]:
    rows = [("target", file_source)]
    if target.accelerator is not None:
        rows.append(("accelerator", target.accelerator.source))
    for name, config in configs.items():
        rows.append((f"system config {name}", config.source))
        rows += [
            (f"system config {name}: {memory}", entry.source)
            for memory, entry in config.memories.items()
        ]
    rows += [(f"memory mode {name}", mode.source) for name, mode in modes.items()]
    rows.append((f"host {target.cpu.name}", host))
    energy = target.energy
    rows += [
        ("energy: mac", energy.mac.source),
        ("energy: shram byte", energy.shram_byte.source),
        ("energy: NPU cycle", energy.npu_cycle.source),
        ("energy: CPU cycle", energy.cpu_active_cycle.source),
        ("energy: waiting CPU cycle", energy.cpu_wait_cycle.source),
        ("energy: static", energy.static_mw.source),
    ]
    rows += [
        (f"energy: {name} byte read", each.source) for name, each in energy.memory_read.items()
    ]
    rows += [
        (f"energy: {name} byte written", each.source) for name, each in energy.memory_write.items()
    ]
    return tuple((what, source) for what, source in rows if source)
