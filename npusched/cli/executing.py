"""``npusched run``, ``prove`` and ``inspect``: compiled files, executed and looked into."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from npusched.cli.compare import vela_options, vela_run_options
from npusched.cli.options import (
    candidate_options,
    common_options,
    examples,
    format_option,
    model_argument,
    optional_target_options,
    output_option,
    planning_options,
    target_options,
)
from npusched.cli.output import (
    STDOUT,
    print_note,
    print_warning,
    terminal_width,
    use_colour,
    write_file,
    write_result,
)
from npusched.cli.parse import TargetArguments, display_name, read_bytes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report.execution_types import InspectReport, ProveReport
    from npusched.report.plan_proof_types import PlanProofReport

FORMATS = ["text", "json"]
MODES = ["proof", "hardware"]
"""As ``sim.proof.Mode``, which is not imported for ``--help``; a test compares them."""


@click.command(
    epilog=examples(
        "npusched run model_vela.tflite --seed 3",
        "npusched run model_vela.tflite --input in.npz -o out.npz",
    ),
)
@click.argument("compiled")
@click.option(
    "--input",
    "-i",
    "inputs",
    metavar="FILE",
    help="Inputs: an .npz file with an array per graph input, by name. Default: random ones.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the random input.",
)
@format_option(FORMATS)
@output_option
@common_options
def run(compiled: str, inputs: str | None, seed: int, format_: str, output: Path | None) -> int:
    """Run COMPILED, a .tflite file that Vela wrote for an Ethos-U55 or U65, and show its outputs.

    NPU operators are executed bit for bit; ops that stay on the host run in LiteRT (pip install
    "npusched[prove]"), which is not needed without such ops. Arrays have the tensor's shape, or a
    batch axis in front. With -o the outputs go to an .npz file, by name, with a batch axis.
    JSON has a summary of each, and goes to stdout.
    """
    from npusched import api
    from npusched.report.execution_text import render_execution_json, render_run_text
    from npusched.report.units import plural

    if format_ == "json" and output == STDOUT:
        raise click.UsageError("-o - and --format json both write to stdout")

    report, outputs = api.run_compiled(
        read_bytes(compiled),
        name=display_name(compiled),
        inputs=None if inputs is None else read_file(inputs),
        seed=seed,
    )
    if output is not None:
        write_file(output, api.npz_bytes(outputs))
        if output != STDOUT:
            count = f"{plural(len(outputs), 'output')} for {plural(report.inputs, 'input')}"
            print_note(f"{count} in {output}")
    if format_ == "json":
        write_result(render_execution_json(report), None, is_json=True)
    if format_ == "json" or output is not None:
        return 0
    width, colour = terminal_width(sys.stdout), use_colour(sys.stdout)
    write_result(render_run_text(report, width=width, colour=colour), None)
    return 0


@click.command(
    epilog=examples(
        "npusched prove model.tflite -c ethos-u55-128",
        "npusched prove model.tflite -c ethos-u65-512 --optimise Size --inputs 5 --format json",
        "npusched prove model.tflite -c ethos-u55-128 --compiled model_vela.tflite",
        "npusched prove model.tflite -c ethos-u55-128 --plan --sram 64KiB",
        "npusched prove model.tflite -c ethos-u55-128 --plan-file plan.json",
    ),
)
@model_argument
@target_options
@click.option("--plan", "ours", is_flag=True, help="Prove our own plan instead of Vela's compile.")
@click.option(
    "--plan-file",
    metavar="FILE",
    help="Prove the plan of this file (written by npusched plan --format json).",
)
@planning_options()
@candidate_options
@vela_run_options
@click.option(
    "--inputs",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Random inputs to compare.",
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
    "--compiled", metavar="FILE", help="Prove this compiled file instead of running Vela."
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="proof",
    show_default=True,
    help="proof: fully connected layers round as the reference; hardware: as the stream says.",
)
@format_option(FORMATS)
@output_option
@common_options
def prove(
    model: str,
    target_arguments: TargetArguments,
    ours: bool,
    plan_file: str | None,
    options: PlanOptions,
    optimise: str | None,
    arena_cache_size: str | None,
    disabled: tuple[str, ...],
    allocator: str | None,
    inputs: int,
    seed: int,
    compiled: str | None,
    mode: str,
    format_: str,
    output: Path | None,
) -> int:
    """Compile MODEL with Vela, execute the result, and compare it with LiteRT's reference kernels.

    Outputs and what every kernel writes are compared on random inputs, without tolerance; the
    verdict names the first kernel that differs. Needs LiteRT (pip install "npusched[prove]").

    With --plan it is our own plan that is executed, stripe by stripe through its buffers at their
    addresses; CPU ops run in LiteRT on what these hold. Options of 'npusched plan' apply.
    --plan-file proves the plan of a file: it is made again and must be the same.

    Exit code 1 if anything differs, 3 if Vela fails or is not installed.
    """
    from npusched import api

    asked = vela_options(optimise, arena_cache_size, disabled, allocator)
    if compiled is not None and asked is not None:
        raise click.UsageError("--compiled takes a file: options of a run do not go with it")
    report: ProveReport | PlanProofReport
    if ours or plan_file is not None:
        if compiled is not None or asked is not None:
            raise click.UsageError("--plan proves our own plan: options of Vela do not go with it")
        check_plan_options(plan_file)
        report = api.prove_plan_report(
            read_bytes(model),
            name=display_name(model),
            target=target_arguments.load(),
            plan_file=None if plan_file is None else read_file(plan_file, PLAN_HINT),
            plan_name="" if plan_file is None else display_name(plan_file),
            inputs=inputs,
            seed=seed,
            mode=mode,
            options=options,
        )
    else:
        if given_options(PLAN_OPTIONS):
            given = ", ".join(given_options(PLAN_OPTIONS))
            raise click.UsageError(f"{given}: options of a plan need --plan")
        report = api.prove_report(
            read_bytes(model),
            name=display_name(model),
            target=target_arguments.load(),
            compiled=None if compiled is None else read_bytes(compiled),
            compiled_name="" if compiled is None else display_name(compiled),
            vela_options=asked,
            inputs=inputs,
            seed=seed,
            mode=mode,
            use_cache=options.use_cache,
        )
    for warning in report.warnings:
        print_warning(warning)
    _write(report, format_, output)
    return 0 if report.verdict == "equal" else 1


PLAN_HINT = "write one with 'npusched plan MODEL -c NAME --format json -o FILE'"


_STATED = {
    "sram": "--sram",
    "objective": "--objective",
    "lambda_": "--lambda",
    "max_offchip": "--max-offchip-bytes",
    "allow": "--allow",
    "candidates": "--candidates",
}
"""Options of a plan that its file states."""

PLAN_OPTIONS = {
    **_STATED,
    "max_compilations": "--max-compilations",
    "signature": "--signature",
    "input_shapes": "--input-shape",
    "no_vela": "--no-vela",
}


def given_options(options: Mapping[str, str]) -> list[str]:
    """Which of these options (parameter -> as written) are on the command line."""
    source = click.get_current_context().get_parameter_source
    return [text for name, text in options.items() if source(name) is ParameterSource.COMMANDLINE]


def check_plan_options(plan_file: str | None) -> None:
    """Refuse options that the plan's file states itself."""
    if plan_file is not None and given_options(_STATED):
        raise click.UsageError(
            f"{', '.join(given_options(_STATED))}: stated by the file of --plan-file"
        )


@click.command(
    epilog=examples(
        "npusched inspect model_vela.tflite",
        "npusched inspect model_vela.tflite -c ethos-u55-256 --format json",
        "npusched inspect model.command_stream.bin -c renesas-ra8p1 --trace out.json",
    ),
)
@click.argument("compiled")
@optional_target_options
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the timeline here, as a Chrome JSON trace (for Perfetto).",
)
@format_option(FORMATS)
@output_option
@common_options
def inspect(
    compiled: str,
    target_arguments: TargetArguments | None,
    trace: Path | None,
    format_: str,
    output: Path | None,
) -> int:
    """Show what is inside COMPILED, a .tflite file that Vela wrote or a bare command stream.

    Kernels, DMAs, bytes per memory, the accelerator it was made for, and findings of the static
    checks: missing waits, stale rows, blocks that do not fit. With a target also predicted cycles
    and latency of this very stream. Ethos-U55 and U65.
    """
    from npusched import api

    name = display_name(compiled)
    target = None if target_arguments is None else target_arguments.load()
    if trace is None:
        report = api.inspect_report(read_bytes(compiled), name=name, target=target)
    elif target is None:
        raise click.UsageError("--trace needs --config NAME")
    else:
        report, timeline = api.inspect_trace(read_bytes(compiled), name=name, target=target)
        write_file(trace, timeline)
    _write(report, format_, output)
    return 0


def read_file(name: str, hint: str = "name an .npz file with --input") -> bytes:
    """Content of a file of inputs, or of a plan. Raises NpuschedError."""
    from npusched.errors import NpuschedError

    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NpuschedError(f"cannot read {name}", reason or str(error), hint) from None


def _write(
    report: InspectReport | ProveReport | PlanProofReport, format_: str, output: Path | None
) -> None:
    """Write a report as JSON or text."""
    from npusched.report.execution_text import (
        render_execution_json,
        render_inspect_text,
        render_prove_text,
    )
    from npusched.report.execution_types import ProveReport
    from npusched.report.plan_proof_text import render_plan_proof_text
    from npusched.report.plan_proof_types import PlanProofReport

    if format_ == "json":
        write_result(render_execution_json(report), output, is_json=True)
        return
    to_stdout = output is None or output == STDOUT
    colour = to_stdout and use_colour(sys.stdout)
    width = terminal_width(sys.stdout) if to_stdout else 100
    if isinstance(report, ProveReport):
        text = render_prove_text(report, width=width, colour=colour)
    elif isinstance(report, PlanProofReport):
        text = render_plan_proof_text(report, width=width, colour=colour)
    else:
        text = render_inspect_text(report, width=width, colour=colour)
    write_result(text, output)
