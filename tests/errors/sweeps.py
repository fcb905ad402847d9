"""Triggers of the errors of sweeps: jobs, stores, worker processes, schedulers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from npusched.batch import cluster
from npusched.batch.jobs import Task, plan_sweep
from npusched.batch.pool import WorkerProcess, rows_surely
from npusched.batch.store_lock import locked
from npusched.batch.task import _check_versions
from tests.batch.sweep_kit import OPTIONS
from tests.errors.place import CHAIN, Place, Table, Trigger, cli

TARGETS = ("--configs", "ethos-u55-128")


def _task() -> Task:
    return plan_sweep([CHAIN], ["ethos-u55-128"], [None], OPTIONS).tasks[0].loaded()


def _changed_model(place: Place) -> None:
    path = place.file("odd\n.tflite", bytes(64))
    task = plan_sweep([path], ["ethos-u55-128"], [None], OPTIONS).tasks[0]
    Path(path).write_bytes(bytes(65))
    task.loaded()


def _retired(_: Place) -> None:
    worker = WorkerProcess()
    worker.retire()
    list(worker.rows(_task()))


def _sweep(models: str, *options: str) -> Trigger:
    """A sweep of a model below the folder, into a store there."""

    def run(place: Place) -> None:
        (place.folder / "empty").mkdir()
        store = str(place.folder / "store.sqlite")
        place.cli("sweep", str(place.folder / models), *TARGETS, "-o", store, *options)

    return run


def _store_in_use(place: Place) -> None:
    store = place.folder / "st\nore.sqlite"
    with locked(store), locked(store):
        pass


def _no_scheduler(place: Place) -> None:
    pytest.importorskip("distributed", reason="needs the extra npusched[distributed]")
    place.patch.setattr(cluster, "CONNECT_S", 0.2)
    with cluster.Cluster("tcp://127.0.0.1:9")._client():
        pass


class _Future:
    """A task of dask's that did not finish."""

    def __init__(self, status: str, error: Exception | None = None) -> None:
        self.status, self._error = status, error

    def exception(self) -> Exception | None:
        """What the worker raised."""
        return self._error


def _future(status: str, error: Exception | None = None) -> Trigger:
    def run(_: Place) -> None:
        pytest.importorskip("distributed", reason="needs the extra npusched[distributed]")
        list(cluster._rows_of(_Future(status, error), _task()))

    return run


def _without_distributed(place: Place) -> None:
    place.absent("distributed")
    cluster._distributed()


SWEEPS: Table = {
    "batch.cluster:Cluster._client": _no_scheduler,
    "batch.cluster:_failed": _future("error", RuntimeError("odd\nfault")),
    "batch.cluster:_lost": _future("cancelled"),
    "batch.cluster:_local_workers": cli("sweep", CHAIN, *TARGETS, "--scheduler", "some\nwhere"),
    "batch.cluster:_distributed": _without_distributed,
    "batch.jobs:plan_sweep": lambda _: plan_sweep([], ["ethos-u55-128"], [None], OPTIONS),
    "batch.jobs:_distinct_targets": lambda _: plan_sweep([CHAIN], [], [None], OPTIONS),
    "batch.models:ModelSource.content": _changed_model,
    "batch.models:_places": _sweep("empty"),
    "batch.models:_places#2": _sweep("*.tflite"),
    "batch.pool:WorkerProcess._started": _retired,
    "batch.pool:WorkerProcess._start": lambda _: list(
        WorkerProcess(("/nonexistent/pyt\nhon",)).rows(_task())
    ),
    "batch.pool:rows_surely": lambda _: list(
        rows_surely(WorkerProcess((sys.executable, "-c", "")), _task())
    ),
    "batch.store:reading": cli("sweep", "--show", "absent\x1b.sqlite"),
    "batch.store:_no_store": lambda place: place.cli(
        "sweep", "--show", place.file("store.sqlite", "no data base" * 99)
    ),
    "batch.store_lock:_acquire": cli("sweep", CHAIN, *TARGETS, "-o", "/absent\n/store.sqlite"),
    "batch.store_lock:_acquire#2": _store_in_use,
    "batch.sweeping:workers_of": cli(
        "sweep", CHAIN, *TARGETS, "--workers", "2", "--scheduler", "local:2"
    ),
    "batch.task:_check_versions": lambda _: _check_versions(
        replace(_task(), npusched_version="0.0.1")
    ),
}
