"""Registers -> what one kernel or DMA does, as values; whatever is not modelled is refused by name.

Register meanings: SIM.md §3 "PRECISION", "KSTRIDE", "Geometry" and Vela 5.2.0,
ethos_u65_interface.hpp (U55 and U65 share it).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from npusched.graph.types import Kernel, Rounding, Upscale
from npusched.hardware.target import Block
from npusched.sim.kernels import Binary, Unary
from npusched.sim.reader import Reader
from npusched.sim.views import Broadcast, Pool, View, read_broadcast, read_ifm, read_ifm2, read_ofm
from npusched.vela.stream import AddressRange, Register, Registers, StreamOp, StreamOpKind

_ROUNDINGS = {0: Rounding.DOUBLE, 1: Rounding.TRUNCATE, 2: Rounding.NATURAL}
_UPSCALES = {0: Upscale.NONE, 1: Upscale.NEAREST, 2: Upscale.ZEROS}
_BINARIES = {
    0: Binary.MUL,
    1: Binary.ADD,
    2: Binary.SUB,
    3: Binary.MIN,
    4: Binary.MAX,
    8: Binary.SHR,
    9: Binary.SHL,
}
_UNARIES = {5: Unary.LEAKY_RELU, 6: Unary.ABS, 7: Unary.CLZ}
_CLIPS = {0: None, 2: "u1", 3: "i1", 5: "i2"}

FIRST_TABLE = 16
"""Activation functions from here on are tables."""


class ScaleMode(IntEnum):
    """Which operand of an addition is scaled with 32 bits."""

    BOTH_16 = 0
    A_32 = 1
    B_32 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelState:
    """One NPU kernel with everything that its registers say.

    ``index`` counts kernels from 0. ``function`` is a ``Pool``, ``Binary`` or ``Unary`` mode, or
    None. ``scalar`` replaces ``ifm2``. ``ofm_scale``, ``opa_scale``: (multiplier, shift).
    ``clip`` is the numpy type whose signedness the limits have, None = the OFM's.
    ``table`` is the number of the LUT slot, None without. ``shram``: IB_END, AB_START and
    IFM2_IB_START in banks.
    """

    index: int
    offset_bytes: int
    kind: StreamOpKind
    function: Pool | Binary | Unary | None
    ifm: View
    ifm2: View | None
    scalar: int | None
    broadcast: Broadcast | None
    ofm: View
    window: Kernel
    upscale: Upscale
    is_part_kernel: bool
    block: Block
    weights: tuple[AddressRange, ...]
    scales: tuple[AddressRange, ...]
    scale_mode: ScaleMode
    operand_rounding: Rounding
    rounding: Rounding
    has_global_scale: bool
    ofm_scale: tuple[int, int]
    opa_scale: tuple[int, int]
    opb_scale: int
    clip: str | None
    minimum: int
    maximum: int
    table: int | None
    block_dependency: int
    accumulator: int
    shram: tuple[int, int, int]

    @property
    def label(self) -> str:
        """Name for people: number and kind."""
        name = self.kind if self.function is None else self.function.name.lower()
        return f"kernel {self.index} ({name})"

    @property
    def views(self) -> tuple[View, ...]:
        """Every feature map that is read, then the one that is written."""
        return (self.ifm, *((self.ifm2,) if self.ifm2 else ()), self.ofm)

    @property
    def is_binary(self) -> bool:
        """True for operations of two operands."""
        return isinstance(self.function, Binary)


def read_kernel(op: StreamOp, registers: Registers, index: int) -> KernelState:
    """Return what a kernel does. Raises SimError for states that are not modelled."""
    reader = Reader(registers, f"kernel {index} ({op.kind}, byte {op.offset_bytes})")
    function = _function(op, reader)
    is_elementwise = op.kind is StreamOpKind.ELEMENTWISE
    window = Kernel() if is_elementwise else _window(reader)
    upscale = reader.pick(_UPSCALES, reader.get(Register.IFM_UPSCALE), "IFM_UPSCALE")
    if is_elementwise and upscale is not Upscale.NONE:
        raise reader.refuse("elementwise operations do not upscale")
    ofm = read_ofm(reader)
    ifm = read_ifm(reader, op, function, window, upscale, ofm)
    broadcast = read_broadcast(reader) if isinstance(function, Binary) else None
    scalar = None
    ifm2 = None
    if broadcast is not None:
        if broadcast.is_scalar:
            scalar = _scalar(reader)
        else:
            ifm2 = read_ifm2(reader, broadcast, ofm, ifm)
    precision, ofm_precision = (
        reader.get(Register.IFM_PRECISION),
        reader.get(Register.OFM_PRECISION),
    )
    activation = reader.get(Register.ACTIVATION)
    has_global = bool(ofm_precision >> 8 & 1)
    adds = function in (Binary.ADD, Binary.SUB)
    mode = precision >> 8 & 3
    if mode == 3:
        raise reader.refuse("IFM_PRECISION has scale mode 3")
    accumulator = reader.get(Register.ACC_FORMAT)
    if accumulator > 1:
        raise reader.refuse("float accumulators (ACC_FORMAT F16) are not modelled")
    return KernelState(
        index=index,
        offset_bytes=op.offset_bytes,
        kind=op.kind,
        function=function,
        ifm=ifm,
        ifm2=ifm2,
        scalar=scalar,
        broadcast=broadcast,
        ofm=ofm,
        window=window,
        upscale=upscale,
        is_part_kernel=op.is_part_kernel,
        block=Block(
            reader.get(Register.OFM_BLOCK_HEIGHT_M1) + 1,
            reader.get(Register.OFM_BLOCK_WIDTH_M1) + 1,
            reader.get(Register.OFM_BLOCK_DEPTH_M1) + 1,
        ),
        weights=op.weights,
        scales=op.scales,
        scale_mode=ScaleMode(mode),
        operand_rounding=reader.pick(_ROUNDINGS, precision >> 14 & 3, "rounding of IFM"),
        rounding=reader.pick(_ROUNDINGS, ofm_precision >> 14 & 3, "rounding of OFM"),
        has_global_scale=has_global,
        ofm_scale=_scale(reader, Register.OFM_SCALE) if has_global else (1, 0),
        opa_scale=_scale(reader, Register.OPA_SCALE) if adds else (1, 0),
        opb_scale=reader.get(Register.OPB_SCALE) & 0xFFFFFFFF if adds else 1,
        clip=reader.pick(_CLIPS, activation >> 12 & 7, "clip range of ACTIVATION"),
        minimum=reader.get(Register.ACTIVATION_MIN),
        maximum=reader.get(Register.ACTIVATION_MAX),
        table=_table(reader, activation & 31),
        block_dependency=reader.get(Register.BLOCK_DEPENDENCY),
        accumulator=accumulator,
        shram=(
            reader.get(Register.IFM_IB_END),
            reader.get(Register.AB_START),
            reader.optional(Register.IFM2_IB_START) if isinstance(function, Binary) else 0,
        ),
    )


def _function(op: StreamOp, reader: Reader) -> Pool | Binary | Unary | None:
    """Return the mode in the parameter of a pool or elementwise command."""
    if op.kind is StreamOpKind.POOL:
        if op.parameter not in Pool.__members__.values():
            raise reader.refuse(f"pooling mode {op.parameter} is unknown")
        return Pool(op.parameter)
    if op.kind is StreamOpKind.ELEMENTWISE:
        modes: dict[int, Binary | Unary] = {**_BINARIES, **_UNARIES}
        return reader.pick(modes, op.parameter, "elementwise mode")
    if op.kind not in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE):
        raise reader.refuse(f"{op.kind} is no kernel of a U55 or U65")
    return None


def _window(reader: Reader) -> Kernel:
    """Return kernel size, stride, dilation and padding (SIM.md §3 "KSTRIDE")."""
    bits = reader.get(Register.KERNEL_STRIDE)
    if bits >> 5 & 1:
        raise reader.refuse("kernel decomposition 4x4 is not modelled")
    dilation_w, dilation_h = 1 + (bits >> 3 & 1), 1 + (bits >> 4 & 1)
    extent_h = reader.get(Register.KERNEL_HEIGHT_M1)
    extent_w = reader.get(Register.KERNEL_WIDTH_M1)
    if extent_h % dilation_h or extent_w % dilation_w:
        raise reader.refuse(
            f"a kernel of {extent_h + 1} x {extent_w + 1} is no multiple of its dilation"
        )
    return Kernel(
        h=extent_h // dilation_h + 1,
        w=extent_w // dilation_w + 1,
        stride_h=1 + (bits >> 1 & 1) + 2 * (bits >> 9 & 1),
        stride_w=1 + (bits & 1) + 2 * (bits >> 6 & 1),
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        pad_top=reader.get(Register.IFM_PAD_TOP),
        pad_left=reader.get(Register.IFM_PAD_LEFT),
        pad_bottom=reader.get(Register.IFM_PAD_BOTTOM),
        pad_right=reader.get(Register.IFM_PAD_RIGHT),
    )


def _scalar(reader: Reader) -> int:
    """Return the constant operand minus its zero point."""
    value = reader.signed(Register.IFM2_SCALAR, 16)
    return value - reader.signed(Register.IFM2_ZERO_POINT, 16)


def _scale(reader: Reader, register: Register) -> tuple[int, int]:
    """Return (multiplier, shift): 32 bits, and 6 bits of the parameter."""
    value = reader.get(register)
    return value & 0xFFFFFFFF, value >> 32 & 63


def _table(reader: Reader, function: int) -> int | None:
    """Return the LUT slot of an activation function, None for a plain clamp."""
    if function == 0:
        return None
    if function in (3, 4):
        name = "TANH" if function == 3 else "SIGMOID"
        raise reader.refuse(f"the {name} unit of the NPU is not published, so it is not modelled")
    if not FIRST_TABLE <= function < FIRST_TABLE + 8:
        raise reader.refuse(f"activation function {function} is unknown")
    return function - FIRST_TABLE
