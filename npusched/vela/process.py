"""The worker process seen from our side: started once, reused, replaced when it dies.

Whatever happens to the worker (crash, hang, nonsense on its pipes) becomes a ``VelaError``; the
next request finds a fresh one. Safe to use from several threads (requests take turns), after a
fork (the child starts its own), and when interrupted (an unfinished request takes the worker
with it, so that no reply is ever taken for another's).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import IO

import msgspec

from npusched.errors import VelaError
from npusched.vela import protocol
from npusched.vela.protocol import Compiled, Failed, Reply, Request

WORKER_COMMAND = (sys.executable, "-P", "-m", "npusched.vela.worker")

_MESSAGE_LIMIT_BYTES = 4 << 20
_RECYCLE_BYTES = 16 << 20
"""After a reply of this size the worker is replaced: it would keep the memory it has grown to."""
_STOP_S = 1.0
_ALARM = getattr(signal, "SIGALRM", 1 << 16)
"""Signal by which a worker ends itself when its time is up; a number never seen on Windows."""

_DECODER: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Compiled | Failed)
_WORKERS: weakref.WeakSet[VelaWorker] = weakref.WeakSet()


class VelaWorker:
    """A reusable worker process. ``command`` starts it (tests pass other programs)."""

    def __init__(self, command: tuple[str, ...] = WORKER_COMMAND) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._stop: weakref.finalize[..., VelaWorker] | None = None
        _WORKERS.add(self)

    def __enter__(self) -> VelaWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the running worker, None if none runs."""
        return None if self._process is None else self._process.pid

    def run(self, request: Request) -> tuple[Compiled, str]:
        """Compile; return the reply and everything that was printed meanwhile.

        A worker that somebody else killed is replaced, and the request repeated once. Raises
        VelaError for every other end: exception, crash, time limit, nonsense.
        """
        with self._lock:
            try:
                return self._run_once(request)
            except _KilledError:
                return self._run_once(request)

    def start(self) -> None:
        """Start the process without waiting for it, so that its start-up overlaps other work.

        Raises VelaError if it cannot be started.
        """
        with self._lock:
            self._ensure_started()

    def close(self) -> None:
        """Stop the worker. The next request starts a new one."""
        with self._lock:
            self._discard()

    def _run_once(self, request: Request) -> tuple[Compiled, str]:
        process, log = self._ensure_started()
        expired = threading.Event()
        watchdog = threading.Timer(request.limit_s, _expire, (process, expired))
        watchdog.daemon = True
        watchdog.start()
        keep = False
        try:
            reply, size_bytes = _exchange(process, request)
            printed = _take_messages(log)
            keep = size_bytes < _RECYCLE_BYTES
        except (OSError, protocol.ProtocolError, msgspec.MsgspecError) as error:
            raise _death(process, log, request, expired.is_set(), error) from None
        finally:
            watchdog.cancel()
            if not keep:
                self._discard()
        if isinstance(reply, Failed):
            raise _failure(reply, printed)
        return reply, printed

    def _ensure_started(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        if self._process is None or self._log is None:
            log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the worker
            try:
                process = subprocess.Popen(
                    self._command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=worker_environment(),
                )
            except OSError as error:
                log.close()
                raise VelaError(
                    "Vela's worker process cannot be started",
                    str(error),
                    "check that this Python interpreter can start programs",
                ) from error
            self._process, self._log = process, log
            self._stop = weakref.finalize(self, _terminate, process, log)
        return self._process, self._log

    def _discard(self) -> None:
        stop, self._stop, self._process, self._log = self._stop, None, None, None
        if stop is not None:
            stop()

    def forget(self) -> None:
        """After a fork, in the child: drop the parent's worker without touching it."""
        process, log, stop = self._process, self._log, self._stop
        self._lock = threading.Lock()
        self._process = self._log = self._stop = None
        if stop is not None:
            stop.detach()
        if process is not None and log is not None:
            process.returncode = 0
            _close_all(process, log)


class _KilledError(VelaError):
    """The worker was killed by somebody else while it was busy: worth a second try."""


def _forget_all() -> None:
    for worker in list(_WORKERS):
        worker.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def worker_environment() -> dict[str, str]:
    """Our environment, with our own import path, so that the worker sees the same packages."""
    paths = [os.path.abspath(path) for path in sys.path if path]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in paths:
        paths.insert(0, root)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _exchange(process: subprocess.Popen[bytes], request: Request) -> tuple[Reply, int]:
    """Send the request and wait; return the reply and its size."""
    assert process.stdin is not None
    assert process.stdout is not None
    protocol.write_frame(process.stdin, msgspec.msgpack.encode(request))
    payload = protocol.read_frame(process.stdout)
    return _DECODER.decode(payload), len(payload)


def _expire(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    process.kill()


def _close_all(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    for stream in (process.stdin, process.stdout, log):
        if stream is not None:
            stream.close()


def _terminate(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """End the worker at once (it holds nothing worth saving) and reap it."""
    process.kill()
    process.wait()
    _close_all(process, log)


def _take_messages(log: IO[bytes]) -> str:
    """Return what the worker printed since the last call, and forget it.

    The worker shares the file's position and is not printing now, so both start at 0 again.
    """
    size = log.seek(0, os.SEEK_END)
    if size == 0:
        return ""
    log.seek(0)
    text = log.read(min(size, _MESSAGE_LIMIT_BYTES)).decode("utf-8", "replace")
    log.truncate(0)
    log.seek(0)
    return text


def last_line(text: str) -> str:
    """The last line that says something, at most 300 characters of it; "" if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _death(
    process: subprocess.Popen[bytes],
    log: IO[bytes],
    request: Request,
    expired: bool,
    error: Exception,
) -> VelaError:
    """Say why there is no reply. The process may still be alive (nonsense on its pipe)."""
    try:
        status: int | None = process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        status = None
    said = last_line(_take_messages(log))
    if expired or (status is not None and status == -_ALARM):
        return VelaError(
            f"Vela did not finish within {request.limit_s:g} s",
            said or "it was still compiling when its time was up",
            "try another arena size or optimisation strategy, or a longer time limit",
            reason="timeout",
            limit_s=request.limit_s,
        )
    if status is None or status >= 0:
        return VelaError(
            "Vela's worker process ended without an answer",
            said or (f"exit status {status}" if status is not None else str(error)),
            "run the vela command on the same model to see whether it fails, too",
            reason="exit" if status is not None else "protocol",
            status=status,
        )
    name = signal_name(-status)
    why = said or "the compiler's process ended while it compiled this model"
    if name in ("SIGKILL", "SIGTERM", "SIGHUP"):
        return _KilledError(
            f"Vela was killed ({name})", why, "check free memory", reason="killed", signal=name
        )
    return VelaError(
        f"Vela crashed ({name})",
        why,
        "the model may be malformed or hit a fault in Vela; the vela command should fail, too",
        reason="crash",
        signal=name,
    )


def _failure(reply: Failed, printed: str) -> VelaError:
    """Turn an exception that the worker reports into ours."""
    if reply.stage == "import":
        return not_installed(reply.message)
    if reply.error == "MemoryError":
        return VelaError(
            "Vela ran out of memory",
            reply.message or last_line(printed) or "it asked for more than this machine gives it",
            "try fewer features or another arena size",
            reason="memory",
        )
    lines = [line.strip() for line in reply.message.splitlines() if line.strip()]
    return VelaError(
        "Vela cannot compile this model",
        " ".join(lines)[:1000] or last_line(printed) or reply.error,
        "the message is Vela's own; the vela command gives the same",
        reason="compile",
        error=reply.error,
        messages=printed,
    )


def not_installed(why: str) -> VelaError:
    """Return the error for a missing or broken Vela installation."""
    return VelaError(
        "Vela is not installed, or cannot be loaded",
        why,
        'pip install "ethos-u-vela>=5.2,<5.3"',
        reason="missing",
    )
