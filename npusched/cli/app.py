"""The click commands. Each turns arguments into one call of ``npusched.api`` and prints its result.

Heavy imports happen inside the commands, so that ``--version`` and ``--help`` stay instant.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched import __version__
from npusched.cli.checking import check, diff
from npusched.cli.compare import compare
from npusched.cli.emitting import emit
from npusched.cli.executing import inspect, prove, run
from npusched.cli.options import (
    PLAN_FORMATS,
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
    compilation_counter,
    print_note,
    print_warning,
    terminal_width,
    use_colour,
    write_file,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes
from npusched.cli.sweep import sweep
from npusched.cli.tune import tune

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report import PlanReport
    from npusched.report.frontier_types import FrontierReport

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    context_settings=CONTEXT,
    epilog=examples(
        "npusched plan model.tflite --config ethos-u55-128",
        "npusched plan demo:mobilenet --config ethos-u55-128 --sram 64KiB",
        "npusched configs ethos-u85-256",
        after="Exit codes: 0 ok; 1 no plan fits the budget, or a check or a proof fails; 2 bad "
        "usage, file or configuration; 3 internal error or a broken installation.",
    ),
)
@click.version_option(__version__, prog_name="npusched", message="%(prog)s %(version)s")
def app() -> None:
    """Plan quantised TFLite models on Arm Ethos-U NPUs.

    MODEL is a .tflite file, or demo:NAME for a built-in one. Results go to stdout, everything else
    to stderr.
    """


@app.command(
    epilog=examples(
        "npusched plan model.tflite -c ethos-u55-128",
        "npusched plan model.tflite -c ethos-u65-256 --sram 32KiB --format json -o plan.json",
        "npusched plan model.tflite -c ethos-u55-128 --frontier",
        "npusched plan model.tflite -c ethos-u55-128 --clock 400MHz --derate sram=0.5",
        "npusched plan model.tflite -c ethos-u55-128 --vela-config my.ini --memory-mode M",
    ),
)
@click.argument("model")
@target_options
@planning_options()
@click.option(
    "--frontier",
    is_flag=True,
    help="List the best plan for every amount of SRAM, within the budget and below.",
)
@candidate_options
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=6,
    show_default=True,
    help="Ops to list in the text form.",
)
@format_option(PLAN_FORMATS)
@output_option
@common_options
def plan(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    frontier: bool,
    top: int,
    format_: str,
    output: Path | None,
) -> int:
    """Show how MODEL runs on a target, and the best way within an SRAM budget.

    --sram limits the arena with graph inputs and outputs (memory mode Shared_Sram), the arena and
    the constants (Sram_Only), or the staging cache (Dedicated_Sram). If no plan fits, the error
    names the smallest budget that does (exit code 1).
    """
    from npusched import api

    make = api.frontier_report if frontier else api.plan_report
    with compilation_counter() as progress:
        report = make(
            read_bytes(model),
            name=display_name(model),
            target=target_arguments.load(),
            options=options,
            progress=progress,
        )
    for warning in report.warnings:
        print_warning(warning)
    is_json = format_ == "json"
    write_result(_planned(report, output, top, is_json=is_json), output, is_json=is_json)
    return 0


def _planned(
    report: PlanReport | FrontierReport, output: Path | None, top: int, *, is_json: bool
) -> str:
    """The text of a plan or of a frontier."""
    from npusched import report as forms

    to_stdout = output is None or output == STDOUT
    colour = to_stdout and use_colour(sys.stdout)
    width = terminal_width(sys.stdout) if to_stdout else 100
    if isinstance(report, forms.PlanReport):
        if is_json:
            return forms.render_json(report)
        return forms.render_text(report, width=width, colour=colour, top=top)
    if is_json:
        return forms.render_frontier_json(report)
    return forms.render_frontier(report, width=width, colour=colour)


@app.command(
    epilog=examples(
        "npusched configs",
        "npusched configs ethos-u65-256",
        "npusched configs boards/mine.toml --format json",
    ),
)
@click.argument("name", required=False)
@format_option(["text", "json"])
@output_option
@common_options
def configs(name: str | None, format_: str, output: Path | None) -> int:
    """List the targets, or show one with the source of every number.

    NAME is one of the list, or a .toml file of yours.
    """
    from npusched.report import render_config, render_config_list

    as_json = format_ == "json"
    to_stdout = output is None or output == STDOUT
    width = terminal_width(sys.stdout) if to_stdout else 100
    if name is None:
        text = render_config_list(as_json=as_json, width=width)
    else:
        text = render_config(name, as_json=as_json, width=width)
    write_result(text, output, is_json=as_json)
    return 0


@app.command(
    epilog=examples(
        "npusched demo",
        "npusched demo mobilenet -o mobilenet.tflite",
        "npusched demo chain:300 -o chain.tflite",
    ),
)
@click.argument("name", required=False)
@output_option
@common_options
def demo(name: str | None, output: Path | None) -> int:
    """Write the built-in model NAME, or list the names.

    The models have known architectures and deterministic weights; the file is the same on every
    machine. demo:NAME stands for them wherever a MODEL is expected.
    """
    from npusched.demos import demo as build_demo
    from npusched.demos import demo_names

    if name is None:
        write_result("\n".join((*demo_names(), "chain:N")), output)
        return 0
    content = build_demo(name)
    write_file(_file_wanted(output), content)
    return 0


@app.command(
    epilog=examples(
        "npusched fold model.tflite -o folded.tflite",
    ),
)
@click.argument("model")
@output_option
@common_options
def fold(model: str, output: Path | None) -> int:
    """Fold batch norms written as MUL+ADD into the convolutions before them.

    Folding moves a rounding step, so results may change by some steps of the output. By how many is
    measured on random inputs with LiteRT (pip install "npusched[prove]").
    """
    from npusched import api

    output = _file_wanted(output)
    result = api.fold(read_bytes(model), name=display_name(model))
    write_file(output, result.content)
    print_note(result.summary)
    return 0


def _file_wanted(output: Path | None) -> Path:
    if output is None:
        raise click.UsageError("a model is binary: say where to write it with -o FILE")
    return output


@app.group(
    invoke_without_command=True,
    epilog=examples(
        "npusched cache info",
        "npusched cache clear",
    ),
)
@click.pass_context
def cache(context: click.Context) -> int:
    """Look at or empty the cache of Vela results.

    It is in $NPUSCHED_CACHE_DIR, else in $XDG_CACHE_HOME/npusched, else in ~/.cache/npusched.
    """
    return _show_cache("text") if context.invoked_subcommand is None else 0


@cache.command(
    "info",
    epilog=examples(
        "npusched cache info --format json",
    ),
)
@format_option(["text", "json"])
@common_options
def cache_info(format_: str) -> int:
    """Show where the cache is and how large it is."""
    return _show_cache(format_)


@cache.command(
    "clear",
    epilog=examples(
        "npusched cache clear",
    ),
)
@common_options
def cache_clear() -> int:
    """Delete all cached Vela results."""
    from npusched import api
    from npusched.report.units import plural

    write_result(f"{plural(api.cache_clear(), 'Vela result')} deleted", None)
    return 0


def _show_cache(format_: str) -> int:
    from npusched import api
    from npusched.report.units import human_bytes, plural

    info = api.cache_info()
    if format_ == "json":
        form = {
            "folder": str(info.folder),
            "entries": info.entries,
            "size_bytes": info.size_bytes,
            "limit_bytes": info.limit_bytes,
        }
        write_result(json.dumps(form, indent=2), None, is_json=True)
        return 0
    write_result(
        f"{plural(info.entries, 'Vela result')}, {human_bytes(info.size_bytes)} of at most "
        f"{human_bytes(info.limit_bytes)}, in {info.folder}",
        None,
    )
    return 0


@app.command(
    epilog=examples(
        "npusched doctor",
    ),
)
@format_option(["text", "json"])
@output_option
@common_options
def doctor(format_: str, output: Path | None) -> int:
    """Check the installation: Python, targets, Vela, cache, optional parts.

    Exit code 3 if something fails that a plan needs.
    """
    from npusched.cli.doctor import examine, render_checks

    checks = examine()
    if format_ == "json":
        form = {"checks": [check.as_dict() for check in checks]}
        write_result(json.dumps(form, indent=2), output, is_json=True)
    else:
        write_result(render_checks(checks), output)
    return 3 if any(check.state == "failed" for check in checks) else 0


app.add_command(check)
app.add_command(diff)
app.add_command(compare)
app.add_command(tune)
app.add_command(run)
app.add_command(prove)
app.add_command(inspect)
app.add_command(emit)
app.add_command(sweep)
