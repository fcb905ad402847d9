"""The page of a plan and the fragments of notebooks: complete, small, and harmless."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

import npusched
from npusched.report.compare_types import CompareReport
from npusched.report.frontier_types import FrontierReport
from npusched.report.html.embed import MAX_PLAIN, embedded, unpacked
from npusched.report.json_form import read_json
from npusched.report.types import Advice, Delta, PlanReport
from tests.report.page_kit import (
    FORBIDDEN,
    HOSTILE,
    TARGET,
    comparison,
    frontier,
    model,
    plan,
    stretched,
)

GOLDEN = Path(__file__).parent / "golden" / "page.txt"
VOID = {"meta", "link", "input", "br"}


class Outline(HTMLParser):
    """Checks that elements nest, and collects what the tests ask about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.lines: list[str] = []
        self.feed(page)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.handlers += [name for name in given if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [v for name, v in attrs if name in ("href", "src", "action") and v]
        if tag == "script":
            self.scripts.append((given, ""))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif "svg" not in self.stack and "style" not in self.stack and data.strip():
            self.lines.append(f"{self.stack[-1]}: {' '.join(data.split())}")


def page(name: str = "") -> str:
    return npusched.render_html(plan(name), frontier=frontier(name), comparison=comparison(name))


def test_golden_page(golden: Callable[[Path, str], None]) -> None:
    """All texts of the page outside figures, in order, each with its element."""
    golden(GOLDEN, "\n".join(Outline(page()).lines) + "\n")


def test_every_section_is_there_once() -> None:
    outline = Outline(page())
    assert len(outline.ids) == len(set(outline.ids))
    sections = "verdict advice memory timeline ops roofline frontier fusion graph compare fallbacks"
    assert {*sections.split(), "provenance"} <= set(outline.ids)
    anchors = {link[1:] for link in outline.links if link.startswith("#")}
    assert anchors <= {*outline.ids}
    assert {*sections.split(), "provenance"} <= anchors


def test_nothing_is_fetched() -> None:
    outline = Outline(page())
    assert {link for link in outline.links if not link.startswith("#")} == {"data:,"}
    text = page()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_the_json_is_the_report() -> None:
    scripts = {given.get("id"): text for given, text in Outline(page()).scripts}
    plain = unpacked(scripts["plan-json"])
    assert json.loads(plain) == json.loads(npusched.render_json(plan()))
    assert read_json(plain) == plan()
    assert msgspec.json.decode(unpacked(scripts["frontier-json"]), type=FrontierReport)
    assert msgspec.json.decode(unpacked(scripts["compare-json"]), type=CompareReport)


def test_long_json_is_packed_and_comes_back() -> None:
    long = stretched(plan(), 80)
    packed = embedded(long)
    assert len(packed) < MAX_PLAIN < len(npusched.render_json(long))
    assert read_json(unpacked(packed)) == long


def test_three_hundred_kernels_stay_below_the_limit() -> None:
    long = stretched(plan(), 60)
    assert len(long.ops) == 300
    text = npusched.render_html(long, frontier=frontier(), comparison=comparison())
    assert len(text.encode()) <= 500_000
    assert len(re.findall(r"<tr class=\"(?:npu|cpu)\">", text)) == 300


def test_thousands_of_kernels_are_cut_and_counted() -> None:
    long = stretched(plan(), 500)
    text = npusched.render_html(long)
    assert len(text.encode()) <= 700_000
    assert "The 320 longest are listed" in text.replace("\u00a0", " ")


def test_hostile_names_are_inert() -> None:
    text = page(HOSTILE)
    outline = Outline(text)
    assert outline.handlers == []
    assert [given.get("type") for given, _ in outline.scripts] == [*["application/json"] * 3, None]
    assert outline.scripts[-1][1] == Outline(page()).scripts[-1][1]
    assert not FORBIDDEN.search(text)
    without_json = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert "x" * 250 not in without_json
    assert "{{7*7}}" in without_json
    form = json.loads(unpacked(outline.scripts[0][1]))
    assert form["model"]["name"].startswith(HOSTILE[:20])


def test_hostile_texts_of_advice_and_fallbacks() -> None:
    bad = Advice(
        id="<b>",
        severity="warning",
        message=HOSTILE,
        delta=Delta(sram_bytes=-2048, cycles=1500),
        confidence="low",
    )
    report = msgspec.structs.replace(plan(), advice=(bad,), warnings=(HOSTILE,))
    text = npusched.render_html(report)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "Predicted: SRAM -2.00 KiB, cycles +1 500 (confidence low)." in text.replace(
        "\u00a0", " "
    )


def test_fallbacks_have_reason_and_fix() -> None:
    text = page()
    (group,) = npusched.report.text_tables.fallbacks(plan())
    assert group.reason.fix in text
    assert "1 of 5 ops run on the CPU" in text.replace("\u00a0", " ")


def test_what_is_left_out_is_said() -> None:
    text = npusched.render_html(plan(), missing={"frontier": "Too long.", "compare": "No <Vela>."})
    assert "Too long." in text
    assert "No &lt;Vela&gt;." in text
    assert 'id="frontier-json"' not in text


def test_pages_of_other_targets() -> None:
    host = npusched.render_html(npusched.plan("demo:ds_cnn", "cortex-m4"))
    assert 'id="roofline"' not in host
    assert "Ops, all on the CPU" in host
    only = npusched.plan(
        "demo:ds_cnn",
        npusched.load_target(TARGET, memory_mode="Sram_Only"),
        use_vela=False,
    )
    assert "drawn above the arena" in npusched.render_html(only)
    Outline(host)


def test_a_plan_of_nothing_has_a_page() -> None:
    empty: PlanReport = msgspec.structs.replace(
        plan(), segments=(), ops=(), allocation=(), live_sram_bytes=(), source_ops=(), advice=()
    )
    outline = Outline(npusched.render_html(empty))
    assert "memory" not in outline.ids
    assert "provenance" in outline.ids


def test_templates_are_in_the_package() -> None:
    folder = files("npusched.report.html") / "templates"
    names = {entry.name for entry in folder.iterdir()}
    assert {"page.html.j2", "page.css", "page.js"} <= names


@pytest.mark.parametrize("name", ["", HOSTILE])
def test_notebooks_show_figures(name: str) -> None:
    reports: dict[str, Any] = {
        "plan": plan(name),
        "frontier": frontier(name),
        "compare": comparison(name),
        "tune": npusched.tune(model(name), TARGET, points=4),
    }
    for kind, report in reports.items():
        text = report._repr_html_()
        outline = Outline(text)
        assert text.startswith('<div class="npusched">')
        assert outline.handlers == []
        assert outline.scripts == []
        assert outline.links == []
        assert not FORBIDDEN.search(text)
        assert (
            f'id="f-{"frontier" if kind == "tune" else "memory" if kind == "plan" else kind}"'
            in text
        )
        assert len(text) < 100_000
