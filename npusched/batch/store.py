"""Results of sweeps in one SQLite file: every finished job once, whatever ends the sweep.

Tables: ``job`` (key, status, figures), ``model``, ``target`` and ``setting`` (what a job's hashes
stand for), and the view ``result``, whose columns are the fields of ``SweepRow``. Rows are written
one by one, each in a transaction of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from npusched.batch.jobs import SweepPlan, Task, target_text
from npusched.batch.store_lock import locked
from npusched.errors import NpuschedError
from npusched.report.sweep_types import SweepRow

STORE_VERSION: Final = 1
"""``user_version`` of the file; another one is refused."""

APPLICATION_ID: Final = 0x4E505553
"""``application_id`` of the file: "NPUS"."""

_REFERENCES: Final = {
    "model_sha256": "TEXT NOT NULL REFERENCES model(sha256)",
    "target_sha256": "TEXT NOT NULL REFERENCES target(sha256)",
    "setting_sha256": "TEXT NOT NULL REFERENCES setting(sha256)",
}

JOB_COLUMNS: Final = {
    "key": "TEXT PRIMARY KEY",
    **_REFERENCES,
    "budget_bytes": "INTEGER",
    "status": "TEXT NOT NULL CHECK (status IN ('ok', 'infeasible', 'error'))",
    "cycles": "INTEGER",
    "npu_cycles": "INTEGER",
    "cpu_cycles": "INTEGER",
    "latency_s": "REAL",
    "sram_peak_bytes": "INTEGER",
    "dram_bytes": "INTEGER",
    "flash_bytes": "INTEGER",
    "energy_low_nj": "REAL",
    "energy_nj": "REAL",
    "energy_high_nj": "REAL",
    "macs": "INTEGER",
    "source_ops": "INTEGER",
    "cpu_ops": "INTEGER",
    "npu_invocations": "INTEGER",
    "smallest_feasible_bytes": "INTEGER",
    "value": "REAL",
    "gap": "REAL",
    "proof": "TEXT",
    "plan_source": "TEXT",
    "weights": "TEXT",
    "error_kind": "TEXT NOT NULL",
    "error": "TEXT NOT NULL",
    "warnings": "TEXT NOT NULL",
    "npusched_version": "TEXT NOT NULL",
    "vela_version": "TEXT",
    "finished_at": "TEXT NOT NULL",
    "seconds": "REAL NOT NULL",
}
"""Columns of the table ``job`` with their SQL types."""

_JOINED: Final = {"model": "model.name", "target": "target.name"}
"""Fields of a row that other tables hold."""


def _schema() -> str:
    jobs = ",\n  ".join(f"{name} {kind}" for name, kind in JOB_COLUMNS.items())
    fields = ", ".join(
        f"{_JOINED.get(name, f'job.{name}')} AS {name}" for name in SweepRow.__struct_fields__
    )
    return f"""
CREATE TABLE model (sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, size_bytes INTEGER NOT NULL);
CREATE TABLE target (sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE setting (sha256 TEXT PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE job (
  {jobs}
);
CREATE VIEW result AS SELECT {fields}
FROM job JOIN model ON model.sha256 = job.model_sha256
JOIN target ON target.sha256 = job.target_sha256;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {STORE_VERSION};
"""


class Store:
    """An open store; made by ``writing`` and ``reading``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def register(self, plan: SweepPlan) -> None:
        """Note the models, targets and options that rows of the plan will name."""
        tasks = plan.tasks
        models = {task.model.sha256: task.model for task in tasks}
        targets = {task.target_sha256: task.target for task in tasks}
        with self._connection as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO model VALUES (?, ?, ?)",
                [(m.sha256, m.name, m.size_bytes) for m in models.values()],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO target VALUES (?, ?, ?)",
                [(sha256, t.name, target_text(t)) for sha256, t in targets.items()],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO setting VALUES (?, ?)",
                {(task.setting_sha256, plan.setting) for task in tasks},
            )

    def write(self, row: SweepRow) -> None:
        """Keep a row at once, in place of an earlier one of its job."""
        values = [getattr(row, name) for name in JOB_COLUMNS]
        marks = ", ".join("?" * len(values))
        with self._connection as connection:
            connection.execute(f"INSERT OR REPLACE INTO job VALUES ({marks})", values)

    def keys(self, *, with_errors: bool) -> set[str]:
        """Keys of the jobs that have a result; those that are errors only ``with_errors``."""
        query = "SELECT key FROM job" + ("" if with_errors else " WHERE status != 'error'")
        return {key for (key,) in self._connection.execute(query)}

    def rows(self) -> Iterator[SweepRow]:
        """Every row, by model, target and budget (the capacity last)."""
        query = (
            f"SELECT {', '.join(SweepRow.__struct_fields__)} FROM result "
            "ORDER BY model, model_sha256, target, target_sha256, setting_sha256, "
            "budget_bytes IS NULL, budget_bytes"
        )
        for values in self._connection.execute(query):
            fields = dict(zip(SweepRow.__struct_fields__, values, strict=True))
            yield msgspec.convert(fields, SweepRow)

    def settings(self) -> dict[str, str]:
        """Planning options as JSON, by hash."""
        return dict(self._connection.execute("SELECT sha256, json FROM setting ORDER BY sha256"))


@contextmanager
def writing(path: Path) -> Iterator[Store]:
    """Open a store, or make it, as its only writer.

    Raises NpuschedError if another sweep has it, or it is not a store, or it cannot be written.
    """
    with locked(path), _reported(path), closing(_connect(path, "rwc")) as connection:
        _make(connection)
        _check(connection, path)  # before anything is changed in a file that is not ours
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        try:
            yield Store(connection)
        finally:
            # One plain file again, for readers that may not write beside it; while somebody reads,
            # it stays as it is, which is as good for all others.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def reading(path: Path) -> Iterator[Store]:
    """Open a store, which a sweep may be writing to. Raises NpuschedError if it is none."""
    if not path.is_file():
        raise NpuschedError(
            f"cannot read {path}", "no such file", "name a file that 'npusched sweep -o FILE' wrote"
        )
    with _reported(path), closing(_connect(path, "ro")) as connection:
        _check(connection, path)
        yield Store(connection)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    place = quote(str(path.absolute()))
    return sqlite3.connect(f"file:{place}?mode={mode}", uri=True)


def _make(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file, all or none of them."""
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        connection.executescript(f"BEGIN;{_schema()}COMMIT;")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    found = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    ]
    if found[0] != APPLICATION_ID:
        raise _no_store(path, "it is an SQLite file, but not one of npusched sweep")
    if found[1] != STORE_VERSION:
        raise _no_store(path, f"its format is {found[1]}, this version reads {STORE_VERSION}")


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """What SQLite says as an error for the user."""
    try:
        yield
    except sqlite3.Error as error:
        raise _no_store(path, str(error)) from error


def _no_store(path: Path, why: str) -> NpuschedError:
    return NpuschedError(
        f"cannot use {path} as a store of results", why, "name another file, or make room for it"
    )


def rows_of(store: Store, keys: Sequence[str]) -> list[SweepRow]:
    """The rows of these jobs, in the order of ``keys``; those without a result are left out."""
    wanted = set(keys)
    found = {row.key: row for row in store.rows() if row.key in wanted}
    return [found[key] for key in keys if key in found]


def waiting_tasks(tasks: Iterable[Task], known: set[str]) -> list[Task]:
    """The tasks with what is left of their jobs, the largest models first (they take longest)."""
    left = [task.only({job.key for job in task.jobs} - known) for task in tasks]
    return sorted((task for task in left if task.jobs), key=lambda task: -task.model.size_bytes)
