"""``npusched emit``: a plan as a deployable file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched.cli.executing import (
    FORMATS,
    PLAN_HINT,
    PLAN_OPTIONS,
    check_plan_options,
    given_options,
    read_file,
)
from npusched.cli.options import (
    candidate_options,
    common_options,
    examples,
    format_option,
    model_argument,
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


@click.command(
    epilog=examples(
        "npusched emit model.tflite -c ethos-u55-128 -o deploy.tflite",
        "npusched emit model.tflite -c ethos-u55-128 --sram 64KiB --prove 5 -o deploy.tflite",
        "npusched emit model.tflite -c ethos-u65-256 --plan-file plan.json -o deploy.tflite",
        "npusched emit model.tflite -c ethos-u55-128 --identity -o vela.tflite",
    ),
)
@model_argument
@target_options
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.tflite",
    help="Write the file here, and what is known about it beside it, as OUT.json.",
)
@click.option(
    "--plan-file",
    metavar="FILE",
    help="Emit the plan of this file (written by npusched plan --format json).",
)
@planning_options()
@candidate_options
@click.option(
    "--prove",
    "inputs",
    type=click.IntRange(min=0, max=10_000),
    default=0,
    show_default=True,
    metavar="N",
    help="Also execute the file on N random inputs, against LiteRT's reference kernels.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the inputs.",
)
@click.option(
    "--safe-rolling",
    is_flag=True,
    help="Rolling buffers as large as Vela makes them: more SRAM, nothing that Vela does not do.",
)
@click.option(
    "--serial-kernels",
    is_flag=True,
    help="No kernel starts before the one before has ended: slower, and nothing can overtake.",
)
@click.option(
    "--identity",
    is_flag=True,
    help="Emit Vela's own schedule, every op whole: to compare with Vela's file.",
)
@format_option(FORMATS)
@common_options
def emit(
    model: str,
    target_arguments: TargetArguments,
    output: Path,
    plan_file: str | None,
    options: PlanOptions,
    inputs: int,
    seed: int,
    safe_rolling: bool,
    serial_kernels: bool,
    identity: bool,
    format_: str,
) -> int:
    """Plan MODEL and write the plan as a deployable .tflite: a drop-in for Vela's output.

    For Ethos-U55 and U65. Options as for 'npusched plan'. Vela (5.2) compiles the model once, for
    the numerics of each kernel; order, buffers, addresses and every command are the plan's. Where
    real sizes of weights and buffers need more than planned, it is planned again with less.

    Nothing is written unless the finished file passes all checks, and with --prove N unless its
    results and what every kernel writes equal the reference. Not run on hardware: docs/emit.md.

    Exit code 1 if no file keeps the budget, or a check or the proof fails.
    """
    from npusched import api
    from npusched.report.emit_text import render_emit_text

    _check_options(plan_file, identity=identity, safe_rolling=safe_rolling)
    _check_output(output, api.sidecar_of(output), given=[model, plan_file])
    result = api.emit_report(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        plan_file=None if plan_file is None else read_file(plan_file, PLAN_HINT),
        plan_name="" if plan_file is None else display_name(plan_file),
        settings=api.EmitSettings(
            identity=identity,
            safe_rolling=safe_rolling,
            serial_kernels=serial_kernels,
            prove=inputs,
            seed=seed,
        ),
        options=options,
    )
    written = result.write(output)
    for warning in result.report.warnings:
        print_warning(warning)
    if format_ == "json":
        write_result(result.sidecar, None, is_json=True)
        return 0
    text = render_emit_text(
        result.report,
        width=terminal_width(sys.stdout),
        colour=use_colour(sys.stdout),
        written=tuple(map(str, written)),
    )
    write_result(text, None)
    return 0


def _check_output(output: Path, sidecar: Path, *, given: list[str | None]) -> None:
    """Refuse names under which an input would be lost."""
    if output == STDOUT or output.suffix == ".json":
        raise click.UsageError(
            "-o names a .tflite file: the sidecar is written beside it, as .json"
        )
    written = {output.absolute(), sidecar.absolute()}
    for name in given:
        if name is not None and Path(name).absolute() in written:
            raise click.UsageError(f"-o {output} would overwrite {name}")


def _check_options(plan_file: str | None, *, identity: bool, safe_rolling: bool) -> None:
    """Refuse what does not go together."""
    check_plan_options(plan_file)
    if not identity:
        return
    with_plan = given_options(PLAN_OPTIONS)
    with_plan += ["--plan-file"] if plan_file is not None else []
    with_plan += ["--safe-rolling"] if safe_rolling else []
    if with_plan:
        raise click.UsageError(f"{', '.join(with_plan)}: --identity makes no plan")
