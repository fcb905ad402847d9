"""Decode an Ethos-U command stream: NPU ops, DMAs, waits, and the registers each of them sees.

Facts from VELA_SPEC §6, SIM.md §3 and Vela 5.2.0 (ethos_u65_interface.hpp,
ethos_u85_interface.hpp, custom_operator_ethosu.hpp). A command is one 32-bit word, or two if bit
14 is set; bits 9..0 are its code, bits 31..16 a parameter. A two-word command's value is
``word1 | parameter << 32``. Registers keep their values from op to op.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType

import msgspec

from npusched.errors import ModelError
from npusched.hardware.target import Family


class Register(IntEnum):
    """Registers that several readers need, by command code (two-word ones with bit 14 set)."""

    IFM_PAD_TOP = 0x100
    IFM_PAD_LEFT = 0x101
    IFM_PAD_RIGHT = 0x102
    IFM_PAD_BOTTOM = 0x103
    IFM_DEPTH_M1 = 0x104
    IFM_PRECISION = 0x105
    IFM_UPSCALE = 0x107
    IFM_ZERO_POINT = 0x109
    IFM_WIDTH0_M1 = 0x10A
    IFM_HEIGHT0_M1 = 0x10B
    IFM_HEIGHT1_M1 = 0x10C
    IFM_IB_END = 0x10D
    IFM_REGION = 0x10F
    OFM_WIDTH_M1 = 0x111
    OFM_HEIGHT_M1 = 0x112
    OFM_DEPTH_M1 = 0x113
    OFM_PRECISION = 0x114
    OFM_BLOCK_WIDTH_M1 = 0x115
    OFM_BLOCK_HEIGHT_M1 = 0x116
    OFM_BLOCK_DEPTH_M1 = 0x117
    OFM_ZERO_POINT = 0x118
    OFM_WIDTH0_M1 = 0x11A
    OFM_HEIGHT0_M1 = 0x11B
    OFM_HEIGHT1_M1 = 0x11C
    OFM_REGION = 0x11F
    KERNEL_WIDTH_M1 = 0x120
    KERNEL_HEIGHT_M1 = 0x121
    KERNEL_STRIDE = 0x122
    PARALLEL_MODE = 0x123
    ACC_FORMAT = 0x124
    ACTIVATION = 0x125
    ACTIVATION_MIN = 0x126
    ACTIVATION_MAX = 0x127
    WEIGHT_REGION = 0x128
    SCALE_REGION = 0x129
    AB_START = 0x12D
    WEIGHT_FORMAT = 0x12E
    """U85."""
    BLOCK_DEPENDENCY = 0x12F
    DMA_SOURCE_REGION = 0x130
    DMA_DESTINATION_REGION = 0x131
    DMA_SIZE0 = 0x132
    DMA_SIZE1 = 0x133
    IFM2_BROADCAST = 0x180
    IFM2_SCALAR = 0x181
    IFM2_PRECISION = 0x185
    IFM2_ZERO_POINT = 0x189
    IFM2_WIDTH0_M1 = 0x18A
    IFM2_HEIGHT0_M1 = 0x18B
    IFM2_HEIGHT1_M1 = 0x18C
    IFM2_IB_START = 0x18D
    IFM2_REGION = 0x18F
    IFM_BASE0 = 0x4000
    IFM_STRIDE_X = 0x4004
    IFM_STRIDE_Y = 0x4005
    IFM_STRIDE_C = 0x4006
    OFM_BASE0 = 0x4010
    OFM_STRIDE_X = 0x4014
    OFM_STRIDE_Y = 0x4015
    OFM_STRIDE_C = 0x4016
    WEIGHT_BASE = 0x4020
    WEIGHT_LENGTH = 0x4021
    SCALE_BASE = 0x4022
    SCALE_LENGTH = 0x4023
    OFM_SCALE = 0x4024
    OPA_SCALE = 0x4025
    OPB_SCALE = 0x4026
    DMA_SOURCE = 0x4030
    DMA_DESTINATION = 0x4031
    DMA_LENGTH = 0x4032
    DMA_SKIP0 = 0x4033
    DMA_SKIP1 = 0x4034
    IFM2_BASE0 = 0x4080
    IFM2_STRIDE_X = 0x4084
    IFM2_STRIDE_Y = 0x4085
    IFM2_STRIDE_C = 0x4086
    WEIGHT1_BASE = 0x4090
    WEIGHT1_LENGTH = 0x4091
    SCALE1_BASE = 0x4092
    """U55 and U65; WEIGHT2_BASE on U85."""
    SCALE1_LENGTH = 0x4093
    WEIGHT3_BASE = 0x4094
    WEIGHT3_LENGTH = 0x4095


class StreamOpKind(StrEnum):
    """What a command that acts (rather than sets a register) does."""

    STOP = "stop"
    IRQ = "irq"
    CONV = "conv"
    DEPTHWISE = "depthwise"
    POOL = "pool"
    ELEMENTWISE = "elementwise"
    RESIZE = "resize"
    DMA = "dma"
    DMA_WAIT = "dma_wait"
    KERNEL_WAIT = "kernel_wait"
    PMU_MASK = "pmu_mask"
    BRANCH = "branch"


KERNELS = frozenset(
    {
        StreamOpKind.CONV,
        StreamOpKind.DEPTHWISE,
        StreamOpKind.POOL,
        StreamOpKind.ELEMENTWISE,
        StreamOpKind.RESIZE,
    }
)
"""Ops that start a kernel."""

_OPS = {
    0x0: StreamOpKind.STOP,
    0x1: StreamOpKind.IRQ,
    0x2: StreamOpKind.CONV,
    0x3: StreamOpKind.DEPTHWISE,
    0x5: StreamOpKind.POOL,
    0x6: StreamOpKind.ELEMENTWISE,
    0x7: StreamOpKind.RESIZE,
    0x10: StreamOpKind.DMA,
    0x11: StreamOpKind.DMA_WAIT,
    0x12: StreamOpKind.KERNEL_WAIT,
    0x13: StreamOpKind.PMU_MASK,
    0x4100: StreamOpKind.BRANCH,
}

_FAMILIES = {0: Family.U55, 1: Family.U65, 2: Family.U85}
TWO_WORDS = 0x4000
"""Bit of commands that take two words."""

_CODE = 0xC3FF
_INTERNAL = 1 << 8

Registers = Mapping[int, int]


class AddressRange(msgspec.Struct, frozen=True):
    """``length_bytes`` from ``address`` in a region; ``internal``: the NPU's own memory (LUTs)."""

    region: int
    address: int
    length_bytes: int
    internal: bool = False


class StreamOp(msgspec.Struct, frozen=True):
    """An acting command.

    ``offset_bytes`` counts from the first command word, as the debug database's ``queue`` does.
    ``weights`` and ``scales`` have one range per stream that is in use (cores of a U65-512, weight
    decoders of a U85). ``ofm_depth`` and ``ofm_block_depth`` (channels) are 0 for what is not a
    kernel; ``is_part_kernel``: weights are walked part-kernel first. ``source`` and
    ``destination`` are those of a DMA; for strided DMAs the length is the sum of all pieces.
    """

    kind: StreamOpKind
    offset_bytes: int
    parameter: int = 0
    value: int = 0
    ofm_depth: int = 0
    ofm_block_depth: int = 0
    is_part_kernel: bool = False
    weights: tuple[AddressRange, ...] = ()
    scales: tuple[AddressRange, ...] = ()
    source: AddressRange | None = None
    destination: AddressRange | None = None

    @property
    def is_kernel(self) -> bool:
        """True if the op starts a kernel."""
        return self.kind in KERNELS

    @property
    def weight_bytes(self) -> int:
        """Encoded weights that the kernel reads, all streams."""
        return sum(part.length_bytes for part in self.weights)

    @property
    def scale_bytes(self) -> int:
        """Scales and biases that the kernel reads, padding to 16 included."""
        return sum(part.length_bytes for part in self.scales)


class Stream(msgspec.Struct, frozen=True):
    """A decoded driver payload. ``words`` are the command words; ``start_bytes`` their place."""

    payload_format: str
    family: Family
    macs_per_cycle: int
    shram_bytes: int
    architecture_version: tuple[int, int, int]
    start_bytes: int
    words: tuple[int, ...]
    ops: tuple[StreamOp, ...]

    @property
    def kernels(self) -> tuple[StreamOp, ...]:
        """The ops that start kernels, in order."""
        return tuple(op for op in self.ops if op.is_kernel)

    @property
    def dmas(self) -> tuple[StreamOp, ...]:
        """The DMA starts, in order."""
        return tuple(op for op in self.ops if op.kind is StreamOpKind.DMA)

    @property
    def dma_bytes(self) -> int:
        """Bytes that all DMAs move together."""
        return sum(op.source.length_bytes for op in self.dmas if op.source is not None)

    def walk(self) -> Iterator[tuple[StreamOp, Registers]]:
        """Yield each op with the registers it sees: a live read-only view, copy it to keep it."""
        ops = iter(self.ops)
        for kind, _, _, _, registers in _walk(self.words):
            if kind is not None:
                yield next(ops), registers


def decode_stream(payload: bytes) -> Stream:
    """Decode a COP1 or COP2 payload (an ethos-u operator's first input).

    Raises ModelError if it is neither, is truncated, or holds an unknown acting command.
    """
    view = bytes(payload)
    if view[:4] == b"COP1":
        name, config, identity, start, count = _header1(view)
    elif view[:4] == b"COP2":
        name, config, identity, start, count = _header2(view)
    else:
        raise _malformed("it begins with neither COP1 nor COP2")
    if start + 4 * count > len(view):
        raise _malformed(f"it announces {count} command words, {len(view) - start} bytes follow")
    family = _FAMILIES.get(config >> 28)
    if family is None:
        raise _malformed(f"unknown product {config >> 28}")
    words = struct.unpack_from(f"<{count}I", view, start)
    return Stream(
        payload_format=name,
        family=family,
        macs_per_cycle=1 << (config & 15),
        shram_bytes=0 if family is Family.U85 else ((config >> 8) & 0xFF) << 10,
        architecture_version=(identity >> 28, (identity >> 20) & 0xFF, (identity >> 16) & 15),
        start_bytes=start,
        words=words,
        ops=tuple(decode_ops(words, family)),
    )


def _malformed(why: str) -> ModelError:
    return ModelError(
        "cannot decode the NPU command stream", why, "compile the model again with Vela"
    )


def _word(view: bytes, position: int) -> int:
    if position + 4 > len(view):
        raise _malformed(f"it ends after {len(view)} bytes")
    return int.from_bytes(view[position : position + 4], "little")


def _header1(view: bytes) -> tuple[str, int, int, int, int]:
    """Return format, config word, id word, start and word count of a COP1 payload."""
    config = identity = 0
    position = 4
    while True:
        word = _word(view, position)
        position += 4
        match word & 0xFF:
            case 0x01:
                config, identity = _word(view, position), _word(view, position + 4)
                position += 8
            case 0x02:
                return "COP1", config, identity, position, (word >> 8 & 0xFF) << 16 | word >> 16
            case 0x05:
                continue
            case tag:
                raise _malformed(f"unknown driver action {tag:#x} at byte {position - 4}")


def _header2(view: bytes) -> tuple[str, int, int, int, int]:
    """Return the same of a COP2 payload: one entry with metadata, then the commands."""
    entry, metadata = _word(view, 20), _word(view, 24)
    start = 28 + metadata
    if _word(view, 16) != 1 or view[28:32] != b"VEUM" or entry < 4 + metadata:
        raise _malformed("its first COP2 entry is no command stream")
    return "COP2", _word(view, 40), _word(view, 44), start, (entry - 4 - metadata) // 4


def _walk(
    words: tuple[int, ...],
) -> Iterator[tuple[StreamOpKind | None, int, int, int, Registers]]:
    """Yield (kind, offset, parameter, value, registers) of acting commands; kind None = none."""
    registers: dict[int, int] = {}
    shown = MappingProxyType(registers)
    position, end = 0, len(words)
    while position < end:
        word = words[position]
        code, parameter, offset = word & _CODE, word >> 16, 4 * position
        position += 1
        value = parameter
        if code & ~0x3FF:
            if position >= end:
                raise _malformed("its last command is cut off")
            value = words[position] | parameter << 32
            position += 1
        kind = _OPS.get(code)
        if kind is not None:
            yield kind, offset, parameter, value, shown
        elif code & 0x3FF < 0x100 and not code & TWO_WORDS:
            raise _malformed(f"unknown command {code:#x} at byte {offset}")
        else:
            registers[code] = value


def decode_ops(words: tuple[int, ...], family: Family) -> Iterator[StreamOp]:
    """Yield the acting commands of command words. Raises ModelError for unknown ones."""
    for kind, offset, parameter, value, registers in _walk(words):
        if kind in KERNELS:
            yield kernel_op(kind, offset, parameter, registers, family)
        elif kind is StreamOpKind.DMA:
            yield _dma(offset, parameter, registers)
        elif kind is not None:
            yield StreamOp(kind, offset, parameter, value)


def _ranges(registers: Registers, region: int, *firsts: Register) -> tuple[AddressRange, ...]:
    """Return the (base, length) register pairs starting at ``firsts`` whose length is not 0."""
    return tuple(
        AddressRange(region, registers.get(first, 0), registers[first + 1])
        for first in firsts
        if registers.get(first + 1, 0)
    )


def kernel_op(
    kind: StreamOpKind, offset: int, parameter: int, registers: Registers, family: Family
) -> StreamOp:
    """Describe a kernel. A U85 convolution with parameter bit 0 takes its weights from IFM2."""
    weights: tuple[AddressRange, ...] = ()
    scales: tuple[AddressRange, ...] = ()
    from_ifm2 = family is Family.U85 and kind is StreamOpKind.CONV and parameter & 1
    if kind in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE) and not from_ifm2:
        first, second = Register.WEIGHT_BASE, Register.WEIGHT1_BASE
        third, fourth = Register.SCALE1_BASE, Register.WEIGHT3_BASE
        is_u85 = family is Family.U85
        weights = _ranges(
            registers,
            registers.get(Register.WEIGHT_REGION, 0),
            *((first, second, third, fourth) if is_u85 else (first, second)),
        )
        scales = _ranges(
            registers,
            registers.get(Register.SCALE_REGION, 0),
            *((Register.SCALE_BASE,) if is_u85 else (Register.SCALE_BASE, third)),
        )
    return StreamOp(
        kind,
        offset,
        parameter,
        parameter,
        ofm_depth=registers.get(Register.OFM_DEPTH_M1, 0) + 1,
        ofm_block_depth=registers.get(Register.OFM_BLOCK_DEPTH_M1, 0) + 1,
        is_part_kernel=bool(registers.get(Register.KERNEL_STRIDE, 0) & 4),
        weights=weights,
        scales=scales,
    )


def _dma(offset: int, parameter: int, registers: Registers) -> StreamOp:
    """Describe a DMA. Bits 10..9 of a region (U65 the destination's): 1, 2 or 3 dimensions."""
    length = registers.get(Register.DMA_LENGTH, 0)
    source = registers.get(Register.DMA_SOURCE_REGION, 0)
    destination = registers.get(Register.DMA_DESTINATION_REGION, 0)
    dimensions = max(source >> 9 & 3, destination >> 9 & 3)
    if dimensions >= 1:
        length *= registers.get(Register.DMA_SIZE0, 1)
    if dimensions >= 2:
        length *= registers.get(Register.DMA_SIZE1, 1)
    return StreamOp(
        StreamOpKind.DMA,
        offset,
        parameter,
        parameter,
        source=AddressRange(
            source & 7, registers.get(Register.DMA_SOURCE, 0), length, bool(source & _INTERNAL)
        ),
        destination=AddressRange(
            destination & 7,
            registers.get(Register.DMA_DESTINATION, 0),
            length,
            bool(destination & _INTERNAL),
        ),
    )
