"""All distinct results of Vela over arena limits, from few compilations.

Vela's result is a step function of the arena limit on a 16-byte grid, per strategy and set of
switched-off features (VELA_SPEC §4). Between two limits with different results there is a step;
it is bracketed down to neighbouring grid points, so that both its sides are known. Between two
limits with equal results nothing is assumed to happen once they are closer than a coarse grid.
Where a result uses U bytes, the step to it is often at U or just above, so that is tried first.

The order of compilations is fixed and each is cached by the runner: an interrupted sweep that is
started again continues where it stopped.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import msgspec

from npusched.errors import VelaError
from npusched.hardware.target import Target
from npusched.vela.cache import VelaCache
from npusched.vela.options import Feature, Optimise, VelaOptions, address_space_bytes
from npusched.vela.process import VelaWorker
from npusched.vela.result import VelaResult
from npusched.vela.runner import DEFAULT_LIMIT_S, compile_model, config_of

GRID_BYTES = 16
"""Alignment of all of Vela's allocations: limits in between give the result of the one below."""

FEATURE_SETS: tuple[tuple[Feature, ...], ...] = (
    (),
    (Feature.CASCADING,),
    (Feature.WEIGHT_BUFFERING,),
    (Feature.REUSE_IFM,),
)
"""Switches that change the trade between arena and cycles (VELA_SPEC §4, §8.6)."""

_COARSE_STEPS = 16
_FIRST_STEPS = 4
_SCHEDULE_COLUMNS = (
    "ifm_stripe_h",
    "ofm_stripe_h",
    "ofm_depth_slices",
    "weight_buffering",
    "weight_pre_buffer",
    "weight_total_bytes",
    "cascade",
    "ifm_memory",
    "ifm2_memory",
    "ofm_memory",
    "ifm_format",
    "ofm_format",
)
"""What Vela decides per op, apart from blocks, which follow from it."""

Progress = Callable[[int, int], None]
"""Called after each compilation with (compilations so far, distinct results so far)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One distinct result of one variant (strategy and switched-off features).

    Limits from ``asked_bytes`` to ``asked_last_bytes`` (both on the grid) give it; ``options`` ask
    for the smallest of them. ``used_bytes``: high-water mark of the memory that the limit is about;
    more than asked where Vela takes the limit as an aim only. ``cycles``, ``npu_cycles`` and
    ``off_chip_bytes`` (read and written outside that memory) are as Vela reports them. ``key``:
    digest of the schedule and these figures.
    """

    asked_bytes: int
    asked_last_bytes: int
    used_bytes: int
    cycles: int
    npu_cycles: int
    off_chip_bytes: int
    options: VelaOptions
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFailure:
    """A limit at which Vela gave no result."""

    options: VelaOptions
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep found.

    ``points``: by variant, then by limit; a result that comes again at larger limits is listed
    again. ``compiles``: compilations asked for, cached ones included. ``grid_points``: compilations
    of an exhaustive sweep of the same ranges. ``complete``: False if ``max_compiles`` ended it.
    """

    points: tuple[SweepPoint, ...]
    failures: tuple[SweepFailure, ...]
    compiles: int
    grid_points: int
    complete: bool

    @property
    def distinct(self) -> tuple[SweepPoint, ...]:
        """The first point of each key, by bytes used, then cycles."""
        first: dict[str, SweepPoint] = {}
        for point in self.points:
            first.setdefault(point.key, point)
        return tuple(sorted(first.values(), key=lambda p: (p.used_bytes, p.cycles, p.key)))

    @property
    def non_dominated(self) -> tuple[SweepPoint, ...]:
        """Distinct results that no other betters in bytes used, cycles and off-chip bytes."""
        return non_dominated(self.distinct)


def non_dominated(points: Sequence[SweepPoint]) -> tuple[SweepPoint, ...]:
    """Return the points that no other equals or betters in all figures and betters in one."""
    figures = {(p.used_bytes, p.cycles, p.off_chip_bytes) for p in points}
    best = {
        mine
        for mine in figures
        if not any(
            other != mine and all(o <= m for o, m in zip(other, mine, strict=True))
            for other in figures
        )
    }
    return tuple(p for p in points if (p.used_bytes, p.cycles, p.off_chip_bytes) in best)


def sweep(
    content: bytes,
    target: Target,
    *,
    arena_range: tuple[int, int] | None = None,
    optimise: Sequence[Optimise] = tuple(Optimise),
    features: Sequence[tuple[Feature, ...]] = FEATURE_SETS,
    base: VelaOptions | None = None,
    cache: VelaCache | None,
    progress: Progress | None = None,
    max_compiles: int | None = None,
    worker: VelaWorker | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
) -> SweepResult:
    """Find Vela's distinct results for a .tflite file over arena limits.

    ``arena_range``: smallest and largest limit in bytes, moved to the grid (default: from 16 to
    where nothing changes any more, per variant). ``features``: sets of features to switch off
    together. ``base`` gives all other options. ``max_compiles`` bounds the compilations, shared
    evenly (what one variant leaves goes to the next); the widest gaps are closed first. Raises
    VelaError if Vela is not installed or every compilation fails, TargetError for a target without
    NPU, ValueError for an empty range.
    """
    base = base or VelaOptions()
    low, high = (GRID_BYTES, None) if arena_range is None else _on_grid(*arena_range)
    budget = _Budget(max_compiles)
    variants = []
    wanted = [(strategy, disabled) for strategy in optimise for disabled in features]
    for done, (strategy, disabled) in enumerate(wanted):
        options = msgspec.structs.replace(
            base, optimise=strategy, disable=(*base.disable, *disabled), debug_database=True
        ).canonical()
        variant = _Variant(
            lambda asked: compile_model(
                content, target, asked, cache=cache, worker=worker, limit_s=limit_s
            ),
            target,
            options,
            budget,
            progress,
        )
        budget.share(len(wanted) - done)
        if budget.allows_another():
            variant.run(low, high)
        variants.append(variant)
    points = tuple(point for variant in variants for point in variant.points())
    failures = tuple(failure for variant in variants for failure in variant.failures())
    if failures and not points and budget.first_error is not None:
        raise budget.first_error
    return SweepResult(
        points=points,
        failures=failures,
        compiles=budget.used,
        grid_points=sum(variant.grid_points for variant in variants),
        complete=not budget.is_short,
    )


@dataclass(slots=True)
class _Budget:
    """Compilations of all variants together, and the distinct results so far."""

    total: int | None
    used: int = 0
    limit: int | None = None
    is_short: bool = False
    keys: set[str] = field(default_factory=set)
    first_error: VelaError | None = None

    def share(self, variants: int) -> None:
        """Give the next of so many variants its part of what is left."""
        if self.total is not None:
            self.limit = self.used - (self.used - self.total) // variants

    def allows_another(self) -> bool:
        """Return True if one more compilation may follow; if not, note that it was wanted."""
        allowed = self.limit is None or self.used < self.limit
        self.is_short |= not allowed
        return allowed


@dataclass(slots=True)
class _Variant:
    """Known results of one strategy and set of switched-off features, by limit."""

    compile: Callable[[VelaOptions], VelaResult]
    target: Target
    options: VelaOptions
    budget: _Budget
    progress: Progress | None
    known: dict[int, SweepPoint | SweepFailure] = field(default_factory=dict)
    ends: tuple[int, int] = (0, 0)

    def run(self, low: int, high: int | None) -> None:
        """Probe a few limits; unless all agree, a coarse grid, then close in on every step."""
        if high is None:
            high = self._last_change(low)
        self.ends = (low, high)
        if not self._probe_evenly(_FIRST_STEPS):
            return
        if len({self._key(limit) for limit in self._inside()}) > 1:
            if not self._probe_evenly(_COARSE_STEPS):
                return
            self._close_in()

    @property
    def grid_points(self) -> int:
        """Limits in the range, 0 if the variant was not begun."""
        low, high = self.ends
        return (high - low) // GRID_BYTES + 1 if high else 0

    def _inside(self) -> list[int]:
        low, high = self.ends
        return sorted(limit for limit in self.known if low <= limit <= high)

    def _last_change(self, low: int) -> int:
        """Return a limit from which on the result is that of an unlimited arena."""
        space = address_space_bytes(config_of(self.target).architecture)
        self._probe(space)
        last = self.known[space]
        high = low
        if isinstance(last, SweepPoint):
            high = max(low, _up(last.used_bytes) + GRID_BYTES)
        while high < space and self.budget.allows_another():
            self._probe(high)
            if self._key(high) == self._key(space):
                break
            high *= 2
        return min(high, space)

    def _probe_evenly(self, steps: int) -> bool:
        """Probe ``steps`` + 1 limits over the range; False if the budget did not suffice."""
        low, high = self.ends
        for step in range(steps + 1):
            limit = _down(low + (high - low) * step // steps)
            if limit not in self.known:
                if not self.budget.allows_another():
                    return False
                self._probe(limit)
        return True

    def _close_in(self) -> None:
        """Split intervals between different results, widest first, down to the grid."""
        limits = self._inside()
        heap = [(a - b, a, b) for a, b in pairwise(limits) if self._is_open(a, b)]
        heapq.heapify(heap)
        while heap:
            _, a, b = heapq.heappop(heap)
            if not self.budget.allows_another():
                return
            middle = self._guess(a, b)
            self._probe(middle)
            for x, y in ((a, middle), (middle, b)):
                if self._is_open(x, y):
                    heapq.heappush(heap, (x - y, x, y))

    def _is_open(self, a: int, b: int) -> bool:
        return b - a > GRID_BYTES and self._key(a) != self._key(b)

    def _guess(self, a: int, b: int) -> int:
        """Pick a limit strictly between ``a`` and ``b`` where the step is likely, else the middle.

        The result at ``b`` uses U bytes. Tests of Vela against the limit are strict or not, so the
        step lies often between U and U + 16, else between U - 16 and U.
        """
        upper = self.known[b]
        if isinstance(upper, SweepPoint):
            used = _up(upper.used_bytes)
            for step in (GRID_BYTES, 0, -GRID_BYTES):
                if a < used + step < b and b - used - step > step:
                    return used + step
        return a + max(_down((b - a) // 2), GRID_BYTES)

    def _key(self, limit: int) -> str:
        found = self.known[limit]
        return found.key if isinstance(found, SweepPoint) else "failed"

    def _probe(self, limit: int) -> None:
        if limit in self.known:
            return
        self.budget.used += 1
        asked = msgspec.structs.replace(self.options, arena_cache_size_bytes=limit)
        try:
            self.known[limit] = point_of(self.target, asked, self.compile(asked))
        except VelaError as error:
            if error.values.get("reason") == "missing":
                raise
            self.budget.first_error = self.budget.first_error or error
            self.known[limit] = SweepFailure(options=asked, message=f"{error.what}: {error.why}")
        else:
            self.budget.keys.add(self._key(limit))
        if self.progress is not None:
            self.progress(self.budget.used, len(self.budget.keys))

    def points(self) -> list[SweepPoint]:
        """Runs of equal results in the range, in order of limits."""
        found: list[SweepPoint] = []
        previous = ""
        for limit in self._inside():
            point = self.known[limit]
            if isinstance(point, SweepPoint):
                if point.key == previous:
                    point = replace(found.pop(), asked_last_bytes=limit)
                found.append(point)
            previous = self._key(limit)
        return found

    def failures(self) -> list[SweepFailure]:
        """Limits in the range that gave no result."""
        inside = [self.known[limit] for limit in self._inside()]
        return [found for found in inside if isinstance(found, SweepFailure)]


def point_of(target: Target, options: VelaOptions, result: VelaResult) -> SweepPoint:
    """Reduce a result to its figures. ``options`` state the limit that was asked for."""
    limit = result.arena_limit_bytes
    report = result.report
    limited = report.staging_memory
    names = {memory.vela_name for memory in target.memories} - {limited}
    outside = [use for name, use in report.memories.items() if name in names]
    return SweepPoint(
        asked_bytes=limit,
        asked_last_bytes=limit,
        used_bytes=report.memories[limited].peak_bytes if limited in report.memories else 0,
        cycles=report.total_cycles,
        npu_cycles=report.npu_cycles,
        off_chip_bytes=sum(
            access.read_bytes + access.written_bytes
            for use in outside
            for access in use.accesses.values()
        ),
        options=options,
        key=result_key(result),
    )


def result_key(result: VelaResult) -> str:
    """Digest of a result's schedule and figures: equal for results that differ in nothing else.

    Needs the debug database.
    """
    report = result.report
    figures = [report.total_cycles, report.npu_cycles]
    uses = [
        (
            name,
            use.peak_bytes,
            use.access_cycles,
            sorted((p, a.read_bytes, a.written_bytes) for p, a in use.accesses.items()),
        )
        for name, use in sorted(report.memories.items())
    ]
    table = result.database.table("perf_debug")
    schedule = [table.texts(name) for name in _SCHEDULE_COLUMNS]
    return hashlib.sha256(repr((figures, uses, schedule)).encode()).hexdigest()[:16]


def _on_grid(low: int, high: int) -> tuple[int, int]:
    """Move a range to the grid. Raises ValueError if nothing is left of it."""
    first, last = max(_up(low), GRID_BYTES), _down(high)
    if first > last:
        raise ValueError(f"no multiple of {GRID_BYTES} between {low} and {high}")
    return first, last


def _up(size_bytes: int) -> int:
    return -(-size_bytes // GRID_BYTES) * GRID_BYTES


def _down(size_bytes: int) -> int:
    return size_bytes // GRID_BYTES * GRID_BYTES
