"""Exact search under two limits: bytes of the budget memory, and off-chip bytes per inference.

The first is a maximum over segments and only removes edges; the second adds up along the path, as
the score does. So this is a shortest path with one resource. All edges within the budget make a
graph; a Lagrange multiplier (off-chip bytes priced so that the limit just holds) gives a lower
bound and a first plan; labels (score, off-chip bytes) that the bound does not rule out close the
gap. If there are too many labels the gap stays and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf

import msgspec

from npusched.schedule.offchip_segments import Stairs
from npusched.schedule.search import (
    NO_PREFETCH,
    STATE_CAP,
    Homes,
    Node,
    Option,
    Pick,
    Search,
    Solution,
    State,
    Step,
    Wanted,
)

LABEL_CAP = 400_000
"""Labels made in one search; beyond it the gap between bound and best plan stays."""

PRICINGS = 40
"""Most multipliers tried; each step takes a corner of the lower hull, so few are needed."""


class Arc(msgspec.Struct):
    """One segment between two states, by their numbers in the graph."""

    source: int
    target: int
    score: float
    offchip_bytes: int
    step: Step
    chosen: Homes


class Start(msgspec.Struct):
    """A state before all ops, and what it takes to get there."""

    number: int
    score: float
    offchip_bytes: int
    chosen: Homes


class Paths(msgspec.Struct):
    """All edges within a budget: states by number in order of position; ends and starts."""

    arcs: list[list[Arc]]
    starts: list[Start]
    ends: list[int]
    capped: bool


class OffchipSearch(Search):
    """``Search`` with a limit on off-chip bytes. Options must state theirs."""

    def solve_within(self, budget_bytes: int | None, max_offchip_bytes: int) -> Solution | None:
        """Return the plan of least score within both limits, or None."""
        paths = self._paths(inf if budget_bytes is None else budget_bytes)
        return None if paths is None else self._best(paths, max_offchip_bytes)

    def least_offchip(self, budget_bytes: int | None) -> Solution | None:
        """Return the plan within the budget that moves least off the chip, or None."""
        paths = self._paths(inf if budget_bytes is None else budget_bytes)
        if paths is None:
            return None
        return self._solution(paths, _route(paths, 0.0, lean=True), None)

    def _paths(self, limit: float) -> Paths | None:
        """Every segment that fits, between the states that it can be reached in."""
        n = self.problem.op_count
        numbers: list[dict[State, int]] = [{} for _ in range(n + 1)]
        arcs: list[list[Arc]] = []
        starts: list[Start] = []
        waiting: list[list[tuple[int, State, float, Step, Homes]]] = [[] for _ in range(n + 1)]
        for chosen in self._choices(-1, -1):
            state: State = (self._in_sram(chosen, 0), NO_PREFETCH, None)
            number = numbers[0].setdefault(state, len(numbers[0]))
            starts.append(Start(number, *self.problem.entry(chosen), chosen))
        arcs += [[] for _ in numbers[0]]
        capped = False
        for i in range(n + 1):
            for source, state, score, step, chosen in waiting[i]:
                if state not in numbers[i]:
                    if len(numbers[i]) >= STATE_CAP:
                        capped = True
                        continue
                    numbers[i][state] = len(arcs)
                    arcs.append([])
                arcs[source].append(
                    Arc(
                        source,
                        numbers[i][state],
                        score,
                        step.option.offchip_bytes,
                        step,
                        chosen,
                    )
                )
            waiting[i] = []
            for state, number in numbers[i].items() if i < n else ():
                empty = Node(0.0, None, None, ())
                for target, arrived, fresh in self._moves(i, state, empty, limit, False):
                    assert fresh.step is not None
                    waiting[target].append((number, arrived, fresh.score, fresh.step, fresh.chosen))
        ends = list(numbers[n].values())
        return Paths(arcs, starts, ends, capped) if ends else None

    def _picks(
        self,
        options: Sequence[Option],
        room: float,
        following: int,
        in_sram: tuple[int, ...],
        _wanted: Wanted | None,
        /,
    ) -> Iterator[Pick]:
        """All options that fit and that no other beats, alone and with each prefetch."""
        yield from self._undominated(options, room, None, NO_PREFETCH, 0, None)
        if following >= self.problem.op_count:
            return
        ways = None
        for index, prefetch in enumerate(self.problem.prefetches(following)):
            ways = ways or self._settlings(following, in_sram)
            found = [
                list(
                    self._undominated(
                        options,
                        room - prefetch.size_bytes,
                        partial(prefetch.penalty, homes),
                        index,
                        prefetch.size_bytes,
                        settled,
                    )
                )
                for settled, homes in ways
            ]
            kinds = {tuple((pick.wait, id(pick.option)) for pick in way) for way in found}
            if len(kinds) == 1:
                yield from (msgspec.structs.replace(pick, settled=None) for pick in found[0])
            else:
                yield from (pick for way in found for pick in way)

    def _undominated(
        self,
        options: Sequence[Option],
        room: float,
        penalty: partial[float] | None,
        index: int,
        size_bytes: int,
        settled: Homes | None,
    ) -> Iterator[Pick]:
        fitting = [
            (option.score + wait, option.offchip_bytes, wait, number)
            for number, option in enumerate(options)
            if option.sram_bytes <= room
            for wait in (0.0 if penalty is None else penalty(option.cycles),)
        ]
        fitting.sort(key=lambda entry: entry[:2])
        stairs = Stairs()
        for score, offchip, wait, number in fitting:
            if stairs.add(score, offchip):
                yield Pick(index, options[number], wait, size_bytes, settled)

    def _best(self, paths: Paths, limit: int) -> Solution | None:
        """The cheapest path within the limit: multiplier first, then labels."""
        lean = _route(paths, 0.0, lean=True)
        if lean.offchip_bytes > limit:
            return None
        cheap = _route(paths, 0.0)
        if cheap.offchip_bytes <= limit:
            return self._solution(paths, cheap, None)
        least, price = -inf, 0.0
        for _ in range(PRICINGS):
            slope = (lean.score - cheap.score) / (cheap.offchip_bytes - lean.offchip_bytes)
            middle = _route(paths, slope)
            value = middle.score + slope * (middle.offchip_bytes - limit)
            if value > least:
                least, price = value, slope
            corner = lean.score + slope * (lean.offchip_bytes - limit)
            if value >= corner - 1e-9 * max(abs(corner), 1.0):
                break
            if middle.offchip_bytes <= limit:
                lean = middle
            else:
                cheap = middle
        found, complete = _labels(paths, limit, lean.score, price)
        best = found or lean
        return self._solution(paths, best, None if complete else min(least, best.score))

    def _solution(self, paths: Paths, route: Route, least: float | None) -> Solution:
        homes = {
            t: item.homes[0] for t, item in enumerate(self.problem.items) if len(item.homes) == 1
        }
        homes.update(route.chosen)
        for arc in route.arcs:
            homes.update(arc.chosen)
        steps = tuple(arc.step for arc in route.arcs)
        return Solution(
            score=route.score,
            steps=steps,
            homes=homes,
            peak_bytes=max((step.sram_bytes for step in steps), default=0),
            capped=paths.capped,
            least=least,
            offchip_bytes=route.offchip_bytes,
        )


class Route(msgspec.Struct):
    """A path from a start to an end, with its sums."""

    arcs: list[Arc]
    chosen: Homes
    score: float
    offchip_bytes: int


def _to_go(paths: Paths, price: float, *, lean: bool = False) -> list[tuple[float, Arc | None]]:
    """Least score + price x off-chip bytes from every state to an end, and the edge to take.

    ``lean``: least off-chip bytes instead (price is not used). Ties go to the other sum.
    """
    ends = set(paths.ends)
    found: list[tuple[float, Arc | None]] = [(inf, None)] * len(paths.arcs)
    ties = [0.0] * len(paths.arcs)
    for number in range(len(paths.arcs) - 1, -1, -1):
        if number in ends:
            found[number] = (0.0, None)
            continue
        best, tie, chosen = inf, inf, None
        for arc in paths.arcs[number]:
            rest = found[arc.target][0]
            if lean:
                value, second = arc.offchip_bytes + rest, arc.score
            else:
                value, second = arc.score + price * arc.offchip_bytes + rest, arc.offchip_bytes
            second += ties[arc.target]
            if value < best or (value == best and second < tie):
                best, tie, chosen = value, second, arc
        found[number], ties[number] = (best, chosen), tie
    return found


def _route(paths: Paths, price: float, *, lean: bool = False) -> Route:
    """The best path from the best start (see ``_to_go``)."""
    to_go = _to_go(paths, price, lean=lean)

    def value(start: Start) -> float:
        own = start.offchip_bytes if lean else start.score + price * start.offchip_bytes
        return own + to_go[start.number][0]

    start = min(paths.starts, key=value)
    number, arcs = start.number, []
    while (arc := to_go[number][1]) is not None:
        arcs.append(arc)
        number = arc.target
    return _summed(arcs, start)


def _summed(arcs: list[Arc], start: Start) -> Route:
    score, moved = start.score, start.offchip_bytes
    for arc in arcs:
        score += arc.score
        moved += arc.offchip_bytes
    return Route(arcs, start.chosen, score, moved)


class _Label(msgspec.Struct):
    score: float
    offchip_bytes: int
    came: Arc | Start
    before: _Label | None


def _labels(paths: Paths, limit: int, known: float, price: float) -> tuple[Route | None, bool]:
    """(path that scores less than ``known`` within the limit, the best one; all were looked at).

    A label is dropped if another of its state is as good in both sums, if it cannot end within
    the limit, or if with off-chip bytes at ``price``, or for nothing, it cannot beat ``known``.
    """
    lean = [value for value, _ in _to_go(paths, 0.0, lean=True)]
    free = [value for value, _ in _to_go(paths, 0.0)]
    priced = [value for value, _ in _to_go(paths, price)]
    kept: list[list[_Label]] = [[] for _ in paths.arcs]
    for start in paths.starts:
        kept[start.number].append(_Label(start.score, start.offchip_bytes, start, None))
    best: _Label | None = None
    ends, made = set(paths.ends), 0
    for number, arcs in enumerate(paths.arcs):
        labels = _undominated(kept[number])
        kept[number] = []
        for label in labels:
            if number in ends:
                if label.score < known:
                    best, known = label, label.score
                continue
            for arc in arcs:
                score, moved = label.score + arc.score, label.offchip_bytes + arc.offchip_bytes
                there = arc.target
                if (
                    moved + lean[there] > limit
                    or score + free[there] >= known
                    or score + price * (moved - limit) + priced[there] >= known
                ):
                    continue
                made += 1
                kept[there].append(_Label(score, moved, arc, label))
        if made > LABEL_CAP:
            return None, False
    return None if best is None else _unrolled(best), True


def _undominated(labels: list[_Label]) -> list[_Label]:
    labels.sort(key=lambda label: (label.score, label.offchip_bytes))
    stairs = Stairs()
    return [label for label in labels if stairs.add(label.score, label.offchip_bytes)]


def _unrolled(label: _Label) -> Route:
    arcs: list[Arc] = []
    at = label
    while isinstance(at.came, Arc):
        arcs.append(at.came)
        assert at.before is not None
        at = at.before
    return _summed(arcs[::-1], at.came)
