"""``npusched check`` and ``diff``: gates for builds, and what changed between two plans."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched.cli.executing import PLAN_HINT, read_file
from npusched.cli.options import (
    candidate_options,
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
from npusched.cli.parse import DEMO_PREFIX, TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report.check_types import CheckReport

CHECK_FORMATS = ["text", "json", "github", "sarif", "junit"]
DIFF_FORMATS = ["text", "json", "md"]


@click.command(
    epilog=examples(
        "npusched check model.tflite -c ethos-u55-128 --max-sram 64KiB --max-latency 5ms",
        "npusched check model.tflite -c ethos-u55-128 --max-sram 64KiB --format sarif -o out.sarif",
        "npusched check model.tflite -c ethos-u65-256 --baseline plan.json --max-regression 2%",
    ),
)
@model_argument
@target_options
@click.option(
    "--max-sram", metavar="SIZE", help="Most SRAM; also the plan's budget without --sram."
)
@click.option("--max-latency", metavar="TIME", help="Longest inference, e.g. 5ms.")
@click.option("--max-flash", metavar="SIZE", help="Most constants (weights, tables) as stored.")
@click.option(
    "--max-dram-bytes", metavar="SIZE", help="Most bytes to and from DRAM per inference; may be 0."
)
@click.option(
    "--max-cpu-ops",
    type=click.IntRange(min=0),
    metavar="N",
    help="Most ops of the model that the CPU runs.",
)
@click.option("--max-energy", metavar="ENERGY", help="Most energy per inference, e.g. 120uJ.")
@click.option(
    "--baseline",
    metavar="FILE",
    help="Plan to hold this one against (written by npusched plan --format json).",
)
@click.option(
    "--max-regression",
    metavar="X%",
    help="How much worse than the baseline each figure may be. Default: 0%.",
)
@planning_options()
@candidate_options
@format_option(CHECK_FORMATS)
@output_option
@common_options
def check(
    model: str,
    target_arguments: TargetArguments,
    max_sram: str | None,
    max_latency: str | None,
    max_flash: str | None,
    max_dram_bytes: str | None,
    max_cpu_ops: int | None,
    max_energy: str | None,
    baseline: str | None,
    max_regression: str | None,
    options: PlanOptions,
    format_: str,
    output: Path | None,
) -> int:
    """Plan MODEL and fail (exit code 1) if a figure is above its limit.

    Every limit that is given is a gate. A budget that no plan fits is a failed gate, too; the
    other gates are then held against the plan for the smallest feasible budget. With a baseline,
    NPU cycles, latency, SRAM, flash and energy may each be --max-regression above it: the model may
    have changed since, the target may not.

    github prints workflow commands, sarif a SARIF 2.1.0 log, junit an XML report.
    """
    from npusched import api
    from npusched.report.units import log_text

    if baseline is None and max_regression is not None:
        raise click.UsageError("--max-regression goes with --baseline FILE")
    report = api.check_report(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        limits=api.limits_of(
            max_sram=max_sram,
            max_latency=max_latency,
            max_flash=max_flash,
            max_dram_bytes=max_dram_bytes,
            max_cpu_ops=max_cpu_ops,
            max_energy=max_energy,
        ),
        baseline=None
        if baseline is None
        else api.baseline_of(
            read_file(baseline, PLAN_HINT), display_name(baseline), max_regression or "0%"
        ),
        options=options,
    )
    for warning in report.warnings:
        print_warning(log_text(warning, 600))
    path = "" if model.startswith(DEMO_PREFIX) else model
    text = _checked(report, format_, path, output)
    write_result(text, output, is_json=format_ in ("json", "sarif"))
    return 0 if report.verdict == "pass" else 1


def _checked(report: CheckReport, format_: str, path: str, output: Path | None) -> str:
    from npusched.report import check_forms
    from npusched.report.check_text import render_check_text

    match format_:
        case "json":
            return check_forms.render_check_json(report)
        case "github":
            return check_forms.render_check_github(report, path=path)
        case "sarif":
            return check_forms.render_check_sarif(report, path=path)
        case "junit":
            return check_forms.render_check_junit(report)
        case _:
            width, colour = _terminal(output)
            return render_check_text(report, width=width, colour=colour)


@click.command(
    epilog=examples(
        "npusched diff before.json after.json",
        "npusched diff before.json after.json --format md -o diff.md",
    ),
)
@click.argument("before")
@click.argument("after")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Ops to list in the text form.",
)
@format_option(DIFF_FORMATS)
@output_option
@common_options
def diff(before: str, after: str, top: int, format_: str, output: Path | None) -> int:
    """Show what changed between two plans, in total and op by op.

    BEFORE and AFTER are files of 'npusched plan --format json', of any models, targets, budgets
    and versions with the same form. Ops of one model are matched by index; those of two by kind
    and name, then by name, then by kind and shape in file order. The largest change of time comes
    first.
    """
    from npusched import api

    report = api.diff_report(
        read_file(before, PLAN_HINT),
        read_file(after, PLAN_HINT),
        before_file=display_name(before),
        after_file=display_name(after),
    )
    if format_ == "json":
        from npusched.report.diff_text import render_diff_json

        write_result(render_diff_json(report), output, is_json=True)
    elif format_ == "md":
        from npusched.report.diff_md import render_diff_md

        write_result(render_diff_md(report), output)
    else:
        from npusched.report.diff_text import render_diff_text

        width, colour = _terminal(output)
        write_result(render_diff_text(report, width=width, colour=colour, top=top), output)
    return 0


def _terminal(output: Path | None) -> tuple[int, bool]:
    """Width and colour of the text form."""
    if output is not None and output != STDOUT:
        return 100, False
    return terminal_width(sys.stdout), use_colour(sys.stdout)
