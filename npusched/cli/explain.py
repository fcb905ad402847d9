"""``npusched explain``: why a plan is as it is, in words and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
    print_warning,
    show_compilations,
    terminal_width,
    use_colour,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.hardware import Target

FORMATS = ["text", "json"]
SUBJECTS: Final = ["peak", "op", "layer", "fallbacks", "mode", "fusion", "vela"]
NAMED: Final = {"op": "N", "layer": "NAME"}
"""Subjects that need a word more."""


@click.command(
    epilog=examples(
        "npusched explain model.tflite peak -c ethos-u55-128",
        "npusched explain model.tflite op 7 -c ethos-u55-128 --sram 64KiB",
        "npusched explain model.tflite layer conv2d_1 -c ethos-u55-128",
        "npusched explain model.tflite vela -c ethos-u55-128 --arena-cache-size 120000",
        "npusched explain model.tflite mode -c ethos-u65-256 --format json",
    ),
)
@click.argument("model")
@click.argument("subject", type=click.Choice(SUBJECTS))
@click.argument("which", required=False)
@target_options
@planning_options()
@click.option(
    "--arena-cache-size",
    "limits",
    multiple=True,
    metavar="SIZE",
    help="With vela: a limit to ask it for, too (repeat for more).",
)
@candidate_options
@format_option(FORMATS)
@output_option
@common_options
def explain(
    model: str,
    subject: str,
    which: str | None,
    target_arguments: TargetArguments,
    options: PlanOptions,
    limits: tuple[str, ...],
    format_: str,
    output: Path | None,
) -> int:
    """Explain how MODEL runs, in words with figures; each is planned, costed or compiled.

    SUBJECT is one of these. peak: what makes the SRAM peak, and what would lower it. op N: what
    binds op N of the file, and what more of each resource would free. layer NAME: the same, by the
    name of a result, or a part of it. fallbacks: ops on the CPU, the limit that each breaks, the
    fix, the cost. mode: every memory mode of the target. fusion: chains, and why each ends where it
    does. vela: what an arena limit does with Vela, and why it cascades as it does.
    """
    from npusched import api
    from npusched.hardware import parse_size
    from npusched.report.explain_text import render_explanation, render_explanation_json

    op, layer = _named(subject, which)
    if limits and subject != "vela":
        raise click.UsageError("--arena-cache-size goes with 'vela'")
    target = target_arguments.load()
    report = api.explain_report(
        read_bytes(model),
        name=display_name(model),
        target=target,
        subject=api.subject_of(subject),
        op=op,
        layer=layer,
        modes=_modes(target_arguments, target) if subject == "mode" else (),
        arena_limits=[parse_size(size) for size in limits],
        options=options,
        progress=show_compilations,
    )
    for warning in report.warnings:
        print_warning(warning)
    if format_ == "json":
        write_result(render_explanation_json(report), output, is_json=True)
        return 0
    to_stdout = output is None or output == STDOUT
    colour = to_stdout and use_colour(sys.stdout)
    width = terminal_width(sys.stdout) if to_stdout else 100
    write_result(render_explanation(report, width=width, colour=colour), output)
    return 0


def _named(subject: str, which: str | None) -> tuple[int | None, str | None]:
    """Number or name of an op."""
    if subject not in NAMED:
        if which is not None:
            raise click.UsageError(f"'{subject}' takes no further word")
        return None, None
    if which is None:
        raise click.UsageError(f"say which: {subject} {NAMED[subject]}")
    if subject == "layer":
        return None, which
    try:
        return int(which.removeprefix("#")), None
    except ValueError:
        raise click.UsageError(
            f"'op' takes the number of an op, not '{which[:60]}'; 'layer' takes a name"
        ) from None


def _modes(arguments: TargetArguments, target: Target) -> list[Target]:
    """The target in all its memory modes."""
    from npusched.hardware import parse_derate, parse_frequency
    from npusched.hardware.relatives import memory_mode_targets

    return memory_mode_targets(
        target,
        arguments.config,
        system_config=arguments.system_config,
        vela_config=arguments.vela_config,
        clock_hz=None if arguments.clock is None else parse_frequency(arguments.clock),
        derate=parse_derate(arguments.derate),
    )
