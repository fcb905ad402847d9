"""How large TensorFlow Lite Micro's tensor arena must be: what is known, and what is estimated.

The arena array holds the model's tensors (head) and what the interpreter keeps (tail). The head is
the plan's; sizes of the interpreter's records depend on its version and the processor, so the tail
is an estimate from above. Sources, read in 2026: tensorflow/tflite-micro, micro_allocator.cc
(buffers on 16 bytes), kernels/ethos_u/ethosu.cc (scratch tables and OpData of an NPU call),
memory_arena_threshold_test.cc and docs/memory_management.md (measured on x86-64: 24 bytes per
tensor, 56 per op, 136 bytes of data for 5 ops, at most 2 KiB of the rest). Cortex-M has pointers of
half the size.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from npusched.memory.ranges import ALIGNMENT_BYTES, align_up

TENSOR_BYTES: Final = 24
NODE_BYTES: Final = 56
CPU_OP_BYTES: Final = 32
NPU_OP_BYTES: Final = 16
MISC_BYTES: Final = 2048
CHANNEL_BYTES: Final = 8
"""Multiplier and shift of an output channel, which convolutions on the CPU keep."""

POINTER_BYTES: Final = 8
SIZE_BYTES: Final = 4

Kind = Literal["arena", "alignment", "npu_tables", "persistent"]


class FileShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the interpreter keeps records of: a compiled file's tensors and ops.

    ``npu_operands``: inputs and outputs of each NPU op. ``cpu_channels``: output channels of the
    convolutions on the CPU. ``variable_bytes``: tensors that keep their value between inferences.
    """

    tensors: int
    cpu_ops: int
    npu_operands: tuple[int, ...]
    cpu_channels: int = 0
    variable_bytes: int = 0


class ArenaPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the arena array: ``is_estimate`` False = follows from plan and sources."""

    kind: Kind
    size_bytes: int
    is_estimate: bool
    why: str


def arena_parts(arena_bytes: int, shape: FileShape) -> tuple[ArenaPart, ...]:
    """Parts of ``kTensorArenaSize`` for a plan whose feature maps take ``arena_bytes``."""
    tables = sum(align_up(POINTER_BYTES * n) + align_up(SIZE_BYTES * n) for n in shape.npu_operands)
    nodes = shape.cpu_ops + len(shape.npu_operands)
    kept_bytes = (
        TENSOR_BYTES * shape.tensors
        + NODE_BYTES * nodes
        + CPU_OP_BYTES * shape.cpu_ops
        + NPU_OP_BYTES * len(shape.npu_operands)
        + CHANNEL_BYTES * shape.cpu_channels
        + shape.variable_bytes
        + MISC_BYTES
    )
    return (
        ArenaPart(
            kind="arena",
            size_bytes=align_up(arena_bytes),
            is_estimate=False,
            why="feature maps, inputs and outputs at their addresses in the plan",
        ),
        ArenaPart(
            kind="alignment",
            size_bytes=2 * ALIGNMENT_BYTES,
            is_estimate=False,
            why="start of the array and border of the tail, each on 16 bytes",
        ),
        ArenaPart(
            kind="npu_tables",
            size_bytes=tables,
            is_estimate=False,
            why="addresses and sizes of the operands of every NPU call (ethosu.cc)",
        ),
        ArenaPart(
            kind="persistent",
            size_bytes=align_up(kept_bytes),
            is_estimate=True,
            why=f"records of {shape.tensors} tensors and {nodes} ops with the sizes of x86-64, "
            f"{MISC_BYTES} bytes of the rest",
        ),
    )


def arena_size_bytes(parts: tuple[ArenaPart, ...]) -> int:
    """The suggested ``kTensorArenaSize``: all parts."""
    return sum(part.size_bytes for part in parts)
