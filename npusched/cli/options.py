"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from npusched.cli.completers import complete_model, complete_targets
from npusched.cli.parse import TargetArguments, parse_shapes

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.report.types import CandidateMode

CANDIDATES = ["none", "asked", "sweep"]
"""As ``report.types.CandidateMode``, which is not imported for ``--help``; a test compares them."""

ADVICE = ["none", "quick", "all"]
"""As ``report.types.AdviceMode``, which is not imported for ``--help``; a test compares them."""

PLAN_FORMATS = ["text", "json", "html", "md", "csv", "github", "sarif", "trace", "overlay"]

FRONTIER_FORMATS = ["text", "json", "md", "csv"]
"""Of PLAN_FORMATS, those that a list of plans has."""

PAGE_PARTS = ["frontier", "compare", "none"]
"""As ``api.pages.PagePart``, and "none"; a test compares them."""

OVERLAY_METRICS = ["cycles", "macs", "offchip", "sram", "bound-by", "placement"]
"""As ``report.plan_overlay.OVERLAY_METRICS``, which ``--help`` does not import; a test compares."""

SWITCHES = ["block-choice", "staged-input", "overlap"]
"""As ``schedule.Switch``, which is not imported for ``--help``; a test compares them."""

P = ParamSpec("P")
R = TypeVar("R")


def examples(*commands: str, after: str = "") -> str:
    """Return the end of a command's help: command lines that are not broken, then prose."""
    shown = "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)
    return f"{shown}\n\n{after}" if after else shown


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that describe a target; the command gets them as ``target_arguments``."""
    config = click.option(
        "--config",
        "-c",
        shell_complete=complete_targets,
        required=True,
        metavar="NAME",
        help="Target, see 'npusched configs' (or a .toml file).",
    )
    return _with_target(command, config)


def model_argument(command: Callable[P, R]) -> Callable[P, R]:
    """Add MODEL: a file, or a built-in model."""
    return click.argument("model", shell_complete=complete_model)(command)


def optional_target_options(command: Callable[..., R]) -> Callable[..., R]:
    """As ``target_options``, for a command that can do without: ``target_arguments`` is None."""
    config = click.option(
        "--config",
        "-c",
        shell_complete=complete_targets,
        metavar="NAME",
        help="Say whether it fits this target, and predict its time there.",
    )
    return _with_target(command, config)


def one_of_target_options(command: Callable[..., R]) -> Callable[..., R]:
    """As ``target_options``, for a command that has ``--configs``, too: may be None."""
    config = click.option(
        "--config",
        "-c",
        shell_complete=complete_targets,
        metavar="NAME",
        help="Target, see 'npusched configs' (or a .toml file). This or --configs.",
    )
    return _with_target(command, config)


def _with_target(
    command: Callable[..., R], config_option: Callable[[Callable[..., R]], Callable[..., R]]
) -> Callable[..., R]:
    """Add ``config_option`` and what changes the target that it names."""

    @config_option
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
        config: str | None,
        system_config: str | None,
        memory_mode: str | None,
        vela_config: Path | None,
        clock: str | None,
        derate: tuple[str, ...],
        **others: object,
    ) -> R:
        changes = (system_config, memory_mode, vela_config, clock, *derate)
        if config is None:
            if any(change is not None for change in changes):
                raise click.UsageError("options of a target need --config NAME")
            return command(target_arguments=None, **others)
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


def planning_options(
    sram_help: str = "Budget, e.g. 64KiB. Default: the target's capacity.",
    *,
    has_sram: bool = True,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that adds what is asked of the planner, given on as ``options``.

    ``has_sram``: also ``--sram``; a command with several budgets has its own.
    """
    budget = click.option("--sram", metavar="SIZE", help=sram_help)

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
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
            type=click.FloatRange(min=0, max=1e9),
            default=0.1,
            show_default=True,
            metavar="X",
            help="Cycles that one off-chip byte is worth.",
        )
        @click.option(
            "--max-offchip-bytes",
            "max_offchip",
            metavar="SIZE",
            help="Most bytes that one inference may move off the chip. Default: no limit.",
        )
        @click.option(
            "--allow",
            multiple=True,
            type=click.Choice(SWITCHES),
            help="Also look at these, whose gain rests on Vela's model (repeat for more).",
        )
        @click.option("--signature", metavar="KEY", help="Entry point. Default: subgraph 0.")
        @click.option(
            "--input-shape",
            "input_shapes",
            multiple=True,
            metavar="NAME=N,N,...",
            help="Shape of a dynamic input (repeat for more).",
        )
        @click.option(
            "--no-cache", is_flag=True, help="Neither read nor write the cache of Vela results."
        )
        @functools.wraps(command)
        def wrapped(
            objective: str,
            lambda_: float,
            max_offchip: str | None,
            allow: tuple[str, ...],
            signature: str | None,
            input_shapes: tuple[str, ...],
            no_cache: bool,
            sram: str | None = None,
            **others: object,
        ) -> R:
            from npusched.api import PlanOptions
            from npusched.hardware import parse_size

            options = PlanOptions(
                sram=None if sram is None else parse_size(sram),
                objective=objective,
                lambda_cycles_per_byte=lambda_,
                max_offchip_bytes=None if max_offchip is None else parse_size(max_offchip),
                allow=allow,
                signature=signature,
                input_shapes=parse_shapes(input_shapes),
                use_cache=not no_cache,
            )
            return command(options=options, **others)

        return budget(wrapped) if has_sram else wrapped

    return decorate


def candidate_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add what Vela is asked for beside a plan, to the ``options`` of ``planning_options``.

    It goes below that decorator.
    """

    @click.option("--no-vela", is_flag=True, help="Do not ask Vela for weight sizes or candidates.")
    @click.option(
        "--candidates",
        type=click.Choice(CANDIDATES),
        default="asked",
        show_default=True,
        help="Schedules of Vela's that compete: none, as run for this budget, or of a sweep.",
    )
    @click.option(
        "--max-compilations",
        type=click.IntRange(min=1),
        metavar="N",
        help="Most compilations of a sweep. Default: 200.",
    )
    @functools.wraps(command)
    def wrapped(
        options: PlanOptions,
        no_vela: bool,
        candidates: CandidateMode,
        max_compilations: int | None,
        **others: object,
    ) -> R:
        from msgspec.structs import replace

        if max_compilations is not None and candidates != "sweep":
            raise click.UsageError("--max-compilations goes with --candidates sweep")
        chosen = replace(
            options,
            use_vela=not no_vela,
            candidates=candidates,
            max_compilations=max_compilations or options.max_compilations,
        )
        return command(options=chosen, **others)

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
