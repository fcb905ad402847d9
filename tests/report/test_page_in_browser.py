"""The page in headless Chromium: it works with mouse, keyboard, on a phone and on paper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

import npusched
from npusched.cli.png import find_browser
from npusched.errors import NpuschedError
from npusched.report.html.embed import unpacked
from tests.report.page_kit import HOSTILE, comparison, frontier, plan, stretched

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    """One browser for all tests; skips them where there is no Chromium."""
    try:
        path = find_browser()
    except NpuschedError as error:
        pytest.skip(error.why)
    with sync_api.sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files: a small mixed model with everything, hostile names, and 300 kernels."""
    folder = tmp_path_factory.mktemp("pages")

    def full(name: str) -> str:
        return npusched.render_html(
            plan(name), frontier=frontier(name), comparison=comparison(name)
        )

    texts = {
        "small": full(""),
        "hostile": full(HOSTILE),
        "long": npusched.render_html(stretched(plan(), 60), frontier=frontier()),
    }
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(text, encoding="utf-8")
    return files


class Watched:
    """An open page, and everything that it asked for or complained about."""

    def __init__(
        self, browser: sync_api.Browser, file: Path, size: dict[str, int], scheme: str
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": size["width"], "height": size["height"]},
            color_scheme="dark" if scheme == "dark" else "light",
            is_mobile=size["width"] < 500,
            has_touch=size["width"] < 500,
            accept_downloads=True,
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(10_000)
        self.page: sync_api.Page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def close(self) -> None:
        self.context.close()
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture
def open_page(browser: sync_api.Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens a page; at the end there must be no message of the console and no request."""
    opened: list[Watched] = []

    def show(name: str, size: dict[str, int] = WIDE, scheme: str = "light") -> sync_api.Page:
        opened.append(Watched(browser, pages[name], size, scheme))
        return opened[-1].page

    yield show
    for each in opened:
        each.close()


def column(page: sync_api.Page, index: int) -> list[str]:
    """Texts of a column of the kernels that are shown."""
    script = (
        "k => [...document.querySelectorAll('#op-table tbody tr')].filter(r => !r.hidden)"
        ".map(r => r.cells[k].textContent.trim())"
    )
    found: list[str] = page.evaluate(script, index)
    return found


def numbers(texts: list[str]) -> list[float]:
    return [float("".join(text.split())) for text in texts]


@pytest.mark.parametrize("name", ["small", "hostile", "long"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_page_fits_its_screen(open_page: Any, name: str, size: dict[str, int]) -> None:
    page = open_page(name, size)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width == size["width"], "the page must not be wider than the screen"
    for section in ("verdict", "memory", "timeline", "ops", "roofline", "graph", "provenance"):
        shown = page.locator(f"#{section}").bounding_box()
        assert shown["width"] > 300
        assert shown["height"] > 60
    cards = page.evaluate(
        "[...document.querySelectorAll('.card')].map(c => c.scrollWidth - c.clientWidth)"
    )
    assert max(cards) <= 0, "a card's text must not run over its edge"


def test_headings_sort(open_page: Any) -> None:
    page = open_page("long")
    given = column(page, 3)
    page.click("#op-table th:nth-child(4) button")
    assert numbers(column(page, 3)) == sorted(numbers(given), reverse=True)
    assert page.get_attribute("#op-table th:nth-child(4)", "aria-sort") == "descending"
    page.click("#op-table th:nth-child(4) button")
    assert numbers(column(page, 3)) == sorted(numbers(given))
    page.focus("#op-table th:nth-child(2) button")
    page.keyboard.press("Enter")
    kinds = column(page, 1)
    assert kinds == sorted(kinds, key=lambda text: (text.split("_")[0].lower(), kinds.index(text)))
    assert page.locator("th[aria-sort]").count() == 1


def test_filters_hide_rows(open_page: Any) -> None:
    page = open_page("long")
    assert page.inner_text("#op-shown").replace("\u00a0", " ") == "300 of 300 kernels"
    page.fill("#op-filter", "depthwise 8")
    found = column(page, 1)
    assert found
    assert all("depthwise" in text.lower() for text in found)
    assert page.inner_text("#op-shown") == f"{len(found)} of 300 kernels"
    page.fill("#op-filter", "")
    page.select_option("#op-placement", "cpu")
    assert set(column(page, 9)) == {"CPU"}
    page.select_option("#op-bound", "MAC array")
    assert column(page, 1) == []
    page.select_option("#op-placement", "")
    assert set(column(page, 9)) == {"MAC array"}


def test_light_and_dark(open_page: Any) -> None:
    script = "getComputedStyle(document.body).backgroundColor"
    page = open_page("small", scheme="dark")
    dark = page.evaluate(script)
    assert page.inner_text("#theme") == "Light"
    page.click("#theme")
    light = page.evaluate(script)
    assert dark != light
    assert page.inner_text("#theme") == "Dark"
    page.reload()
    assert page.evaluate(script) == light, "the choice is kept"
    assert open_page("small", scheme="light").evaluate(script) == light


def test_marks_speak_to_mouse_and_keyboard(open_page: Any) -> None:
    page = open_page("small")
    mark = page.locator("#memory .mm > *").first
    mark.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    mark.hover()
    assert page.is_visible("#tip")
    assert "KiB" in page.inner_text("#tip")
    page.focus("#timeline .fig")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#say").startswith("1 of 5: #0 Conv2D")
    page.keyboard.press("End")
    assert page.inner_text("#say").startswith("5 of 5: ")
    assert page.locator("#timeline .on").count() == 1
    page.keyboard.press("Escape")
    assert not page.is_visible("#tip")


def test_everything_can_be_reached_with_tab(open_page: Any) -> None:
    page = open_page("small")
    seen = []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(e => e.id || e.hash || e.getAttribute('aria-label') || e.tagName)"
                "(document.activeElement)"
            )
        )
        if seen[-1] == "BODY":
            break
    assert {"theme", "save", "#memory", "op-filter", "op-placement", "op-bound"} <= set(seen)
    assert seen[0] == "#main", "the first stop skips the list of sections"
    names = page.evaluate(
        "[...document.querySelectorAll('button,input,select,[tabindex]')].filter(e => "
        "!(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    assert names == 0


def test_the_json_can_be_saved(open_page: Any) -> None:
    for name, expected in (("small", plan()), ("long", stretched(plan(), 60))):
        page = open_page(name)
        with page.expect_download() as download:
            page.click("#save")
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert unpacked(text) == text.encode(), "packed JSON is saved unpacked"
        assert json.loads(text) == json.loads(npusched.render_json(expected))


def test_paper_has_everything(open_page: Any) -> None:
    page = open_page("long", scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for gone in ("nav", ".tools", ".filter"):
        assert not page.locator(gone).first.is_visible()
    tall = page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => e.scrollHeight <= e.clientHeight + 1)"
    )
    assert tall, "nothing is behind a scroll bar"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0
