"""What to tell a user whose budget no plan fits."""

from __future__ import annotations

from npusched.errors import InfeasibleError, JsonValue
from npusched.graph.types import Placement
from npusched.schedule.search import Solution, Step
from npusched.schedule.segments import Segments

LISTED = 6
"""Tensors alive at the peak that are listed, largest first."""


def infeasible(
    segments: Segments,
    smallest: Solution,
    need_bytes: int,
    have_bytes: int,
    shared_bytes: int,
    *,
    is_capacity: bool = False,
) -> InfeasibleError:
    """The error for a budget: what is needed, what is there, and which tensors make the peak.

    ``smallest`` is the plan of the least peak, ``need_bytes`` what it takes with addresses,
    ``shared_bytes`` of constants included. ``is_capacity``: nobody asked for the budget, it is all
    that the target has.
    """
    peak = max(smallest.steps, key=lambda step: step.sram_bytes)
    memory = segments.target.roles.cache
    alive = _alive(segments, smallest, peak)
    ops = segments.graph.ops
    sources = sorted({ref for v in range(peak.start, peak.end + 1) for ref in ops[v].source_ops})
    where = f"#{sources[0][1]} " if sources else ""
    return InfeasibleError(
        f"no plan fits {have_bytes} bytes of {memory}",
        f"the smallest feasible budget is {need_bytes} bytes, {need_bytes - have_bytes} more; "
        f"the peak is at op {where}{_kind(segments, peak.end)}",
        "the target has no more: take another target or memory mode, or shrink the tensors alive"
        if is_capacity
        else f"give --sram {need_bytes} or more, or shrink the tensors alive at the peak",
        need_bytes=need_bytes,
        have_bytes=have_bytes,
        excess_bytes=need_bytes - have_bytes,
        smallest_feasible_bytes=need_bytes,
        constants_in_budget_bytes=shared_bytes,
        peak={
            "source_ops": [list(ref) for ref in sources],
            "segment_bytes": peak.option.sram_bytes,
            "live": [
                {
                    "tensor": segments.graph.feature_maps[tensor].name,
                    "shape": list(segments.graph.feature_maps[tensor].shape),
                    "size_bytes": segments.lives[tensor].size_bytes,
                    "logical_bytes": segments.graph.feature_maps[tensor].logical_bytes,
                }
                for tensor in alive[:LISTED]
            ],
        },
        levers=_levers(segments, alive, shared_bytes),
    )


def _kind(segments: Segments, v: int) -> str:
    """Name of a kernel, or of the source op that runs on the CPU."""
    op = segments.graph.ops[v]
    if op.placement is Placement.NPU or not op.source_ops:
        return op.kind.value
    return segments.graph.sources[op.source_ops[0][1]].kind.value


def _alive(segments: Segments, smallest: Solution, peak: Step) -> list[int]:
    """Feature maps in the budget memory while the peak segment runs, largest first."""
    memory = segments.target.roles.cache
    alive = [
        tensor
        for item, tensor in enumerate(segments.tensors)
        for life in (segments.lives[tensor],)
        if smallest.homes[item] == memory
        and (life.first < peak.start <= life.last or peak.start <= life.first <= peak.end)
        and not (peak.start < peak.end and peak.start <= life.first and life.last <= peak.end)
    ]
    return sorted(alive, key=lambda tensor: -segments.lives[tensor].size_bytes)


def _levers(segments: Segments, alive: list[int], shared_bytes: int) -> list[JsonValue]:
    """What would lower the need, each with the bytes that it is worth at this peak."""
    levers: list[JsonValue] = []
    padding = sum(
        segments.lives[t].size_bytes - segments.graph.feature_maps[t].logical_bytes for t in alive
    )
    if padding > 0:
        levers.append({"id": "channels", "text": "channel padding at the peak", "bytes": padding})
    if shared_bytes:
        levers.append(
            {
                "id": "memory_mode",
                "text": "keep constants in another memory (Shared_Sram)",
                "bytes": shared_bytes,
            }
        )
    if alive:
        largest = alive[0]
        levers.append(
            {
                "id": "split",
                "text": f"halve {segments.graph.feature_maps[largest].name}",
                "bytes": segments.lives[largest].size_bytes // 2,
            }
        )
    return levers
