"""Plans to look at: the HTML page of ``npusched plan``, and ``npusched plot``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from npusched.cli.options import (
    candidate_options,
    common_options,
    examples,
    model_argument,
    output_option,
    planning_options,
    target_options,
)
from npusched.cli.output import (
    STDOUT,
    print_warning,
    show_compilations,
    show_stage,
    write_file,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.api.pages import FigureName, PagePart
    from npusched.report.svg.theme import Theme

FIGURES = ["memory", "timeline", "roofline", "fusion", "graph", "frontier", "compare"]
"""As ``api.pages.FigureName``, which is not imported for ``--help``; a test compares them."""

THEMES = ["auto", "light", "dark"]
"""As ``report.svg.theme.Theme``; a test compares them."""


def write_page(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    parts: tuple[str, ...],
    output: Path | None,
) -> int:
    """Write the page of a plan. Raises UsageError if it would go to a terminal."""
    from npusched import api

    if output is None and sys.stdout.isatty():
        raise click.UsageError("a page is long: say where to write it with -o FILE")
    if "none" in parts and len(parts) > 1:
        raise click.UsageError("--with none stands alone")
    if "compare" in parts and not options.use_vela:
        raise click.UsageError("--with compare asks Vela, --no-vela forbids it")
    wanted = cast("tuple[PagePart, ...]", tuple(part for part in parts if part != "none"))
    page = api.plan_page(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        options=options,
        parts=wanted if parts else None,
        stage=show_stage,
        progress=show_compilations,
    )
    for warning in page.warnings:
        print_warning(warning)
    write_result(page.html, output)
    return 0


@click.command(
    epilog=examples(
        "npusched plot model.tflite memory -c ethos-u55-128 --sram 64KiB -o memory.svg",
        "npusched plot model.tflite roofline -c ethos-u55-128 -o roofline.png --theme light",
        "npusched plot model.tflite frontier -c ethos-u55-128 -o frontier.svg",
    ),
)
@model_argument
@click.argument("figure", type=click.Choice(FIGURES))
@target_options
@planning_options()
@candidate_options
@click.option(
    "--theme",
    type=click.Choice(THEMES),
    default="auto",
    show_default=True,
    help="Colours. auto: as the viewer prefers (light in a PNG).",
)
@output_option
@common_options
def plot(
    model: str,
    figure: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    theme: str,
    output: Path | None,
) -> int:
    """Draw one FIGURE of a plan of MODEL as SVG, or as PNG if the file's name ends in .png.

    memory: what lies where in the SRAM, and when. timeline: which resource is busy when. roofline:
    each kernel against the MAC array and the memories. fusion: what each level of fusion saves.
    graph: chains and single kernels in order, with their times. frontier: what more or less SRAM
    would bring. compare: op by op against Vela's schedule.

    A PNG is drawn by an installed Chromium or Chrome ($NPUSCHED_CHROMIUM, or on the PATH).
    """
    from npusched import api

    is_png = output is not None and output.suffix.lower() == ".png"
    if output is not None and output != STDOUT and output.suffix.lower() not in (".svg", ".png"):
        raise click.UsageError(f"a figure is .svg or .png, not '{output.suffix or output}'")
    browser = _browser() if is_png else None
    text = api.figure_svg(
        cast("FigureName", figure),
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        options=options,
        theme=cast("Theme", "light" if is_png and theme == "auto" else theme),
        stage=show_stage,
        progress=show_compilations,
    )
    if browser is None or output is None:
        write_result(text, output)
    else:
        from npusched.cli.png import png_of

        write_file(output, png_of(text, browser))
    return 0


def _browser() -> str:
    """The browser that draws PNGs, looked for before the work is done. Raises NpuschedError."""
    from npusched.cli.png import find_browser

    return find_browser()
