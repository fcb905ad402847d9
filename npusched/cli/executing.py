"""``npusched run``, ``prove`` and ``inspect``: compiled files, executed and looked into."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npusched.cli.compare import vela_options, vela_run_options
from npusched.cli.options import (
    common_options,
    examples,
    format_option,
    optional_target_options,
    output_option,
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
    from npusched.report.execution_types import InspectReport, ProveReport

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
@output_option
@common_options
def run(compiled: str, inputs: str | None, seed: int, output: Path | None) -> int:
    """Run COMPILED, a .tflite file that Vela wrote for an Ethos-U55 or U65, and show its outputs.

    NPU operators are executed bit for bit; ops that stay on the host run in LiteRT (pip install
    "npusched[prove]"), which is not needed without such ops. Arrays have the tensor's shape, or a
    batch axis in front. With -o the outputs go to an .npz file, by name, with a batch axis.
    """
    from npusched import api
    from npusched.report.execution_text import render_run_text
    from npusched.report.units import plural

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
        return 0
    width, colour = terminal_width(sys.stdout), use_colour(sys.stdout)
    write_result(render_run_text(report, width=width, colour=colour), None)
    return 0


@click.command(
    epilog=examples(
        "npusched prove model.tflite -c ethos-u55-128",
        "npusched prove model.tflite -c ethos-u65-512 --optimise Size --inputs 5 --format json",
        "npusched prove model.tflite -c ethos-u55-128 --compiled model_vela.tflite",
    ),
)
@click.argument("model")
@target_options
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
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of Vela results.")
@format_option(FORMATS)
@output_option
@common_options
def prove(
    model: str,
    target_arguments: TargetArguments,
    optimise: str | None,
    arena_cache_size: str | None,
    disabled: tuple[str, ...],
    allocator: str | None,
    inputs: int,
    seed: int,
    compiled: str | None,
    mode: str,
    no_cache: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Compile MODEL with Vela, execute the result, and compare it with LiteRT's reference kernels.

    Outputs and what every kernel writes are compared on random inputs, without tolerance; the
    verdict names the first kernel that differs. Needs LiteRT (pip install "npusched[prove]").

    Exit code 1 if anything differs, 3 if Vela fails or is not installed.
    """
    from npusched import api

    options = vela_options(optimise, arena_cache_size, disabled, allocator)
    if compiled is not None and options is not None:
        raise click.UsageError("--compiled takes a file: options of a run do not go with it")
    report = api.prove_report(
        read_bytes(model),
        name=display_name(model),
        target=target_arguments.load(),
        compiled=None if compiled is None else read_bytes(compiled),
        compiled_name="" if compiled is None else display_name(compiled),
        vela_options=options,
        inputs=inputs,
        seed=seed,
        mode=mode,
        use_cache=not no_cache,
    )
    for warning in report.warnings:
        print_warning(warning)
    _write(report, format_, output)
    return 0 if report.verdict == "equal" else 1


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


def read_file(name: str) -> bytes:
    """Content of a file of inputs. Raises NpuschedError."""
    from npusched.errors import NpuschedError

    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NpuschedError(
            f"cannot read {name}", reason or str(error), "name an .npz file with --input"
        ) from None


def _write(report: InspectReport | ProveReport, format_: str, output: Path | None) -> None:
    """Write a report as JSON or text."""
    from npusched.report.execution_text import (
        render_execution_json,
        render_inspect_text,
        render_prove_text,
    )
    from npusched.report.execution_types import ProveReport

    if format_ == "json":
        write_result(render_execution_json(report), output, is_json=True)
        return
    to_stdout = output is None or output == STDOUT
    colour = to_stdout and use_colour(sys.stdout)
    width = terminal_width(sys.stdout) if to_stdout else 100
    if isinstance(report, ProveReport):
        text = render_prove_text(report, width=width, colour=colour)
    else:
        text = render_inspect_text(report, width=width, colour=colour)
    write_result(text, output)
