"""Builds the energy table of a target from its class and its own figures (GROUND_TRUTH §4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from npusched.hardware.names import unknown_name
from npusched.hardware.schema import EnergyClass, TargetFile
from npusched.hardware.store import energy_classes
from npusched.hardware.target import Accelerator, EnergyTable, Memory, Uncertain

_NO_NPU = Uncertain(typical=0.0, factor=1.0, source="no NPU")
_IN_CPU = Uncertain(typical=0.0, factor=1.0, source="in the CPU's cycles, measured on whole chips")


def energy_table(
    file: TargetFile, accelerator: Accelerator | None, memories: Sequence[Memory], cpu: str
) -> EnergyTable:
    """Return picojoules per MAC, byte and cycle (``static_mw`` in mW) for a target.

    An NPU cycle costs a base plus a share per MAC unit, so it depends on the accelerator's size. A
    host-only target has no NPU energies, and its CPU cycles contain all others (they were measured
    on whole chips: GROUND_TRUTH §4.3). Raises TargetError if an override names an unknown memory.
    """
    kind = energy_classes()[file.energy]
    own = file.energy_override
    names = tuple(memory.name for memory in memories)
    for name in (*own.memory_read, *own.memory_write):
        if name not in names and name not in _all_memories(file):
            raise unknown_name("memory", name, names, "[energy_override]")
    cpu_cycle = own.cpu_active_cycle or kind.cpu_active_cycle.get(cpu)
    table = EnergyTable(
        mac=own.mac or kind.mac,
        shram_byte=own.shram_byte or kind.shram_byte,
        memory_read={
            each.name: own.memory_read.get(each.name, kind.memory_read[each.kind])
            for each in memories
        },
        memory_write={
            each.name: own.memory_write.get(each.name, kind.memory_write[each.kind])
            for each in memories
        },
        npu_cycle=own.npu_cycle or _npu_cycle(kind, accelerator),
        cpu_active_cycle=cpu_cycle or kind.cpu_active_cycle["other"],
        cpu_wait_cycle=own.cpu_wait_cycle or kind.cpu_wait_cycle,
        static_mw=own.static_mw or kind.static_mw,
    )
    return table if accelerator is not None else _host_only(table)


def _host_only(table: EnergyTable) -> EnergyTable:
    """Return the table without NPU, and without what whole-chip CPU figures already contain."""
    return replace(
        table,
        mac=_NO_NPU,
        shram_byte=_NO_NPU,
        npu_cycle=_NO_NPU,
        memory_read=dict.fromkeys(table.memory_read, _IN_CPU),
        memory_write=dict.fromkeys(table.memory_write, _IN_CPU),
        static_mw=_IN_CPU,
    )


def _npu_cycle(kind: EnergyClass, accelerator: Accelerator | None) -> Uncertain:
    if accelerator is None:
        return _NO_NPU
    base = kind.npu_cycle_base
    return Uncertain(
        typical=base.typical + kind.npu_cycle_per_mac * accelerator.macs_per_cycle,
        factor=base.factor,
        source=base.source,
    )


def _all_memories(file: TargetFile) -> set[str]:
    return {name for entry in file.system_configs.values() for name in entry.memories}
