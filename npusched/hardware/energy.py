"""Builds the energy table of a target from its class and its own figures (GROUND_TRUTH §4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from npusched.hardware.names import unknown_name
from npusched.hardware.schema import EnergyClass, TargetFile
from npusched.hardware.store import energy_classes
from npusched.hardware.target import Accelerator, EnergyTable, Memory, Uncertain

_NONE = Uncertain(typical=0.0, factor=1.0, source="no NPU")


def energy_table(
    file: TargetFile, accelerator: Accelerator | None, memories: Sequence[Memory], cpu: str
) -> EnergyTable:
    """Return picojoules per MAC, byte and cycle (``static_mw`` in mW) for a target.

    An NPU cycle costs a base plus a share per MAC unit, so it depends on the accelerator's size. A
    host-only target has no NPU energies. Raises TargetError if an override names an unknown memory.
    """
    kind = energy_classes()[file.energy]
    own = file.energy_override
    names = tuple(memory.name for memory in memories)
    for name in (*own.memory_read, *own.memory_write):
        if name not in names and name not in _all_memories(file):
            raise unknown_name("memory in [energy_override]", name, names)
    by_class = kind.cpu_active_cycle
    return EnergyTable(
        mac=_NONE if accelerator is None else own.mac or kind.mac,
        shram_byte=_NONE if accelerator is None else own.shram_byte or kind.shram_byte,
        memory_read={
            m.name: own.memory_read.get(m.name, kind.memory_read[m.kind]) for m in memories
        },
        memory_write={
            m.name: own.memory_write.get(m.name, kind.memory_write[m.kind]) for m in memories
        },
        npu_cycle=own.npu_cycle or _npu_cycle(kind, accelerator),
        cpu_active_cycle=own.cpu_active_cycle or by_class.get(cpu, by_class["other"]),
        cpu_wait_cycle=own.cpu_wait_cycle or kind.cpu_wait_cycle,
        static_mw=own.static_mw or kind.static_mw,
    )


def _npu_cycle(kind: EnergyClass, accelerator: Accelerator | None) -> Uncertain:
    if accelerator is None:
        return _NONE
    base = kind.npu_cycle_base
    return Uncertain(
        typical=base.typical + kind.npu_cycle_per_mac * accelerator.macs_per_cycle,
        factor=base.factor,
        source=base.source,
    )


def _all_memories(file: TargetFile) -> set[str]:
    return {name for entry in file.system_configs.values() for name in entry.memories}
