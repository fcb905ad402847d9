"""A plan: segments, what they run, which buffers they need, and where everything lies.

Cycles are NPU cycles unless the name says cpu; bytes are transferred bytes (brick padding and
re-reads included, burst inflation not), see DESIGN "Cost". Steps count segments from 0; live
ranges are half-open.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from npusched.graph.types import Placement
from npusched.memory import Allocation, LiveRange
from npusched.schedule.rows import Policy


class WeightMode(StrEnum):
    """How a kernel gets its weights: from their home for every stripe, or copied to SRAM once.

    Resident weights may come slice by slice (``OpRun.buffering``).
    """

    STREAMED = "streamed"
    RESIDENT = "resident"


class BufferKind(StrEnum):
    """What a buffer holds."""

    FEATURE_MAP = "feature_map"
    ROLLING = "rolling"
    WEIGHTS = "weights"


class Proof(StrEnum):
    """How much is known about a plan's distance from the best one."""

    OPTIMAL = "optimal"
    BOUNDED = "bounded"
    FEASIBLE = "feasible"


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of a plan costs; all fields add up over ops and segments.

    ``npu_cycles``: sum of max(NPU, memories); ``core_cycles``: the NPU alone. ``cpu_cycles`` at
    the CPU's clock. ``energy_nj``: (low, typical, high). ``bytes_read``/``bytes_written`` are
    pairs (memory name, bytes), sorted by name.
    """

    npu_cycles: int = 0
    core_cycles: int = 0
    cpu_cycles: int = 0
    macs: int = 0
    energy_nj: tuple[float, float, float] = (0.0, 0.0, 0.0)
    bytes_read: tuple[tuple[str, int], ...] = ()
    bytes_written: tuple[tuple[str, int], ...] = ()

    def read_from(self, memory: str) -> int:
        """Bytes read from the memory of that name."""
        return dict(self.bytes_read).get(memory, 0)

    def written_to(self, memory: str) -> int:
        """Bytes written to the memory of that name."""
        return dict(self.bytes_written).get(memory, 0)

    def moved(self, memory: str) -> int:
        """Bytes read from and written to the memory of that name."""
        return self.read_from(memory) + self.written_to(memory)


def add_amounts(parts: list[Amounts]) -> Amounts:
    """Sum of all parts."""
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    for part in parts:
        for name, count in part.bytes_read:
            read[name] = read.get(name, 0) + count
        for name, count in part.bytes_written:
            written[name] = written.get(name, 0) + count
    return Amounts(
        npu_cycles=sum(p.npu_cycles for p in parts),
        cpu_cycles=sum(p.cpu_cycles for p in parts),
        core_cycles=sum(p.core_cycles for p in parts),
        macs=sum(p.macs for p in parts),
        energy_nj=(
            sum(p.energy_nj[0] for p in parts),
            sum(p.energy_nj[1] for p in parts),
            sum(p.energy_nj[2] for p in parts),
        ),
        bytes_read=tuple(sorted(read.items())),
        bytes_written=tuple(sorted(written.items())),
    )


class Buffering(msgspec.Struct, frozen=True, kw_only=True):
    """Resident weights that are copied in depth slices, each while the one before is used.

    ``borders``: first channel of each slice, and the depth. ``buffers``: 1, or 2 that take turns
    (even slices in the first). ``prefetched``: slice 0 is copied under the segment before.
    """

    borders: tuple[int, ...]
    buffers: int = 1
    prefetched: bool = False

    @property
    def slices(self) -> int:
        """Number of slices."""
        return len(self.borders) - 1


class OpRun(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduled op inside a plan: how often it runs, on how many rows, and what that costs.

    ``stripe_rows`` is the nominal number of OFM rows per run, ``memory_cycles`` the access cycles
    per memory, ``block`` the (h, w, c) of the OFM block. ``bound_by`` names what takes longest:
    mac, output, elementwise, weights, cpu, or the name of a memory. ``buffering``: how resident
    weights are copied; None = in one piece, before the op.
    """

    op: int
    placement: Placement
    stripe_rows: int
    runs: int
    weight_mode: WeightMode | None
    weight_bytes: int
    weights_exact: bool
    block: tuple[int, int, int] | None
    memory_cycles: tuple[tuple[str, int], ...]
    bound_by: str
    amounts: Amounts
    buffering: Buffering | None = None


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A feature map that is copied to another memory before a segment starts.

    Its readers read the copy (a buffer with ``is_copy``).
    """

    tensor: int
    source: str
    destination: str
    size_bytes: int
    amounts: Amounts


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """Storage of a feature map, of the live rows of one, or of resident weights.

    ``tensor`` is the feature map's id, or the op's id for weights. ``rows`` is the number of rows
    kept (0 for weights). Alive in segments [first_step, end_step). ``in_place_of``: the feature map
    (id) whose buffer, at the same address, this one takes over in its first segment, element by
    element; None = a place of its own. ``shift_bytes``: it starts so many bytes below that map and
    grows over rows that have been used, 0 = in its very place. ``is_copy``: holds the result of a
    ``Copy``. ``late_start``: filled in the second half of its first segment (a prefetch),
    ``early_end``: free in the second half of its last one (a depth slice that has been used).
    """

    kind: BufferKind
    name: str
    tensor: int
    memory: str
    rows: int
    size_bytes: int
    first_step: int
    end_step: int
    in_place_of: int | None = None
    shift_bytes: int = 0
    is_copy: bool = False
    late_start: bool = False
    early_end: bool = False

    @property
    def live(self) -> LiveRange:
        """The buffer as a live range."""
        return LiveRange(
            key=f"{self.kind.value}:{self.name}",
            size_bytes=self.size_bytes,
            first_step=self.first_step,
            end_step=self.end_step,
        )


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive ops run stripe by stripe together (or one op run whole, or one CPU op).

    ``stripe_rows`` are rows of the last op's OFM, ``policy`` says when the ops before it make
    rows. ``sram_bytes``: bytes of the budget memory that must be alive while the segment runs.
    ``copies`` run before its ops; ``amounts`` include them.
    """

    ops: tuple[int, ...]
    placement: Placement
    stripe_rows: int
    stripes: int
    policy: Policy
    runs: tuple[OpRun, ...]
    amounts: Amounts
    sram_bytes: int
    copies: tuple[Copy, ...] = ()


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A value that no plan of the stated scope can beat.

    ``objective`` is the lower bound on the objective, ``gap`` = value / bound - 1 (0 = proven
    best), ``scope`` says which plans it speaks of. ``cycles``: no plan of any scope takes fewer
    NPU cycles (``bound.compulsory_cycles``).
    """

    objective: float
    gap: float
    proof: Proof
    scope: str
    cycles: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that fits its budget, with addresses.

    ``homes`` gives the memory of every feature map that crosses segments. ``sram_peak_bytes`` is
    the high-water mark of the budget memory (constants included where they share it),
    ``sram_bound_bytes`` the largest live sum; ``constant_bytes`` the constants in their memory.
    ``allocations`` pairs each memory with addresses for ``buffers`` of that memory, in order.
    ``order``: op ``k`` of the plan is op ``order[k]`` of the graph that was planned
    (``graph.reorder``); empty: the graph's own order.
    """

    segments: tuple[Segment, ...]
    homes: tuple[tuple[int, str], ...]
    buffers: tuple[Buffer, ...]
    allocations: tuple[tuple[str, Allocation], ...]
    amounts: Amounts
    objective: float
    bound: Bound
    budget_memory: str
    budget_bytes: int | None
    sram_peak_bytes: int
    sram_bound_bytes: int
    constant_bytes: int
    notes: tuple[str, ...] = ()
    order: tuple[int, ...] = ()

    def in_memory(self, memory: str) -> list[Buffer]:
        """The buffers of one memory, in the order of its allocation's offsets."""
        return [buffer for buffer in self.buffers if buffer.memory == memory]
