"""From arguments to an exit code: every way a command can end is decided here."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise

import click

from npusched.cli.output import print_error
from npusched.errors import NpuschedError


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code. Never raises."""
    from npusched.cli.app import app

    debug = "--debug" in arguments
    as_json = _wants_json(arguments)
    try:
        code = app.main(args=list(arguments), prog_name="npusched", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except NpuschedError as error:
        print_error(error, as_json=as_json)
        if debug:
            traceback.print_exc()
        return error.exit_code
    except click.UsageError as error:
        print_error(_usage_error(error), as_json=as_json)
        return 2
    except click.ClickException as error:
        print_error(NpuschedError(error.format_message()), as_json=as_json)
        return 2
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader has gone: say nothing, and keep Python from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence: exit code 3, no traceback
        if debug:
            traceback.print_exc()
        print_error(_internal_error(error), as_json=as_json)
        return 3


def _wants_json(arguments: Sequence[str]) -> bool:
    joined = list(arguments)
    return "--format=json" in joined or any(
        flag in ("--format", "-f") and value == "json" for flag, value in pairwise(joined)
    )


def _usage_error(error: click.UsageError) -> NpuschedError:
    """The click error in our form, with a suggestion for a mistyped command or option."""
    what = error.format_message()
    context = error.ctx
    command = context.command_path if context is not None else "npusched"
    hint = f"see '{command} --help'"
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        hint = f"did you mean {error.possibilities[0]}?"
    elif context is not None and isinstance(context.command, click.Group):
        words = [word for word in context.args + (context._protected_args or []) if word]
        for word in words:
            close = difflib.get_close_matches(word, context.command.list_commands(context), 1)
            if close:
                hint = f"did you mean '{command} {close[0]}'?"
    return NpuschedError(what, "", hint)


def _internal_error(error: BaseException) -> NpuschedError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return NpuschedError(
        "internal error: this is a fault in npusched",
        f"{type(error).__name__} at {where}: {error}".splitlines()[0],
        "run again with --debug and report the traceback together with the model",
    )
