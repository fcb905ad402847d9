"""Which limits are tried with Vela: on invented step functions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.tuning.probing import VARIANTS, Probed, gain, probe
from npusched.vela.command import SWITCHES
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.result import VelaResult
from tests.vela.test_vela_sweep import result

SHARED = load_target("ethos-u55-128", memory_mode="Shared_Sram")
DEDICATED = load_target("ethos-u65-256", memory_mode="Dedicated_Sram")


def stairs(limit: int) -> tuple[int, int]:
    """(used, cycles): a soft limit with a floor of 6000 bytes and one large step."""
    if limit < 6500:
        return 6000, 700_000
    return (6656, 60_800) if limit < 9000 else (9000, 59_700)


class Invented:
    def __init__(self, answer: Callable[[int], tuple[int, int]]) -> None:
        self.answer, self.asked = answer, [VelaOptions()]
        self.asked.clear()

    def __call__(self, options: VelaOptions) -> VelaResult:
        self.asked.append(options)
        limit = options.arena_cache_size_bytes
        assert limit is not None
        if options.optimise is Optimise.SIZE:
            limit = 16
        used, cycles = self.answer(limit)
        made = result(options, used=used, cycles=cycles)
        return made


@pytest.fixture(autouse=True)
def keys_without_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented results have no debug database: their figures tell them apart."""
    monkeypatch.setattr(
        "npusched.vela.sweep.result_key",
        lambda each: f"{each.report.memories['Sram'].peak_bytes} {each.report.total_cycles}",
    )


def figures(found: Probed) -> set[tuple[int, int]]:
    return {(p.point.used_bytes, p.point.cycles) for p in found.probes}


def test_the_step_is_found_with_few_compilations() -> None:
    vela = Invented(stairs)
    found = probe(vela, SHARED, compilations=16)
    assert figures(found) == {(6000, 700_000), (6656, 60_800), (9000, 59_700)}
    assert len(vela.asked) <= 16
    asked = [(each.optimise, each.disable, each.arena_cache_size_bytes) for each in vela.asked]
    assert len(set(asked)) == len(asked), "nothing is compiled twice"


def test_a_narrow_step_is_found_from_what_the_next_result_uses() -> None:
    """Only the limit 41792 gives the good result; the one above it uses 41808 bytes."""

    def narrow(limit: int) -> tuple[int, int]:
        if limit < 36_000:
            return 35_840, 490_000
        if limit == 41_792:
            return 41_232, 202_000
        if limit < 41_792:
            return 40_000, 240_000
        return (41_808, 230_000) if limit < 50_000 else (51_840, 201_700)

    assert (41_232, 202_000) in figures(probe(Invented(narrow), SHARED, compilations=24))


def test_strategies_that_ignore_the_limit_are_compiled_once() -> None:
    vela = Invented(stairs)
    probe(vela, SHARED, compilations=24)
    sizes = [each for each in vela.asked if each.optimise is Optimise.SIZE]
    assert len({each.disable for each in sizes}) == len(sizes) == 2


def test_a_model_without_steps_takes_few() -> None:
    vela = Invented(lambda _: (512, 1000))
    probe(vela, DEDICATED, compilations=24)
    assert len(vela.asked) <= 2 + len(VARIANTS)


def test_the_command_line_has_all_switches_that_are_tried() -> None:
    assert all(feature in SWITCHES for _, disabled in VARIANTS for feature in disabled)


def test_one_failure_is_a_note_and_all_are_an_error() -> None:
    def failing(options: VelaOptions) -> VelaResult:
        if options.arena_cache_size_bytes == 16:
            raise VelaError("Vela crashed", "signal 11")
        return Invented(stairs)(options)

    found = probe(failing, SHARED, compilations=8)
    assert found.failures[0].message == "Vela crashed: signal 11"
    assert found.probes

    def broken(_options: VelaOptions) -> VelaResult:
        raise VelaError("Vela crashed", "signal 11")

    with pytest.raises(VelaError, match="crashed"):
        probe(broken, SHARED, compilations=8)


def test_the_gain_by_hand() -> None:
    """Between (100, 200 cycles) and (200, 100 cycles) all of ln 2 x ln 2 is to be won."""
    below, above = (100, 200), (200, 100)
    front = [below, above]
    whole = gain(below, above, 100, front)
    assert whole == pytest.approx(0.4805, abs=1e-4)
    assert gain(below, above, 100, [below, (100, 100), above]) == 0
    assert 0 < gain(below, above, 100, [below, (150, 120), above]) < whole
    assert gain(above, above, 100, front) == 0


def test_slow_compilations_end_early() -> None:
    """Ten seconds each: the fourth passes the limit; the same from the cache, which keeps them."""
    vela = Invented(stairs)

    def slow(options: VelaOptions) -> VelaResult:
        return msgspec.structs.replace(vela(options), seconds=10.0)

    found = probe(slow, SHARED, limit_s=35)
    assert len(found.probes) == len(vela.asked) == 4
    assert found.is_cut
    assert len(probe(slow, SHARED, limit_s=5).probes) == 1
    assert not probe(vela, SHARED, limit_s=35).is_cut
