"""When each feature map must be kept, and where it may lie."""

from __future__ import annotations

from dataclasses import dataclass

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement
from npusched.hardware import Target
from npusched.memory import align_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """A feature map in the order of ops.

    ``first``: the op that first writes it (-1: there before the first op). ``last``: the op that
    last reads it (the number of ops: kept to the end; ``first`` if nobody reads it).
    ``readers``/``writers``: distinct ops, in order. ``homes``: memories it may lie in.
    """

    tensor: int
    size_bytes: int
    first: int
    last: int
    readers: tuple[int, ...]
    writers: tuple[int, ...]
    homes: tuple[str, ...]


def lifetimes(graph: OpGraph, target: Target) -> dict[int, Lifetime]:
    """Lifetimes of all feature maps that are not constants, by id.

    Persistent maps (variables) live for ever. With a staging memory apart from the arena, a map
    may lie in either, unless the host touches it or may run while it is alive (graph inputs and
    outputs, CPU ops) or it is an op's scratch: then only in the arena.
    """
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    in_arena = set()
    for index, op in enumerate(graph.ops):
        for access in op.reads:
            _append(readers.setdefault(access.tensor, []), index)
        for access in op.writes:
            _append(writers.setdefault(access.tensor, []), index)
        if op.scratch is not None:
            scratch = op.scratch.tensor
            readers[scratch] = writers[scratch] = [index]
            in_arena.add(scratch)
    on_cpu = [i for i, op in enumerate(graph.ops) if op.placement is Placement.CPU]
    count = len(graph.ops)
    found = {}
    for tensor, fm in graph.feature_maps.items():
        if fm.is_constant:
            continue
        reads, writes = readers.get(tensor, []), writers.get(tensor, [])
        early = fm.is_graph_input or fm.is_persistent or not writes
        first = -1 if early else writes[0]
        last = reads[-1] if reads else max(first, 0)
        if writes:
            last = max(last, writes[-1])
        if fm.is_graph_output or fm.is_persistent:
            last = count
        host = fm.is_graph_input or fm.is_graph_output or fm.is_persistent or first < 0
        host = host or any(first <= cpu <= last for cpu in on_cpu)
        found[tensor] = Lifetime(
            tensor=tensor,
            size_bytes=align_up(fm.stored_bytes),
            first=first,
            last=last,
            readers=tuple(reads),
            writers=tuple(writes),
            homes=_homes(target, host or tensor in in_arena),
        )
    return found


def _homes(target: Target, host: bool) -> tuple[str, ...]:
    arena, cache = target.roles.arena, target.roles.cache
    return (arena,) if host or arena == cache else (arena, cache)


def _append(indices: list[int], index: int) -> None:
    if not indices or indices[-1] != index:
        indices.append(index)
