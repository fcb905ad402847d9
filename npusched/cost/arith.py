"""Integer and float32 arithmetic of the cost model.

Vela divides bytes by bytes-per-cycle in float32 and truncates, so large transfers lose low bits
(VELA_SPEC_2 §2); the helpers here reproduce that bit by bit.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

from npusched.cost.types import Basis
from npusched.graph.types import Shape4
from npusched.hardware.target import Memory

_FLOAT32 = struct.Struct("<f")

_EXACT = 1 << 24
"""Integers up to here are float32 values."""


def ceil_div(value: int, divisor: int) -> int:
    """Return value / divisor rounded up (value ≥ 0, divisor > 0)."""
    return -(-value // divisor)


def round_up(value: int, granule: int) -> int:
    """Return the smallest multiple of ``granule`` that is ≥ ``value``."""
    return -(-value // granule) * granule


def unpermuted(shape: Shape4, transpose: tuple[int, int, int] | None) -> Shape4:
    """Return the shape before a fused transpose: axis ``transpose[i]`` gets stored axis i."""
    if transpose is None:
        return shape
    n, *stored = shape
    original = [1, 1, 1]
    for axis, source in enumerate(transpose):
        original[source] = stored[axis]
    return (n, original[0], original[1], original[2])


def float32(value: float) -> float:
    """Return the nearest float32 (as a Python float)."""
    return float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])


def transfer_cycles(size_bytes: int, bandwidth_bytes_per_cycle: float) -> int:
    """Cycles to move ``size_bytes``: float32 quotient, truncated (VELA_SPEC_2 §2)."""
    if bandwidth_bytes_per_cycle <= 0:
        return 0
    size = size_bytes if size_bytes <= _EXACT else float32(size_bytes)
    return int(float32(size / _rate(bandwidth_bytes_per_cycle)))


@lru_cache(maxsize=4096)
def _rate(bandwidth_bytes_per_cycle: float) -> float:
    return float32(bandwidth_bytes_per_cycle)


def bandwidth(memory: Memory, basis: Basis) -> float:
    """Bytes per NPU cycle of ``memory``: physical, or as Vela names it."""
    if basis is Basis.VELA:
        return memory.vela_bandwidth_bytes_per_cycle
    return memory.bandwidth_bytes_per_cycle


def read_limit_cycles(size_bytes: float, bandwidth_bytes_per_cycle: float, latency: int) -> int:
    """Vela's minimum read time: double quotient plus latency, truncated (VELA_SPEC_2 §6)."""
    return math.trunc(size_bytes / float32(bandwidth_bytes_per_cycle) + latency)
