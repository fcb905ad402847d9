"""``npusched compare``: our plan beside Vela's schedule."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from npusched.cli.options import (
    common_options,
    examples,
    format_option,
    model_argument,
    output_option,
    planning_options,
    target_options,
)
from npusched.cli.output import (
    STDOUT,
    print_warning,
    terminal_width,
    use_colour,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.vela.options import VelaOptions

FORMATS = ["text", "json", "md"]
FEATURES = ["WeightBuffering", "Cascading", "Grouping", "FWD", "Sparsity", "FMStaging", "ReuseIFM"]
"""As ``vela.options.Feature``, which is not imported for ``--help``; a test compares them."""

ALLOCATORS = ["HillClimb", "LinearAlloc"]

_RUN_OPTIONS = (
    click.option(
        "--optimise",
        type=click.Choice(["Performance", "Size"], case_sensitive=False),
        help="Vela's strategy. Default: Performance.",
    ),
    click.option("--arena-cache-size", metavar="SIZE", help="Vela's arena limit. Default: budget."),
    click.option(
        "--disable-feature",
        "disabled",
        type=click.Choice(FEATURES, case_sensitive=False),
        multiple=True,
        help="Switch off a part of Vela's scheduler (repeat for more).",
    ),
    click.option(
        "--tensor-allocator",
        "allocator",
        type=click.Choice(ALLOCATORS, case_sensitive=False),
        help="Vela's address allocator. Default: HillClimb.",
    ),
)

P = ParamSpec("P")
R = TypeVar("R")


def vela_run_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that say how Vela is run, for ``vela_options``."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        "npusched compare model.tflite -c ethos-u55-128",
        "npusched compare model.tflite -c ethos-u65-256 --sram 64KiB --format md -o compare.md",
        "npusched compare model.tflite -c ethos-u55-64 --optimise Size --disable-feature Cascading",
        "npusched compare model.tflite -c ethos-u55-128 --vela-output output/",
        "npusched compare model.tflite -c renesas-ra8p1 --measured board.csv",
    ),
)
@model_argument
@target_options
@planning_options("Budget of our plan, and Vela's arena limit.")
@vela_run_options
@click.option(
    "--vela-output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Read the files of a vela run (3.x to 5.x) instead of running Vela.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Your own PMU counters or latencies, CSV or JSON.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Ops to list in the text form.",
)
@format_option(FORMATS)
@output_option
@common_options
def compare(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    optimise: str | None,
    arena_cache_size: str | None,
    disabled: tuple[str, ...],
    allocator: str | None,
    vela_output: Path | None,
    measured: Path | None,
    top: int,
    format_: str,
    output: Path | None,
) -> int:
    """Put our plan of MODEL beside Vela's schedule, op by op and in total, and say why they part.

    Four totals: our plan; Vela as it reports itself; our cost of Vela's schedule Vela's way; and
    our striped cost of it, which is the one to hold against our plan. Quirks of Vela's figures
    that touch this model are noted with their size.

    A file of measurements has cycles or a latency per network or per op, e.g. the CSV header
    "index,cycles" with an empty index for the network.

    Exit code 3 if Vela fails or is not installed.
    """
    from npusched import api

    run = vela_options(optimise, arena_cache_size, disabled, allocator)
    if vela_output is not None and run is not None:
        raise click.UsageError("--vela-output reads files: options of a run do not go with it")
    report = api.compare_report(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        options=options,
        vela_options=run,
        vela_output=vela_output,
        measured=measured,
    )
    for warning in report.warnings:
        print_warning(warning)
    if format_ == "json":
        from npusched.report.compare_json import render_compare_json

        write_result(render_compare_json(report), output, is_json=True)
    elif format_ == "md":
        from npusched.report.compare_md import render_compare_md

        write_result(render_compare_md(report), output)
    else:
        from npusched.report.compare_text import render_compare_text

        to_stdout = output is None or output == STDOUT
        colour = to_stdout and use_colour(sys.stdout)
        width = terminal_width(sys.stdout) if to_stdout else 100
        write_result(render_compare_text(report, width=width, colour=colour, top=top), output)
    return 0


def vela_options(
    optimise: str | None, arena: str | None, disabled: tuple[str, ...], allocator: str | None
) -> VelaOptions | None:
    """Options of the run; None if the user named none. Raises TargetError for a bad size."""
    if not (optimise or arena or disabled or allocator):
        return None
    from npusched.hardware import parse_size
    from npusched.vela.options import Allocator, Feature, Optimise, VelaOptions

    return VelaOptions(
        optimise=Optimise(optimise or "Performance"),
        arena_cache_size_bytes=None if arena is None else parse_size(arena),
        disable=tuple(Feature(name) for name in disabled),
        allocator=Allocator(allocator or "HillClimb"),
    )
