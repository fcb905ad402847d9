"""When each feature map must be kept, and where it may lie."""

from __future__ import annotations

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement
from npusched.hardware import Target
from npusched.memory import align_up


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
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


def lifetimes(graph: OpGraph, target: Target, *, stage_inputs: bool = False) -> dict[int, Lifetime]:
    """Lifetimes of all feature maps that are not constants, by id.

    Persistent maps (variables, LSTM states) live for ever, and all that are the same variable
    share one lifetime, under the id that ``storage`` names. Scratch lives while its op runs, in
    the arena. With a staging memory apart from the arena, a map may lie in either, unless the host
    touches it or may run while it is alive (graph inputs and outputs, CPU ops): then only in the
    arena. ``stage_inputs``: a graph input may lie in the staging memory, too, as a copy of what the
    host writes to the arena.
    """
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    same = storage(graph)
    for index, op in enumerate(graph.ops):
        for access in op.reads:
            _append(readers.setdefault(same.get(access.tensor, access.tensor), []), index)
        for access in op.writes:
            _append(writers.setdefault(same.get(access.tensor, access.tensor), []), index)
        if op.scratch is not None:
            readers[op.scratch.tensor] = writers[op.scratch.tensor] = [index]
    scratches = {op.scratch.tensor for op in graph.ops if op.scratch is not None}
    on_cpu = [i for i, op in enumerate(graph.ops) if op.placement is Placement.CPU]
    count = len(graph.ops)
    found = {}
    for tensor, fm in graph.feature_maps.items():
        if fm.is_constant or tensor in same:
            continue
        reads, writes = readers.get(tensor, []), writers.get(tensor, [])
        early = fm.is_graph_input or fm.is_persistent or not writes
        first = -1 if early else writes[0]
        last = reads[-1] if reads else max(first, 0)
        if writes:
            last = max(last, writes[-1])
        if fm.is_graph_output or fm.is_persistent:
            last = count
        host = (
            tensor in scratches
            or (fm.is_graph_input and not stage_inputs)
            or fm.is_graph_output
            or fm.is_persistent
            or (first < 0 and not fm.is_graph_input)
        )
        host = host or any(first <= cpu <= last for cpu in on_cpu)
        found[tensor] = Lifetime(
            tensor=tensor,
            size_bytes=align_up(fm.stored_bytes),
            first=first,
            last=last,
            readers=tuple(reads),
            writers=tuple(writes),
            homes=_homes(target, host),
        )
    return found


def storage(graph: OpGraph) -> dict[int, int]:
    """Maps that are stored in another map's place: id to the id that stands for both.

    The same variable is told by its source tensor, or by its name where it has none. (A graph
    from ``build_graph`` has one map per variable, so nothing is found there.)
    """
    first: dict[object, int] = {}
    same = {}
    for tensor, fm in graph.feature_maps.items():
        if fm.is_persistent:
            known = first.setdefault(fm.source or fm.name, tensor)
            if known != tensor:
                same[tensor] = known
    return same


def _homes(target: Target, host: bool) -> tuple[str, ...]:
    arena, cache = target.roles.arena, target.roles.cache
    return (arena,) if host or arena == cache else (arena, cache)


def _append(indices: list[int], index: int) -> None:
    if not indices or indices[-1] != index:
        indices.append(index)
