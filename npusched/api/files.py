"""Files written in one step: nobody ever sees half of one."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from npusched.errors import NpuschedError


def write_in_one_step(output: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it.

    A link is followed, an existing file keeps its mode, and a device or pipe is written to rather
    than replaced. Raises NpuschedError if it cannot be written.
    """
    try:
        target = output.resolve()
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(content)
        else:
            _replace(target, content, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else ""
        raise NpuschedError(
            f"cannot write {output}",
            reason or str(error),
            "name a file with -o in a folder that exists and may be written to",
            path=str(output),
        ) from error


def _replace(target: Path, content: bytes, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".npusched-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
