"""What is said of Vela: its own figures, what limits do, why it divides chains as it does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import npusched
from npusched.report.explain_text import LINES, render_explanation
from npusched.report.explain_vela_types import VelaExplanation
from npusched.tflite import Builder
from tests.explain import kit
from tests.explain.kit import TARGET
from tests.report.check_kit import HOSTILE

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")


@cache
def vela_of(
    content: bytes, sram: int | None = None, limits: tuple[int, ...] = (), target: str = TARGET
) -> VelaExplanation:
    report = npusched.explain(content, target, "vela", sram=sram, arena_limits=limits)
    assert report.vela is not None
    assert len(render_explanation(report).splitlines()) <= LINES
    return report.vela


def test_the_run_as_asked_is_what_compare_says() -> None:
    sram = 80_000
    run = vela_of(kit.wide(17), sram).runs[0]
    compared = npusched.compare(kit.wide(17), TARGET, sram=sram)
    theirs, again = compared.totals.vela, compared.totals.vela_recosted
    assert again is not None
    assert run.asked_bytes == sram
    assert run.used_bytes == theirs.sram_peak_bytes
    assert run.reported_cycles == theirs.cycles
    assert run.striped_cycles == again.cycles
    assert run.flash_bytes == theirs.flash_bytes
    assert run.cascades == compared.vela.cascades
    ours = npusched.plan(kit.wide(17), TARGET, sram=sram, candidates="none")
    assert (run.ours_cycles, run.ours_sram_bytes) == (
        ours.totals.cycles,
        ours.totals.sram_peak_bytes,
    )
    assert vela_of(kit.wide(17), sram).notes == compared.notes


def test_a_channel_more_doubles_what_vela_takes() -> None:
    """33 channels for 32 on an unseen model: 3/2 of the SRAM for 3 % more MACs."""
    more, less = vela_of(kit.wide(33)), vela_of(kit.wide(32))
    ratio = more.runs[0].used_bytes / less.runs[0].used_bytes
    assert ratio == pytest.approx(48 / 32, rel=0.02)
    assert more.runs[0].macs / less.runs[0].macs < 1.1


def test_a_limit_is_a_wish() -> None:
    """Below what Vela can reach it is exceeded without an error; above it is kept."""
    found = vela_of(kit.wide(17), None, (4096, 1 << 20))
    by_limit = {run.asked_bytes: run for run in found.runs if run.options == "Performance"}
    assert by_limit[4096].is_over
    assert by_limit[4096].ours_cycles is None
    assert found.smallest_feasible_bytes > 4096
    assert not by_limit[1 << 20].is_over
    assert by_limit[None].asked_bytes is None
    assert [run.index for run in found.runs] == list(range(len(found.runs)))
    for run in found.runs:
        if run.worse_than is not None:
            other = found.runs[run.worse_than]
            mine = (run.used_bytes, run.reported_cycles)
            his = (other.used_bytes, other.reported_cycles)
            assert his != mine
            assert his[0] <= mine[0]
            assert his[1] <= mine[1]


def test_limits_are_tried_where_none_is_named() -> None:
    runs = vela_of(kit.wide(17)).runs
    asked = [run.asked_bytes for run in runs if run.asked_bytes is not None]
    assert len(asked) == 4
    assert asked == sorted(asked, reverse=True)
    assert all(limit < runs[0].used_bytes for limit in asked)
    assert {run.options for run in runs} == {"Performance", "Size"}


def test_why_vela_did_not_cascade() -> None:
    """With room for everything it looks for no cascade; ours may be cheaper off the chip."""
    roomy = vela_of(kit.wide(16), 400_000)
    assert roomy.runs[0].cascades == 0
    tight = vela_of(kit.wide(16), 100_000)
    assert tight.chains
    for chain in (*roomy.chains, *tight.chains):
        assert sum(chain.vela_groups) >= chain.ops
        assert chain.why
        if len(chain.vela_groups) == 1:
            assert chain.why.startswith("Vela cascades them, too")


def test_a_decomposed_op_counts_as_vela_counts_it() -> None:
    found = vela_of(kit.recurrent(), None, (1 << 20,))
    op = npusched.explain(kit.recurrent(), TARGET, "op", op=0).op
    assert op is not None
    rest = found.runs[0].kernels - op.kernels
    assert rest == 1
    assert found.runs[0].operations >= op.kernels + op.fused_operations
    assert found.runs[0].memory_cycles["flash"] > 0


def test_a_model_of_the_cpu_alone() -> None:
    """Vela compiles nothing, and that is said."""
    b = Builder("floats")
    b.output(b.conv2d(b.input("x", (1, 8, 8, 3), "float32"), 4, weights_dtype="float32"))
    found = vela_of(b.build())
    assert found.runs[0].kernels == 0
    assert found.runs[0].cpu_ops >= 1
    assert found.runs[0].used_bytes == 0


def test_a_schedule_of_velas_that_is_shown() -> None:
    """Its peak is explained like ours; ops and chains are those of our best plan, which is said."""
    plan = npusched.plan(kit.wide(17), TARGET)
    assert plan.candidates.shown == "vela"
    report = npusched.explain(kit.wide(17), TARGET, "peak")
    assert report.peak is not None
    assert report.plan.shown == "vela"
    assert report.plan.cycles == plan.totals.cycles
    assert report.peak.sram_peak_bytes == plan.totals.sram_peak_bytes
    assert sum(part.size_bytes for part in report.peak.parts) == report.peak.live_bytes
    assert report.peak.live_bytes <= report.peak.sram_peak_bytes
    assert report.warnings == plan.warnings
    for subject, options in (("fusion", {}), ("op", {"op": 0})):
        other = npusched.explain(kit.wide(17), TARGET, subject, **options)  # type: ignore[arg-type]
        assert other.plan.shown == "npusched"
        assert "shows Vela's own schedule" in " ".join(other.warnings)
        assert other.plan.cycles >= plan.totals.cycles


def test_the_text(golden: Callable[[Path, str], None]) -> None:
    report = npusched.explain(kit.wide(17), TARGET, "vela", sram=80_000)
    golden(Path(__file__).with_name("golden") / "vela.txt", render_explanation(report))


@pytest.mark.parametrize("name", HOSTILE[:6])
def test_hostile_names_are_inert(name: str) -> None:
    report = npusched.explain(named(name), TARGET, "vela")
    text = render_explanation(report)
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "::" not in text
    assert all(sentence.isprintable() for sentence in report.sentences)


def named(name: str) -> bytes:
    """A model with names that mean to do harm; Vela puts them into its rows."""
    b = Builder(name)
    x = b.conv2d(b.input(f"{name}x", (1, 24, 24, 17)), 17, 3, name=f"{name}a")
    b.output(b.conv2d(x, 4, 3, name=f"{name}b"))
    return b.build()


def test_limits_on_a_staging_memory() -> None:
    """Dedicated_Sram: the limit is a hard one, and a result may stage nothing at all."""
    found = vela_of(kit.averaged(), None, (16, 4096, 8192), "ethos-u65-256")
    assert not any(run.is_over for run in found.runs)
    assert min(run.used_bytes for run in found.runs) <= 16
    assert found.smallest_feasible_bytes == 0
    assert {run.asked_bytes for run in found.runs} >= {16, 4096, 8192}
