"""Says a target in Vela's words: accelerator, options, and a vela.ini of its own.

The ini is flat (no ``inherit``), names every figure, and keeps the section names, because Vela
derives the AXI width from the system config's *name* (VELA_SPEC §1.3).
"""

from __future__ import annotations

from typing import NamedTuple

from npusched.errors import TargetError
from npusched.hardware.load import load_target
from npusched.hardware.target import Family, Memory, MemoryMode, Target


class VelaAccelerator(NamedTuple):
    """The C++ core's names: architecture, MACs per core, cores (VELA_SPEC §6)."""

    architecture: str
    macs: int
    cores: int


_ARCHITECTURES = {Family.U55: "EthosU55", Family.U65: "EthosU65", Family.U85: "EthosU85"}


def vela_accelerator(target: Target) -> VelaAccelerator:
    """Return architecture, MACs and cores, e.g. ("EthosU65", 256, 2) for ethos-u65-512.

    A U85 is one core to Vela, whatever its number of weight decoders. Raises TargetError for a
    host-only target.
    """
    accelerator = target.accelerator
    if accelerator is None:
        raise no_npu(target.name)
    cores = 1 if accelerator.family is Family.U85 else accelerator.cores
    return VelaAccelerator(
        _ARCHITECTURES[accelerator.family], accelerator.macs_per_cycle // cores, cores
    )


def vela_arguments(target: Target, ini_path: str | None = None) -> tuple[str, ...]:
    """Return the hardware options of the ``vela`` command.

    ``ini_path``: where ``vela_ini(target)`` was written, None to use the file that Vela brings
    (right unless ``needs_vela_ini``). Vela looks a path without leading "/", "." or "~" up in its
    own folder. Raises TargetError for a host-only target.
    """
    if target.accelerator is None:
        raise no_npu(target.name)
    options: tuple[str, ...] = ("--accelerator-config", target.accelerator.name)
    options += ("--config", "Arm/vela.ini" if ini_path is None else ini_path)
    return (
        *options,
        "--system-config",
        target.system_config,
        "--memory-mode",
        target.memory_mode_name,
    )


def vela_ini(target: Target) -> str:
    """Return the text of a vela.ini that makes Vela see this target: clock and derating included.

    Where constants lie elsewhere than the memory mode says (a board's Sram_Only), Vela is told the
    mode. ``arena_cache_size`` is written if the mode states one. Raises TargetError for a
    host-only target.
    """
    if target.accelerator is None:
        raise no_npu(target.name)
    ports = _ports(target)
    lines = [f"; {target.name}", f"[System_Config.{target.system_config}]"]
    lines.append(f"core_clock={_text(target.clock_hz)}")
    lines += [f"axi{port}_port={memory.vela_name}" for port, memory in enumerate(ports)]
    for memory in dict.fromkeys(ports):
        lines += _memory_lines(memory)
    areas = {memory.name: f"Axi{port}" for port, memory in reversed(list(enumerate(ports)))}
    const = _const_for_vela(target).name
    lines += [
        f"[Memory_Mode.{target.memory_mode_name}]",
        f"const_mem_area={areas[const]}",
        f"arena_mem_area={areas[target.roles.arena]}",
        f"cache_mem_area={areas[target.roles.cache]}",
    ]
    if target.arena_cache_bytes is not None:
        lines.append(f"arena_cache_size={target.arena_cache_bytes}")
    return "\n".join(lines) + "\n"


def needs_vela_ini(target: Target) -> bool:
    """Return True if ``--config`` must name our ini: Vela's own Arm/vela.ini is another target.

    That is so for boards, own names, another clock, derating. Raises TargetError for a host-only
    target.
    """
    if target.accelerator is None:
        raise no_npu(target.name)
    try:
        arm = load_target(
            target.accelerator.name,
            system_config=target.system_config,
            memory_mode=target.memory_mode_name,
        )
    except TargetError:
        return True
    body, arm_body = (vela_ini(each).partition("\n")[2] for each in (target, arm))
    return body != arm_body


def no_npu(name: str) -> TargetError:
    """Return the error for asking Vela about a target that has no NPU."""
    return TargetError(
        f"target {name!r} has no NPU",
        "Vela compiles for Ethos-U only",
        "choose one of the ethos-u targets",
        target=name,
    )


def _const_for_vela(target: Target) -> Memory:
    return target.arena if target.memory_mode is MemoryMode.SRAM_ONLY else target.const


def _ports(target: Target) -> tuple[Memory, Memory]:
    """Return the memories on Vela's two ports: those that have a role; any other fills the gap."""
    used = list(dict.fromkeys((target.cache, target.arena, _const_for_vela(target))))
    spare = [
        memory
        for memory in target.memories
        if memory not in used and memory.vela_name not in {each.vela_name for each in used}
    ]
    first, second = (*used, *spare, *used)[:2]
    return (second, first) if first.axi_port > second.axi_port else (first, second)


def _memory_lines(memory: Memory) -> list[str]:
    figures = {
        "clock_scale": memory.clock_scale,
        "ports_used": memory.ports,
        "burst_length": memory.burst_bytes,
        "read_latency": memory.read_latency_cycles,
        "write_latency": memory.write_latency_cycles,
        "max_reads": memory.max_reads,
        "max_writes": memory.max_writes,
    }
    return [f"{memory.vela_name}_{key}={_text(value)}" for key, value in figures.items()]


def _text(value: float) -> str:
    """Return a number without exponent or needless decimals where that is exact."""
    return str(int(value)) if float(value).is_integer() else repr(value)
