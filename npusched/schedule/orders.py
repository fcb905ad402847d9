"""Orders of ops that need less memory: best-first search over down-sets where a graph branches.

A down-set is a set of ops that holds all that they depend on: what has run at some moment. What is
alive then depends on the set alone, not on the order inside it, so the least peak over all orders
is a path through down-sets whose largest live sum is smallest. Ops that every order puts at the
same place cut the graph into regions, which are searched one by one. CPU ops stay where they are,
and so do ops that continue in the accumulators of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import NOT_STORED, Access, Placement, ScheduledOp
from npusched.hardware import Target
from npusched.schedule.down_sets import Map, Region
from npusched.schedule.lifetimes import Lifetime, lifetimes, storage

STEP_CAP = 30_000
"""Steps from a down-set to the next looked at per region; beyond it the region keeps its order."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order of the ops of a graph: ``ops[k]`` is the id of the op that runs as k-th.

    ``peak_bytes``: the largest sum of live maps that may lie in the budget memory, every op run
    whole, of all ops whose place is not fixed; ``given_bytes``: the same of the graph's own order.
    ``capped``: how many regions were left as they are because their down-sets are too many.
    """

    ops: tuple[int, ...]
    peak_bytes: int
    given_bytes: int
    capped: int


class Dependences(msgspec.Struct, frozen=True):
    """For each unit (ops that must stay together) the units before it that it needs, and its ops.

    Ops of a unit are consecutive; units are in the order of the graph.
    """

    units: tuple[tuple[int, ...], ...]
    before: tuple[frozenset[int], ...]


def least_peak_order(graph: OpGraph, target: Target, *, cap: int = STEP_CAP) -> Order:
    """Return the order of least peak; each region keeps the graph's own where it is as good.

    ``cap``: most steps from one down-set to the next that are looked at in a region.
    """
    lives = lifetimes(graph, target)
    needs = dependences(graph)
    memory = target.roles.cache
    maps = _maps(lives, needs, memory)
    units = list(range(len(needs.units)))
    capped = 0
    for first, end in branchy_regions(needs.before):
        found = Region(maps, needs.before, first, end).search(cap)
        capped += found is None
        if found:
            units[first:end] = found
    ops = tuple(op for unit in units for op in needs.units[unit])
    return Order(
        ops=ops,
        peak_bytes=peak_of(lives, needs, ops, memory),
        given_bytes=peak_of(lives, needs, range(len(ops)), memory),
        capped=capped,
    )


def depth_first_orders(graph: OpGraph) -> list[tuple[int, ...]]:
    """Orders that finish one branch before the next starts: branches and outputs either way."""
    needs = dependences(graph)
    after: set[int] = set().union(*needs.before) if needs.before else set()
    sinks = [unit for unit in range(len(needs.units)) if unit not in after]
    found = {}
    for branch_step in (1, -1):
        for sink_step in (1, -1):
            units = _depth_first(needs.before, sinks[::sink_step], branch_step)
            found[tuple(op for unit in units for op in needs.units[unit])] = True
    return list(found)


def _depth_first(before: Sequence[frozenset[int]], sinks: Sequence[int], step: int) -> list[int]:
    order: list[int] = []
    met: set[int] = set()
    stack = [(False, sink) for sink in reversed(sinks)]
    while stack:
        finished, unit = stack.pop()
        if finished:
            order.append(unit)
        elif unit not in met:
            met.add(unit)
            stack.append((True, unit))
            stack += [(False, k) for k in sorted(before[unit])[::step] if k not in met]
    return order


def dependences(graph: OpGraph) -> Dependences:
    """What must run before what: results, variables, overlapping writes, the host's turns."""
    units: list[list[int]] = []
    unit_of = []
    for op in graph.ops:
        if not (units and op.keep_accumulators):
            units.append([])
        units[-1].append(op.id)
        unit_of.append(len(units) - 1)
    before: list[set[int]] = [set() for _ in units]
    for a, b in _ordered_pairs(graph):
        if unit_of[a] != unit_of[b]:
            before[unit_of[b]].add(unit_of[a])
    _barriers(graph, units, before)
    return Dependences(
        units=tuple(tuple(unit) for unit in units),
        before=tuple(frozenset(needed) for needed in before),
    )


def _ordered_pairs(graph: OpGraph) -> list[tuple[int, int]]:
    """Pairs (a, b), a < b, of ops that touch one map and must keep their order."""
    same = storage(graph)
    touching: dict[int, list[tuple[int, Access, bool]]] = {}
    for op in graph.ops:
        for accesses, writes in ((op.reads, False), (op.writes, True)):
            for access in accesses:
                if access.tensor != NOT_STORED:
                    stored = same.get(access.tensor, access.tensor)
                    touching.setdefault(stored, []).append((op.id, access, writes))
    pairs = []
    for users in touching.values():
        makers = [user for user in users if user[2]]
        for a, written, _ in makers:
            for b, other, is_write in users:
                if a != b and not (is_write and _apart(graph, a, written, b, other)):
                    pairs.append((min(a, b), max(a, b)))
    return pairs


def _apart(graph: OpGraph, a: int, one: Access, b: int, other: Access) -> bool:
    """True if two writes surely touch different elements (parts of a concatenation)."""
    simple = all(_is_simple(graph.ops[v], access) for v, access in ((a, one), (b, other)))
    if not simple or one.view != other.view or graph.feature_maps[one.tensor].is_persistent:
        return False
    return any(
        start + size <= begin or begin + extent <= start
        for start, size, begin, extent in zip(
            one.offset, one.shape, other.offset, other.shape, strict=True
        )
    )


def _is_simple(op: ScheduledOp, access: Access) -> bool:
    return op.count == 1 and access.step_h == access.step_w == 1


def _barriers(graph: OpGraph, units: Sequence[Sequence[int]], before: Sequence[set[int]]) -> None:
    """CPU ops keep their places: all before them runs before, all after them after."""
    last: int | None = None
    for k, unit in enumerate(units):
        if last is not None:
            before[k].add(last)
        if graph.ops[unit[0]].placement is Placement.CPU:
            before[k].update(range(0 if last is None else last, k))
            last = k


def branchy_regions(before: Sequence[frozenset[int]]) -> list[tuple[int, int]]:
    """Ranges [first, end) of units between those that have the same place in every order.

    A unit has a fixed place if all units before it lead to it and it leads to all after it.
    """
    n = len(before)
    first_reader = [n] * n
    for k in range(n - 1, -1, -1):
        for needed in before[k]:
            first_reader[needed] = k
    reach = -1  # every unit before k leads to k if none has its first reader after k
    all_lead = []
    for k in range(n):
        all_lead.append(reach <= k)
        reach = max(reach, first_reader[k])
    leads_to_all = [True] * n
    reach = n
    for k in range(n - 1, -1, -1):
        leads_to_all[k] = reach >= k
        reach = min(reach, max(before[k], default=-1))
    regions, start = [], 0
    for k in range(n + 1):
        if k == n or (all_lead[k] and leads_to_all[k]):
            if k - start > 1:
                regions.append((start, k))
            start = k + 1
    return regions


def peak_of(
    lives: Mapping[int, Lifetime], needs: Dependences, order: Sequence[int], memory: str
) -> int:
    """Largest sum of live maps that may lie in ``memory``, of the ops whose place is not fixed."""
    place = {op: k for k, op in enumerate(order)}
    change = [0] * (len(order) + 1)
    for life in lives.values():
        if memory not in life.homes:
            continue
        users = [place[op] for op in (*life.writers, *life.readers)]
        first = 0 if life.first < 0 else min(users)
        last = len(order) - 1 if life.last >= len(order) else max(users, default=0)
        change[first] += life.size_bytes
        change[last + 1] -= life.size_bytes
    live = list(accumulate(change))
    starts = [0, *accumulate(len(unit) for unit in needs.units)]
    return max(
        (
            bytes_alive
            for first, end in branchy_regions(needs.before)
            for bytes_alive in live[starts[first] : starts[end]]
        ),
        default=0,
    )


def _maps(lives: Mapping[int, Lifetime], needs: Dependences, memory: str) -> list[Map]:
    unit_of = {op: k for k, unit in enumerate(needs.units) for op in unit}
    count = sum(len(unit) for unit in needs.units)
    return [
        Map(
            size_bytes=life.size_bytes,
            users=tuple(sorted({unit_of[op] for op in (*life.writers, *life.readers)})),
            early=life.first < 0,
            kept=life.last >= count,
        )
        for life in lives.values()
        if memory in life.homes
    ]
