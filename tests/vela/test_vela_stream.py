"""The command-stream decoder, on streams written by hand and on real ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.errors import ModelError
from npusched.hardware.target import Family
from npusched.vela.stream import AddressRange, Register, StreamOpKind, decode_stream


def one(code: int, parameter: int = 0) -> tuple[int]:
    """A one-word command."""
    return (code | parameter << 16,)


def two(code: int, value: int) -> tuple[int, int]:
    """A two-word command: type bit 14, high address bits in the parameter."""
    return (code | 1 << 14 | (value >> 32) << 16, value & 0xFFFFFFFF)


def cop1(commands: list[tuple[int, ...]], config: int) -> bytes:
    """Wrap commands as a driver does: fourcc, config action, padding to 16, header, commands."""
    words = [word for command in commands for word in command]
    head = [0x01, config, 0x10040000]
    while (len(head) + 2) % 4:
        head.append(0x05)
    head.append(0x02 | (len(words) >> 16) << 8 | (len(words) & 0xFFFF) << 16)
    return b"COP1" + struct.pack(f"<{len(head) + len(words)}I", *head, *words)


def u65_commands() -> list[tuple[int, ...]]:
    """Weights to SRAM by DMA, a convolution with two cores, a depthwise one with one, a pool."""
    return [
        one(0x130, 0 | 0 << 9),
        two(0x30, 0x1_0000_0040),
        one(0x131, 2),
        two(0x31, 0x80),
        two(0x32, 640),
        one(0x10),
        one(0x11, 0),
        one(0x113, 31),
        one(0x117, 15),
        one(0x122, 0b100),
        one(0x128, 2),
        two(0x20, 0x80),
        two(0x21, 320),
        two(0x90, 0x200),
        two(0x91, 160),
        one(0x129, 2),
        two(0x22, 0x300),
        two(0x23, 160),
        two(0x92, 0x3A0),
        two(0x93, 144),
        one(0x2),
        one(0x122, 0),
        two(0x91, 0),
        two(0x93, 0),
        one(0x3),
        one(0x5, 1),
        one(0x0, 0xFFFF),
    ]


def test_hand_written_u65_stream() -> None:
    """Offsets: the DMA command is word 8 (two one-word and three two-word commands before it:
    2 + 6 = 8), so byte 32; its wait is at 36. Then 4 one-word (16), 2 x 4 + 4 ... in words:
    after the wait (word 9) come 4 one-word, 4 two-word, 1 one-word, 4 two-word = 4 + 8 + 1 + 8 =
    21 words, so the convolution is word 10 + 21 = 31, byte 124.
    """
    stream = decode_stream(cop1(u65_commands(), config=9 | 96 << 8 | 1 << 28))
    assert stream.family is Family.U65
    assert (stream.macs_per_cycle, stream.shram_bytes) == (512, 96 * 1024)
    assert stream.payload_format == "COP1"
    assert stream.start_bytes % 16 == 0
    kinds = [op.kind.value for op in stream.ops]
    assert kinds == ["dma", "dma_wait", "conv", "depthwise", "pool", "stop"]
    dma, _, conv, depthwise, pool, stop = stream.ops
    assert dma.offset_bytes == 32
    assert dma.source == AddressRange(0, 0x1_0000_0040, 640)
    assert dma.destination == AddressRange(2, 0x80, 640)
    assert conv.offset_bytes == 124
    assert conv.weights == (AddressRange(2, 0x80, 320), AddressRange(2, 0x200, 160))
    assert conv.scales == (AddressRange(2, 0x300, 160), AddressRange(2, 0x3A0, 144))
    assert (conv.weight_bytes, conv.scale_bytes) == (480, 304)
    assert (conv.ofm_depth, conv.ofm_block_depth, conv.is_part_kernel) == (32, 16, True)
    assert depthwise.weights == (AddressRange(2, 0x80, 320),)
    assert depthwise.scales == (AddressRange(2, 0x300, 160),)
    assert not depthwise.is_part_kernel
    assert (pool.weights, pool.parameter, pool.is_kernel) == ((), 1, True)
    assert stop.parameter == 0xFFFF
    assert len(stream.kernels) == 3
    assert stream.dma_bytes == 640


def test_u85_reads_four_weight_streams_and_one_scale_stream() -> None:
    commands = [
        one(0x128, 0),
        *(
            command
            for base, length in ((0x20, 0x21), (0x90, 0x91), (0x92, 0x93), (0x94, 0x95))
            for command in (two(base, base * 16), two(length, base))
        ),
        two(0x22, 0x1000),
        two(0x23, 320),
        one(0x2),
        one(0x2, 1),
        one(0x7),
        two(0x100, 12),
    ]
    stream = decode_stream(cop1(commands, config=10 | 2 << 28))
    assert stream.family is Family.U85
    assert (stream.macs_per_cycle, stream.shram_bytes) == (1024, 0)
    conv, matmul, resize, branch = stream.ops
    assert [part.length_bytes for part in conv.weights] == [0x20, 0x90, 0x92, 0x94]
    assert [part.length_bytes for part in conv.scales] == [320]
    assert (matmul.weights, matmul.scales) == ((), ())
    assert resize.is_kernel
    assert (branch.kind, branch.value) == (StreamOpKind.BRANCH, 12)


def test_strided_dma_counts_all_pieces() -> None:
    """3-D: 16 bytes x 5 x 3 = 240; a LUT goes to internal memory (bit 8 of the region)."""
    commands = [
        one(0x130, 1 | 2 << 9),
        one(0x131, 0 | 1 << 8),
        one(0x132, 5),
        one(0x133, 3),
        two(0x32, 16),
        one(0x10),
    ]
    (dma,) = decode_stream(cop1(commands, config=7)).dmas
    assert dma.source is not None
    assert dma.destination is not None
    assert dma.source.length_bytes == 240
    assert (dma.source.internal, dma.destination.internal) == (False, True)


def test_registers_persist_from_op_to_op() -> None:
    stream = decode_stream(cop1(u65_commands(), config=9 | 1 << 28))
    seen = [
        (op.kind, registers.get(Register.WEIGHT1_LENGTH), registers.get(Register.OFM_DEPTH_M1))
        for op, registers in stream.walk()
    ]
    assert seen[2:5] == [
        (StreamOpKind.CONV, 160, 31),
        (StreamOpKind.DEPTHWISE, 0, 31),
        (StreamOpKind.POOL, 0, 31),
    ]


@pytest.mark.parametrize(
    ("payload", "part"),
    [
        (b"", "neither COP1 nor COP2"),
        (b"COP1", "ends after 4 bytes"),
        (b"COP1" + struct.pack("<I", 0x77), "unknown driver action 0x77"),
        (b"COP1" + struct.pack("<II", 0x02 | 100 << 16, 0), "announces 100 command words"),
        (cop1([one(0x44)], config=0), "unknown command 0x44"),
        (cop1([(0x4020,)], config=0), "cut off"),
        (cop1([one(0)], config=3 << 28), "unknown product 3"),
        (b"COP2" + bytes(60), "no command stream"),
    ],
)
def test_malformed_payloads(payload: bytes, part: str) -> None:
    with pytest.raises(ModelError) as caught:
        decode_stream(payload)
    assert part in caught.value.why


@given(st.binary(max_size=200), st.sampled_from([b"", b"COP1", b"COP2"]))
def test_random_bytes_give_a_stream_or_a_model_error(data: bytes, magic: bytes) -> None:
    try:
        decode_stream(magic + data)
    except ModelError:
        return


@given(st.data())
def test_mutated_streams_give_a_stream_or_a_model_error(data: st.DataObject) -> None:
    payload = bytearray(cop1(u65_commands(), config=9 | 1 << 28))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        stream = decode_stream(bytes(payload))
    except ModelError:
        return
    assert len(list(stream.walk())) == len(stream.ops)


def test_published_streams_decode(corpus_dir: Path) -> None:
    """The vendor's streams are for a U55-256; every one ends with STOP and moves weights."""
    folder = corpus_dir / "silicon"
    entries = json.loads((folder / "SILICON.json").read_text())["streams"]
    assert entries
    for entry in entries:
        stream = decode_stream((folder / entry["file"]).read_bytes())
        assert (stream.family, stream.macs_per_cycle) == (Family.U55, 256), entry["file"]
        assert stream.ops[-1].kind is StreamOpKind.STOP
        assert any(op.weight_bytes for op in stream.kernels)
