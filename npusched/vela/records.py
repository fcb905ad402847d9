"""Typed rows of Vela's debug database (VELA_SPEC §6; columns of Vela 5.2.0).

Numbers are Vela's own, unchanged. Shapes are (n, h, w, c).
"""

from __future__ import annotations

import msgspec

from npusched.cost.types import Traversal
from npusched.graph.types import Kernel, KernelKind, Layout, Reverse, Shape4, SourceRef
from npusched.hardware.target import Block
from npusched.ir import DataType

_KINDS = {str(kind): kind for kind in KernelKind}


class VelaFm(msgspec.Struct, frozen=True, kw_only=True):
    """A feature map as one op uses it.

    ``shape`` is the whole tensor, ``region`` the slice that is touched (the whole, if Vela gives
    none), ``stripe`` the part handled at a time. ``memory`` is Vela's name, "" if the tensor is
    not allocated (a fused intermediate). The second input's ``steps`` repeat the first's (a quirk
    of Vela 5.2, VELA_SPEC_2 §1).
    """

    shape: Shape4
    region: Shape4
    offset: Shape4
    steps: Shape4
    stripe: Shape4
    memory: str
    layout: Layout
    dtype: DataType
    pre_buffering: bool = False
    buffering: str = "None"


class VelaWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Encoded weights of one op and how they are brought in.

    ``total_bytes`` are all depth slices and cores without scales; ``max_range_bytes`` the largest
    slice with scales. ``depth_slices`` are the slice borders in channels, 0 first. ``buffering``
    is None, Single or Double. ``transfer_cycles``: DMA time of the unsliced encoding.
    """

    format: str
    dtype: DataType
    total_bytes: int
    max_range_bytes: int
    sub_streams: int
    distinct: int
    zeros: int
    depth_slices: tuple[int, ...]
    pre_buffer: bool
    buffering: str
    transfer_cycles: int

    @property
    def is_sparse(self) -> bool:
        """True for 2:4 sparse weights (U85)."""
        return "Sparse2_4" in self.format

    @property
    def is_fast(self) -> bool:
        """True for the fast weight format (U85)."""
        return "Fast" in self.format


class VelaTraffic(msgspec.Struct, frozen=True):
    """Transfers between the op and one memory for one purpose (Lut, FeatureMap, Weights, Scales).

    Feature-map bytes include burst inflation (VELA_SPEC §3.1).
    """

    memory: str
    purpose: str
    access_cycles: int
    read_bytes: int
    written_bytes: int


class VelaBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Block configuration of a kernel, and cycles per block as Vela estimates them."""

    ifm_block: Block
    ofm_block: Block
    ofm_ublock: Block | None
    traversal: Traversal
    mac_cycles: int
    ao_cycles: int
    cmd_cycles: int
    wd_cycles: int


class VelaEstimates(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's own estimates for the striped, sliced op (VELA_SPEC_2 §6), in cycles."""

    op_without_buffering_cycles: int
    op_with_buffering_cycles: int
    ifm_read_cycles: int
    weight_read_cycles: int


class VelaOp(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduled op: the joined rows of perf, perf_debug, perf_debug_main and group.

    ``followers`` are the ops fused into or chained onto it, in order; their costs are 0 or in
    ``op_cycles`` of the primary. ``source_ref`` is the TFLite op it was made from, None for ops
    that Vela made up. ``block`` is None for CPU ops (operator "Passthrough") and plain DMA ops.
    ``cascade`` is the index of the cascade's last op, 0 = none. ``inputs`` are pairs (producing
    op id or -1 for a graph input, input index).
    """

    id: int
    index: int
    operator: str
    name: str
    source_id: int
    optimised_id: int
    source_ref: SourceRef | None
    source_operator: str
    group_id: int
    staging_usage_bytes: int
    op_cycles: int
    npu_cycles: int
    mac_count: int
    memory_cycles: tuple[tuple[str, int], ...]
    ifm: VelaFm | None
    ifm2: VelaFm | None
    ofm: VelaFm | None
    kernel: Kernel
    depth_multiplier: int
    transpose: str
    reverse: Reverse
    time_index: int
    cascade: int
    weights: VelaWeights | None
    estimates: VelaEstimates
    traffic: tuple[VelaTraffic, ...]
    block: VelaBlock | None
    inputs: tuple[tuple[int, int], ...] = ()
    followers: tuple[VelaOp, ...] = ()

    @property
    def kind(self) -> KernelKind | None:
        """Our name of the kernel; None for CPU ops and kinds that we do not know."""
        return _KINDS.get(self.operator)

    @property
    def is_cpu(self) -> bool:
        """True if the op stays on the host CPU."""
        return self.operator == "Passthrough"

    @property
    def is_primary(self) -> bool:
        """True unless the op is fused into or chained onto another."""
        return self.group_id == self.id

    def traffic_of(self, memory: str, purpose: str) -> VelaTraffic:
        """Return the transfers with a memory for a purpose, zeros if there are none."""
        for entry in self.traffic:
            if (entry.memory, entry.purpose) == (memory, purpose):
                return entry
        return VelaTraffic(memory, purpose, 0, 0, 0)


class VelaSource(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``source``: an operator of the file (ref None: made by the reader itself)."""

    id: int
    ref: SourceRef | None
    operator: str
    kernel_h: int
    kernel_w: int
    ofm_h: int
    ofm_w: int
    ofm_c: int


class VelaOptimised(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``optimised``: an operator after a rewrite, and the source operator it came from."""

    id: int
    source_id: int
    operator: str
    kernel_h: int
    kernel_w: int
    ofm_h: int
    ofm_w: int
    ofm_c: int


class VelaTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``tensors``: an allocated tensor, with its life and place as Vela gives them."""

    id: int
    name: str
    dtype: str
    memory: str
    usage: str
    format: str
    start_time: int
    end_time: int
    start_address: int
    end_address: int
    size_bytes: int


class VelaQueued(msgspec.Struct, frozen=True):
    """A row of ``queue``: one kernel start in a command stream (several per op = stripes).

    ``offset_bytes`` counts from the stream's first command word.
    """

    offset_bytes: int
    stream_id: int
    optimised_id: int
    scheduled_id: int
