"""``npusched advise``: what to change in a model or its target, with the predicted effect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched.cli.options import (
    candidate_options,
    common_options,
    examples,
    format_option,
    output_option,
    planning_options,
    target_options,
)
from npusched.cli.output import (
    STDOUT,
    print_note,
    print_warning,
    show_changes,
    terminal_width,
    use_colour,
    write_file,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report.advice_types import AdviceReport

FORMATS = ["text", "json", "md"]


@click.command(
    epilog=examples(
        "npusched advise model.tflite -c ethos-u55-128",
        "npusched advise model.tflite -c ethos-u55-128 --sram 64KiB --objective energy",
        "npusched advise model.tflite -c ethos-u65-256 --format md -o advice.md",
        "npusched advise model.tflite -c ethos-u55-128 --apply 1 -o changed.tflite",
    ),
)
@click.argument("model")
@target_options
@planning_options()
@candidate_options
@click.option(
    "--apply",
    "apply_",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write the model with the change of advice N to -o FILE.",
)
@format_option(FORMATS)
@output_option
@common_options
def advise(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    apply_: int | None,
    format_: str,
    output: Path | None,
) -> int:
    """Say what to change in MODEL, or in its target, and what that would bring.

    Every change is planned just as the model is: the effect is the difference. What does not lower
    the objective is not mentioned. Where no plan fits the budget, advice is about SRAM.

    --apply writes a file to look at or to plan: where weights have to be trained or ranges
    calibrated anew, it has stand-ins.
    """
    from npusched import api

    if apply_ is not None and (output is None or output == STDOUT):
        raise click.UsageError("a model is binary: say where to write it with -o FILE")
    advised = api.advise_model(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        options=options,
        progress=show_changes,
    )
    for warning in advised.report.warnings:
        print_warning(warning)
    if apply_ is not None and output is not None:
        write_file(output, api.changed_model(advised, apply_))
        print_note(advised.report.advice[apply_ - 1].message)
        return 0
    write_result(_text(advised.report, format_, output), output, is_json=format_ == "json")
    return 0


def _text(report: AdviceReport, format_: str, output: Path | None) -> str:
    """The report in one of ``FORMATS``."""
    from npusched.report import advice_text as forms

    if format_ == "json":
        return forms.render_advice_json(report)
    if format_ == "md":
        return forms.render_advice_md(report)
    to_stdout = output is None or output == STDOUT
    width = terminal_width(sys.stdout) if to_stdout else 100
    colour = to_stdout and use_colour(sys.stdout)
    return forms.render_advice_text(report, width=width, colour=colour)
