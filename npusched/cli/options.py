"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from npusched.cli.parse import PlanArguments, TargetArguments

PLAN_FORMATS = ["text", "json"]

P = ParamSpec("P")
R = TypeVar("R")


def examples(*commands: str, after: str = "") -> str:
    """Return the end of a command's help: command lines that are not broken, then prose."""
    shown = "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)
    return f"{shown}\n\n{after}" if after else shown


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that describe a target; the command gets them as ``target_arguments``."""

    @click.option(
        "--config",
        "-c",
        required=True,
        metavar="NAME",
        help="Target, see 'npusched configs' (or a .toml file).",
    )
    @click.option("--system-config", metavar="S", help="System config, of the target or vela.ini.")
    @click.option("--memory-mode", metavar="M", help="Sram_Only, Shared_Sram, Dedicated_Sram, ...")
    @click.option(
        "--vela-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read system config and memory mode from this vela.ini.",
    )
    @click.option("--clock", metavar="HZ", help="NPU clock, e.g. 400MHz.")
    @click.option(
        "--derate",
        multiple=True,
        metavar="MEM=X",
        help="Share of a memory's bandwidth that is left, e.g. sram=0.5 (repeat for more).",
    )
    @functools.wraps(command)
    def wrapped(
        config: str,
        system_config: str | None,
        memory_mode: str | None,
        vela_config: Path | None,
        clock: str | None,
        derate: tuple[str, ...],
        **others: object,
    ) -> R:
        arguments = TargetArguments(
            config=config,
            system_config=system_config,
            memory_mode=memory_mode,
            vela_config=vela_config,
            clock=clock,
            derate=derate,
        )
        return command(target_arguments=arguments, **others)

    return wrapped


_PLAN_OPTIONS = (
    click.option(
        "--sram", metavar="SIZE", help="Budget, e.g. 64KiB. Default: the target's capacity."
    ),
    click.option(
        "--objective",
        type=click.Choice(["cycles", "energy", "offchip", "sram"]),
        default="cycles",
        show_default=True,
        help="What to minimise. cycles: cycles + lambda x off-chip bytes.",
    ),
    click.option(
        "--lambda",
        "lambda_",
        type=click.FloatRange(min=0, max=1e9),
        default=0.1,
        show_default=True,
        metavar="X",
        help="Cycles that one off-chip byte is worth.",
    ),
    click.option("--signature", metavar="KEY", help="Entry point to plan. Default: subgraph 0."),
    click.option(
        "--input-shape",
        "input_shapes",
        multiple=True,
        metavar="NAME=N,N,...",
        help="Shape of a dynamic input (repeat for more).",
    ),
    click.option("--no-vela", is_flag=True, help="Do not ask Vela for exact weight sizes."),
)


def plan_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that decide a plan; the command gets them as ``plan_arguments``."""

    @functools.wraps(command)
    def wrapped(
        sram: str | None,
        objective: str,
        lambda_: float,
        signature: str | None,
        input_shapes: tuple[str, ...],
        no_vela: bool,
        **others: object,
    ) -> R:
        arguments = PlanArguments(
            sram=sram,
            objective=objective,
            lambda_=lambda_,
            signature=signature,
            input_shapes=input_shapes,
            no_vela=no_vela,
        )
        return command(plan_arguments=arguments, **others)

    for option in reversed(_PLAN_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def format_option(formats: list[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that adds ``--format`` as ``format_``; the first format is the default."""

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        return click.option(
            "--format",
            "-f",
            "format_",
            type=click.Choice(formats),
            default=formats[0],
            show_default=True,
            help="json has exact figures, and errors as an object, too.",
        )(command)

    return decorate


def output_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``-o FILE``."""
    return click.option(
        "--output",
        "-o",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write the result here (in one step) instead of to stdout.",
    )(command)


def common_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add ``--debug``, which ``run`` looks for: errors come with a traceback."""

    @click.option("--debug", is_flag=True, help="Show a traceback with errors.")
    @functools.wraps(command)
    def wrapped(debug: bool, **others: object) -> R:  # noqa: ARG001 - read from the arguments
        return command(**others)

    return wrapped
