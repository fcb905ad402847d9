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
from npusched.cli.advise import advise
from npusched.cli.checking import check, diff
from npusched.cli.compare import compare
from npusched.cli.completing import completion
from npusched.cli.emitting import emit
from npusched.cli.executing import inspect, prove, run
from npusched.cli.explain import explain
from npusched.cli.options import (
    ADVICE,
    FRONTIER_FORMATS,
    OVERLAY_METRICS,
    PAGE_PARTS,
    PLAN_FORMATS,
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
    print_note,
    print_warning,
    show_changes,
    show_compilations,
    terminal_width,
    use_colour,
    write_file,
    write_result,
)
from npusched.cli.pages import plot, write_page
from npusched.cli.parse import DEMO_PREFIX, TargetArguments, display_name, read_bytes
from npusched.cli.sweep import sweep
from npusched.cli.tune import tune

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report import PlanReport
    from npusched.report.frontier_types import FrontierReport
    from npusched.report.plan_overlay import OverlayMetric
    from npusched.report.types import AdviceMode

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
        "npusched plan model.tflite -c ethos-u55-128 --format md -o plan.md",
        "npusched plan model.tflite -c ethos-u55-128 --format html -o report.html",
        "npusched plan model.tflite -c ethos-u55-128 --clock 400MHz --derate sram=0.5",
        "npusched plan model.tflite -c ethos-u55-128 --vela-config my.ini --memory-mode M",
    ),
)
@model_argument
@target_options
@planning_options()
@click.option(
    "--frontier",
    is_flag=True,
    help="List the best plan for every amount of SRAM, within the budget and below.",
)
@candidate_options
@click.option(
    "--advice",
    type=click.Choice(ADVICE),
    default="quick",
    show_default=True,
    help="What to say of changes: quick is a glance, all plans every one ('npusched advise').",
)
@click.option(
    "--with",
    "parts",
    multiple=True,
    type=click.Choice(PAGE_PARTS),
    help="Beside the plan in a page (repeat for more). Default: both, if quick and possible.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=6,
    show_default=True,
    help="Ops to list in the text form.",
)
@click.option(
    "--overlay-metric",
    type=click.Choice(OVERLAY_METRICS),
    default="cycles",
    show_default=True,
    help="What the overlay for Model Explorer shows on each op.",
)
@format_option(PLAN_FORMATS)
@output_option
@common_options
def plan(
    model: str,
    target_arguments: TargetArguments,
    options: PlanOptions,
    frontier: bool,
    advice: AdviceMode,
    parts: tuple[str, ...],
    top: int,
    overlay_metric: OverlayMetric,
    format_: str,
    output: Path | None,
) -> int:
    """Show how MODEL runs on a target, and the best way within an SRAM budget.

    --sram limits the arena with graph inputs and outputs (memory mode Shared_Sram), the arena and
    the constants (Sram_Only), or the staging cache (Dedicated_Sram). If no plan fits, the error
    names the smallest budget that does (exit code 1).

    html is one file that needs no network: figures, tables, and the JSON. md is for a pull request,
    csv has Vela's column names; github prints workflow commands and sarif a SARIF 2.1.0 log of what
    there is to say; trace is for Perfetto, overlay for Model Explorer.
    """
    from msgspec.structs import replace

    from npusched import api
    from npusched.report.plan_forms import View, render

    if frontier and format_ not in FRONTIER_FORMATS:
        instead = " (--with frontier puts the curve in it)" if format_ == "html" else ""
        raise click.UsageError(
            f"--frontier lists plans as {', '.join(FRONTIER_FORMATS)}; {format_} shows one plan"
            + instead
        )
    if frontier and advice != "quick":
        raise click.UsageError("--advice is about one plan: leave --frontier out")
    if parts and format_ != "html":
        raise click.UsageError("--with goes with --format html")
    if format_ == "html":
        return write_page(model, target_arguments, replace(options, advice=advice), parts, output)
    content, name, target = read_bytes(model), display_name(model), target_arguments.load()
    report: PlanReport | FrontierReport
    if frontier:
        report = api.frontier_report(
            content, name=name, target=target, options=options, progress=show_compilations
        )
    else:
        report = api.plan_report(
            content,
            name=name,
            target=target,
            options=replace(options, advice=advice),
            progress=show_compilations,
            advice_progress=show_changes,
        )
    for warning in report.warnings:
        print_warning(warning)
    to_stdout = output is None or output == STDOUT
    view = View(
        width=terminal_width(sys.stdout) if to_stdout else 100,
        colour=to_stdout and use_colour(sys.stdout),
        top=top,
        path="" if model.startswith(DEMO_PREFIX) else model,
        metric=overlay_metric,
    )
    text = render(report, format_, view)
    write_result(text, output, is_json=format_ in ("json", "sarif", "trace", "overlay"))
    return 0


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
@model_argument
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


app.add_command(advise)
app.add_command(check)
app.add_command(completion)
app.add_command(diff)
app.add_command(compare)
app.add_command(explain)
app.add_command(tune)
app.add_command(plot)
app.add_command(run)
app.add_command(prove)
app.add_command(inspect)
app.add_command(emit)
app.add_command(sweep)
