"""``npusched sweep``: many models, targets and budgets into one store of results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from npusched.cli.completers import complete_targets
from npusched.cli.options import (
    candidate_options,
    common_options,
    examples,
    format_option,
    planning_options,
)
from npusched.cli.output import (
    print_note,
    showable,
    terminal_width,
    use_colour,
    write_result,
)
from npusched.cli.status import STATUS

if TYPE_CHECKING:
    from npusched.api import PlanOptions
    from npusched.batch import SweepProgress
    from npusched.report.sweep_types import SweepReport

FORMATS = ["text", "json", "csv"]

NOTE_EVERY_S: Final = 15.0
"""Least time between two lines of progress where stderr is no terminal."""

REDRAW_EVERY_S: Final = 0.1
"""Least time between two states of the line of progress on a terminal."""

CAPACITY: Final = "capacity"
"""As a budget: what the target has."""


@click.command(
    epilog=examples(
        "npusched sweep models/ --configs ethos-u55-128,ethos-u65-256 --sram 64KiB,256KiB",
        "npusched sweep 'models/*.tflite' demo:ds_cnn --configs ethos-u55-128 -o kws.sqlite",
        "npusched sweep models/ --configs ethos-u85-256 --scheduler local:8",
        "npusched sweep --show results.sqlite --format csv",
        after="Exit code 0 as soon as every job has a result: a model that cannot be planned, or a "
        "budget that is too small, is a row and no failure.",
    ),
)
@click.argument("models", nargs=-1)
@click.option(
    "--configs",
    "-c",
    shell_complete=complete_targets,
    metavar="A,B,...",
    multiple=True,
    help="Targets, see 'npusched configs'.",
)
@click.option(
    "--sram",
    "budgets",
    metavar="A,B,...",
    multiple=True,
    help="Budgets, e.g. 32KiB,64KiB,capacity. Default: the target's capacity.",
)
@planning_options(has_sram=False)
@candidate_options
@click.option(
    "--output",
    "-o",
    "store",
    type=click.Path(path_type=Path, dir_okay=False),
    default="results.sqlite",
    show_default=True,
    metavar="FILE",
    help="The store of results (SQLite); what it has is not planned again.",
)
@click.option("--retry-errors", is_flag=True, help="Plan again the jobs that ended in an error.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that plan. Default: one per CPU.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Plan on dask.distributed instead: local:N for N workers here, or tcp://HOST:PORT.",
)
@click.option(
    "--show",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Plan nothing; show all that this store has.",
)
@format_option(FORMATS)
@common_options
def sweep(
    models: tuple[str, ...],
    configs: tuple[str, ...],
    budgets: tuple[str, ...],
    options: PlanOptions,
    store: Path,
    retry_errors: bool,
    workers: int | None,
    scheduler: str | None,
    show: Path | None,
    format_: str,
) -> int:
    """Plan MODELS on several targets within several budgets, and keep the results in one store.

    MODELS are files, folders (all .tflite files below), patterns and demo:NAME. The same command
    goes on where an interrupted one stopped. Progress is on stderr, a summary (or all rows, with
    --format json or csv) on stdout.
    """
    from npusched import batch

    if show is not None:
        if models or configs:
            raise click.UsageError("--show plans nothing: leave models and --configs out")
        return _print(batch.show_sweep(show), format_)
    if not models:
        raise click.UsageError("name models to sweep, or a store with --show FILE")
    targets = _names(configs)
    if not targets:
        raise click.UsageError("name targets with --configs, see 'npusched configs'")
    plan = batch.plan_sweep(models, targets, _budgets(budgets), options)
    working = batch.workers_of(workers, scheduler)
    with _progress_on_stderr(store) as progress:
        report = batch.run_sweep(plan, store, working, retry_errors=retry_errors, progress=progress)
    return _print(report, format_)


def _names(texts: tuple[str, ...]) -> list[str]:
    """The parts of lists with commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _budgets(texts: tuple[str, ...]) -> list[str | None]:
    return [None if name == CAPACITY else name for name in _names(texts)]


def _print(report: SweepReport, format_: str) -> int:
    from npusched.report.sweep_json import render_sweep_csv, render_sweep_json
    from npusched.report.sweep_text import render_sweep

    if format_ == "json":
        text = render_sweep_json(report)
    elif format_ == "csv":
        text = render_sweep_csv(report)
    else:
        text = render_sweep(report, width=terminal_width(sys.stdout), colour=use_colour(sys.stdout))
    write_result(text, None, is_json=format_ == "json")
    return 0


@contextmanager
def _progress_on_stderr(store: Path) -> Iterator[Callable[[SweepProgress], None]]:
    """A callback that keeps one line of a terminal current, or writes a line now and then."""
    is_terminal = sys.stderr.isatty()
    STATUS.stop()  # this line says more
    shown = time.monotonic()
    last = ""
    counted: SweepProgress | None = None

    def show(progress: SweepProgress) -> None:
        nonlocal shown, last, counted
        counted = progress
        now = time.monotonic()
        if now - shown < (REDRAW_EVERY_S if is_terminal else NOTE_EVERY_S):
            return
        shown = now
        text = progress_text(progress)
        if is_terminal:
            sys.stderr.write("\r" + showable(text, sys.stderr).ljust(len(last)))
            sys.stderr.flush()
        else:
            print_note(text)
        last = text

    def clear() -> None:
        if is_terminal and last:
            sys.stderr.write("\r" + " " * len(last) + "\r")
            sys.stderr.flush()

    try:
        yield show
    except BaseException:
        clear()
        if counted is not None:
            done = counted.known + counted.done
            print_note(f"{done} of {counted.jobs} jobs are in {store}: the same command goes on")
        raise
    clear()


def progress_text(progress: SweepProgress) -> str:
    """One line: jobs done, errors, time left."""
    from npusched.report.units import plural

    text = f"{progress.known + progress.done} of {plural(progress.jobs, 'job')}"
    if progress.errors:
        text += f", {plural(progress.errors, 'error')}"
    left = progress.eta_s
    return text if left is None else f"{text}, {_minutes(left)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
