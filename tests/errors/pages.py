"""Triggers of the errors of pages and figures."""

from __future__ import annotations

from npusched.api import pages
from npusched.cli.png import VARIABLE, find_browser, png_of
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.report.svg import PLAN_FIGURES
from tests.errors.place import CHAIN, PLAIN, Place, Table, cli

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>'


def _nothing_to_draw(place: Place) -> None:
    place.patch.setitem(PLAN_FIGURES, "graph", lambda _: None)
    pages.figure_svg("graph", demo("chain:2"), name="chain\n", target=load_target("ethos-u55-128"))


def _to_a_terminal(place: Place) -> None:
    place.patch.setattr("sys.stdout.isatty", lambda: True)
    place.cli("plan", CHAIN, *PLAIN, "--format", "html")


def _wrong_browser(place: Place) -> None:
    place.patch.setenv(VARIABLE, "/nonexistent/chro\nme")
    find_browser()


def _no_browser(place: Place) -> None:
    place.patch.delenv(VARIABLE, raising=False)
    place.patch.setenv("PATH", str(place.folder))
    find_browser()


PAGES: Table = {
    "api.pages:figure_svg": _nothing_to_draw,
    "cli.app:plan#3": cli("plan", CHAIN, *PLAIN, "--with", "frontier"),
    "cli.pages:write_page": _to_a_terminal,
    "cli.pages:write_page#2": cli(
        "plan", CHAIN, *PLAIN, "-f", "html", "-o", "x.html", "--with", "none", "--with", "compare"
    ),
    "cli.pages:write_page#3": cli(
        "plan", CHAIN, *PLAIN, "-f", "html", "-o", "x.html", "--with", "compare"
    ),
    "cli.pages:plot": cli("plot", CHAIN, "memory", *PLAIN, "-o", "x.gif"),
    "cli.png:find_browser": _wrong_browser,
    "cli.png:find_browser#2": _no_browser,
    "cli.png:png_of": lambda _: png_of(SVG, "/nonexistent/chrome"),
}
