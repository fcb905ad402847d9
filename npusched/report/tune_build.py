"""From plans and Vela's results to the published form of ``npusched tune``."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from npusched import __version__
from npusched.hardware.target import MemoryMode, Target
from npusched.report.tune_types import (
    TUNE_SCHEMA_VERSION,
    ArenaAdvice,
    ArenaPartFacts,
    Goal,
    NonMonotone,
    Source,
    TuneChoice,
    TunePoint,
    TuneReport,
    VelaIni,
)
from npusched.report.types import ModelFacts, Totals
from npusched.tuning.curve import (
    Spot,
    dominators,
    fastest,
    floor,
    kept,
    knee,
    least_energy,
    near_fastest,
    stretches,
)
from npusched.tuning.tflm import FileShape, arena_parts, arena_size_bytes
from npusched.vela.command import ini_name, ini_text, vela_command
from npusched.vela.options import Optimise, VelaOptions

SOURCES: Final[tuple[Source, ...]] = ("npusched", "vela")


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point before anything is judged; ``totals`` None: not costed stripe by stripe.

    ``reported_*`` are Vela's own figures, ``reported_s`` a latency made of its cycles.
    """

    source: Source
    totals: Totals | None
    objective: float | None
    sram_bytes: int
    arena_bytes: int
    constant_bytes: int
    options: VelaOptions | None = None
    reported_cycles: int | None = None
    reported_sram_bytes: int | None = None
    reported_offchip_bytes: int = 0
    reported_s: float = 0.0
    reason: str = ""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """All points of a model on a target, ours first; what limits are set does not matter here."""

    model: ModelFacts
    vela_version: str | None
    budget_memory: str
    points: tuple[CurvePoint, ...]
    file: FileShape
    compilations: int
    warnings: tuple[str, ...]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What recommended points must keep, and how near to the fastest is near."""

    budget_bytes: int | None = None
    max_latency_s: float | None = None
    within_percent: float = 1.0


def build_tune(
    curves: Curves, target: Target, limits: Limits, *, model_path: str, objective: str
) -> TuneReport:
    """Judge the points. ``model_path`` is what the commands call the model."""
    judged = _judge(curves.points, limits)
    frontier = tuple(
        _point(i, point, judged.spots[i], target, judged.better.get(i), model_path)
        for i, point in enumerate(curves.points)
    )
    advised = dict.fromkeys(each.point for each in judged.recommended)
    name = "" if target.accelerator is None else ini_name(target)
    return TuneReport(
        schema_version=TUNE_SCHEMA_VERSION,
        npusched_version=__version__,
        vela_version=curves.vela_version,
        model=curves.model,
        target=target,
        budget_memory=curves.budget_memory,
        budget_bytes=limits.budget_bytes,
        max_latency_s=limits.max_latency_s,
        within_percent=limits.within_percent,
        objective=objective,
        basis="striped" if judged.is_striped else "vela_reported",
        compilations=curves.compilations,
        frontier=frontier,
        curve=tuple(each for each in judged.curve if each.goal in ("floor", "knee", "fastest")),
        recommended=tuple(judged.recommended),
        over_budget=tuple(point.index for point in frontier if point.is_over_budget),
        non_monotone=_non_monotone(curves.points),
        arena_advice=tuple(_advice(i, curves, target) for i in advised),
        vela_ini=VelaIni(name=name, text=ini_text(target)) if name else None,
        warnings=(*curves.model.notes, *curves.warnings),
    )


class _Judged(NamedTuple):
    """Figures by which points are judged, who dominates whom, and what is chosen."""

    is_striped: bool
    spots: list[Spot]
    better: dict[int, int]
    curve: list[TuneChoice]
    recommended: list[TuneChoice]


def _judge(points: Sequence[CurvePoint], limits: Limits) -> _Judged:
    """Dominance and choices, each source by itself; recommended is what keeps the limits."""
    is_striped = all(point.totals is not None for point in points)
    spots = [_spot(point, is_striped=is_striped) for point in points]
    share = limits.within_percent / 100
    better: dict[int, int] = {}
    curve: list[TuneChoice] = []
    recommended: list[TuneChoice] = []
    for source in SOURCES:
        group = [i for i, point in enumerate(points) if point.source == source]
        for i, other in zip(group, dominators([spots[i] for i in group]), strict=True):
            if other is not None:
                better[i] = group[other]
        best = _simplest_first(points, [i for i in group if i not in better])
        within = [i for i in best if _keeps(spots[i], limits)]
        whole = _choices(spots, best, source, share)
        curve += whole
        recommended += _within(whole, _choices(spots, within, source, share), within)
    return _Judged(is_striped, spots, better, curve, recommended)


def _spot(point: CurvePoint, *, is_striped: bool) -> Spot:
    """Figures that a point is judged by: of Vela's, as reported if one of them has no other."""
    totals = point.totals
    if totals is None or (point.source == "vela" and not is_striped):
        energy = 0.0 if totals is None else totals.energy_nj.typical
        return Spot(point.sram_bytes, point.reported_s, point.reported_offchip_bytes, energy)
    moved = totals.dram_bytes + totals.flash_bytes
    return Spot(point.sram_bytes, totals.latency_s, moved, totals.energy_nj.typical)


def _keeps(spot: Spot, limits: Limits) -> bool:
    if limits.budget_bytes is not None and spot.sram_bytes > limits.budget_bytes:
        return False
    return limits.max_latency_s is None or spot.time_s <= limits.max_latency_s


def _simplest_first(points: Sequence[CurvePoint], indices: Sequence[int]) -> list[int]:
    """Of results that are equal the one with the plainest command comes first."""

    def rank(i: int) -> tuple[int, bool, bool, int, int]:
        options = points[i].options
        if options is None:
            return 0, False, False, 0, i
        asked = options.arena_cache_size_bytes or 0
        is_over = asked < points[i].sram_bytes
        is_size = options.optimise is not Optimise.PERFORMANCE
        return len(options.disable), is_size, is_over, asked, i

    return sorted(indices, key=rank)


def _choices(
    spots: Sequence[Spot], indices: Sequence[int], source: Source, share: float
) -> list[TuneChoice]:
    """Every purpose's point among those that none dominates."""
    if not indices:
        return []
    mine = [spots[i] for i in indices]
    found: list[tuple[Goal, int]] = [
        ("floor", floor(mine)),
        ("knee", knee(mine, share)),
        ("near_fastest", near_fastest(mine, share)),
        ("fastest", fastest(mine)),
    ]
    if all(spot.energy_nj > 0 for spot in mine):
        found.append(("least_energy", least_energy(mine)))
    assert len(kept(mine)) == len(mine), "no dominated point is recommended"
    return [TuneChoice(goal=goal, source=source, point=indices[i]) for goal, i in found]


def _within(
    curve: Sequence[TuneChoice], choices: Sequence[TuneChoice], within: Sequence[int]
) -> list[TuneChoice]:
    """The choices, with the knee of the whole curve, if it keeps the limits."""
    knees = [each for each in curve if each.goal == "knee" and each.point in within]
    return [each for choice in choices for each in (knees if choice.goal == "knee" else [choice])]


def _point(
    index: int,
    point: CurvePoint,
    spot: Spot,
    target: Target,
    dominator: int | None,
    model_path: str,
) -> TunePoint:
    totals, options = point.totals, point.options
    asked = None if options is None else options.arena_cache_size_bytes
    words = None if options is None else vela_command(model_path, target, options)
    return TunePoint(
        index=index,
        source=point.source,
        adopted=point.source == "npusched" and options is not None,
        sram_bytes=point.sram_bytes,
        arena_bytes=point.arena_bytes,
        cycles=None if totals is None else totals.cycles,
        latency_s=spot.time_s,
        dram_bytes=None if totals is None else totals.dram_bytes,
        flash_bytes=None if totals is None else totals.flash_bytes,
        energy_nj=None if totals is None else totals.energy_nj,
        objective=point.objective,
        dominated_by=dominator,
        asked_bytes=asked,
        sram_bytes_vela_reported=point.reported_sram_bytes,
        is_over_budget=(point.reported_sram_bytes or 0) > (asked or 0),
        cycles_vela_reported=point.reported_cycles,
        vela_options="" if options is None else variant_text(options),
        vela_command=None if words is None else shlex.join(words),
        reason=point.reason,
    )


def variant_text(options: VelaOptions) -> str:
    """Strategy and features switched off, in words."""
    off = "".join(f", without {feature}" for feature in options.disable)
    return f"{options.optimise}{off}"


def _non_monotone(points: Sequence[CurvePoint]) -> tuple[NonMonotone, ...]:
    by_variant: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for point in points:
        if point.source == "vela" and point.options is not None:
            assert point.reported_cycles is not None
            asked = point.options.arena_cache_size_bytes or 0
            by_variant[variant_text(point.options)].append((asked, point.reported_cycles))
    return tuple(
        NonMonotone(
            vela_options=text,
            from_bytes=stretch.from_bytes,
            best_cycles=stretch.best_cycles,
            first_bytes=stretch.first_bytes,
            last_bytes=stretch.last_bytes,
            worst_bytes=stretch.worst_bytes,
            worst_cycles=stretch.worst_cycles,
        )
        for text, results in by_variant.items()
        for stretch in stretches(results)
    )


def _advice(index: int, curves: Curves, target: Target) -> ArenaAdvice:
    point = curves.points[index]
    parts = arena_parts(point.arena_bytes, curves.file)
    is_staged = target.memory_mode is MemoryMode.DEDICATED_SRAM and target.accelerator is not None
    return ArenaAdvice(
        point=index,
        size_bytes=arena_size_bytes(parts),
        parts=tuple(
            ArenaPartFacts(
                kind=part.kind,
                size_bytes=part.size_bytes,
                is_estimate=part.is_estimate,
                why=part.why,
            )
            for part in parts
        ),
        arena_memory=target.roles.arena,
        cache_bytes=point.sram_bytes if is_staged else 0,
        constant_bytes=point.constant_bytes,
        constant_memory=target.roles.const,
    )
