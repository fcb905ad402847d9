"""``python -m benchmarks.screenshots``: the pictures of README and docs, into docs/images.

The page of a built-in model in headless Chromium (wide, dark, on a phone) as PNG, and each figure
as SVG.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from npusched.cli import run
from npusched.cli.pages import FIGURES
from npusched.cli.png import SWITCHES, find_browser

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MODEL = ("demo:mobilenet", "-c", "ethos-u55-128", "--sram", "64KiB")
LIMIT_BYTES = 150_000

SHOTS = {
    "report.png": ({"width": 1280, "height": 1010}, "light", "verdict"),
    "report-dark.png": ({"width": 1280, "height": 760}, "dark", "timeline"),
    "report-phone.png": ({"width": 390, "height": 844}, "light", "verdict"),
}
"""File: size of the screen, colour scheme, the section at its top."""


def main() -> int:
    """Write all pictures; 1 if one is larger than ``LIMIT_BYTES``."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        if run(["plan", *MODEL, "--format", "html", "-o", str(page)]):
            return 1
        with sync_playwright() as tool:
            arguments = [*SWITCHES, "--no-sandbox"]
            browser = tool.chromium.launch(executable_path=find_browser(), args=arguments)
            for name in SHOTS:
                shoot(browser, page, name)
            browser.close()
    model, *options = MODEL
    for figure in FIGURES:
        file = IMAGES / f"{figure}.svg"
        if run(["plot", model, figure, *options, "--theme", "light", "-o", str(file)]):
            return 1
    sizes = {file.name: file.stat().st_size for file in sorted(IMAGES.iterdir())}
    for name, size in sizes.items():
        print(f"{size:>8} {name}")
    return 1 if max(sizes.values()) > LIMIT_BYTES else 0


def shoot(browser: Browser, page: Path, name: str) -> None:
    """One picture of the page."""
    size, scheme, section = SHOTS[name]
    context = browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if scheme == "dark" else "light",
        is_mobile=size["width"] < 500,
        reduced_motion="reduce",
    )
    shown = context.new_page()
    shown.goto(page.as_uri())
    if section != "verdict":
        shown.evaluate(f"document.getElementById('{section}').scrollIntoView()")
    shown.wait_for_timeout(200)
    shown.screenshot(path=str(IMAGES / name))
    context.close()


if __name__ == "__main__":
    sys.exit(main())
