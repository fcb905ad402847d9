"""The click commands. Each turns arguments into one call of ``npusched.api`` and prints its result.

Heavy imports happen inside the commands, so that ``--version`` and ``--help`` stay instant.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from npusched import __version__
from npusched.cli.options import PLAN_FORMATS, common_options, output_option, target_options
from npusched.cli.output import print_warning, use_colour, write_file, write_result
from npusched.cli.parse import TargetArguments, parse_shapes, read_bytes

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="npusched", message="%(prog)s %(version)s")
def app() -> None:
    r"""Plan quantised TFLite models on Arm Ethos-U NPUs.

    MODEL is a .tflite file, or demo:NAME for a built-in one.

    \b
    npusched plan model.tflite --config ethos-u55-128
    npusched plan demo:mobilenet --config ethos-u55-128 --sram 64KiB
    npusched configs ethos-u85-256
    """


@app.command()
@click.argument("model")
@target_options
@click.option("--sram", metavar="SIZE", help="Budget, e.g. 64KiB. Default: the target's capacity.")
@click.option(
    "--objective",
    type=click.Choice(["cycles", "energy", "offchip", "sram"]),
    default="cycles",
    show_default=True,
    help="What to minimise. cycles: cycles + lambda x off-chip bytes.",
)
@click.option(
    "--lambda",
    "lambda_",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    metavar="X",
    help="Cycles that one off-chip byte is worth.",
)
@click.option("--signature", metavar="KEY", help="Entry point to plan. Default: subgraph 0.")
@click.option(
    "--input-shape",
    "input_shapes",
    multiple=True,
    metavar="NAME=1,96,96,3",
    help="Shape of a dynamic input (repeat for more).",
)
@click.option("--no-vela", is_flag=True, help="Do not ask Vela for exact weight sizes.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of Vela results.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=6,
    show_default=True,
    help="Ops to list in the text form.",
)
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(PLAN_FORMATS),
    default="text",
    show_default=True,
)
@output_option
@common_options
def plan(
    model: str,
    target_arguments: TargetArguments,
    sram: str | None,
    objective: str,
    lambda_: float,
    signature: str | None,
    input_shapes: tuple[str, ...],
    no_vela: bool,
    no_cache: bool,
    top: int,
    format_: str,
    output: Path | None,
) -> int:
    r"""Show how MODEL runs on a target, within an SRAM budget.

    \b
    npusched plan model.tflite -c ethos-u55-128
    npusched plan model.tflite -c ethos-u65-256 --sram 32KiB --format json -o plan.json
    """
    from npusched import api
    from npusched.report import render_json, render_text

    report = api.plan_report(
        read_bytes(model),
        name=model,
        target=target_arguments.load(),
        sram=sram,
        objective=objective,
        lambda_cycles_per_byte=lambda_,
        signature=signature,
        input_shapes=parse_shapes(input_shapes),
        use_vela=not no_vela,
        use_cache=not no_cache,
    )
    for warning in report.warnings:
        print_warning(warning)
    if format_ == "json":
        write_result(render_json(report), output)
    else:
        colour = output is None and use_colour(sys.stdout.isatty())
        write_result(render_text(report, colour=colour, top=top), output)
    return 0


@app.command()
@click.argument("name", required=False)
@click.option("--format", "-f", "format_", type=click.Choice(["text", "json"]), default="text")
@output_option
@common_options
def configs(name: str | None, format_: str, output: Path | None) -> int:
    r"""List the targets, or show one with the source of every number.

    \b
    npusched configs
    npusched configs ethos-u65-256
    """
    from npusched.report import render_config, render_config_list

    if name is None:
        write_result(render_config_list(as_json=format_ == "json"), output)
    else:
        write_result(render_config(name, as_json=format_ == "json"), output)
    return 0


@app.command()
@click.argument("name", required=False)
@output_option
@common_options
def demo(name: str | None, output: Path | None) -> int:
    r"""Write the built-in model NAME, or list the names.

    \b
    npusched demo
    npusched demo mobilenet -o mobilenet.tflite
    """
    from npusched.demos import demo as build_demo
    from npusched.demos import demo_names

    if name is None:
        write_result("\n".join(demo_names()), output)
        return 0
    content = build_demo(name)
    if output is None:
        raise click.UsageError("a model is binary: say where to write it with -o FILE")
    write_file(output, content)
    return 0


@app.command()
@click.argument("model")
@output_option
@common_options
def fold(model: str, output: Path | None) -> int:
    r"""Fold batch norms written as MUL+ADD into the convolutions before them.

    Folding moves a rounding step, so results may change by some LSB: it is never done silently.

    \b
    npusched fold model.tflite -o folded.tflite
    """
    from npusched import api

    if output is None:
        raise click.UsageError("a model is binary: say where to write it with -o FILE")
    result = api.fold(read_bytes(model), name=model)
    write_file(output, result.content)
    sys.stderr.write(result.summary + "\n")
    return 0


@app.group()
def cache() -> None:
    """Look at or empty the cache of Vela results."""


@cache.command("info")
@common_options
def cache_info() -> int:
    """Show where the cache is and how large it is."""
    from npusched import api

    write_result(api.cache_info(), None)
    return 0


@cache.command("clear")
@common_options
def cache_clear() -> int:
    """Delete all cached Vela results."""
    from npusched import api

    write_result(api.cache_clear(), None)
    return 0
