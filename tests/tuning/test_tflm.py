"""The tensor arena: parts add up, and the estimate covers what was measured."""

from __future__ import annotations

from npusched.tuning.tflm import FileShape, arena_parts, arena_size_bytes


def test_parts_by_hand() -> None:
    """One NPU op with 6 operands (4 + in + out), 6 tensors, one CPU op: 48 + 32 bytes of tables.

    6 x 24 + 2 x 56 + 32 + 16 + 2048 = 2352 bytes of the interpreter's own.
    """
    parts = arena_parts(1000, FileShape(tensors=6, cpu_ops=1, npu_operands=(6,)))
    assert [part.size_bytes for part in parts] == [1008, 32, 80, 2352]
    assert [part.is_estimate for part in parts] == [False, False, False, True]
    assert arena_size_bytes(parts) == 3472


def test_the_estimate_covers_the_interpreters_own_test() -> None:
    """memory_arena_threshold_test.cc, x86-64: the tail of its two models.

    Convolution: 13 tensors, 5 ops: 1928 bytes. Keyword: 54 tensors, 15 ops, 10240 bytes of
    variables: 14264 bytes.
    """
    conv = arena_parts(7744, FileShape(tensors=13, cpu_ops=5, npu_operands=(), cpu_channels=3))
    keyword = arena_parts(
        672, FileShape(tensors=54, cpu_ops=15, npu_operands=(), variable_bytes=10240)
    )
    assert 1928 <= conv[-1].size_bytes <= 2 * 1928
    assert 14264 <= keyword[-1].size_bytes <= 1.2 * 14264
