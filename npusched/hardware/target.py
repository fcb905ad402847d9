"""What a plan is made for: an accelerator, its memories, who uses which, a host CPU, energies.

All classes are decoded strictly from ``hw_configs/*.toml`` (unknown keys are errors). Units end
the names; "cycle" without a qualifier is a cycle of the NPU clock (of the CPU clock in
``HostCpu``). Sources of the numbers stand in the TOML files, next to the numbers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of values that are read from or published to files."""


class Family(StrEnum):
    """Ethos-U generations that differ in architecture."""

    U55 = "ethos-u55"
    U65 = "ethos-u65"
    U85 = "ethos-u85"


class MemoryMode(StrEnum):
    """Where constants, the arena and the staging cache live (Vela's names)."""

    SRAM_ONLY = "Sram_Only"
    SHARED_SRAM = "Shared_Sram"
    DEDICATED_SRAM = "Dedicated_Sram"


class MemoryKind(StrEnum):
    """Technology class of a memory: decides energy, and the name Vela gives it."""

    SRAM = "sram"
    DRAM = "dram"
    ON_CHIP_FLASH = "on_chip_flash"
    OFF_CHIP_FLASH = "off_chip_flash"


class Block(Value, frozen=True, array_like=True):
    """A block of a feature map: height, width, channels (elements)."""

    h: int
    w: int
    c: int


class BankGranules(Value, frozen=True, kw_only=True):
    """SHRAM allocation granules in 1-KiB banks per use (U55/U65)."""

    ifm8: int
    ifm16: int
    ifm8_elementwise: int
    ifm16_elementwise: int
    ifm32: int
    acc16: int
    acc32: int
    acc40: int


class AcceleratorU55(Value, frozen=True, kw_only=True, tag_field="architecture", tag="u55"):
    """An Ethos-U55 or U65 (one architecture). Cycle tables are per output element."""

    name: str
    family: Family
    macs_per_cycle: int
    cores: int
    ofm_ublock: Block
    ifm_ublock: Block
    shram_banks: int
    shram_reserved_output_banks: int
    shram_reserved_end_banks: int
    bank_granules: BankGranules
    output_cycles_per_element: tuple[float, ...]
    activation_cycles_per_element: tuple[float, ...]
    max_ofm_block: Block
    max_block_dependency: int
    max_outstanding_dma: int
    max_outstanding_kernels: int
    address_bits: int


class ReadBuffers(Value, frozen=True, kw_only=True):
    """Outstanding-read buffer of each U85 channel, in words of 16 bytes."""

    mem2mem: int
    ifm_stream: int
    weights: int
    fast_weights: int
    ifm: int
    scales: int


class AcceleratorU85(Value, frozen=True, kw_only=True, tag_field="architecture", tag="u85"):
    """An Ethos-U85. Buffer sizes are bytes; cycle tables are per output element."""

    name: str
    family: Family
    macs_per_cycle: int
    cores: int
    ofm_ublocks: tuple[Block, ...]
    ifm_ublock: Block
    input_buffer_bytes: int
    accumulator_buffer_bytes: int
    output_buffer_bytes: int
    chain_buffer_bytes: int
    output_cycles_per_element: tuple[float, ...]
    activation_cycles_per_element: tuple[float, ...]
    resize_low_cycles_per_element: tuple[float, ...]
    resize_high_cycles_per_element: tuple[float, ...]
    read_buffers: ReadBuffers
    max_ofm_block: Block
    max_block_dependency: int
    max_outstanding_dma: int
    max_outstanding_kernels: int
    address_bits: int


Accelerator: TypeAlias = AcceleratorU55 | AcceleratorU85


class Memory(Value, frozen=True, kw_only=True):
    """One memory on one AXI port.

    ``bandwidth_bytes_per_cycle`` is the physical one at the NPU clock, derating included;
    ``vela_bandwidth_bytes_per_cycle`` what Vela 5.2 computes from the system config's *name*
    (VELA_SPEC §1.3). Latencies are NPU cycles. ``ports`` is the number of AXI ports behind it (its
    bandwidth already includes them). ``capacity_bytes`` None = not stated.
    """

    name: str
    kind: MemoryKind
    vela_name: str
    axi_port: int
    bandwidth_bytes_per_cycle: float
    vela_bandwidth_bytes_per_cycle: float
    read_latency_cycles: int
    write_latency_cycles: int
    burst_bytes: int
    max_reads: int = 0
    max_writes: int = 0
    ports: int = 1
    capacity_bytes: int | None = None


class Roles(Value, frozen=True, kw_only=True):
    """Which memory (by name) holds constants, the arena, and the staging cache."""

    const: str
    arena: str
    cache: str


class Uncertain(Value, frozen=True, kw_only=True):
    """A typical value known within a factor: low = typical / factor, high = typical * factor."""

    typical: float
    factor: float


class EnergyTable(Value, frozen=True, kw_only=True):
    """Energies in picojoules; ``memory_read`` and ``memory_write`` are per byte, by memory name."""

    mac: Uncertain
    shram_byte: Uncertain
    memory_read: dict[str, Uncertain]
    memory_write: dict[str, Uncertain]
    npu_cycle: Uncertain
    cpu_active_cycle: Uncertain
    cpu_wait_cycle: Uncertain
    static_mw: Uncertain


class HostCpu(Value, frozen=True, kw_only=True):
    """The CPU that runs fallback ops and drives the NPU; all in CPU cycles.

    ``cycles_per_mac`` and ``cycles_per_element`` are keyed by cost class (see ``ops``).
    """

    name: str
    clock_hz: float
    cycles_per_mac: dict[str, float]
    cycles_per_element: dict[str, float]
    dispatch_cycles: float
    npu_invoke_cycles: float
    cache_maintenance_cycles_per_byte: float


class Target(Value, frozen=True, kw_only=True):
    """A fully resolved target. ``accelerator`` is None for host-only targets."""

    name: str
    accelerator: Accelerator | None
    clock_hz: float
    memories: tuple[Memory, ...]
    roles: Roles
    memory_mode: MemoryMode
    system_config: str
    energy: EnergyTable
    cpu: HostCpu
    notes: tuple[str, ...] = ()

    def memory(self, name: str) -> Memory:
        """Return the memory of that name. Raises KeyError if the target has none."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        raise KeyError(name)

    def __hash__(self) -> int:
        """Cheap hash over the identifying fields, so that costs can be memoised by target."""
        return hash((self.name, self.system_config, self.memory_mode, self.clock_hz, self.roles.arena))

    @property
    def const(self) -> Memory:
        """The memory that holds constants (weights, scales, LUTs, command stream)."""
        return self.memory(self.roles.const)

    @property
    def arena(self) -> Memory:
        """The memory that holds feature maps by default."""
        return self.memory(self.roles.arena)

    @property
    def cache(self) -> Memory:
        """The staging memory; the same as ``arena`` unless the mode is Dedicated_Sram."""
        return self.memory(self.roles.cache)
