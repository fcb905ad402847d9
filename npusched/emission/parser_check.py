"""Does the Ethos-U driver, and TensorFlow Lite Micro, take the file? Checked without running it.

Independent of what writes the file: everything is read from its bytes again. Rules of the driver:
ethos-u-core-driver, ``ethosu_invoke`` and ``ethosu_dev_verify_optimizer_config``; of TFLM: kernel
``ethosu.cc`` and its planner of offline allocations; of the machine: EMIT.md §3, §7 and §10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from npusched.hardware.target import AcceleratorU55, Family
from npusched.ir import DataType
from npusched.sim.kernels.arrays import Array
from npusched.tflite.decode import decode
from npusched.tflite.records import Record
from npusched.tflite.schema import TENSOR_TYPES
from npusched.vela.compiled import NPU_OP

_ALIGNMENT = 16
"""Bytes: command stream, base addresses, bricks, weights and scales, TFLM's arena."""

_FOURCC = b"COP1"
_CONFIG, _STREAM, _NOP = 0x01, 0x02, 0x05
_CONFIG_WORDS = 3
_STOP = 0xFFFF0000
_PRODUCTS = {Family.U55: 0, Family.U65: 1}
_ARCHITECTURE = 1
"""Major version of the architecture of U55 and U65; drivers refuse another one."""

_CUSTOM_OPTIONS = b"\x01\x04\x01"
"""A flexbuffer with the number 1: what TFLM's kernel expects of a command stream operator."""

_ALLOCATION = "OfflineMemoryAllocation"
_UINT8 = TENSOR_TYPES.index(DataType.UINT8)
_BASES = 8
"""Base addresses that the machine has."""


class ParserRule(StrEnum):
    """What a finding is about."""

    OPERATOR = "operator"
    PAYLOAD = "payload"
    MACHINE = "machine"
    ALIGNMENT = "alignment"
    ALLOCATION = "allocation"
    FAST_MEMORY = "fast_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserFinding:
    """Why driver or TFLM would refuse the file: where, in words."""

    rule: ParserRule
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


def check_parser(
    content: bytes, accelerator: AcceleratorU55, fast_memory_bytes: int | None = None
) -> tuple[ParserFinding, ...]:
    """Return why the file would not be accepted; nothing for a good one.

    ``fast_memory_bytes``: size of the fast memory that the application gives to the driver; None =
    as large as needed. Raises ModelError for a file that is no flatbuffer.
    """
    return tuple(_Checker(content, accelerator, fast_memory_bytes).run())


class _Checker:
    """One file."""

    def __init__(self, content: bytes, accelerator: AcceleratorU55, fast: int | None) -> None:
        self.content = np.frombuffer(content, np.uint8)
        self.root = decode(content)
        self.accelerator = accelerator
        self.fast_memory_bytes = fast
        self.buffers = self.root.records("buffers")
        self.graphs = self.root.records("subgraphs")
        self.codes = [each.text("custom_code") for each in self.root.records("operator_codes")]

    def run(self) -> Iterator[ParserFinding]:
        """Return all findings."""
        offsets, findings = self.allocation()
        yield from findings
        count = 0
        for graph, planned in zip(self.graphs, offsets, strict=True):
            for number, op in enumerate(graph.records("operators")):
                if self.codes[op.integer("opcode_index")] == NPU_OP:
                    count += 1
                    yield from self.operator(graph, op, planned, f"NPU operator {number}")
        if not count:
            yield _finding(ParserRule.OPERATOR, "the file", f"it has no {NPU_OP} operator")

    def data(self, graph: Record, tensor: int) -> tuple[bytes, int]:
        """Content of a tensor and its place in the file (-1: it has none)."""
        index = graph.records("tensors")[tensor].integer("buffer")
        if not 0 <= index < len(self.buffers):
            return b"", -1
        view = np.frombuffer(self.buffers[index].blob("data"), np.uint8)
        return view.tobytes(), _address(view) - _address(self.content) if len(view) else -1

    def operator(
        self, graph: Record, op: Record, planned: list[int], where: str
    ) -> Iterator[ParserFinding]:
        """Check one operator: options, memories, payload, places of its feature maps."""
        options = bytes(op.blob("custom_options"))
        if options != _CUSTOM_OPTIONS:
            yield _finding(ParserRule.OPERATOR, where, f"custom options are {options.hex(' ')}")
        tensors = graph.records("tensors")
        inputs = op.ints("inputs")
        if len(inputs) < 4 or not all(
            0 <= i < len(tensors) for i in (*inputs, *op.ints("outputs"))
        ):
            yield _finding(ParserRule.OPERATOR, where, f"its inputs are {list(inputs)}")
            return
        for tensor in inputs[:4]:
            if tensors[tensor].integer("type") != _UINT8:
                yield _finding(ParserRule.OPERATOR, where, f"tensor {tensor} is not uint8")
        for tensor, name in zip(inputs[:2], ("command stream", "read-only"), strict=True):
            data, place = self.data(graph, tensor)
            if tensors[tensor].ints("shape") != (len(data),):
                shape = list(tensors[tensor].ints("shape"))
                why = f"the {name} tensor has shape {shape} and {len(data)} bytes"
                yield _finding(ParserRule.OPERATOR, where, why)
            if place % _ALIGNMENT and place >= 0:
                yield _finding(ParserRule.ALIGNMENT, where, f"its {name} lies at byte {place}")
        payload, place = self.data(graph, inputs[0])
        yield from _payload(payload, place, self.accelerator, where)
        yield from self.memories(tensors, op, planned, where)

    def memories(
        self, tensors: tuple[Record, ...], op: Record, planned: list[int], where: str
    ) -> Iterator[ParserFinding]:
        """Check that inputs and results lie in the scratch memory, and the size of fast memory."""
        inputs = op.ints("inputs")
        scratch, fast = inputs[2], inputs[3]
        start, size = planned[scratch], _size(tensors[scratch])
        for tensor in (*inputs[4:], *op.ints("outputs")):
            low = planned[tensor] - start
            if planned[tensor] < 0 or low < 0 or low + _size(tensors[tensor]) > size:
                name = tensors[tensor].text("name")
                why = f"tensor {name} at {planned[tensor]} is outside the {size} bytes of scratch"
                yield _finding(ParserRule.ALLOCATION, where, why)
        if fast != scratch and self.fast_memory_bytes is not None:
            needed = _size(tensors[fast])
            if needed > self.fast_memory_bytes:
                why = f"it needs {needed} bytes of fast memory, there are {self.fast_memory_bytes}"
                yield _finding(ParserRule.FAST_MEMORY, where, why)

    def allocation(self) -> tuple[list[list[int]], list[ParserFinding]]:
        """Return the offsets of the tensors of each subgraph, and what is wrong with them."""
        counts = [len(graph.records("tensors")) for graph in self.graphs]
        nothing = [[-1] * count for count in counts]
        entry = next(
            (m for m in self.root.records("metadata") if m.text("name") == _ALLOCATION), None
        )
        if entry is None or not 0 <= entry.integer("buffer") < len(self.buffers):
            return nothing, [_allocation_finding("it is missing")]
        raw = bytes(self.buffers[entry.integer("buffer")].blob("data"))
        words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4").tolist()
        if (
            len(raw) % 4
            or words[:3] != [0, len(counts), sum(counts)]
            or len(words) != 3 + sum(counts)
        ):
            why = (
                f"it says {words[:3]} and has {len(raw)} bytes, for {len(counts)} subgraphs with "
                f"{sum(counts)} tensors"
            )
            return nothing, [_allocation_finding(why)]
        found = []
        for number, offset in enumerate(words[3:]):
            if offset < -1 or (offset >= 0 and offset % _ALIGNMENT):
                found.append(_allocation_finding(f"tensor {number} is at {offset}"))
        starts = [3 + sum(counts[:number]) for number in range(len(counts))]
        pairs = zip(starts, counts, strict=True)
        return [words[start : start + count] for start, count in pairs], found


def _payload(
    payload: bytes, place: int, accelerator: AcceleratorU55, where: str
) -> Iterator[ParserFinding]:
    """Walk over the driver's actions as it does."""
    if len(payload) % 4 or payload[:4] != _FOURCC:
        why = f"it has {len(payload)} bytes and begins with {payload[:4]!r}"
        yield _finding(ParserRule.PAYLOAD, where, why)
        return
    words = struct.unpack(f"<{len(payload) // 4}I", payload)
    at, streams, configured = 1, 0, False
    while at < len(words):
        action, word = words[at] & 0xFF, words[at]
        if action == _CONFIG and at + _CONFIG_WORDS <= len(words):
            yield from _machine(words[at + 1], words[at + 2], accelerator, where)
            configured = True
            at += _CONFIG_WORDS
        elif action == _NOP:
            at += 1
        elif action == _STREAM:
            count = (word >> 8 & 0xFF) << 16 | word >> 16
            yield from _stream(words[at + 1 : at + 1 + count], count, place + 4 * (at + 1), where)
            if not configured:
                yield _finding(ParserRule.PAYLOAD, where, "the commands come before the machine")
            streams += 1
            at += 1 + count
        else:
            yield _finding(
                ParserRule.PAYLOAD, where, f"unknown driver action {action} at word {at}"
            )
            return
    if streams != 1:
        yield _finding(ParserRule.PAYLOAD, where, f"it holds {streams} command streams")


def _stream(words: tuple[int, ...], count: int, place: int, where: str) -> Iterator[ParserFinding]:
    """Check the commands: there, aligned, ended by STOP, base addresses that exist, alignments."""
    if len(words) < count:
        why = f"it announces {count} command words, {len(words)} follow"
        yield _finding(ParserRule.PAYLOAD, where, why)
    if place % _ALIGNMENT:
        yield _finding(ParserRule.ALIGNMENT, where, f"its commands begin at byte {place}")
    if not words or words[-1] != _STOP:
        yield _finding(ParserRule.PAYLOAD, where, "its last command is not STOP")
    yield from _registers(words, where)


_REGION_CODES = {0x10F: "IFM", 0x11F: "OFM", 0x128: "weights", 0x129: "scales", 0x18F: "IFM2"}
_DMA_CODES = {0x130: "DMA source", 0x131: "DMA destination"}
_ALIGNED_CODES = {
    0x4020: "weights", 0x4021: "length of weights", 0x4022: "scales", 0x4023: "length of scales",
    0x4090: "weights of core 1", 0x4091: "length of weights of core 1",
    0x4092: "scales of core 1", 0x4093: "length of scales of core 1",
    0x4030: "DMA source", 0x4031: "DMA destination", 0x4032: "DMA length",
}  # fmt: skip


def _registers(words: tuple[int, ...], where: str) -> Iterator[ParserFinding]:
    """Check single registers: regions that exist, addresses and lengths in units of 16 bytes."""
    at = 0
    while at < len(words):
        word = words[at]
        code, value = word & 0xC3FF, word >> 16
        at += 1
        if code & 0x4000:
            if at == len(words):
                yield _finding(ParserRule.PAYLOAD, where, "its last command is cut off")
                return
            value = words[at] | value << 32
            at += 1
        name = _REGION_CODES.get(code)
        if name is not None and value >= _BASES:
            yield _finding(ParserRule.MACHINE, where, f"{name} are in region {value}, of {_BASES}")
        name = _ALIGNED_CODES.get(code)
        if name is not None and value % _ALIGNMENT:
            yield _finding(ParserRule.ALIGNMENT, where, f"{name} {value} (word {at - 2})")


def _machine(
    config: int, identity: int, accelerator: AcceleratorU55, where: str
) -> Iterator[ParserFinding]:
    """Compare the machine that the payload names with the target."""
    kib = accelerator.shram_banks * accelerator.cores
    facts = (
        ("MACs per cycle", 1 << (config & 0xF), accelerator.macs_per_cycle),
        ("command stream version", config >> 4 & 0xF, 0),
        ("KiB of SHRAM", config >> 8 & 0xFF, kib),
        ("custom DMA", config >> 27 & 1, 0),
        ("product", config >> 28, _PRODUCTS[accelerator.family]),
        ("architecture", identity >> 28, _ARCHITECTURE),
    )
    for name, have, want in facts:
        if have != want:
            why = f"it is for {have} {name}, {accelerator.name} has {want}"
            yield _finding(ParserRule.MACHINE, where, why)


def _size(tensor: Record) -> int:
    """Bytes of a tensor."""
    kind = TENSOR_TYPES[tensor.integer("type")]
    elements = int(np.prod(tensor.ints("shape"), dtype=np.int64))
    return -(-elements * (kind.bits or 8) // 8)


def _address(view: Array) -> int:
    """Where an array lies in memory."""
    address: int = view.__array_interface__["data"][0]
    return address


def _finding(rule: ParserRule, where: str, why: str) -> ParserFinding:
    return ParserFinding(rule=rule, where=where, why=why)


def _allocation_finding(why: str) -> ParserFinding:
    return _finding(ParserRule.ALLOCATION, _ALLOCATION, why)
