"""Inputs and results of the cost functions: small hashable values, so that results can be memoised.

The cost of a kernel depends on shapes, types, layouts and memories only, never on data (encoded
weight sizes are passed as numbers). ``CostOp`` is that description; it is made from a
``ScheduledOp`` and a placement, or (in tests and in ``vela``) from a row of Vela's debug database.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from npusched.graph.types import Kernel, KernelKind, Reverse, Shape4, Upscale
from npusched.hardware.target import Block


class Traversal(StrEnum):
    """Order in which the NPU walks weights (VELA_SPEC §2)."""

    DEPTH_FIRST = "DepthFirst"
    PART_KERNEL = "PartKernel"
    DEPTHWISE = "Depthwise"


class Basis(StrEnum):
    """Which bandwidths a cost uses: the target's physical ones, or Vela's name-dependent ones."""

    PHYSICAL = "physical"
    VELA = "vela"


class CostFm(msgspec.Struct, frozen=True, cache_hash=True):
    """A feature map (or the slice of it that an op touches) as the cost sees it.

    ``memory`` is the name of a memory of the target; None = never touches memory.
    """

    shape: Shape4
    bits: int
    brick: bool
    memory: str | None

    @property
    def is_scalar(self) -> bool:
        """True if all axes are 1."""
        return self.shape == (1, 1, 1, 1)

    @property
    def elements(self) -> int:
        """Elements, unpadded, batch included."""
        n, h, w, c = self.shape
        return n * h * w * c

    @property
    def padded_elements(self) -> int:
        """Elements with channels rounded up to 16 if stored in bricks."""
        n, h, w, c = self.shape
        return n * h * w * (-(-c // 16) * 16 if self.brick else c)


class CostSub(msgspec.Struct, frozen=True, cache_hash=True):
    """A fused or chained follower. ``ifm_bits`` is the width it receives from the op before it.

    ``vela_ofm``: what Vela takes for ``ofm`` where that differs. A fused activation that writes a
    slice of a tensor is charged the whole tensor on U85 (Vela 5.2.0, scheduler_packing.cpp).
    """

    kind: KernelKind
    ifm_bits: int
    ofm: CostFm
    chained: bool = False
    ifm: CostFm | None = None
    ifm2: CostFm | None = None
    transpose: tuple[int, int, int] | None = None
    reverse: Reverse = Reverse.NONE
    vela_ofm: CostFm | None = None


class CostOp(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything that the cost of one kernel depends on, weights' bytes apart.

    ``ofm`` is the primary's own result (its own width, before followers); what is written is the
    last follower's. ``ofm.shape`` may be a stripe: then ``ifm`` holds the rows it needs.
    ``scaled``: see ``ScheduledOp.accumulator_scaled``. ``sparse``: 2:4 weights, ``fast_weights``:
    the Fast weight format (U85).
    ``lut_bytes``: size of a look-up table used anywhere in the kernel, 0 if none.
    ``ifm_step``: rows and columns from one of the IFM that is read to the next; ``ifm.shape`` has
    those between, too.
    ``transpose[i]`` is the axis (0 h, 1 w, 2 c) of the unpermuted result that axis i of the stored
    one shows, as in TFLite's perm; ``ofm.shape`` of a transposing op is the stored shape.
    ``resize``: (h numerator, h denominator, w numerator, w denominator) of a resize's output per
    input scale, reduced, then both doubled for half-pixel centres; None = half-pixel centres, by
    the shapes.
    """

    kind: KernelKind
    ifm: CostFm
    ofm: CostFm
    ifm2: CostFm | None = None
    kernel: Kernel = msgspec.field(default_factory=Kernel)
    upscale: Upscale = Upscale.NONE
    scaled: bool = True
    has_scales: bool = False
    sparse: bool = False
    fast_weights: bool = False
    lut_bytes: int = 0
    lut_is_primary: bool = False
    transpose: tuple[int, int, int] | None = None
    reverse: Reverse = Reverse.NONE
    resize: tuple[int, int, int, int] | None = None
    ifm_step: tuple[int, int] = (1, 1)
    subs: tuple[CostSub, ...] = ()

    @property
    def written(self) -> CostFm:
        """The feature map that reaches memory."""
        return self.subs[-1].ofm if self.subs else self.ofm


class BlockConfig(msgspec.Struct, frozen=True, cache_hash=True):
    """Block shapes (h, w, c) chosen for a kernel (VELA_SPEC §2)."""

    ofm_block: Block
    ifm_block: Block
    ofm_ublock: Block
    traversal: Traversal


class WeightBytes(msgspec.Struct, frozen=True):
    """Encoded sizes of the weights a kernel reads: MLW streams, and scales with their padding."""

    weights: int = 0
    scales: int = 0
    exact: bool = False

    @property
    def total(self) -> int:
        """Weights and scales."""
        return self.weights + self.scales


class Purpose(StrEnum):
    """What a transfer carries."""

    FEATURE_MAP = "feature_map"
    WEIGHTS = "weights"
    SCALES = "scales"
    LUT = "lut"


class Transfer(msgspec.Struct, frozen=True):
    """Bytes moved between one memory and the NPU for one purpose.

    ``bytes_read``/``bytes_written``: transferred bytes, brick padding and re-reads included.
    ``inflated_*``: the same with Vela's burst inflation (its own columns).
    """

    memory: str
    purpose: Purpose
    bytes_read: int = 0
    bytes_written: int = 0
    inflated_read: int = 0
    inflated_written: int = 0


class OpCost(msgspec.Struct, frozen=True):
    """Cost of one kernel run.

    ``npu_cycles``: MACs, element-wise work, edges, and visible DMA. ``memory_cycles``: access
    cycles per memory name. ``cycles`` = max of all of them. ``macs`` as the hardware issues them.
    """

    block: BlockConfig
    npu_cycles: int
    memory_cycles: tuple[tuple[str, int], ...]
    transfers: tuple[Transfer, ...]
    macs: int

    @property
    def cycles(self) -> int:
        """max(NPU, every memory) (VELA_SPEC §3.5)."""
        longest = max(self.npu_cycles, 0)
        for _, busy in self.memory_cycles:
            if busy > longest:
                longest = busy
        return longest
