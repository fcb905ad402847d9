"""From arguments to an exit code: every way a command can end is decided here."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar

import click

from npusched.cli.output import print_error
from npusched.cli.status import STATUS
from npusched.errors import NpuschedError, internal_error


class UsageError(NpuschedError):
    """The command line is wrong."""

    kind: ClassVar[str] = "usage"


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code. Never raises."""
    debug = "--debug" in arguments
    try:
        error = _attempt(list(arguments), debug=debug)
        if isinstance(error, int):
            return error
        print_error(error, as_json=_wants_json(arguments))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        _leave_pipe()
        return 0


def _attempt(arguments: list[str], *, debug: bool) -> int | NpuschedError:
    """Run the command; return its exit code, or the error to show."""
    from npusched.cli.app import app

    try:
        if "_NPUSCHED_COMPLETE" in os.environ:
            app.main(arguments, prog_name="npusched")
        with (
            app.make_context("npusched", arguments or ["--help"]) as context,
            STATUS.showing(" ".join(["npusched", *arguments[:1]])),
        ):
            code = app.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except NpuschedError as error:
        if debug:
            traceback.print_exc()
        return error
    except click.UsageError as error:
        return _usage_error(error)
    except (BrokenPipeError, click.Abort):
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: exit code 3, no traceback
        if debug:
            traceback.print_exc()
        return internal_error(error)


def _leave_pipe() -> None:
    """The reader has gone: say nothing, and keep Python from flushing into the closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process


def _wants_json(arguments: Sequence[str]) -> bool:
    joined = list(arguments)
    return any(text in ("--format=json", "-fjson", "-f=json") for text in joined) or any(
        flag in ("--format", "-f") and value == "json" for flag, value in pairwise(joined)
    )


def _usage_error(error: click.UsageError) -> UsageError:
    """The click error in our form, with a suggestion for a mistyped command, option or choice."""
    context = error.ctx
    command = context.command_path if context is not None else "npusched"
    hint = _suggestion(error)
    what = error.message if hint.startswith("did you mean") else error.format_message()
    return UsageError(
        " ".join(what.split()).removesuffix("."), "", hint or f"see '{command} --help'"
    )


def _suggestion(error: click.UsageError) -> str:
    context = error.ctx
    quoted = re.search(r"['\"](.+?)['\"]", error.message)
    given = quoted[1] if quoted else ""
    if isinstance(error, click.NoSuchOption):
        options = [] if context is None else _option_names(context.command)
        return _did_you_mean(error.option_name, options)
    if isinstance(error, click.MissingParameter):
        name = error.param.name if error.param is not None else ""
        return {
            "config": "'npusched configs' lists the targets; try -c ethos-u55-128",
            "model": "name a .tflite file, or demo:mobilenet to try one",
        }.get(name or "", "")
    if isinstance(error, click.BadParameter):
        kind = error.param.type if error.param is not None else None
        known = [str(choice) for choice in kind.choices] if isinstance(kind, click.Choice) else []
        return _did_you_mean(given, known)
    if context is not None and isinstance(context.command, click.Group):
        return _did_you_mean(given, context.command.list_commands(context), context.command_path)
    return ""


def _did_you_mean(given: str, known: Iterable[str], before: str = "") -> str:
    from difflib import get_close_matches

    close = get_close_matches(given, list(known), 1, 0.6)
    return f"did you mean '{f'{before} {close[0]}'.strip()}'?" if close else ""


def _option_names(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts]
