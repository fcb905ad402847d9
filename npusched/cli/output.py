"""Results to stdout or a file, errors to stderr, on any terminal and any encoding."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Final, TextIO

from npusched.cli.status import STATUS
from npusched.errors import NpuschedError

DEFAULT_WIDTH: Final = 100
"""Columns of the text form in a file or a pipe."""

STDOUT: Final = Path("-")
"""As the name of an output file: stdout."""

_PLAIN: Final = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
        "░": ".",
        **dict(zip("│─└", "|-+", strict=True)),
        "†": "+",
        "×": "x",
        "→": ">",
        "·": "-",
        "…": "~",
        "µ": "u",
        "λ": "lambda",
    }
)
"""What stands for our own characters on a terminal that cannot show them; as wide as they are."""


def write_result(text: str, output: Path | None, *, is_json: bool = False) -> None:
    """Print ``text``, or write it (UTF-8) to ``output`` in one step.

    Raises NpuschedError if it cannot be written; BrokenPipeError if the reader has gone.
    """
    STATUS.stop()
    text = text if text.endswith("\n") else text + "\n"
    if output is not None and output != STDOUT:
        write_file(output, text.encode(errors="backslashreplace"))
        return
    try:
        sys.stdout.write(showable(text, sys.stdout, is_json=is_json))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NpuschedError(
            "cannot write to stdout",
            error.strerror or str(error),
            "make room, or write to another place with -o FILE",
        ) from error


def showable(text: str, stream: TextIO, *, is_json: bool = False) -> str:
    """Return ``text`` so that the stream's encoding can take it; JSON stays the same value."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        if is_json:
            return _ascii_json(text)
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def _ascii_json(text: str) -> str:
    """Escape all that is not ASCII: in JSON such characters only occur inside strings."""
    return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)


def write_file(output: Path, content: bytes) -> None:
    """Write a file in one step; ``-`` is stdout. Raises NpuschedError if it cannot be written."""
    if output == STDOUT:
        STATUS.stop()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    from npusched.api.files import write_in_one_step

    write_in_one_step(output, content)


def print_error(error: NpuschedError, *, as_json: bool) -> None:
    """What, why and hint on stderr; with ``as_json`` the object on stdout."""
    from npusched.report import render_error

    STATUS.stop()
    text = render_error(error, width=terminal_width(sys.stderr), colour=use_colour(sys.stderr))
    sys.stderr.write(showable(text, sys.stderr))
    if as_json:
        form = json.dumps({"error": error.as_dict()}, indent=2)
        sys.stdout.write(form + "\n")
        sys.stdout.flush()


def print_note(text: str) -> None:
    """Progress or a summary, one line on stderr."""
    STATUS.clear()
    sys.stderr.write(showable(text + "\n", sys.stderr))


def print_warning(text: str) -> None:
    """One warning on stderr."""
    from npusched.report import render_warning

    STATUS.clear()
    shown = render_warning(text, width=terminal_width(sys.stderr), colour=use_colour(sys.stderr))
    sys.stderr.write(showable(shown, sys.stderr))


def show_compilations(compilations: int, distinct: int) -> None:
    """Say how far a sweep of Vela is, where the line of progress is shown."""
    STATUS.say(f"{compilations} compilations by Vela, {distinct} distinct results")


def show_changes(done: int, total: int, what: str) -> None:
    """Say which change is being planned, where the line of progress is shown."""
    from npusched.report.units import plain_text

    STATUS.say(showable(f"planning change {done} of {total}: {plain_text(what, 80)}", sys.stderr))


def show_stage(text: str) -> None:
    """Say what is being done, where the line of progress is shown."""
    STATUS.say(text)


def terminal_width(stream: TextIO) -> int:
    """Columns: $COLUMNS, else the terminal's, else ``DEFAULT_WIDTH`` (also for files and pipes)."""
    if not os.environ.get("COLUMNS", "").isdigit() and not stream.isatty():
        return DEFAULT_WIDTH
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def use_colour(stream: TextIO) -> bool:
    """Colour only on a terminal that wants it (NO_COLOR, then FORCE_COLOR, then TERM=dumb)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"
