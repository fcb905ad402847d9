"""What a plan is made for: an accelerator, its memories, who uses which, a host CPU, energies.

All classes are decoded strictly from ``hw_configs/*.toml`` (unknown keys are errors). Units end
the names; "cycle" without a qualifier is a cycle of the NPU clock (of the CPU clock in
``HostCpu``). Sources of the numbers stand in the TOML files, next to the numbers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

NonNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A figure read from a file: finite, not negative."""


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


class AcceleratorU55(
    Value, frozen=True, kw_only=True, cache_hash=True, tag_field="architecture", tag="u55"
):
    """An Ethos-U55 or U65 (one architecture). Cycle tables are per output element.

    ``macs_per_cycle`` counts all cores (512 for ethos-u65-512, which has two cores of 256).
    ``axi_bytes`` is the width of each AXI port.
    """

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
    axi_bytes: int = 8
    source: str = ""


class ReadBuffers(Value, frozen=True, kw_only=True):
    """Outstanding-read buffer of each U85 channel, in words of 16 bytes."""

    mem2mem: int
    ifm_stream: int
    weights: int
    fast_weights: int
    ifm: int
    scales: int


class AcceleratorU85(
    Value, frozen=True, kw_only=True, cache_hash=True, tag_field="architecture", tag="u85"
):
    """An Ethos-U85. Buffer sizes are bytes; cycle tables are per output element.

    ``cores`` is the number of weight decoders. ``axi_bytes`` is the width of each AXI port;
    ``sram_ports`` and ``external_ports`` say how many there are on the two sides.
    """

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
    axi_bytes: int = 16
    sram_ports: int = 2
    external_ports: int = 1
    source: str = ""


Accelerator: TypeAlias = AcceleratorU55 | AcceleratorU85


class Memory(Value, frozen=True, kw_only=True, cache_hash=True):
    """One memory on one AXI port.

    ``bandwidth_bytes_per_cycle`` is the physical one at the NPU clock, derating included;
    ``vela_bandwidth_bytes_per_cycle`` what Vela 5.2 computes from the system config's *name*
    (VELA_SPEC §1.3). ``clock_scale`` is Vela's way to say a bandwidth: the fraction of one transfer
    per port and NPU cycle, derating included. Latencies are NPU cycles. ``ports`` is the number of
    AXI ports behind it (its bandwidth already includes them). ``max_reads`` and ``max_writes`` are
    outstanding transactions. ``capacity_bytes`` None = not stated.
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
    clock_scale: float = 1.0


class Roles(Value, frozen=True, kw_only=True):
    """Which memory (by name) holds constants, the arena, and the staging cache."""

    const: str
    arena: str
    cache: str


class Uncertain(Value, frozen=True, kw_only=True):
    """A typical value known within a factor: low = typical / factor, high = typical * factor."""

    typical: NonNegative
    factor: Annotated[float, msgspec.Meta(ge=1, le=1e6)]
    source: str = ""

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.typical / self.factor

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.typical * self.factor


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


class CpuCostClass(StrEnum):
    """Kinds of work that a CPU kernel library does at different speeds (as ``ops.CostClass``)."""

    CONV = "conv"
    POINTWISE_CONV = "pointwise_conv"
    DEPTHWISE = "depthwise"
    FULLY_CONNECTED = "fully_connected"
    BATCH_MATMUL = "batch_matmul"
    RECURRENT = "recurrent"
    POOL = "pool"
    ELEMENTWISE = "elementwise"
    DIVIDE = "divide"
    ACTIVATION = "activation"
    LUT = "lut"
    SOFTMAX = "softmax"
    QUANTIZE = "quantize"
    REDUCE = "reduce"
    COPY = "copy"
    PERMUTE = "permute"
    GATHER = "gather"
    RESIZE = "resize"
    SORT = "sort"
    CONTROL = "control"
    OTHER = "other"


CPU_MAC_CLASSES = frozenset(
    {
        CpuCostClass.CONV,
        CpuCostClass.POINTWISE_CONV,
        CpuCostClass.DEPTHWISE,
        CpuCostClass.FULLY_CONNECTED,
        CpuCostClass.BATCH_MATMUL,
        CpuCostClass.RECURRENT,
    }
)
"""The classes whose work is counted in MACs."""


class HostCpu(Value, frozen=True, kw_only=True):
    """The CPU that runs fallback ops and drives the NPU; all in CPU cycles.

    An op of class k costs ``dispatch_cycles + cycles_per_mac[k] * MACs + cycles_per_element[k] *
    elements``, elements being results (times the window for pools; inputs for reductions and
    sorting). ``cycles_per_mac`` has ``CPU_MAC_CLASSES``, ``cycles_per_element`` all classes.
    ``cache_maintenance_cycles_per_byte`` is paid for each byte of a feature map that is handed
    from the CPU to the NPU (clean) or back (invalidate).
    """

    name: str
    clock_hz: Annotated[float, msgspec.Meta(gt=0, le=1e12)]
    cycles_per_mac: dict[str, NonNegative]
    cycles_per_element: dict[str, NonNegative]
    dispatch_cycles: NonNegative
    npu_invoke_cycles: NonNegative
    cache_maintenance_cycles_per_byte: NonNegative
    source: str = ""


class Target(Value, frozen=True, kw_only=True):
    """A fully resolved target. ``accelerator`` is None for host-only targets.

    ``memory_mode`` is the mode as Vela is told, ``roles`` where things really lie (a board's
    "Sram_Only" constants may lie in MRAM). ``system_config`` and ``memory_mode_name`` are the
    section names for Vela. ``arena_cache_bytes`` is the size that the mode states for the arena
    (Sram_Only, Shared_Sram) or the staging cache (Dedicated_Sram), None if it states none.
    """

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
    memory_mode_name: str = ""
    arena_cache_bytes: int | None = None

    def memory(self, name: str) -> Memory:
        """Return the memory of that name. Raises KeyError if the target has none."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        raise KeyError(name)

    def __hash__(self) -> int:
        """Cheap hash over the identifying fields, so that costs can be memoised by target."""
        return hash((self.name, self.system_config, self.clock_hz))

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

    @property
    def sram_budget_bytes(self) -> int | None:
        """The SRAM budget where the user names none; None = unlimited.

        The smaller of what the memory mode states and the capacity of the cache memory.
        """
        limits = (self.arena_cache_bytes, self.cache.capacity_bytes)
        return min((limit for limit in limits if limit is not None), default=None)
