"""``npusched tune``: SRAM against latency, ours and Vela's, and what to choose."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched.cli.completers import complete_targets
from npusched.cli.options import (
    common_options,
    examples,
    format_option,
    model_argument,
    one_of_target_options,
    output_option,
    planning_options,
)
from npusched.cli.output import (
    STDOUT,
    print_note,
    print_warning,
    show_compilations,
    terminal_width,
    use_colour,
    write_file,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes
from npusched.errors import NpuschedError

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report.tune_matrix_types import TuneMatrix
    from npusched.report.tune_types import TuneReport

FORMATS = ["text", "json", "csv", "md"]


@click.command(
    epilog=examples(
        "npusched tune model.tflite -c ethos-u55-128",
        "npusched tune model.tflite -c ethos-u55-128 --sram 64KiB --max-latency 2ms",
        "npusched tune model.tflite -c renesas-ra8p1 --format md -o tune.md --write-ini .",
        "npusched tune model.tflite --configs ethos-u55-128,ethos-u55-256 --memory-modes all",
    ),
)
@model_argument
@one_of_target_options
@click.option(
    "--configs",
    shell_complete=complete_targets,
    metavar="A,B,...",
    help="Put several targets side by side instead of one target's curve.",
)
@click.option(
    "--memory-modes",
    metavar="A,B,...",
    help="Put memory modes side by side: names, or 'all' that the targets have.",
)
@planning_options("Most SRAM of what is recommended. Default: the target's capacity.")
@click.option("--max-latency", metavar="TIME", help="Slowest of what is recommended, e.g. 2ms.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, max=100),
    default=1,
    show_default=True,
    metavar="PERCENT",
    help="How much slower than the fastest is near enough.",
)
@click.option(
    "--points",
    type=click.IntRange(min=4, max=1000),
    default=24,
    show_default=True,
    help="Compilations by Vela; our curve has at most four times as many plans.",
)
@click.option("--no-vela", is_flag=True, help="Our curve only; weight sizes are estimated.")
@click.option(
    "--write-ini",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the vela.ini that the commands name here, if they need one.",
)
@format_option(FORMATS)
@output_option
@common_options
def tune(
    model: str,
    target_arguments: TargetArguments | None,
    configs: str | None,
    memory_modes: str | None,
    options: PlanOptions,
    max_latency: str | None,
    within: float,
    points: int,
    no_vela: bool,
    write_ini: Path | None,
    format_: str,
    output: Path | None,
) -> int:
    """Show what SRAM buys: the latency of MODEL over its SRAM, our plans and Vela's results.

    Names the least SRAM, the knee and the fastest, where Vela uses more than it was asked for or
    gets slower with more, and gives the vela command of each result. --sram and --max-latency limit
    what is recommended; if nothing keeps them, the exit code is 1.

    With --configs or --memory-modes several targets stand side by side, in the SRAM of --sram or of
    the first one's knee.
    """
    from msgspec.structs import replace

    options = replace(options, use_vela=not no_vela)
    if configs is not None or memory_modes is not None:
        if max_latency is not None or write_ini is not None:
            raise click.UsageError("--max-latency and --write-ini go with one target")
        matrix = _matrix(model, target_arguments, configs, memory_modes, options, within, points)
        return _show(matrix, format_, output)
    if target_arguments is None:
        raise click.UsageError("name a target with --config, or several with --configs")
    return _show(
        _tuned(model, target_arguments, options, max_latency, within, points, write_ini),
        format_,
        output,
    )


def _tuned(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    max_latency: str | None,
    within: float,
    points: int,
    write_ini: Path | None,
) -> TuneReport:
    """The report; the vela.ini of its commands is written where that was asked for."""
    from npusched import api
    from npusched.hardware import parse_time

    report = api.tune_report(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        options=options,
        max_latency_s=None if max_latency is None else parse_time(max_latency),
        within_percent=within,
        points=points,
        model_path=os.fsencode(model).decode(errors="replace"),
        progress=show_compilations,
    )
    if write_ini is not None:
        if report.vela_ini is None:
            print_note("no vela.ini is needed: the one that Vela brings describes this target")
        else:
            _make_folder(write_ini)
            write_file(write_ini / report.vela_ini.name, report.vela_ini.text.encode())
    return report


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NpuschedError(
            f"cannot make the folder {folder}",
            error.strerror or str(error),
            "name a folder that may be written to",
        ) from error


def _matrix(
    model: str,
    target_arguments: TargetArguments | None,
    configs: str | None,
    memory_modes: str | None,
    options: PlanOptions,
    within: float,
    points: int,
) -> TuneMatrix:
    from npusched import api

    if configs is not None and target_arguments is not None:
        raise click.UsageError("--config names one target, --configs several: use one of them")
    names = _names(configs)
    if target_arguments is not None:
        if target_arguments != TargetArguments(config=target_arguments.config):
            raise click.UsageError("options that change a target do not go with --memory-modes")
        names = [target_arguments.config]
    if not names:
        raise click.UsageError("name a target with --config, or several with --configs")
    return api.tune_matrix(
        read_bytes(model),
        name=display_name(model),
        targets=api.targets_of(names, _names(memory_modes)),
        options=options,
        within_percent=within,
        points=points,
        progress=show_compilations,
    )


def _names(text: str | None) -> list[str]:
    return [part for name in (text or "").split(",") if (part := name.strip())]


def _show(report: TuneReport | TuneMatrix, format_: str, output: Path | None) -> int:
    for warning in report.warnings:
        print_warning(warning)
    write_result(_text(report, format_, output), output, is_json=format_ == "json")
    return 0


def _text(report: TuneReport | TuneMatrix, format_: str, output: Path | None) -> str:
    """The report in one of ``FORMATS``."""
    from npusched.report import tune_forms as forms
    from npusched.report.tune_matrix import render_matrix
    from npusched.report.tune_text import render_tune
    from npusched.report.tune_types import TuneReport

    if format_ == "json":
        return forms.render_tune_json(report)
    to_stdout = output is None or output == STDOUT
    colour = to_stdout and use_colour(sys.stdout)
    width = terminal_width(sys.stdout) if to_stdout else 100
    if isinstance(report, TuneReport):
        if format_ == "csv":
            return forms.render_tune_csv(report)
        if format_ == "md":
            return forms.render_tune_md(report)
        return render_tune(report, width=width, colour=colour)
    if format_ == "csv":
        return forms.render_matrix_csv(report)
    if format_ == "md":
        return forms.render_matrix_md(report)
    return render_matrix(report, width=width, colour=colour)
