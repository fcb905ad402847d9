"""Processes that work on this machine. One may die at any time: its task is tried once more."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TypeAlias

import msgspec

from npusched.batch.jobs import Task
from npusched.batch.task import RETRY_HINT, WorkerError, error_rows
from npusched.errors import ModelError
from npusched.report.sweep_types import SweepRow
from npusched.vela import protocol
from npusched.vela.process import last_line, signal_name, worker_environment

WORKER_COMMAND = (sys.executable, "-P", "-m", "npusched.batch.worker")

ATTEMPTS = 2
"""How often the jobs of a task are given to a fresh process, if it dies."""

_LOG_LIMIT_BYTES = 1 << 16
_STOP_S = 5.0

_DECODER = msgspec.msgpack.Decoder(SweepRow)


class WorkerDiedError(Exception):
    """A worker ended before its task; the text says how."""


class WorkerProcess:
    """A process that runs tasks, one at a time; started when needed, and again when it died.

    ``command`` starts it (tests pass other programs). Belongs to one thread, but for ``retire``.
    """

    def __init__(self, command: tuple[str, ...] = WORKER_COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._retired = False
        self._stop: weakref.finalize[..., WorkerProcess] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None if none runs."""
        return None if self._process is None else self._process.pid

    def rows(self, task: Task) -> Iterator[SweepRow]:
        """Yield rows of a loaded task as they come. Raises WorkerDiedError."""
        process, log = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            protocol.write_frame(process.stdin, pickle.dumps(task))
            while payload := protocol.read_frame(process.stdout):
                yield _DECODER.decode(payload)
        except (OSError, ValueError, protocol.ProtocolError, msgspec.MsgspecError) as error:
            why = _death(process, log)
            self.close()
            raise WorkerDiedError(why) from error

    def retire(self) -> None:
        """End the process at once, for good; from any thread (its own sees the process die)."""
        with self._lock:
            self._retired = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process at once."""
        stop, self._stop, self._process = self._stop, None, None
        if stop is not None:
            stop()

    def _started(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        with self._lock:
            if self._retired:
                raise WorkerError(
                    "the sweep was stopped",
                    "its worker was ended before this job",
                    "run the same sweep again: it goes on from there",
                )
            return self._start()

    def _start(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        if self._process is None or self._log is None:
            log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            try:
                self._process = subprocess.Popen(
                    self._command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=worker_environment(),
                )
            except OSError as error:
                log.close()
                raise WorkerError(
                    "a worker process cannot be started",
                    str(error),
                    "check that this Python interpreter can start programs",
                ) from error
            self._log = log
            self._stop = weakref.finalize(self, _end, self._process, log)
        return self._process, self._log


def rows_surely(worker: WorkerProcess, task: Task) -> Iterator[SweepRow]:
    """Yield exactly one row per job: what is left when the worker dies is tried once more.

    Raises WorkerError only if no process can be started.
    """
    waiting = {job.key: job for job in task.jobs}
    deaths: list[str] = []
    while waiting and len(deaths) < ATTEMPTS:
        try:
            for row in worker.rows(task.only(waiting)):
                del waiting[row.key]
                yield row
            if waiting:
                deaths.append("it left jobs out")
        except WorkerDiedError as death:
            deaths.append(str(death))
    if waiting:
        error = WorkerError(
            f"the worker's process died {len(deaths)} times",
            f"on {task.model.name} for {task.target.name}: {'; '.join(deaths)}",
            RETRY_HINT,
        )
        yield from error_rows(task, waiting.values(), error)


Said: TypeAlias = "SweepRow | Exception | None"
"""From a thread to the one that reads: a row, the end of everything, or the thread's own end."""


class ProcessPool:
    """``workers`` processes, each with a thread here that waits for it."""

    def __init__(self, workers: int, command: tuple[str, ...] = WORKER_COMMAND) -> None:
        self.workers = workers
        self.processes = [WorkerProcess(command) for _ in range(workers)]

    def run(self, tasks: Sequence[Task]) -> Iterator[SweepRow]:
        """Yield one row per job of the tasks, as they are finished.

        When the caller stops taking them, all processes are ended.
        """
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        busy = self.processes[: max(1, min(len(tasks), self.workers))]
        threads = [
            threading.Thread(target=self._work, args=(process, waiting, said), daemon=True)
            for process in busy
        ]
        for thread in threads:
            thread.start()
        try:
            yield from _until_all_end(said, len(threads))
        finally:
            for process in busy:
                process.retire()
            for thread in threads:
                thread.join()

    def _work(
        self,
        process: WorkerProcess,
        waiting: queue.SimpleQueue[Task],
        said: queue.SimpleQueue[Said],
    ) -> None:
        try:
            while True:
                for row in _finished(process, waiting.get_nowait()):
                    said.put(row)
        except queue.Empty:
            said.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that reads
            said.put(error)
        finally:
            process.close()


def _finished(process: WorkerProcess, task: Task) -> Iterable[SweepRow]:
    """The rows of a task that is not loaded yet."""
    try:
        loaded = task.loaded()
    except ModelError as error:
        return error_rows(task, task.jobs, error)
    return rows_surely(process, loaded)


def _until_all_end(said: queue.SimpleQueue[Said], threads: int) -> Iterator[SweepRow]:
    while threads:
        found = said.get()
        if found is None:
            threads -= 1
        elif isinstance(found, Exception):
            raise found
        else:
            yield found


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """Kill (it holds nothing worth saving) and reap."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, log):
        if stream is not None:
            stream.close()


def _death(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """How a process ended that should not have, with the last that it said."""
    try:
        status: int | None = process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        status = None
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_LIMIT_BYTES))
    said = last_line(log.read().decode(errors="replace"))
    if status is None:
        how = "it sent what is not an answer"
    elif status < 0:
        how = f"it was ended by {signal_name(-status)}"
    else:
        how = f"it ended with status {status}"
    return f"{how} ({said})" if said else how
