"""Live ranges: how many bytes must be kept, from which step to which."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

ALIGNMENT_BYTES = 16
"""Every buffer starts and ends on 16 bytes (VELA_SPEC §5: NHCWB16 bases, DMA)."""


class LiveRange(msgspec.Struct, frozen=True, kw_only=True):
    """``size_bytes`` needed during the half-open interval of steps [first_step, end_step)."""

    key: str
    size_bytes: int
    first_step: int
    end_step: int

    def overlaps(self, other: LiveRange) -> bool:
        """True if both are alive at some common step."""
        return self.first_step < other.end_step and other.first_step < self.end_step


def align_up(size_bytes: int, alignment_bytes: int = ALIGNMENT_BYTES) -> int:
    """Round a size or address up to a multiple of ``alignment_bytes``."""
    return -(-size_bytes // alignment_bytes) * alignment_bytes


def live_bytes(ranges: Sequence[LiveRange], steps: int | None = None) -> list[int]:
    """Return the aligned bytes alive at each step, from step 0 (``steps`` entries at least)."""
    length = max([steps or 0, *(r.end_step for r in ranges)])
    change = [0] * (length + 1)
    for live in ranges:
        size = align_up(live.size_bytes)
        change[live.first_step] += size
        change[live.end_step] -= size
    total = 0
    alive = []
    for delta in change[:length]:
        total += delta
        alive.append(total)
    return alive


def lower_bound(ranges: Sequence[LiveRange]) -> int:
    """No allocation can use less than the largest sum of aligned sizes alive at one step."""
    return max(live_bytes(ranges), default=0)
