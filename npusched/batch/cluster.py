"""Workers on dask.distributed: here (``local:N``) or wherever a scheduler has some (``tcp://…``).

Each task is planned in a process of its own below the dask worker, exactly as in the pool: that
process may die without harm. A dask worker that dies itself loses its task to another one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from npusched.batch.jobs import Task
from npusched.batch.pool import WorkerProcess, rows_surely
from npusched.batch.task import RETRY_HINT, WorkerError, error_rows
from npusched.errors import ModelError, NpuschedError
from npusched.report.sweep_types import SweepRow

if TYPE_CHECKING:
    from distributed import Client, Future

LOCAL_PREFIX = "local:"

_SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GiB",
    "distributed.scheduler.allowed-failures": 3,
}
"""Models are shipped inside tasks, a few at a time; a task is given up at the fourth dask worker
that dies under it."""

CONNECT_S = 10.0
"""Longest that a scheduler may take to answer."""

_OWN = threading.local()


class Cluster:
    """``address``: "local:N" for N workers on the loopback of this machine, or tcp://HOST:PORT."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.local_workers = _local_workers(address)
        _distributed()

    def run(self, tasks: Sequence[Task]) -> Iterator[SweepRow]:
        """Yield one row per job of the tasks, as tasks are finished.

        Raises NpuschedError if the scheduler cannot be reached or is lost.
        """
        with self._client() as client:
            try:
                yield from _run(client, tasks)
            except OSError as error:  # a closed connection: models that cannot be read are rows
                raise _lost(str(error)) from error

    @contextmanager
    def _client(self) -> Iterator[Client]:
        import dask

        distributed = _distributed()
        with dask.config.set(_SETTINGS):
            if self.local_workers is None:
                try:
                    client = distributed.Client(
                        self.address, timeout=CONNECT_S, set_as_default=False
                    )
                except (OSError, ValueError) as error:
                    raise NpuschedError(
                        f"no scheduler at {self.address}",
                        str(error),
                        "start one with 'dask scheduler', or use --scheduler local:N",
                    ) from error
                with client:
                    yield client
                return
            with (
                distributed.LocalCluster(
                    n_workers=self.local_workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address=None,
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                ) as cluster,
                distributed.Client(cluster, set_as_default=False) as client,
            ):
                yield client


def plan_remotely(task: Task) -> list[SweepRow]:
    """Rows of all jobs of a loaded task; what a dask worker is asked to do."""
    worker = getattr(_OWN, "worker", None)
    if worker is None:
        worker = _OWN.worker = WorkerProcess()
    return list(rows_surely(worker, task))


def _run(client: Client, tasks: Sequence[Task]) -> Iterator[SweepRow]:
    """Keep as many tasks on the way as there are threads, and one more each."""
    waiting = list(reversed(tasks))
    on_the_way: dict[Future, Task] = {}
    finished = _distributed().as_completed(loop=client.loop)
    while True:
        room = 2 * max(1, sum(client.nthreads().values()))
        while waiting and len(on_the_way) < room:
            task = waiting.pop()
            try:
                future = client.submit(plan_remotely, task.loaded(), pure=False)
            except ModelError as error:
                yield from error_rows(task, task.jobs, error)
                continue
            on_the_way[future] = task
            finished.add(future)
        if not on_the_way:
            return
        future = next(finished)
        yield from _rows_of(future, on_the_way.pop(future))
        future.release()


def _rows_of(future: Future, task: Task) -> Iterator[SweepRow]:
    """The rows that came back, or why none did.

    Raises NpuschedError if that is because the scheduler has gone.
    """
    if future.status == "finished":
        yield from future.result()
        return
    error = future.exception() if future.status == "error" else None
    if error is None:
        raise _lost(f"a task is {future.status}")
    died = isinstance(error, _distributed().KilledWorker)
    why = "its workers died again and again" if died else f"{type(error).__name__}: {error}"
    fault = error if isinstance(error, NpuschedError) else _failed(task, why)
    yield from error_rows(task, task.jobs, fault)


def _failed(task: Task, why: str) -> WorkerError:
    return WorkerError(
        f"a worker failed on {task.model.name} for {task.target.name}", why, RETRY_HINT
    )


def _lost(why: str) -> NpuschedError:
    return NpuschedError(
        "the scheduler was lost",
        f"{why}; what was finished is in the store",
        "start it and run the same sweep again: it goes on from there",
    )


def _local_workers(address: str) -> int | None:
    """N of local:N; None for tcp://… Raises NpuschedError for anything else."""
    if address.startswith(("tcp://", "tls://")):
        return None
    count = address.removeprefix(LOCAL_PREFIX)
    if address.startswith(LOCAL_PREFIX) and count.isdecimal() and int(count) > 0:
        return int(count)
    raise NpuschedError(
        f"cannot use scheduler '{address}'",
        "it is neither local:N nor tcp://HOST:PORT",
        "e.g. --scheduler local:4",
    )


def _distributed() -> Any:
    """The module, imported on first use. Raises NpuschedError if the extra is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise NpuschedError(
            "dask.distributed is not installed",
            str(error),
            'pip install "npusched[distributed]", or leave --scheduler out for processes',
        ) from error
    return distributed
