"""Exact search: the cheapest way to cut a sequence of ops into segments that fit a budget.

SRAM is a maximum over segments, everything else adds up. So for a given op order, the best plan
under a budget is a shortest path over (position, where the live tensors lie), whose edges are
segments that fit (PLANNER §1). Nothing here knows about hardware: a ``Problem`` states sizes,
and what a segment costs comes from its ``options``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import msgspec
from msgspec.structs import replace

STATE_CAP = 2000
"""States kept per position; beyond it the cheapest are kept and the result is not proven."""


class Item(msgspec.Struct, frozen=True):
    """A tensor that may cross segments.

    Produced by op ``first`` (-1: before all), read until op ``last`` (n: kept to the end).
    ``homes``: memories it may lie in; its size counts against the budget in the budget memory.
    """

    size_bytes: int
    first: int
    last: int
    homes: tuple[str, ...]


class Option(msgspec.Struct, frozen=True):
    """One way to run a segment: budget-memory bytes it needs for itself, its score, and how.

    ``cycles``: how long it runs, which hides what is copied for the next segment.
    ``offchip_bytes``: what it moves off the chip, counted where that is limited (``offchip``).
    """

    sram_bytes: int
    score: float
    detail: object
    cycles: float = 0.0
    offchip_bytes: int = 0


NO_PREFETCH = -1


Homes = tuple[tuple[int, str], ...]
"""(item, memory), sorted by item: the homes that a segment's cost depends on."""


class Prefetch(msgspec.Struct, frozen=True):
    """Weights of one op that are copied while the segment before it runs.

    ``size_bytes`` of the budget memory are taken during that segment, too. ``penalty(homes,
    cycles)`` is what the op's score grows by if the segment before is only so long and the items
    that the op touches lie there.
    """

    size_bytes: int
    penalty: Callable[[Homes, float], float]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """``ends(i)`` yields the last ops j of segments [i..j] worth considering.

    ``touched(i, j)`` are the items whose home changes the segment's cost. ``options(i, j, homes,
    prefetch)`` returns its options, by rising bytes and falling score (a Pareto front; empty if
    none is worth a look). ``prefetches(k)`` are the ways to prefetch for op k run alone; their
    index is what ``options`` gets (``NO_PREFETCH`` otherwise); no option of a prefetch needs fewer
    bytes than the leanest without one. ``entry(homes)`` is what it takes to bring items that are
    there before all ops to the homes that they have a choice of: (score, off-chip bytes).
    """

    op_count: int
    items: tuple[Item, ...]
    budget_memory: str
    ends: Callable[[int], Sequence[int]]
    touched: Callable[[int, int], tuple[int, ...]]
    options: Callable[[int, int, Homes, int], Sequence[Option]]
    prefetches: Callable[[int], Sequence[Prefetch]] = lambda _: ()
    entry: Callable[[Homes], tuple[float, int]] = lambda _: (0.0, 0)


class Step(msgspec.Struct, frozen=True):
    """One segment of a solution: ops [start..end], the homes it relies on, option, live bytes.

    ``prefetch``: index of the prefetch that it starts with; ``carries``: of the one that is copied
    for the next segment while it runs, ``wait`` what that adds to the next one's score.
    """

    start: int
    end: int
    homes: Homes
    option: Option
    sram_bytes: int
    prefetch: int = NO_PREFETCH
    carries: int = NO_PREFETCH
    wait: float = 0.0


class Solution(msgspec.Struct, frozen=True):
    """A path: its score, its segments, the home of every item, and the largest live sum.

    ``capped``: states were dropped, so the score is not proven to be the least. ``least``: no path
    of the scope scores less, as far as it is known (``exact``); None = nothing is known if capped,
    else than this one. ``offchip_bytes``: counted only if limited.
    """

    score: float
    steps: tuple[Step, ...]
    homes: Mapping[int, str]
    peak_bytes: int
    capped: bool
    least: float | None = None
    offchip_bytes: int = 0


State = tuple[tuple[int, ...], int, Homes | None]
"""(items with a choice that lie in SRAM and are still needed, prefetch that is under way, homes of
what the op of that prefetch makes; None = any).

How long that op waits depends on those homes; they are settled with the prefetch.
"""


class Node(msgspec.Struct):
    """The best way found to a state: its score, the state before, and the segment between."""

    score: float
    previous: tuple[int, State] | None
    step: Step | None
    chosen: Homes


class Pick(msgspec.Struct, frozen=True):
    """An option with a prefetch for the op that follows, and what that op then still waits.

    ``size_bytes``: of the prefetch. ``settled``: homes of what that op makes; None = any.
    """

    carries: int
    option: Option
    wait: float
    size_bytes: int
    settled: Homes | None


class _Edge(msgspec.Struct, frozen=True):
    """What holds of segment [i..j] whatever its state: see ``Problem.touched``; ``choices``.

    ``outliving``: bytes in the budget memory that it makes and leaves behind without a choice.
    """

    touched: tuple[int, ...]
    choices: list[Homes]
    outliving: int


Wanted = Callable[[int, float], bool]
"""(prefetch carried, least score it can have) -> False if an equal or better way is known."""


class Search:
    """Solves one problem for any number of budgets; what does not depend on the budget is kept."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._fixed_live = [0] * (problem.op_count + 1)
        self._born: list[list[int]] = [[] for _ in range(problem.op_count)]
        self._free_live: list[list[int]] = [[] for _ in range(problem.op_count + 1)]
        for index, item in enumerate(problem.items):
            if item.first >= 0:
                self._born[item.first].append(index)
            for position in range(item.first + 1, min(item.last, problem.op_count) + 1):
                if len(item.homes) > 1:
                    self._free_live[position].append(index)
                elif item.homes[0] == problem.budget_memory:
                    self._fixed_live[position] += item.size_bytes
        self._options_of: dict[tuple[int, int, Homes, int], Sequence[Option]] = {}
        self._edges: dict[tuple[int, int], _Edge] = {}
        self._settled: dict[tuple[int, tuple[int, ...]], list[tuple[Homes, Homes]]] = {}

    def restricted(self, ends: Callable[[int], Sequence[int]]) -> Search:
        """The search of the same problem with fewer segments; what is known of options is shared.

        ``ends``: as in ``Problem``.
        """
        other = Search(replace(self.problem, ends=ends))
        other._options_of, other._edges = self._options_of, self._edges
        other._settled = self._settled
        return other

    def solve(self, budget_bytes: int | None) -> Solution | None:
        """Return the plan of least score whose live sum never exceeds the budget, or None."""
        limit = float("inf") if budget_bytes is None else budget_bytes
        return self._run(limit, bottleneck=False)

    def smallest(self) -> Solution:
        """Return the plan whose largest live sum is the smallest of all plans."""
        solution = self._run(float("inf"), bottleneck=True)
        assert solution is not None
        return solution

    def _run(self, limit: float, *, bottleneck: bool) -> Solution | None:
        n = self.problem.op_count
        layers: list[dict[State, Node]] = [{} for _ in range(n + 1)]
        for chosen in self._choices(-1, -1):
            start = (self._in_sram(chosen, 0), NO_PREFETCH, None)
            score = 0.0 if bottleneck else self.problem.entry(chosen)[0]
            layers[0][start] = Node(score, None, None, chosen)
        capped = False
        for i in range(n):
            if len(layers[i]) > STATE_CAP:
                capped = True
                kept = sorted(layers[i].items(), key=lambda pair: pair[1].score)[:STATE_CAP]
                layers[i] = dict(kept)
            for state, node in layers[i].items():
                for target, arrived, fresh in self._moves(
                    i, state, node, limit, bottleneck, layers
                ):
                    known = layers[target].get(arrived)
                    if known is None or fresh.score < known.score:
                        layers[target][arrived] = fresh
        if not layers[n]:
            return None
        last = min(layers[n], key=lambda state: layers[n][state].score)
        return self._trace(layers, last, capped)

    def _moves(
        self,
        i: int,
        state: State,
        node: Node,
        limit: float,
        bottleneck: bool,
        layers: Sequence[Mapping[State, Node]] | None = None,
    ) -> Iterator[tuple[int, State, Node]]:
        """Every segment that starts at i in this state and fits: where it leads, and its node.

        ``layers``: what is known; ways that cannot better it are left out.
        """
        items, budget = self.problem.items, self.problem.budget_memory
        in_sram, prefetch, settled = state
        through = self._fixed_live[i] + sum(items[t].size_bytes for t in in_sram)
        if through > limit and not bottleneck:
            return
        alive = set(in_sram)
        ends = self.problem.ends(i)
        if prefetch != NO_PREFETCH:  # what is prefetched for runs alone
            ends = (i,) if i in ends else ()
        for j in ends:
            edge = self._edge(i, j)
            for chosen in edge.choices if settled is None else (settled,):
                homes = self._homes(edge.touched, chosen, alive)
                options = self._options(i, j, homes, prefetch)
                if not options:
                    continue
                made = sum(items[t].size_bytes for t, home in chosen if home == budget)
                live = through + edge.outliving + made
                arrived = self._arrived(chosen, in_sram, j + 1)
                if bottleneck:
                    peak = live + options[0].sram_bytes
                    step = Step(i, j, homes, options[0], peak, prefetch)
                    fresh = Node(max(node.score, peak), (i, state), step, chosen)
                    yield j + 1, (arrived, NO_PREFETCH, None), fresh
                    continue
                wanted = None
                if layers is not None:
                    wanted = partial(_is_wanted, layers[j + 1], arrived, node.score)
                for pick in self._picks(options, limit - live, j + 1, arrived, wanted):
                    peak = live + pick.option.sram_bytes + pick.size_bytes
                    step = Step(i, j, homes, pick.option, peak, prefetch, pick.carries, pick.wait)
                    score = node.score + pick.option.score + pick.wait
                    fresh = Node(score, (i, state), step, chosen)
                    yield j + 1, (arrived, pick.carries, pick.settled), fresh

    def _edge(self, i: int, j: int) -> _Edge:
        known = self._edges.get((i, j))
        if known is None:
            items, budget = self.problem.items, self.problem.budget_memory
            fixed = sum(
                items[t].size_bytes
                for op in range(i, j + 1)
                for t in self._born[op]
                if items[t].last > j and items[t].homes == (budget,)
            )
            known = _Edge(self.problem.touched(i, j), self._choices(i, j), fixed)
            self._edges[i, j] = known
        return known

    def _homes(self, touched: Sequence[int], chosen: Homes, alive: set[int]) -> Homes:
        """Homes of the items that a segment touches."""
        if not touched:
            return ()
        born = dict(chosen)
        return tuple((t, self._home(t, born, alive)) for t in touched)

    def _arrived(self, chosen: Homes, in_sram: tuple[int, ...], position: int) -> tuple[int, ...]:
        """Items with a choice in SRAM at ``position``: of those before, and made since."""
        if not chosen and not in_sram:
            return ()
        budget = self.problem.budget_memory
        return self._in_sram((*chosen, *((t, budget) for t in in_sram)), position)

    def _picks(
        self,
        options: Sequence[Option],
        room: float,
        following: int,
        in_sram: tuple[int, ...],
        wanted: Wanted | None,
        /,
    ) -> Iterator[Pick]:
        """Best option that fits, alone and with each prefetch for the op that follows.

        Left out are those that are not ``wanted``.
        """
        at = bisect_right(options, room, key=_bytes)
        if at and (wanted is None or wanted(NO_PREFETCH, options[at - 1].score)):
            yield Pick(NO_PREFETCH, options[at - 1], 0.0, 0, None)
        if following >= self.problem.op_count:
            return
        prefetches = self.problem.prefetches(following)
        if not prefetches:
            return
        ways = self._settlings(following, in_sram)
        for index, prefetch in enumerate(prefetches):
            at = bisect_right(options, room - prefetch.size_bytes, key=_bytes)
            if not at:
                continue
            if len(ways) == 1 and wanted is not None and not wanted(index, options[at - 1].score):
                continue
            found = []
            for settled, homes in ways:
                wait, option = _least(options, at, partial(prefetch.penalty, homes))
                found.append(Pick(index, option, wait, prefetch.size_bytes, settled))
            if len({(pick.wait, id(pick.option)) for pick in found}) == 1:
                yield replace(found[0], settled=None)
            else:
                yield from found

    def _settlings(self, k: int, in_sram: tuple[int, ...]) -> list[tuple[Homes, Homes]]:
        """(homes of what op k makes, homes of all that it touches) for every choice."""
        known = self._settled.get((k, in_sram))
        if known is None:
            edge, alive = self._edge(k, k), set(in_sram)
            known = [(chosen, self._homes(edge.touched, chosen, alive)) for chosen in edge.choices]
            self._settled[k, in_sram] = known
        return known

    def _home(self, t: int, born: Mapping[int, str], alive: set[int]) -> str:
        homes = self.problem.items[t].homes
        if len(homes) == 1:
            return homes[0]
        if t in born:
            return born[t]
        budget = self.problem.budget_memory
        return budget if t in alive else next(home for home in homes if home != budget)

    def _choices(self, i: int, j: int) -> list[Homes]:
        """Homes for the items that segment [i..j] makes and leaves behind (i = -1: inputs)."""
        free = [
            t
            for t in (
                (t for op in range(i, j + 1) for t in self._born[op])
                if i >= 0
                else (t for t, item in enumerate(self.problem.items) if item.first < 0)
            )
            if len(self.problem.items[t].homes) > 1 and self.problem.items[t].last > j
        ]
        lists = [[(t, home) for home in self.problem.items[t].homes] for t in free]
        return [tuple(combination) for combination in product(*lists)]

    def _in_sram(self, homes: Sequence[tuple[int, str]], position: int) -> tuple[int, ...]:
        """State at ``position``: the items with a choice that lie in SRAM and are still needed."""
        budget = self.problem.budget_memory
        items = self.problem.items
        return tuple(
            sorted({t for t, home in homes if home == budget and items[t].last >= position})
        )

    def _options(self, i: int, j: int, homes: Homes, prefetch: int) -> Sequence[Option]:
        key = (i, j, homes, prefetch)
        known = self._options_of.get(key)
        if known is None:
            known = self._options_of[key] = self.problem.options(i, j, homes, prefetch)
        return known

    def _trace(self, layers: list[dict[State, Node]], last: State, capped: bool) -> Solution:
        homes: dict[int, str] = {
            t: item.homes[0] for t, item in enumerate(self.problem.items) if len(item.homes) == 1
        }
        steps: list[Step] = []
        position, state = self.problem.op_count, last
        score = layers[position][state].score
        while True:
            node = layers[position][state]
            homes.update(node.chosen)
            if node.step is None or node.previous is None:
                break
            steps.append(node.step)
            position, state = node.previous
        steps.reverse()
        return Solution(
            score=score,
            steps=tuple(steps),
            homes=homes,
            peak_bytes=max((s.sram_bytes for s in steps), default=0),
            capped=capped,
        )


def _bytes(option: Option) -> int:
    return option.sram_bytes


def _least(
    options: Sequence[Option], count: int, penalty: Callable[[float], float]
) -> tuple[float, Option]:
    """(wait, option) of least score and wait of the first ``count``, the leanest of equals."""
    best = options[count - 1]
    least_wait = penalty(best.cycles)
    least = best.score + least_wait
    for k in range(count - 2, -1, -1):  # by rising score; the last of equals counts
        option = options[k]
        if option.score > least:
            break
        wait = penalty(option.cycles)
        if option.score + wait <= least:
            best, least, least_wait = option, option.score + wait, wait
    return least_wait, best


def _is_wanted(
    layer: Mapping[State, Node], arrived: tuple[int, ...], base: float, carries: int, score: float
) -> bool:
    known = layer.get((arrived, carries, None))
    return known is None or base + score < known.score


def pareto(options: Sequence[Option]) -> list[Option]:
    """The options that no other beats in both bytes and score, by rising bytes."""
    front: list[Option] = []
    for option in sorted(options, key=lambda o: (o.sram_bytes, o.score)):
        if not front or option.score < front[-1].score:
            front.append(option)
    return front
