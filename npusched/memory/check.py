"""Independent check of an allocation: shares no code with the allocator, tests every pair."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from npusched.memory.ranges import LiveRange


def check_allocation(
    ranges: Sequence[LiveRange],
    offsets: Sequence[int],
    *,
    limit_bytes: int | None = None,
    sharing: Collection[tuple[int, int]] = (),
) -> list[str]:
    """Return what is wrong with the allocation, one sentence per fault; [] if it is right.

    Checked: one offset per range, non-negative, multiple of 16; no two ranges that are alive at
    the same step share a byte; nothing ends above ``limit_bytes``; intervals are not empty.
    ``sharing``: pairs (lower index first) that share bytes on purpose, which somebody else must
    check.
    """
    faults: list[str] = []
    if len(offsets) != len(ranges):
        return [f"{len(ranges)} ranges but {len(offsets)} offsets"]
    for live, offset in zip(ranges, offsets, strict=True):
        if live.end_step <= live.first_step:
            faults.append(f"{live.key} is never alive: [{live.first_step}, {live.end_step})")
        if offset < 0 or offset % 16:
            faults.append(f"{live.key} at {offset}: not a multiple of 16")
        if limit_bytes is not None and offset + live.size_bytes > limit_bytes:
            faults.append(f"{live.key} ends at {offset + live.size_bytes}, above {limit_bytes}")
    by_start = sorted(range(len(ranges)), key=lambda i: offsets[i])
    for position, i in enumerate(by_start):
        top = offsets[i] + ranges[i].size_bytes
        for j in by_start[position + 1 :]:
            if offsets[j] >= top:
                break
            a, b = ranges[i], ranges[j]
            if (
                a.size_bytes
                and b.size_bytes
                and (min(i, j), max(i, j)) not in sharing
                and max(a.first_step, b.first_step) < min(a.end_step, b.end_step)
            ):
                faults.append(
                    f"{a.key} [{offsets[i]}, {top}) and {b.key} "
                    f"[{offsets[j]}, {offsets[j] + b.size_bytes}) overlap in time and space"
                )
    return faults
