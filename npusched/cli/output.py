"""Results to stdout or a file, errors to stderr, and what the process returns."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from npusched.errors import NpuschedError


def write_result(text: str, output: Path | None) -> None:
    """Print ``text``, or write it to ``output`` in one step (temporary file, then rename)."""
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    write_file(output, (text if text.endswith("\n") else text + "\n").encode())


def write_file(output: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it. Raises NpuschedError if it cannot."""
    try:
        handle, temporary = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, output)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise NpuschedError(
            f"cannot write {output}",
            error.strerror or str(error),
            "name a file in a folder that exists and may be written to with -o",
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def print_error(error: NpuschedError, *, as_json: bool) -> None:
    """One line what, one why, one hint on stderr; with ``as_json`` also the object on stdout."""
    sys.stderr.write(f"error: {error.what}\n")
    if error.why:
        sys.stderr.write(f"  why: {error.why}\n")
    if error.hint:
        sys.stderr.write(f"  hint: {error.hint}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": error.as_dict()}, indent=2) + "\n")


def print_warning(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"warning: {text}\n")


def use_colour(stream_is_terminal: bool) -> bool:
    """Colour only on a terminal that wants it (NO_COLOR, FORCE_COLOR, TERM=dumb)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream_is_terminal and os.environ.get("TERM", "") != "dumb"
