"""Which segments exist and how each may run: the problem that the search solves.

A segment is one op run whole, or several ops run in stripes whose intermediate rows stay in
rolling buffers (see ``fusing``). For those every stripe height (see ``stripe_candidates``), both
row policies, and for every op streamed or resident weights are options; the exact Pareto front of
(bytes, score) over all of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf
from operator import itemgetter
from typing import TypedDict

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement
from npusched.hardware import Target
from npusched.memory import align_up
from npusched.schedule.fronts import Entry, merged, modes_of
from npusched.schedule.fusing import Fusing
from npusched.schedule.kernels import KernelCost, Kernels, Places, Sizes
from npusched.schedule.lifetimes import Lifetime, lifetimes, storage
from npusched.schedule.overwriting import Overwriting
from npusched.schedule.rows import Policy, stripe_candidates
from npusched.schedule.search import (
    NO_PREFETCH,
    Homes,
    Item,
    Option,
    Prefetch,
    Problem,
    pareto,
)
from npusched.schedule.staging import StagedWeights, Way, copy_cycles
from npusched.schedule.stripes import touched_maps
from npusched.schedule.switches import Switch
from npusched.schedule.types import WeightMode

SEGMENT_CAP = 12
"""Most ops in a chain (PLANNER §8: optimal segments had at most 6 ops on nearly all networks)."""


class Scope(TypedDict, total=False):
    """Keyword arguments of ``Segments``: which ways to run are looked at."""

    cap: int
    linear: bool
    in_place: bool
    staged: bool
    switches: frozenset[Switch]
    limit_bytes: float


class Detail(msgspec.Struct, frozen=True):
    """How a segment runs: final stripe height, row policy, and each op's weight mode.

    ``over``: the map whose place the segment's result takes, row by row; None = its own.
    ``shift``: how many bytes below that map it starts; 0 = element by element in its place.
    ``way``: how the weights of a single op are staged (index, see ``staging``); None = not so.
    """

    stripe_rows: int
    policy: Policy
    modes: tuple[WeightMode, ...]
    over: int | None = None
    way: int | None = None
    shift: int = 0


Manner = tuple[int, Policy, int | None, int]
"""Stripe height, row policy, overwritten map, and shift (see ``Detail``)."""

_Found = tuple[int, float, float, int, Manner]
"""An ``Entry`` of a whole segment, with how its ops are striped."""

_BY_BYTES_THEN_SCORE = itemgetter(0, 1)

_BOTH = tuple(Policy)


class Segments:
    """Segments of one graph on one target: what the search asks for, remembered."""

    def __init__(
        self,
        kernels: Kernels,
        *,
        cap: int = SEGMENT_CAP,
        linear: bool = False,
        in_place: bool = True,
        staged: bool = True,
        switches: frozenset[Switch] = frozenset(),
        limit_bytes: float = inf,
    ) -> None:
        self.kernels = kernels
        self.graph: OpGraph = kernels.graph
        self.target: Target = kernels.target
        self.cap = cap
        self.limit_bytes = limit_bytes
        self.switches = switches
        self.staged = StagedWeights(kernels) if staged else None
        self.lives: dict[int, Lifetime] = lifetimes(
            self.graph, self.target, stage_inputs=Switch.STAGED_INPUT in switches
        )
        self.tensors = sorted(self.lives)
        self._index = {tensor: k for k, tensor in enumerate(self.tensors)}
        self.fusing = Fusing(self.graph, self.lives, cap=cap, linear=linear)
        self.overwriting = Overwriting(
            self.graph,
            self.lives,
            self.fusing,
            self.target.roles.cache,
            in_place=in_place,
            overlapping=Switch.OVERLAP in switches,
        )
        self.windows = self.fusing.windows
        self.stored_in = storage(self.graph)
        self._touched = [touched_maps(op) for op in self.graph.ops]
        self._sizes: dict[tuple[int, int, int, Policy], Sizes] = {}
        self._suffixes: dict[tuple[object, ...], list[Entry]] = {}
        self._forks: dict[tuple[int, int], int] = {}
        self._rolling: dict[tuple[int, int, Policy], list[tuple[int, int, int]]] = {}
        self._alone: dict[tuple[int, Homes], Places] = {}
        self._prefetches: dict[int, list[Prefetch]] = {}
        self._crossings: dict[tuple[int, int], tuple[int, ...]] = {}
        self._ends: list[list[int]] = [[] for _ in self.graph.ops]
        for j in range(len(self.graph.ops)):
            for i in range(self.fusing.first(j), j + 1):
                self._ends[i].append(j)

    def problem(self, budget_memory: str) -> Problem:
        """The search problem over these segments."""
        return Problem(
            op_count=len(self.graph.ops),
            items=tuple(
                Item(life.size_bytes, life.first, life.last, life.homes)
                for life in (self.lives[tensor] for tensor in self.tensors)
            ),
            budget_memory=budget_memory,
            ends=self.ends,
            touched=self.touched,
            options=self.options,
            prefetches=self.prefetches,
            entry=self._entry,
        )

    def staged_inputs(self, homes: Mapping[int, str]) -> list[int]:
        """Graph inputs that lie in the staging memory, as copies of what the host writes."""
        return [
            tensor
            for tensor, life in self.lives.items()
            if len(life.homes) > 1
            and self.graph.feature_maps[tensor].is_graph_input
            and homes.get(tensor) == self.target.roles.cache
        ]

    def _entry(self, homes: Homes) -> tuple[float, int]:
        """(score, off-chip bytes) of copying the graph inputs that do not stay in the arena."""
        copied = self.staged_inputs({self.tensors[item]: memory for item, memory in homes})
        costs = [self.kernels.copy(self.lives[tensor].size_bytes) for tensor in copied]
        return (
            sum((cost.score for cost in costs), 0.0),
            sum(self.kernels.offchip_bytes(cost) for cost in costs),
        )

    def ends(self, i: int) -> Sequence[int]:
        """Last ops of the segments that start at op i."""
        return self._ends[i]

    def touched(self, i: int, j: int) -> tuple[int, ...]:
        """Items whose home the segment's cost depends on: those with a choice that it touches."""
        found = {
            self._index[tensor]
            for v in range(i, j + 1)
            for tensor in self._touched[v]
            if tensor in self.lives
            and len(self.lives[tensor].homes) > 1
            and not self.internal(tensor, i, j)
        }
        return tuple(sorted(found))

    def options(self, i: int, j: int, homes: Homes, prefetch: int = NO_PREFETCH) -> list[Option]:
        """Pareto front of ways to run segment [i..j], by rising bytes; empty above the limit.

        ``prefetch``: index in ``prefetches(i)`` of what was copied under the segment before.
        """
        places = {self.tensors[item]: memory for item, memory in homes}
        if i == j:
            return self._single(i, places, prefetch)
        memory = {
            tensor: place
            for v in range(i, j + 1)
            for tensor, place in self.places_of(v, i, j, places).of
        }
        found: list[_Found] = []
        for own, way in self._striped(i, j, places):
            found += [
                (own + size, score, hiding, mask, way)
                for size, score, hiding, mask in self._suffix(i, j, way[0], way[1], memory)
            ]
        found.sort(key=_BY_BYTES_THEN_SCORE)
        front: list[Option] = []
        best = inf
        for size, score, hiding, mask, (stripe_rows, policy, over, shift) in found:
            if score < best:
                best = score
                modes = modes_of(mask, i, j)
                detail = Detail(stripe_rows, policy, modes, over, None, shift)
                front.append(Option(size, score, detail, hiding))
        return front

    def _striped(self, i: int, j: int, homes: Mapping[int, str]) -> Iterator[tuple[int, Manner]]:
        """(bytes without weights, way) for every way to cut segment [i..j] into stripes."""
        for stripe_rows in stripe_candidates(self.windows[j].ofm_rows):
            for policy in self._policies(i, j, stripe_rows):
                rolling = self._rolling_bytes(i, j, stripe_rows, policy)
                over, saved, shift = self.overwriting.found(i, j, stripe_rows, policy, homes)
                if rolling - saved <= self.limit_bytes:
                    yield rolling - saved, (stripe_rows, policy, over, shift)

    def _single(self, v: int, homes: Mapping[int, str], prefetch: int) -> list[Option]:
        """Op v alone, whole: the front of all ways."""
        return pareto(self._all_single(v, homes, prefetch))

    def _all_single(self, v: int, homes: Mapping[int, str], prefetch: int) -> list[Option]:
        """Op v alone, whole: streamed, resident, or staged in one of its ways."""
        rows = self._whole_rows(v)
        over, saved, _ = self.overwriting.found(v, v, rows, Policy.ALIGNED, homes)
        own = self._internal_bytes(v) - saved
        places = self.places_of(v, v, v, homes)
        found: list[Option] = []
        if prefetch == NO_PREFETCH:
            found += [
                Option(
                    own + size,
                    score,
                    Detail(rows, Policy.ALIGNED, modes_of(mask, v, v), over),
                    hiding,
                )
                for size, score, hiding, mask in self._entries(v, rows, None, places)
            ]
        modes = (WeightMode.RESIDENT,)
        for index, way in self._ways(v, places):
            early = way.buffering.prefetched
            if early != (prefetch != NO_PREFETCH) or (early and self._early(v, prefetch) != index):
                continue
            assert self.staged is not None
            cost = (
                self.staged.cost(v, places, index, 0)
                if not early
                else self.staged.hidden(v, places, index)
            )
            detail = Detail(rows, Policy.ALIGNED, modes, over, index)
            size = own + sum(way.buffer_bytes)
            hides = self.staged.hides(v, places, index)
            found.append(Option(size, cost.score, detail, hides))
        if prefetch == NO_PREFETCH and over is None and self.overwriting.overlapping:
            found += self._overlapped_alone(v, homes)
        return found

    def _overlapped_alone(self, v: int, homes: Mapping[int, str]) -> list[Option]:
        """Op v alone in stripes, its result over rows of its input that have been used."""
        found, own = [], self._internal_bytes(v)
        places = self.places_of(v, v, v, homes)
        for stripe_rows in stripe_candidates(self.windows[v].ofm_rows):
            over, saved, shift = self.overwriting.found(v, v, stripe_rows, Policy.ALIGNED, homes)
            if over is None:
                continue
            rows, sizes = self.sizes(v, v, stripe_rows, Policy.ALIGNED)
            found += [
                Option(
                    own - saved + size,
                    score,
                    Detail(rows, Policy.ALIGNED, modes_of(mask, v, v), over, None, shift),
                    hiding,
                )
                for size, score, hiding, mask in self._entries(v, rows, sizes, places)
            ]
        return found

    def prefetches(self, v: int) -> list[Prefetch]:
        """Ways to copy weights of op v while the segment before it runs."""
        known = self._prefetches.get(v)
        if known is None and self.staged is not None:
            places = self.places_of(v, v, v, {})
            known = self._prefetches[v] = [
                Prefetch(way.slot_bytes, partial(self._wait, v, index))
                for index, way in self._ways(v, places)
                if way.buffering.prefetched
            ]
        return known or []

    def _wait(self, v: int, way: int, homes: Homes, slack_cycles: float) -> float:
        """What op v, alone, waits for a prefetch if the segment before lends so many cycles."""
        assert self.staged is not None
        places = self._alone.get((v, homes))
        if places is None:
            given = {self.tensors[item]: memory for item, memory in homes}
            places = self._alone[v, homes] = self.places_of(v, v, v, given)
        return self.staged.wait(v, places, way, slack_cycles)

    def _ways(self, v: int, places: Places) -> list[tuple[int, Way]]:
        return [] if self.staged is None else list(enumerate(self.staged.ways(v, places)))

    def _early(self, v: int, prefetch: int) -> int:
        """Index among all ways of the ``prefetch``-th one that is prefetched."""
        places = self.places_of(v, v, v, {})
        early = [index for index, way in self._ways(v, places) if way.buffering.prefetched]
        return early[prefetch]

    def sizes(self, v: int, j: int, stripe_rows: int, policy: Policy) -> tuple[int, Sizes]:
        """(nominal rows, distinct stripes) of op v in a chain that ends with op j."""
        run = self.fusing.run(v, j, stripe_rows, policy)
        key = (v, j, stripe_rows, policy)
        known = self._sizes.get(key)
        if known is None:
            known = self._sizes[key] = tuple(run.sizes(self.windows[v]))
        return run.stripe_rows, known

    def _policies(self, i: int, j: int, stripe_rows: int) -> Sequence[Policy]:
        """Row policies that differ on this segment (on 1x1 windows both do the same)."""
        last = self._forks.get((j, stripe_rows))
        if last is None:
            last = j
            while last >= self.fusing.first(j) and self._runs_alike(last, j, stripe_rows):
                last -= 1
            self._forks[j, stripe_rows] = last
        return _BOTH if i <= last else (Policy.DEMAND,)

    def _runs_alike(self, v: int, j: int, stripe_rows: int) -> bool:
        """True if op v runs alike under both row policies."""
        a = self.fusing.run(v, j, stripe_rows, Policy.ALIGNED)
        b = self.fusing.run(v, j, stripe_rows, Policy.DEMAND)
        return a.kept_rows == b.kept_rows and list(a.starts) == list(b.starts)

    def places_of(self, v: int, i: int, j: int, homes: Mapping[int, str]) -> Places:
        """Memories of op v's feature maps inside segment [i..j]."""
        places = []
        for tensor in self._touched[v]:
            life = self.lives.get(self.stored_in.get(tensor, tensor))
            if life is None:
                memory = self.target.roles.const
            elif self.internal(life.tensor, i, j):
                memory = self.target.roles.cache if j > i else life.homes[0]
            else:
                memory = homes.get(tensor, life.homes[0])
            places.append((tensor, memory))
        return Places(tuple(places))

    def modes(self, v: int) -> tuple[WeightMode, ...]:
        """Weight modes that op v can use: resident ones need a memory other than the constants'."""
        op = self.graph.ops[v]
        apart = self.target.roles.const != self.target.roles.cache
        if op.weights is not None and apart and op.placement is Placement.NPU:
            return (WeightMode.STREAMED, WeightMode.RESIDENT)
        return (WeightMode.STREAMED,)

    def _whole_rows(self, v: int) -> int:
        return self.windows[v].ofm_rows

    def internal(self, tensor: int, i: int, j: int) -> bool:
        """True if the tensor is made in [i..j] and not needed after it."""
        return self.fusing.internal(tensor, i, j)

    def _internal_bytes(self, v: int) -> int:
        """Bytes of the budget memory that only op v uses: scratch, results that nobody reads."""
        op = self.graph.ops[v]
        own = {access.tensor for access in op.writes}
        if op.scratch is not None:
            own.add(op.scratch.tensor)
        return sum(
            self.lives[tensor].size_bytes
            for tensor in own
            if tensor in self.lives
            and self.internal(tensor, v, v)
            and self.lives[tensor].homes[0] == self.target.roles.cache
        )

    def _rolling_bytes(self, i: int, j: int, stripe_rows: int, policy: Policy) -> int:
        """Rolling buffers of the results that only the segment itself needs."""
        key = (j, stripe_rows, policy)
        known = self._rolling.get(key)
        if known is None:
            known = self._rolling[key] = []
            for v in range(self.fusing.first(j), j):
                fm = self.graph.feature_maps[self.graph.ops[v].final_ofm.tensor]
                life = self.lives[fm.id]
                if life.last <= j:
                    kept = self.fusing.run(v, j, stripe_rows, policy).kept_rows
                    known.append((v, life.first, align_up(kept * fm.row_bytes)))
        return sum(size for v, first, size in known if v >= i and first >= i)

    def _suffix(
        self, v: int, j: int, stripe_rows: int, policy: Policy, memory: Mapping[int, str]
    ) -> list[Entry]:
        """Front of weight choices for ops v..j of a segment; shared by segments of other starts.

        They cost the same wherever the maps that they share with the rest lie alike.
        """
        key = (v, j, stripe_rows, policy, tuple(memory[t] for t in self._crossing(v, j)))
        known = self._suffixes.get(key)
        if known is None:
            rows, sizes = self.sizes(v, j, stripe_rows, policy)
            places = Places(tuple((t, memory[t]) for t in self._touched[v]))
            known = self._entries(v, rows, sizes, places)
            if v < j:
                rest = self._suffix(v + 1, j, stripe_rows, policy, memory)
                known = merged(known, rest, self.limit_bytes)
            self._suffixes[key] = known
        return known

    def _crossing(self, v: int, j: int) -> tuple[int, ...]:
        """Maps that ops v..j touch and that are not made and used up among them."""
        known = self._crossings.get((v, j))
        if known is None:
            touched = {t for w in range(v, j + 1) for t in self._touched[w]}
            known = tuple(
                sorted(t for t in touched if t not in self.lives or not self.internal(t, v, j))
            )
            self._crossings[v, j] = known
        return known

    def _entries(
        self,
        v: int,
        stripe_rows: int,
        sizes: Sizes | None,
        places: Places,
    ) -> list[Entry]:
        """Op v alone: streamed weights, and resident ones where that lowers the score."""
        streamed = self._cost(v, stripe_rows, sizes, places, WeightMode.STREAMED)
        entries: list[Entry] = [(0, streamed.score, float(streamed.cycles), 0)]
        if WeightMode.RESIDENT in self.modes(v):
            resident = self._cost(v, stripe_rows, sizes, places, WeightMode.RESIDENT)
            if resident.score < streamed.score:
                total = self.kernels.weights(v, stripe_rows, places).total
                hiding = float(resident.cycles - copy_cycles(self.kernels, total))
                entries.append((align_up(total), resident.score, hiding, 1 << v))
        return entries

    def _cost(
        self, v: int, stripe_rows: int, sizes: Sizes | None, places: Places, mode: WeightMode
    ) -> KernelCost:
        if sizes is None:
            return self.kernels.whole(v, places, mode)
        return self.kernels.run(v, stripe_rows, sizes, places, mode)
