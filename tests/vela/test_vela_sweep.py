"""The sweep over arena limits against exhaustive ones, on invented and on real step functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.vela import sweep as sweeping
from npusched.vela.cache import VelaCache
from npusched.vela.options import Feature, Optimise, VelaOptions
from npusched.vela.protocol import Access, MemoryUse, PerfReport
from npusched.vela.result import VelaResult
from npusched.vela.runner import config_of
from npusched.vela.sweep import GRID_BYTES, SweepPoint, SweepResult, non_dominated, sweep

TARGET = load_target("ethos-u55-128", memory_mode="Shared_Sram")


def result(options: VelaOptions, *, used: int, cycles: int, flash: int = 0) -> VelaResult:
    """A result with nothing but figures."""
    access = Access(read_bytes=flash, written_bytes=0, access_cycles=0)
    report = PerfReport(
        npu_cycles=cycles,
        cpu_cycles=0,
        total_cycles=cycles,
        mac_count=0,
        npu_ops=1,
        cpu_ops=0,
        cascades=0,
        cascaded_ops=0,
        original_weights_bytes=0,
        encoded_weights_bytes=0,
        read_only_peak_bytes=0,
        staging_memory="Sram",
        memories={
            "Sram": MemoryUse(peak_bytes=used, access_cycles=0, accesses={}),
            "OffChipFlash": MemoryUse(peak_bytes=0, access_cycles=0, accesses={"Weights": access}),
        },
    )
    return VelaResult(
        vela_version="5.2.0",
        model_sha256="",
        config=config_of(TARGET),
        options=options,
        arena_limit_bytes=options.arena_cache_size_bytes or 0,
        compiled=b"",
        raw=None,
        report=report,
        columns={},
        printed="",
        seconds=0.0,
    )


class Invented:
    """Stands in for the runner: results by limit, and what was asked."""

    def __init__(self, answer: Callable[[int], tuple[int, int]]) -> None:
        self.answer = answer
        self.asked: list[int] = []

    def __call__(
        self, _content: bytes, _target: object, options: VelaOptions, **_: object
    ) -> VelaResult:
        limit = options.arena_cache_size_bytes
        assert limit is not None
        self.asked.append(limit)
        used, cycles = self.answer(limit)
        return result(options, used=used, cycles=cycles)


def run(
    answer: Callable[[int], tuple[int, int]], **options: object
) -> tuple[SweepResult, Invented]:
    """Sweep one variant of an invented function."""
    fake = Invented(answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "compile_model", fake)
        found = sweep(
            b"",
            TARGET,
            optimise=(Optimise.PERFORMANCE,),
            features=((),),
            cache=None,
            **options,  # type: ignore[arg-type]
        )
    return found, fake


@settings(max_examples=60, deadline=None)
@given(steps=st.sets(st.integers(2, 4000), min_size=0, max_size=40), slack=st.integers(0, 3))
def test_every_step_is_bracketed(steps: set[int], slack: int) -> None:
    """A function with a new value at each step: all values, and both sides of each step, known.

    ``slack``: grid steps between the bytes used and the limit that they need.
    """
    borders = sorted(step * GRID_BYTES for step in steps)

    def answer(limit: int) -> tuple[int, int]:
        index = bisect_right(borders, limit)
        used = borders[index - 1] - slack * GRID_BYTES if index else GRID_BYTES
        return max(used, GRID_BYTES), 1000 - index

    found, fake = run(answer)
    values = [point.cycles for point in found.points]
    assert values == [1000 - index for index in range(len(borders) + 1)]
    assert [point.asked_bytes for point in found.points] == [GRID_BYTES, *borders]
    assert [p.asked_last_bytes for p in found.points[:-1]] == [b - GRID_BYTES for b in borders]
    assert len(fake.asked) == len(set(fake.asked)) == found.compiles
    assert found.complete
    assert all(limit % GRID_BYTES == 0 for limit in fake.asked)


def test_steps_at_the_bytes_used_cost_two_compilations_each() -> None:
    """30 steps over 60,000 limits, each where its result's bytes just fit, or one step above.

    Halving would need about log2(2000) = 11 compilations per step, 330 in all.
    """
    for above in (0, GRID_BYTES):
        borders = [32000 * index for index in range(1, 31)]

        def answer(limit: int, borders: list[int] = borders, above: int = above) -> tuple[int, int]:
            index = bisect_right(borders, limit)
            return (borders[index - 1] - above if index else 16), 1000 - index

        found, fake = run(answer)
        assert len(found.points) == 31
        assert len(fake.asked) < 30 * 3 + 30
        assert found.grid_points >= 60000


def test_failures_are_kept_apart() -> None:
    """Below 4 KiB there is no result; the step to the first one is found all the same."""

    def answer(limit: int) -> tuple[int, int]:
        if limit < 4096:
            raise VelaError("Vela cannot compile this model", "it does not fit")
        return 4096, 7

    found, _ = run(answer)
    assert [(p.asked_bytes, p.cycles) for p in found.points] == [(4096, 7)]
    assert found.failures
    assert max(f.options.arena_cache_size_bytes or 0 for f in found.failures) == 4096 - GRID_BYTES
    assert "does not fit" in found.failures[0].message


def test_nothing_compiles() -> None:
    def answer(_: int) -> tuple[int, int]:
        raise VelaError("Vela cannot compile this model", "not supported")

    with pytest.raises(VelaError, match="not supported"):
        run(answer)


def test_missing_vela_ends_the_sweep_at_once() -> None:
    asked = []

    def answer(limit: int) -> tuple[int, int]:
        asked.append(limit)
        raise VelaError("Vela is not installed", reason="missing")

    with pytest.raises(VelaError, match="not installed"):
        run(answer)
    assert len(asked) == 1


def test_budget_is_kept_and_said() -> None:
    """With 20 compilations of the 100 needed the sweep ends, and covers its whole range."""

    def answer(limit: int) -> tuple[int, int]:
        return limit, 100000 - limit

    found, fake = run(answer, arena_range=(16, 1600), max_compiles=20)
    assert found.compiles == len(fake.asked) == 20
    assert not found.complete
    assert (min(fake.asked), max(fake.asked)) == (16, 1600)
    whole, _ = run(answer, arena_range=(16, 1600))
    assert whole.complete
    assert len(whole.points) == whole.compiles == whole.grid_points == 100


@pytest.mark.parametrize(("low", "high"), [(1, 15), (17, 31), (100, 50)])
def test_range_without_a_grid_point(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        run(lambda _: (16, 1), arena_range=(low, high))


def point(used: int, cycles: int, off_chip: int) -> SweepPoint:
    return SweepPoint(
        asked_bytes=16,
        asked_last_bytes=16,
        used_bytes=used,
        cycles=cycles,
        npu_cycles=cycles,
        off_chip_bytes=off_chip,
        options=VelaOptions(),
        key=f"{used}-{cycles}-{off_chip}",
    )


def test_dominated_points_go() -> None:
    """(2, 9, 9) is worse than (1, 9, 9) in bytes only; (3, 1, 9) and (1, 9, 9) trade."""
    points = [point(1, 9, 9), point(2, 9, 9), point(3, 1, 9), point(3, 1, 10), point(9, 9, 1)]
    assert [p.key for p in non_dominated(points)] == ["1-9-9", "3-1-9", "9-9-1"]


def test_against_every_limit_on_the_grid(corpus_dir: Path) -> None:
    """mlpt_str_ww on U55-128 between 6.75 and 7.5 KiB: all of 49 limits, against the sweep."""
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    content = (corpus_dir / "models" / "mlpt_str_ww.tflite").read_bytes()
    low, high = 6912, 7680

    def between(first: int, last: int) -> SweepResult:
        return sweep(
            content,
            TARGET,
            arena_range=(first, last),
            optimise=(Optimise.PERFORMANCE,),
            features=((),),
            cache=None,
        )

    limits = range(high, low - 1, -GRID_BYTES)
    every = {p.key: p for limit in limits for p in between(limit, limit).points}
    found = between(low, high)
    assert {p.key for p in found.points} == every.keys()
    assert len(every) >= 5, "the range has several steps"
    assert found.compiles < found.grid_points
    for p in found.points:
        assert every[p.key].asked_bytes == p.asked_bytes


def test_interrupted_sweep_continues(corpus_dir: Path, tmp_path: Path) -> None:
    """What a first sweep compiled is not compiled again; variants give results of their own."""
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    content = (corpus_dir / "models" / "mlpt_str_ww.tflite").read_bytes()
    cache = VelaCache(tmp_path)
    progress: list[tuple[int, int]] = []
    first = sweep(
        content,
        TARGET,
        features=((), (Feature.CASCADING,)),
        cache=cache,
        max_compiles=12,
        progress=lambda done, found: progress.append((done, found)),
    )
    assert not first.complete
    assert cache.info().entries == 12 == len(progress)
    assert [done for done, _ in progress] == list(range(1, 13))
    whole = sweep(content, TARGET, features=((), (Feature.CASCADING,)), cache=cache)
    assert whole.complete
    assert cache.info().entries == whole.compiles
    again = sweep(content, TARGET, features=((), (Feature.CASCADING,)), cache=cache)
    assert again == whole
    assert {p.options.optimise for p in whole.points} == set(Optimise)
    assert any(p.options.disable for p in whole.points)
    best = whole.non_dominated
    assert set(best) <= set(whole.distinct)
    assert min(p.cycles for p in best) == min(p.cycles for p in whole.points)
    assert min(p.used_bytes for p in best) == min(p.used_bytes for p in whole.points)
