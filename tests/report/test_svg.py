"""The figures: right places for right figures, well formed, and harmless whatever names say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import npusched
from npusched.report import svg
from npusched.report.svg.axis_of_time import RIGHT, TimeAxis
from npusched.report.svg.draw import Drawing, Scale, byte_ticks, log_ticks, nice_ticks
from npusched.report.svg.memory import peak_buffers
from npusched.report.types import PlanReport
from tests.report.page_kit import (
    FORBIDDEN,
    HOSTILE,
    TARGET,
    comparison,
    frontier,
    plan,
    stretched,
)

GOLDEN = Path(__file__).parent / "golden" / "figures"
NAMES = (*svg.PLAN_FIGURES, "frontier", "compare")


def drawing(figure: str, name: str = "", sram: str | None = "32KiB") -> Drawing:
    if figure == "compare":
        found = svg.draw_compare(comparison(name))
    elif figure == "frontier":
        found = svg.draw_frontier(frontier(name), plan(name, sram))
    else:
        found = svg.PLAN_FIGURES[figure](plan(name, sram))
    assert found is not None
    return found


Mark = tuple[list[str], str]


def marks(figure: Drawing) -> Iterator[Mark]:
    """Lines of the title and path of every mark."""
    for path, title in re.findall(r'<path d="([^"]*)"[^>]*><title>([^<]*)</title>', figure.body):
        yield title.split("\n"), path


def box(path: str) -> tuple[float, float, float, float]:
    """x, y, width, height of a rectangle's path."""
    found = re.fullmatch(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z", path)
    assert found, path
    x, y, width, height = map(float, found.groups())
    return x, y, width, height


@pytest.mark.parametrize("figure", NAMES)
def test_golden_figures(figure: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / f"{figure}.svg", svg.standalone(drawing(figure)))


@pytest.mark.parametrize("figure", NAMES)
def test_hostile_names_are_inert(figure: str) -> None:
    text = svg.standalone(drawing(figure, HOSTILE))
    root = ElementTree.fromstring(text)
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds <= {
        "svg", "title", "desc", "style", "defs", "pattern", "path", "rect", "g", "text"
    }  # fmt: skip
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if name.startswith("on") or "href" in name}
    assert not FORBIDDEN.search(text)
    assert "x" * 200 not in text
    plain = svg.standalone(drawing(figure))
    assert len(text) < 3 * len(plain) + 5000


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_themes(theme: svg.Theme) -> None:
    text = svg.standalone(drawing("memory"), theme=theme)
    assert ("prefers-color-scheme" in text) == (theme == "auto")
    assert ("--card:#1a2129" in text) == (theme != "light")
    assert ("--card:#fff" in text) == (theme != "dark")


def test_buffers_lie_at_their_addresses_and_times() -> None:
    report = plan()
    axis = TimeAxis(report)
    found = [(title, box(path)) for title, path in marks(drawing("memory"))]
    assert len(found) == len(report.allocation)
    ordered = sorted(report.allocation, key=lambda item: item.kind != "feature_map")
    unit = None
    bottom = max(y + height for _, (_, y, _, height) in found)
    for item in report.allocation:
        lines = f"at {item.offset:,}".replace(",", " ")
        x, y, width, height = next(b for t, b in found if t[1].endswith(lines) and _is(t, item))
        unit = unit or item.size_bytes / height
        assert item.size_bytes / height == pytest.approx(unit, rel=0.03)
        assert x == pytest.approx(axis.step(item.first_step), abs=0.06)
        assert x + width == pytest.approx(axis.step(item.end_step), abs=1)
        assert (bottom - y - height) * unit == pytest.approx(item.offset, abs=1.2 * unit)
    assert {item.kind for item in ordered} >= {"feature_map", "rolling"}


def _is(title: list[str], item: npusched.report.types.AllocationFacts) -> bool:
    return title[0] == item.tensor.split("/")[0]


def test_padding_is_hatched_by_its_share() -> None:
    report = plan()
    hatched = re.search(r'<path d="([^"]*)" class="s n"/>', drawing("memory").body)
    assert hatched
    padded = [item for item in report.allocation if item.size_bytes > item.logical_bytes]
    assert padded
    assert hatched[1].count("M") == len(padded)
    first = box(re.split("(?<=z)", hatched[1])[0])
    whole = next(box(path) for _, path in marks(drawing("memory")) if box(path)[:2] == first[:2])
    item = padded[0]
    share = 1 - item.logical_bytes / item.size_bytes
    assert first[3] / whole[3] == pytest.approx(share, abs=0.02)


def test_the_budget_is_drawn_or_named() -> None:
    assert "budget 32.0 KiB" in drawing("memory").body
    assert "far above" not in drawing("memory").body
    assert "far above" in drawing("memory", sram="4MiB").body


def test_what_is_alive_at_the_peak() -> None:
    report = plan()
    step, alive = peak_buffers(report)
    assert report.live_sram_bytes[step] == max(report.live_sram_bytes)
    assert sum(item.size_bytes for item in alive) == report.live_sram_bytes[step]


def test_lanes_are_as_long_as_their_cycles() -> None:
    report = plan()
    axis = TimeAxis(report)
    columns = [box(path) for _, path in marks(drawing("timeline"))]
    assert len(columns) == len(report.ops)
    assert sum(width for _, _, width, _ in columns) == pytest.approx(RIGHT - axis.step(0), abs=1)
    sram = re.search(
        r'>sram</text><path[^>]*/><path d="([^"]*)" class="c4"/>', drawing("timeline").body
    )
    assert sram
    drawn = sum(float(width) for width in re.findall(r"h([\d.]+)v", sram[1]))
    cycles = sum(op.memory_cycles.get("sram", 0) for op in report.ops)
    expected = cycles / report.target.clock_hz / axis.total_s * (RIGHT - axis.step(0))
    assert drawn == pytest.approx(expected, abs=1)


def test_no_dot_above_its_roof() -> None:
    for target in (TARGET, "ethos-u65-256"):
        report = npusched.plan("demo:resnet8", target, use_vela=False)
        figure = svg.draw_roofline(report)
        assert figure is not None
        for title, _ in marks(figure):
            speed = float(title[1].split()[0])
            intensity, memory = title[2].split()[0], title[2].split()[-1]
            bandwidth = report.target.memory(memory).bandwidth_bytes_per_cycle
            assert speed <= 1.01 * bandwidth * float(intensity)
            assert report.target.accelerator is not None
            assert speed <= 1.01 * report.target.accelerator.macs_per_cycle


def test_waterfalls_end_at_the_plan() -> None:
    report = plan()
    plain, final = report.fusion_levels[1], report.fusion_levels[-1]
    assert (plain.level, final.level) == ("L0", "plan")
    for panel, of in zip(svg.fusion_panels(report), ("traffic_bytes", "cycles"), strict=False):
        bars = {title[0].split(":")[0]: box(path) for title, path in marks(panel)}
        ratio = bars["this plan"][2] / bars["L0 unfused"][2]
        assert ratio == pytest.approx(getattr(final, of) / getattr(plain, of), abs=0.01)
        assert bars["this plan"][0] == bars["L0 unfused"][0]


def test_every_row_and_branch_of_the_graph() -> None:
    report = npusched.plan("demo:unet", "ethos-u65-256", sram="64KiB", use_vela=False)
    figure = svg.draw_graph(report)
    assert figure is not None
    assert len(list(marks(figure))) == len(report.segments)
    skips = sum(k < s.index - 1 for s in report.segments for k in s.reads_from)
    assert skips >= 3, "a U-Net has skip connections"
    assert figure.body.count("Q") == 2 * skips
    assert f"{skips} data paths skip rows" in figure.summary


def test_a_long_plan_stays_small() -> None:
    long = stretched(plan(), 400)
    assert len(long.ops) == 2000
    for name, draw in svg.PLAN_FIGURES.items():
        figure = draw(long)
        assert figure is not None
        assert len(figure.body) < 130_000, name


@pytest.mark.parametrize("name", svg.PLAN_FIGURES)
def test_a_plan_of_nothing_has_no_figure(name: str) -> None:
    empty = msgspec.structs.replace(
        plan(), segments=(), ops=(), allocation=(), live_sram_bytes=(), source_ops=()
    )
    assert svg.PLAN_FIGURES[name](empty) is None


def test_hosts_without_an_npu() -> None:
    report: PlanReport = npusched.plan("demo:ds_cnn", "cortex-m4")
    assert svg.draw_roofline(report) is None
    lanes = svg.draw_timeline(report)
    assert lanes is not None
    assert "CPU" in lanes.body
    curve = svg.draw_frontier(npusched.frontier("demo:ds_cnn", "cortex-m4"), report)
    assert curve is not None
    assert "latency" in curve.body


def test_the_curve_has_every_plan_and_result() -> None:
    report = frontier()
    titles = [title for title, _ in marks(drawing("frontier"))]
    theirs = [title for title in titles if title[0].startswith("Vela: ")]
    assert len(titles) - len(theirs) == len(report.points)
    assert theirs
    assert "The ring is this plan." in drawing("frontier").summary


def test_ticks() -> None:
    assert nice_ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(3, 3) == [3]
    assert byte_ticks(0, 64 * 1024) == [0, 16384, 32768, 49152, 65536]
    assert log_ticks(1, 1000) == [1, 10, 100, 1000]
    assert log_ticks(1, 20) == [1, 2, 5, 10, 20]
    assert Scale(1, 100, 0, 10, is_log=True).at(10) == pytest.approx(5)
    assert Scale(5, 5, 0, 10).at(5) == 5
