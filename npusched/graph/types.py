"""Scheduled ops: what the NPU (or the host CPU) is told to do, one value per kernel.

A ``ScheduledOp`` carries everything that is needed to cost it, to execute it bit-exactly and to
write it into a command stream. Shapes are (n, h, w, c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.ir import DataType, Quantization

if TYPE_CHECKING:
    from npusched.ops.macs import HostWork

Shape4: TypeAlias = tuple[int, int, int, int]
"""(n, h, w, c)"""

SourceRef: TypeAlias = tuple[int, int]
"""(subgraph index, operator index) in the source file."""

BRICK_CHANNELS = 16
"""NHCWB16 stores channels in bricks of 16 (VELA_SPEC §5)."""

NOT_STORED = -1
"""``Access.tensor`` of a value that never reaches memory (passed on inside a kernel)."""


class KernelKind(StrEnum):
    """What a scheduled op does. NPU members are spelled as Vela's debug database spells them."""

    CONV2D = "Conv2D"
    DEPTHWISE = "DepthwiseConv2D"
    FULLY_CONNECTED = "FullyConnected"
    MATMUL = "MatMul"
    AVG_POOL = "AvgPool"
    MAX_POOL = "MaxPool"
    SUM_POOL = "SumPool"
    REDUCE_SUM = "ReduceSum"
    REDUCE_MIN = "ReduceMin"
    REDUCE_MAX = "ReduceMax"
    REDUCE_ANY = "ReduceAny"
    REDUCE_ALL = "ReduceAll"
    ARG_MAX = "ArgMax"
    ADD = "Add"
    SUB = "Sub"
    MUL = "Mul"
    DIV = "Div"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"
    ABS = "Abs"
    LEAKY_RELU = "LeakyRelu"
    CLZ = "CLZ"
    SHL = "SHL"
    ASR = "Asr"
    AND = "And"
    OR = "Or"
    XOR = "Xor"
    NOT = "Not"
    AND_NOT = "AndNot"
    LOGICAL_AND = "LogicalAnd"
    LOGICAL_OR = "LogicalOr"
    LOGICAL_NOT = "LogicalNot"
    EQUAL = "Equal"
    NOT_EQUAL = "NotEqual"
    GREATER = "Greater"
    GREATER_EQUAL = "GreaterEqual"
    LESS = "Less"
    LESS_EQUAL = "LessEqual"
    RELU = "Relu"
    RELU0_TO_1 = "Relu0To1"
    RELU_N1_TO_1 = "ReluN1To1"
    RELU6 = "Relu6"
    CLAMP = "Clamp"
    SIGMOID = "Sigmoid"
    TANH = "Tanh"
    LUT = "LUT"
    QUANTIZE = "Quantize"
    RESCALE = "Rescale"
    MEMORY_COPY = "MemoryCopy"
    TRANSPOSE = "Transpose"
    REVERSE = "Reverse"
    RESIZE = "Resize"
    GATHER = "Gather"
    SCATTER = "Scatter"
    CPU = "Cpu"


class Placement(StrEnum):
    """Who runs a scheduled op."""

    NPU = "npu"
    CPU = "cpu"


class Layout(StrEnum):
    """Storage layout of a feature map."""

    NHWC = "NHWC"
    NHCWB16 = "NHCWB16"


class Upscale(StrEnum):
    """x2 upscaling of the IFM while it is read."""

    NONE = "none"
    NEAREST = "nearest"
    ZEROS = "zeros"


class Rounding(StrEnum):
    """Rounding of a rescale (SIM.md §3): double = gemmlowp, natural = half up, truncate to 0."""

    DOUBLE = "double"
    NATURAL = "natural"
    TRUNCATE = "truncate"
    TRUNCATE_LOWER = "truncate_lower"
    SYMMETRIC = "symmetric"


class Reverse(StrEnum):
    """Axis that an op writes backwards."""

    NONE = "none"
    H = "h"
    W = "w"
    C = "c"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """A stored tensor of the scheduled graph. ``id`` is unique in the graph.

    ``shape`` is the storage shape. ``source`` names the TFLite tensor (subgraph, index) that it
    holds, None for temporaries. ``data`` is set for constants read as feature maps.
    """

    id: int
    name: str
    shape: Shape4
    dtype: DataType
    layout: Layout = Layout.NHWC
    is_graph_input: bool = False
    is_graph_output: bool = False
    is_constant: bool = False
    is_persistent: bool = False
    quantization: Quantization | None = None
    source: tuple[int, int] | None = None
    data: npt.NDArray[np.generic] | None = field(default=None, compare=False, repr=False)

    @property
    def logical_bytes(self) -> int:
        """Size without padding."""
        return (prod(self.shape) * self.dtype.bits + 7) // 8

    @property
    def stored_bytes(self) -> int:
        """Size in memory: channels padded to 16 in bricks (VELA_SPEC §5); not rounded to 16."""
        n, h, w, c = self.shape
        if self.layout is Layout.NHCWB16:
            c = -(-c // BRICK_CHANNELS) * BRICK_CHANNELS
        return (n * h * w * c * self.dtype.bits + 7) // 8

    @property
    def row_bytes(self) -> int:
        """Stored bytes of one row (one h, all w and c)."""
        return self.stored_bytes // max(self.shape[0] * self.shape[1], 1)

    def viewed_row_bytes(self, view: Shape4) -> int:
        """Stored bytes of one row where the map is seen with another shape."""
        _, _, w, c = view
        if self.layout is Layout.NHCWB16:
            c = -(-c // BRICK_CHANNELS) * BRICK_CHANNELS
        return (w * c * self.dtype.bits + 7) // 8


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How an op reads or writes a feature map.

    ``shape`` is the region the op touches, as the op sees it (a slice, or a reshaped view of the
    storage: ``view`` is the full shape under that view). ``offset`` places the region in the view,
    ``step`` skips rows and columns. ``zero_point`` is the one that the op applies (it may differ
    from the tensor's own, e.g. 0 for average pools).
    """

    tensor: int
    shape: Shape4
    view: Shape4
    dtype: DataType
    offset: Shape4 = (0, 0, 0, 0)
    step_h: int = 1
    step_w: int = 1
    zero_point: int = 0
    scale: float | None = None

    @property
    def is_scalar(self) -> bool:
        """True if all axes are 1."""
        return self.shape == (1, 1, 1, 1)

    @property
    def is_slice(self) -> bool:
        """True if only a part of the tensor is touched."""
        return self.shape != self.view

    @property
    def elements(self) -> int:
        """Elements touched, unpadded."""
        return prod(self.shape)


class Kernel(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Window of a convolution or pool. Padding in rows and columns of the IFM."""

    h: int = 1
    w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0

    @property
    def dilated_h(self) -> int:
        """Rows covered by the window."""
        return (self.h - 1) * self.dilation_h + 1

    @property
    def dilated_w(self) -> int:
        """Columns covered by the window."""
        return (self.w - 1) * self.dilation_w + 1


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """A grid of equal pieces of one op: axis i of the grid has ``grid[i]`` steps.

    Piece (i, j, k, l) touches the op's accesses moved by ``(i, j, k, l) * step`` elementwise per
    axis (n, h, w, c); ``ifm_steps`` has one step per input. The grid is walked with the last axis
    fastest; ``backwards``: the last piece runs first (regor runs unrolled strides so).
    """

    grid: Shape4
    ifm_steps: tuple[Shape4, ...]
    ofm_step: Shape4
    backwards: bool = False

    @property
    def count(self) -> int:
        """Number of pieces."""
        return prod(self.grid)


class Rescale(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed-point scaling ``(v * multiplier) >> shift``: one pair, or one per output channel."""

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    rounding: Rounding = Rounding.DOUBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Constant weights of a conv-like op, in OHWI order (depthwise: O = channels, I = 1).

    ``key`` identifies equal weights (same tensor, same slice, same rearrangement), so that they
    are stored once; ``values`` are as the NPU applies them (flipped, dilated by zero taps, sliced),
    before the zero point is subtracted. ``bias`` is per output channel.
    """

    key: str
    shape: Shape4
    dtype: DataType
    zero_points: tuple[int, ...]
    values: npt.NDArray[np.generic] | None = field(default=None, compare=False, repr=False)
    bias: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    bias_dtype: DataType = DataType.INT32
    source: tuple[int, int] | None = None

    @property
    def elements(self) -> int:
        """Number of weights, unencoded."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A clamp or table applied to the result. ``lut`` has 256 entries (or 512 words for 16 bit)."""

    minimum: int | None = None
    maximum: int | None = None
    lut: tuple[int, ...] | None = field(default=None, repr=False)
    lut_dtype: DataType | None = None
    function: str = ""


class SubOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op that runs inside another's kernel: a fused activation, or a chained op (U85).

    ``chained`` ops take a slot of the chain buffer and may read ``ifms`` from memory; the value
    passed down the chain is not listed: it is operand ``chain_input``, and the op subtracts
    ``chain_zero_point`` from it. ``ofm`` is what would be written at this point.
    """

    kind: KernelKind
    source_ops: tuple[SourceRef, ...]
    ofm: Access
    chained: bool = False
    ifms: tuple[Access, ...] = ()
    chain_input: int = 0
    chain_zero_point: int = 0
    activation: Activation | None = None
    ofm_rescale: Rescale | None = None
    ifm_rescales: tuple[Rescale, ...] = ()
    transpose: tuple[int, int, int] | None = None
    reverse: Reverse = Reverse.NONE


class ScheduledOp(msgspec.Struct, frozen=True, kw_only=True):
    """One NPU kernel (with what is fused into it) or one op on the CPU.

    ``pieces`` stands for ``count`` equal pieces of one source op, run one after another; all
    other fields describe the piece at the origin of the grid. ``keep_accumulators``: starts from
    the accumulators that the op before left (U85); ``write_ofm`` False: leaves its own there. A
    run of ops that is linked so has one grid and is repeated as a whole, piece by piece.
    ``accumulator_scaled`` is Vela's flag that selects 40-bit accumulators for 16-bit data
    (VELA_SPEC_2 §3). ``scratch`` is memory that only this op uses, while it runs. CPU ops may
    have any number of ``ifms``, and list all their results in ``ofms``; NPU ops have exactly one.
    ``host_work``: MACs and elements of a CPU op. ``fusion_blocker`` says why the next op could not
    join.
    """

    id: int
    kind: KernelKind
    placement: Placement
    source_ops: tuple[SourceRef, ...]
    ifms: tuple[Access, ...]
    ofms: tuple[Access, ...]
    kernel: Kernel = msgspec.field(default_factory=Kernel)
    upscale: Upscale = Upscale.NONE
    weights: Weights | None = None
    has_scales: bool = False
    accumulator_scaled: bool = True
    ofm_rescale: Rescale | None = None
    ifm_rescales: tuple[Rescale, ...] = ()
    activation: Activation | None = None
    transpose: tuple[int, int, int] | None = None
    reverse: Reverse = Reverse.NONE
    resize: tuple[int, int, int, int] | None = None
    interpolate: bool = False
    sub_ops: tuple[SubOp, ...] = ()
    pieces: Pieces | None = None
    keep_accumulators: bool = False
    write_ofm: bool = True
    scratch: Access | None = None
    host_work: HostWork | None = None
    name: str = ""
    fusion_blocker: str = ""

    @property
    def count(self) -> int:
        """Number of equal pieces that run one after another."""
        return 1 if self.pieces is None else self.pieces.count

    @property
    def ofm(self) -> Access:
        """The single result of an NPU op (the first of a CPU op), before sub-ops."""
        return self.ofms[0]

    @property
    def final_ofm(self) -> Access:
        """What is written to memory: the last sub-op's OFM, else the op's own."""
        return self.sub_ops[-1].ofm if self.sub_ops else self.ofms[0]

    @property
    def reads(self) -> tuple[Access, ...]:
        """Every access that reads memory, sub-ops' external inputs included."""
        return self.ifms + tuple(a for sub in self.sub_ops for a in sub.ifms)

    @property
    def writes(self) -> tuple[Access, ...]:
        """Every access that writes memory."""
        return (self.final_ofm,) if self.placement is Placement.NPU else self.ofms
