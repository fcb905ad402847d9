"""Targets as text or JSON: the list of names, and one target with all its sources."""

from __future__ import annotations

import msgspec

from npusched.hardware import TargetDescription, describe_target, target_names
from npusched.hardware.target import Memory, Target
from npusched.report.layout import Column, Line, line, paint, table, wrap
from npusched.report.units import human_bytes, human_frequency, plain_text, plural


def render_config_list(*, as_json: bool = False, width: int = 100) -> str:
    """Every shipped target: name, MACs per cycle, clock, default system config and memory mode."""
    described = [describe_target(name) for name in target_names()]
    if as_json:
        return _json([_listed(each) for each in described])
    columns = [
        Column(title="target"),
        Column(title="MAC/cycle", right=True, rank=1),
        Column(title="clock", right=True, rank=2),
        Column(title="default system config, memory mode", least=12, rank=3),
    ]
    lines = table(columns, [_list_row(each) for each in described], width=width, indent=0)
    lines.append(line(("npusched configs NAME shows all of one, with sources", "dim")))
    return paint(lines, width=width, colour=False)


def _listed(described: TargetDescription) -> dict[str, object]:
    target = described.target
    return {
        "name": described.name,
        "title": described.title,
        "macs_per_cycle": None if target.accelerator is None else target.accelerator.macs_per_cycle,
        "clock_hz": target.clock_hz,
        "system_config": target.system_config,
        "memory_mode": target.memory_mode_name or target.memory_mode.value,
        "system_configs": sorted(described.system_configs),
        "memory_modes": sorted(described.memory_modes),
    }


def _list_row(described: TargetDescription) -> tuple[str, ...]:
    target = described.target
    accelerator = target.accelerator
    if accelerator is None:
        about = described.title
    else:
        about = f"{target.system_config}, {_mode(target)}"
        about += "" if accelerator.name == described.name else f" ({described.title})"
    return (
        plain_text(described.name, 40),
        "-" if accelerator is None else str(accelerator.macs_per_cycle),
        human_frequency(target.clock_hz),
        plain_text(about, 100),
    )


def render_config(name: str, *, as_json: bool = False, width: int = 100) -> str:
    """One target: memories, roles, choices, host, energies, and where each figure is from."""
    described = describe_target(name)
    if as_json:
        return _json(described)
    target = described.target
    lines = [
        *wrap(f"{plain_text(described.title, 200)} ({plain_text(described.name, 60)})", width),
        line(""),
        *_facts(described, width),
        line(""),
        *table(_MEMORY_COLUMNS, [_memory_row(m, target) for m in target.memories], width=width),
        line(""),
        *_energies(target, width),
        line(""),
        line("  sources"),
    ]
    for what, source in described.sources:
        lines += wrap(f"  {plain_text(what, 80)}: {plain_text(source, 600)}", width, indent=4)
    for note in target.notes:
        lines += wrap(f"  note: {plain_text(note, 600)}", width, indent=4)
    return paint(lines, width=width, colour=False)


def _facts(described: TargetDescription, width: int) -> list[Line]:
    target = described.target
    accelerator, cpu = target.accelerator, target.cpu
    rows = []
    if accelerator is not None:
        rows += [
            (
                "accelerator",
                f"{accelerator.name}: {accelerator.macs_per_cycle} MAC/cycle, "
                f"{plural(accelerator.cores, 'core')}, AXI {8 * accelerator.axi_bytes} bit",
            ),
            ("clock", human_frequency(target.clock_hz)),
            ("system config", f"{target.system_config} (default)"),
            ("", _others(described.system_configs, target.system_config)),
            ("memory mode", f"{_mode(target)} (default)"),
            ("", _others(described.memory_modes, _mode(target))),
        ]
    budget = target.sram_budget_bytes
    default = "unlimited" if budget is None else f"{human_bytes(budget)} ({budget} bytes)"
    rows += [
        ("SRAM budget", f"{default} if no --sram is given"),
        (
            "host",
            f"{cpu.name} @ {human_frequency(cpu.clock_hz)}, {cpu.dispatch_cycles:g} cycles per op"
            + ("" if accelerator is None else f", {cpu.npu_invoke_cycles:g} per NPU call"),
        ),
    ]
    lines: list[Line] = []
    for title, text in rows:
        if text:
            lines += wrap(f"  {title:<14} {plain_text(text, 600)}", width, indent=17)
    return lines


def _others(known: dict[str, object] | object, chosen: str) -> str:
    names = [name for name in known if name != chosen] if isinstance(known, dict) else []
    return f"also: {', '.join(names)}" if names else ""


def _mode(target: Target) -> str:
    return target.memory_mode_name or target.memory_mode.value


_MEMORY_COLUMNS = [
    Column(title="memory"),
    Column(title="holds"),
    Column(title="kind", rank=3),
    Column(title="B/cycle", right=True),
    Column(title="in Vela", right=True, rank=4),
    Column(title="read/write latency", right=True, rank=2),
    Column(title="burst", right=True, rank=5),
    Column(title="capacity", right=True, rank=1),
]


def _memory_row(memory: Memory, target: Target) -> tuple[str, ...]:
    roles = {
        "constants": target.roles.const,
        "arena": target.roles.arena,
        "cache": target.roles.cache,
    }
    if target.roles.cache == target.roles.arena:
        del roles["cache"]
    held = [role for role, name in roles.items() if name == memory.name]
    return (
        plain_text(memory.name, 24),
        ", ".join(held) or "-",
        memory.kind.value,
        f"{memory.bandwidth_bytes_per_cycle:.3g}",
        f"{memory.vela_bandwidth_bytes_per_cycle:.3g}",
        f"{memory.read_latency_cycles}/{memory.write_latency_cycles} cycles",
        f"{memory.burst_bytes} B",
        "not stated" if memory.capacity_bytes is None else human_bytes(memory.capacity_bytes),
    )


def _energies(target: Target, width: int) -> list[Line]:
    energy = target.energy
    entries = [
        ("MAC", energy.mac, "pJ"),
        *((f"{name}, byte read", value, "pJ") for name, value in energy.memory_read.items()),
        *((f"{name}, byte written", value, "pJ") for name, value in energy.memory_write.items()),
        ("byte in SHRAM", energy.shram_byte, "pJ"),
        ("NPU cycle", energy.npu_cycle, "pJ"),
        ("CPU cycle", energy.cpu_active_cycle, "pJ"),
        ("CPU cycle, waiting", energy.cpu_wait_cycle, "pJ"),
        ("static", energy.static_mw, "mW"),
    ]
    if target.accelerator is None:
        entries = [entry for entry in entries if entry[0] in ("CPU cycle", "static")]
    rows = [
        (plain_text(name, 40), f"{value.typical:g} {unit}", f"{value.low:.3g} … {value.high:.3g}")
        for name, value, unit in entries
    ]
    columns = [Column(title="energy"), Column(title="typical", right=True), Column(title="between")]
    return table(columns, rows, width=width)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
