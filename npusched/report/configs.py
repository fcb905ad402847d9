"""Targets as text or JSON: the list of names, and one target with all its sources."""

from __future__ import annotations

from io import StringIO

import msgspec

from npusched.hardware import TargetDescription, describe_target, target_names
from npusched.report.units import human_bytes, human_frequency


def render_config_list(*, as_json: bool = False) -> str:
    """Every shipped target: name, title and default memory mode."""
    rows = [(name, describe_target(name)) for name in target_names()]
    if as_json:
        listed = [
            {"name": name, "title": d.title, "memory_modes": sorted(d.memory_modes)}
            for name, d in rows
        ]
        return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode()
    width = max(len(name) for name, _ in rows)
    return "\n".join(
        f"{name:<{width}}  {d.title} @ {human_frequency(d.target.clock_hz)}"
        + (f", {d.target.system_config}, {d.target.memory_mode.value}" if d.memory_modes else "")
        for name, d in rows
    )


def render_config(name: str, *, as_json: bool = False) -> str:
    """One target: memories, roles, choices, host, energies, and where each figure is from."""
    described = describe_target(name)
    if as_json:
        return msgspec.json.format(msgspec.json.encode(described), indent=2).decode()
    out = StringIO()
    target = described.target
    out.write(f"{described.title} ({described.name}) @ {human_frequency(target.clock_hz)}\n\n")
    accelerator = target.accelerator
    if accelerator is not None:
        out.write(f"accelerator  {accelerator.name}: {accelerator.macs_per_cycle} MAC/cycle")
        out.write(f" x {accelerator.cores} core(s)\n")
    for memory in target.memories:
        capacity = "" if memory.capacity_bytes is None else f", {human_bytes(memory.capacity_bytes)}"
        out.write(
            f"memory       {memory.name}: {memory.kind.value}, "
            f"{memory.bandwidth_bytes_per_cycle:g} B/cycle "
            f"({memory.vela_bandwidth_bytes_per_cycle:g} in Vela), latency "
            f"{memory.read_latency_cycles}/{memory.write_latency_cycles}, "
            f"burst {memory.burst_bytes} B{capacity}\n"
        )
    roles = target.roles
    out.write(f"roles        const {roles.const}, arena {roles.arena}, cache {roles.cache}\n")
    out.write(f"host         {target.cpu.name} @ {human_frequency(target.cpu.clock_hz)}\n")
    out.write(_choices(described))
    out.write("\nsources\n")
    for what, source in described.sources:
        out.write(f"  {what}: {source}\n")
    return out.getvalue()


def _choices(described: TargetDescription) -> str:
    lines = []
    if described.system_configs:
        lines.append(f"--system-config  {', '.join(described.system_configs)}")
    if described.memory_modes:
        lines.append(f"--memory-mode    {', '.join(described.memory_modes)}")
    return "".join(f"{line}\n" for line in lines)


