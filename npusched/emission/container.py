"""The file: Vela's own container with our streams, constants, memory sizes and addresses.

An ``ethos-u`` op reads [command stream, read-only, scratch, scratch_fast, inputs...]; all ops of a
file share the last three memories. What is not replaced here (names, types, quantisation, operator
codes and options, other metadata) stays as Vela wrote it (EMIT.md §7).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod

import numpy as np

from npusched.emission.parts import ALIGNMENT_BYTES, Emitted, align_up
from npusched.errors import EmitError
from npusched.tflite.decode import decode
from npusched.tflite.records import Record
from npusched.tflite.rewrite import TensorValues, replace_values
from npusched.tflite.schema import TENSOR_TYPES
from npusched.vela.compiled import NPU_OP

ALLOCATION = "OfflineMemoryAllocation"
"""Metadata with the version, the number of subgraphs and tensors, and an offset per tensor."""

NOT_PLACED = -1
"""Offset of a tensor that has no place in the arena."""

STOP = 0xFFFF0000

_COP1 = b"COP1"
_OPTIMISER_CONFIG = 0x01
_COMMAND_STREAM = 0x02
_NOP = 0x05
_MAX_WORDS = (1 << 24) - 1
_HEAD = 3


def write_file(emitted: Emitted) -> bytes:
    """Return the deployable ``.tflite``.

    Raises EmitError if the template is not such a file: another number of ethos-u ops, several
    subgraphs, no allocation; and for streams that no driver action can announce.
    """
    root = decode(emitted.template)
    graph = _main_graph(root)
    ops = npu_operators(root)
    if len(ops) != len(emitted.streams):
        raise _unfit(f"it has {len(ops)} NPU operators, {len(emitted.streams)} streams were made")
    tensors: dict[int, TensorValues] = {}
    for stream in emitted.streams:
        command, read_only, scratch, fast = ops[stream.partition].ints("inputs")[:4]
        payload = write_payload(_content(root, graph, command), stream.words)
        tensors[command] = TensorValues((len(payload),), payload)
        tensors[read_only] = TensorValues((len(emitted.read_only),), emitted.read_only)
        tensors[scratch] = TensorValues((emitted.arena_bytes,))
        if fast != scratch:
            tensors[fast] = TensorValues((emitted.fast_bytes or 0,))
        elif emitted.fast_bytes is not None:
            raise _unfit("it has no scratch_fast tensor, but the stream uses one")
    allocation = _allocation(root, graph, emitted)
    return replace_values(emitted.template, tensors, {ALLOCATION: allocation})


def npu_operators(root: Record) -> tuple[Record, ...]:
    """Return the ethos-u ops of a decoded file's main subgraph, in file order."""
    codes = [code.text("custom_code") for code in root.records("operator_codes")]
    operators = root.records("subgraphs")[0].records("operators")
    return tuple(op for op in operators if codes[op.integer("opcode_index")] == NPU_OP)


@lru_cache(maxsize=8)
def unplaced_bytes(template: bytes) -> int:
    """Return the bytes of tensors that the file does not place, each rounded up to 16.

    TFLM finds a place for them: variables, and what only ops of the host know.
    """
    root = decode(template)
    graph, buffers = root.records("subgraphs")[0], root.records("buffers")
    tensors = graph.records("tensors")
    memories = {index for op in npu_operators(root) for index in op.ints("inputs")[:4]}
    placed = _old_allocation(root)[_HEAD : _HEAD + len(tensors)]
    return sum(
        align_up(tensor_bytes(tensor))
        for index, (tensor, offset) in enumerate(zip(tensors, placed, strict=False))
        if offset == NOT_PLACED
        and index not in memories
        and not len(buffers[tensor.integer("buffer")].blob("data"))
    )


def tensor_bytes(tensor: Record) -> int:
    """Return the bytes of a tensor of a decoded file."""
    bits = TENSOR_TYPES[tensor.integer("type")].bits or 8
    return -(-prod(tensor.ints("shape")) * bits // 8)


def write_payload(template: bytes, words: tuple[int, ...]) -> bytes:
    """Return the driver payload for command ``words``; the machine is the template's.

    NOPs stand before the words, so that those are aligned to 16 bytes, and nothing behind them: the
    driver would take padding for an action.
    """
    if len(words) > _MAX_WORDS:
        raise EmitError(
            "the command stream is too long",
            f"{len(words)} words, the driver takes {_MAX_WORDS}",
            "use fewer stripes: give more SRAM",
        )
    if not words or words[-1] != STOP:
        raise ValueError("a command stream ends with STOP")
    if template[:4] != _COP1 or len(template) < ALIGNMENT_BYTES:
        raise _unfit(f"its payload begins with {template[:4]!r}, not COP1")
    option, config, identity = struct.unpack_from("<3I", template, 4)
    if option & 0xFF != _OPTIMISER_CONFIG:
        raise _unfit(f"its first driver action is {option & 0xFF:#x}, not its configuration")
    head = [option, config, identity]
    while (len(_COP1) + 4 * (len(head) + 1)) % ALIGNMENT_BYTES:
        head.append(_NOP)
    count = len(words)
    head.append(_COMMAND_STREAM | (count >> 16) << 8 | (count & 0xFFFF) << 16)
    return _COP1 + struct.pack(f"<{len(head)}I", *head) + np.array(words, "<u4").tobytes()


def _main_graph(root: Record) -> Record:
    """The first subgraph; others may only have tensors without a place in the arena."""
    main, *others = root.records("subgraphs")
    codes = [code.text("custom_code") for code in root.records("operator_codes")]
    for graph in others:
        if any(codes[op.integer("opcode_index")] == NPU_OP for op in graph.records("operators")):
            raise _unfit("several of its subgraphs use the NPU; only the first can be emitted")
    return main


def _content(root: Record, graph: Record, tensor: int) -> bytes:
    buffer = graph.records("tensors")[tensor].integer("buffer")
    return bytes(root.records("buffers")[buffer].blob("data"))


def _allocation(root: Record, graph: Record, emitted: Emitted) -> bytes:
    """Return the metadata: Vela's first three words, then an offset per tensor.

    Scratch memories begin at 0, as Vela has them.
    """
    count = len(graph.records("tensors"))
    offsets = [emitted.addresses.get(index, NOT_PLACED) for index in range(count)]
    for op in npu_operators(root):
        for memory in op.ints("inputs")[2:4]:
            offsets[memory] = 0
    old = _old_allocation(root)
    rest = old[_HEAD + count :]
    return np.array([*old[:_HEAD], *offsets, *rest], "<i4").tobytes()


def _old_allocation(root: Record) -> list[int]:
    """Words of the template's allocation. Raises EmitError if it is missing or incomplete."""
    entry = next((m for m in root.records("metadata") if m.text("name") == ALLOCATION), None)
    if entry is None:
        raise _unfit(f"it has no {ALLOCATION}")
    old = bytes(root.records("buffers")[entry.integer("buffer")].blob("data"))
    total = sum(len(each.records("tensors")) for each in root.records("subgraphs"))
    if len(old) != 4 * (_HEAD + total):
        raise _unfit(f"its {ALLOCATION} has {len(old)} bytes for {total} tensors")
    words: list[int] = np.frombuffer(old, "<i4").tolist()
    return words


def _unfit(why: str) -> EmitError:
    return EmitError(
        "cannot write the file: Vela's own is not as expected",
        why,
        "use a supported version of Vela (docs/emit.md)",
    )
