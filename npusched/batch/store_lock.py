"""One writer per store: a lock that the system gives back whatever becomes of its holder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npusched.errors import NpuschedError


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold ``STORE.lock`` meanwhile; the file goes away with the lock.

    Raises NpuschedError if another process holds it, or if it cannot be made.
    """
    path = store.with_name(store.name + ".lock")
    handle = _acquire(path, store)
    try:
        yield
    finally:
        if sys.platform == "win32":
            os.close(handle)
        else:
            path.unlink(missing_ok=True)  # before it is given back: nobody else can hold it now
            os.close(handle)


def _acquire(path: Path, store: Path) -> int:
    """Open and lock the file; again if its last holder removed it in between."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise NpuschedError(
                f"cannot write {store}",
                error.strerror or str(error),
                "name a file with -o in a folder that exists and may be written to",
            ) from error
        if not _try_lock(handle):
            os.close(handle)
            raise NpuschedError(
                f"{store} is in use",
                "another sweep is writing to it",
                "wait for it, or name another store with -o",
            )
        if _is_still(path, handle):
            return handle
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
