"""Vela's curve from few compilations: each is made where the most may be gained.

Vela's result is a step function of the arena limit, per strategy and set of switched-off features
(``vela.sweep`` finds every step; here a few dozen compilations have to do). What is known so far
has a frontier of bytes used and reported cycles. Between two limits with different results there
may be one that uses little more than the one and is as fast as the other: how much of the plane, in
logarithms, that would add to the frontier is what the next compilation there may gain. The interval
with the largest gain is split, until the compilations are used up.

Where a result uses U bytes, the step to it is often at U or just above: the limit just below U is
tried first, the middle of the gap next.

The plain Performance strategy, which is what users run, gets the first half; the others (Size, and
features switched off by what the command line has) are asked where the frontier is, and split
further where they improved it. Strategies that do not heed the limit are compiled once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log, sqrt

from npusched.errors import VelaError
from npusched.hardware.target import MemoryMode, Target
from npusched.vela.options import Feature, Optimise, VelaOptions, address_space_bytes
from npusched.vela.result import VelaResult
from npusched.vela.runner import config_of
from npusched.vela.sweep import GRID_BYTES, Progress, SweepFailure, SweepPoint, point_of

DEFAULT_COMPILATIONS = 24
"""A second or two of Vela's time for models of a few hundred kB."""

VARIANTS: tuple[tuple[Optimise, tuple[Feature, ...]], ...] = (
    (Optimise.PERFORMANCE, ()),
    (Optimise.SIZE, ()),
    (Optimise.PERFORMANCE, (Feature.REUSE_IFM,)),
    (Optimise.PERFORMANCE, (Feature.WEIGHT_BUFFERING,)),
    (Optimise.PERFORMANCE, (Feature.CASCADING,)),
    (Optimise.SIZE, (Feature.REUSE_IFM,)),
)
"""In the order in which they are asked; the command line can say all of them (``vela.command``)."""

DEFAULT_LIMIT_S = 20.0
"""Most models need a second or two for all; a few need that for one compilation, or more."""

_SHARE_OF_FIRST = 0.5
_STEPS_DOWN = 3
_TINY = 64
_LEAST_GAIN = 1e-9

Compile = Callable[[VelaOptions], VelaResult]
Figures = tuple[int, int]
"""(bytes used, cycles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A result of Vela's and its figures."""

    point: SweepPoint
    result: VelaResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What was found, in the order of compilation; ``is_cut``: the time was used up."""

    probes: tuple[Probe, ...]
    failures: tuple[SweepFailure, ...]
    is_cut: bool = False


def probe(
    compile_: Compile,
    target: Target,
    *,
    compilations: int = DEFAULT_COMPILATIONS,
    limit_s: float = DEFAULT_LIMIT_S,
    progress: Progress | None = None,
) -> Probed:
    """Compile at most ``compilations`` times, and no more once all took ``limit_s`` seconds.

    The first is without a limit, the second with the smallest. The seconds are those of the
    compilations themselves, which the cache keeps: the same are made again (a failure counts with
    what it took). Raises VelaError if
    Vela is not installed or nothing compiles.
    """
    space = address_space_bytes(config_of(target).architecture)
    search = _Search(compile_, target, space, compilations, limit_s, progress)
    first, *others = [_Variant(*each) for each in VARIANTS]
    search.ask(first, space)
    search.ask(first, GRID_BYTES)
    share = max(search.used, round(compilations * _SHARE_OF_FIRST))
    search.split([first], share)
    search.step_down(first)
    search.spread(others)
    search.split([first, *others], compilations)
    if not search.probes:
        raise search.first_error or VelaError(
            "Vela compiled nothing",
            f"of {compilations} compilations none was made",
            "allow more points, or leave Vela out with --no-vela",
        )
    return Probed(
        probes=tuple(search.probes), failures=tuple(search.failures), is_cut=search.is_late
    )


@dataclass(slots=True)
class _Variant:
    """Known figures of one strategy and set of switched-off features, by limit."""

    optimise: Optimise
    disabled: tuple[Feature, ...]
    known: dict[int, Figures] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    stepped: set[int] = field(default_factory=set)

    def heeds_limit(self, target: Target) -> bool:
        """False if the strategy goes its way whatever the limit (VELA_SPEC §4)."""
        return self.optimise is not Optimise.SIZE or target.memory_mode is MemoryMode.DEDICATED_SRAM


@dataclass(slots=True)
class _Search:
    compile: Compile
    target: Target
    space: int
    compilations: int
    limit_s: float
    progress: Progress | None
    used: int = 0
    spent_s: float = 0.0
    probes: list[Probe] = field(default_factory=list)
    failures: list[SweepFailure] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    first_error: VelaError | None = None

    @property
    def is_late(self) -> bool:
        """True if the time is used up."""
        return self.spent_s >= self.limit_s

    def ask(self, variant: _Variant, limit: int) -> None:
        """Compile with a limit, unless that was done or nothing is left."""
        if limit in variant.tried or self.used >= self.compilations or self.is_late:
            return
        variant.tried.add(limit)
        self.used += 1
        options = VelaOptions(
            optimise=variant.optimise, disable=variant.disabled, arena_cache_size_bytes=limit
        ).canonical()
        started = time.perf_counter()
        try:
            result = self.compile(options)
        except VelaError as error:
            self.spent_s += time.perf_counter() - started
            if error.values.get("reason") == "missing":
                raise
            self.first_error = self.first_error or error
            self.failures.append(
                SweepFailure(options=options, message=f"{error.what}: {error.why}")
            )
        else:
            point = point_of(self.target, options, result)
            variant.known[limit] = (point.used_bytes, point.cycles)
            self.probes.append(Probe(point=point, result=result))
            self.keys.add(point.key)
            self.spent_s += result.seconds
        if self.progress is not None:
            self.progress(self.used, len(self.keys))

    def front(self) -> list[Figures]:
        """Results that no other betters in bytes used and cycles, by rising bytes."""
        kept: list[Figures] = []
        for figures in sorted((p.point.used_bytes, p.point.cycles) for p in self.probes):
            if not kept or figures[1] < kept[-1][1]:
                kept.append(figures)
        return kept

    def step_down(self, variant: _Variant) -> None:
        """Ask for just less than the best results use: a good one may be on a single limit."""
        for limit in self._limits()[:_STEPS_DOWN]:
            self.ask(variant, max(limit - GRID_BYTES, GRID_BYTES))

    def spread(self, variants: Sequence[_Variant]) -> None:
        """Ask each once, and those that heed the limit at the frontier's best product, too."""
        for variant in variants:
            self.ask(variant, self._limits()[0])
        for limit in self._limits()[1:2]:
            for variant in variants:
                if variant.heeds_limit(self.target):
                    self.ask(variant, limit)

    def _limits(self) -> list[int]:
        """Limits for the frontier's results, the least bytes x cycles first."""
        ordered = sorted(self.front(), key=lambda each: each[0] * each[1])
        limits = [max(used, GRID_BYTES) for used, _ in ordered]
        return list(dict.fromkeys(limits)) or [GRID_BYTES]

    def split(self, variants: Sequence[_Variant], until: int) -> None:
        """Split the interval with the largest gain until so many compilations are made."""
        while self.used < until and not self.is_late:
            front = self.front()
            best = max(
                (found for variant in variants for found in self._intervals(variant, front)),
                key=lambda each: each[0],
                default=None,
            )
            if best is None or best[0] <= _LEAST_GAIN:
                return
            _, variant, limit = best
            above = min(each for each in variant.known if each > limit)
            if limit == _down(variant.known[above][0]) - GRID_BYTES:
                variant.stepped |= {above, limit}
            self.ask(variant, limit)

    def _intervals(
        self, variant: _Variant, front: Sequence[Figures]
    ) -> list[tuple[float, _Variant, int]]:
        """(gain, variant, limit that splits it) of all gaps between known limits."""
        if not variant.heeds_limit(self.target):
            return []
        limits = sorted(variant.known)
        found = []
        for low, high in pairwise(limits):
            below, above = variant.known[low], variant.known[high]
            if below == above or high - low <= GRID_BYTES:
                continue
            width = sqrt(log(high / max(low, below[0] / 2)))
            worth = gain(below, above, low, front) * width
            limit = _down(above[0]) - GRID_BYTES
            if high in variant.stepped or not low < limit < high:
                limit = _middle(low, high, below, above)
            if low < limit < high and limit not in variant.tried:
                found.append((worth, variant, limit))
        return found


def gain(below: Figures, above: Figures, low: int, front: Sequence[Figures]) -> float:
    """Area, in logarithms, that the best result between two would add to the frontier.

    That one uses no less than the smaller of both (and no less than is certain: ``low`` where the
    lower result keeps its limit), and is as fast as the faster. Less than 1/64 of what the frontier
    uses at most counts as that. The area ends where the larger of both does in bytes, and at the
    slower one's cycles.
    """
    least = max(min(below[0], above[0]), min(low, below[0]), front[-1][0] // _TINY, 1)
    most = max(below[0], above[0])
    fast, slow = min(below[1], above[1]), max(below[1], above[1])
    if most <= least or fast < 1:
        return 0.0
    area = 0.0
    edge, height = least, slow
    for used, cycles in sorted(front):
        if used <= least:
            height = min(height, cycles)
            continue
        if used >= most:
            break
        area += log(used / edge) * max(0.0, log(height / fast))
        edge, height = used, min(height, cycles)
    return area + log(most / edge) * max(0.0, log(height / fast))


def _middle(low: int, high: int, below: Figures, above: Figures) -> int:
    """A limit on the grid between two: the middle, in logarithms, of where results can differ.

    Above what the upper result uses nothing changes; well below what the lower one uses, neither.
    """
    top = min(high, _up(above[0]) + GRID_BYTES)
    bottom = min(max(low, below[0] * 3 // 4), max(low, top // 2))
    if top <= low or top - bottom < 2 * GRID_BYTES:
        bottom, top = low, high
    middle = _up(round(exp((log(max(bottom, GRID_BYTES)) + log(top)) / 2)))
    return middle if low < middle < high else _up((low + high) // 2)


def _down(size_bytes: int) -> int:
    return size_bytes // GRID_BYTES * GRID_BYTES


def _up(size_bytes: int) -> int:
    return -(-size_bytes // GRID_BYTES) * GRID_BYTES
