"""The store: rows as they were written, one writer, and nothing but its own files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from npusched.batch.store import rows_of, waiting_tasks, writing
from npusched.batch.task import error_rows, run_task
from npusched.errors import NpuschedError
from npusched.report.sweep_docs import SWEEP_DOCS
from npusched.report.sweep_types import SweepRow
from tests.batch.sweep_kit import small_plan, stored


def _rows(tmp_path: Path) -> list[SweepRow]:
    plan = small_plan(tmp_path)
    with writing(tmp_path / "r.sqlite") as store:
        store.register(plan)
        rows = [row for task in plan.tasks[:4] for row in run_task(task.loaded())]
        for row in rows:
            store.write(row)
    return rows


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = _rows(tmp_path)
    assert {row.status for row in rows} == {"ok", "infeasible", "error"}
    found = stored(tmp_path / "r.sqlite")
    assert sorted(found, key=repr) == sorted(rows, key=repr)
    assert [row.budget_bytes for row in found[:3]] == [2048, 16384, None]


def test_a_job_has_one_row_the_last(tmp_path: Path) -> None:
    (first, *_), path = _rows(tmp_path), tmp_path / "r.sqlite"
    before = len(stored(path))
    with writing(path) as store:
        store.write(replace(first, error="again"))
        assert rows_of(store, [first.key, "unknown"]) == [replace(first, error="again")]
    assert len(stored(path)) == before


def test_errors_count_as_unknown_when_they_are_tried_again(tmp_path: Path) -> None:
    rows, plan = _rows(tmp_path), small_plan(tmp_path)
    with writing(tmp_path / "r.sqlite") as store:
        known = store.keys(with_errors=True)
        good = store.keys(with_errors=False)
    assert known == {row.key for row in rows}
    assert good == {row.key for row in rows if row.status != "error"}
    left = waiting_tasks(plan.tasks, known)
    assert {job.key for task in left for job in task.jobs} == set(plan.keys) - known
    sizes = [task.model.size_bytes for task in waiting_tasks(plan.tasks, set())]
    assert sizes == sorted(sizes, reverse=True)


def test_the_view_has_the_documented_fields_and_a_plain_query_works(tmp_path: Path) -> None:
    rows = _rows(tmp_path)
    connection = sqlite3.connect(tmp_path / "r.sqlite")
    found = connection.execute("SELECT * FROM result WHERE status = 'ok'")
    assert [column[0] for column in found.description] == list(SWEEP_DOCS["SweepRow"])
    assert len(found.fetchall()) == sum(row.status == "ok" for row in rows)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("SELECT count(*), min(json LIKE '{%') FROM target").fetchone() == (
        2,
        1,
    )
    connection.close()


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    code = (
        "import sys, pathlib\nfrom npusched.batch.store import writing\n"
        "with writing(pathlib.Path(sys.argv[1])):\n  print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(NpuschedError, match="another sweep is writing"), writing(path):
            pass
        assert stored(path) == []
        other.kill()
    with writing(path):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.sqlite"]


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"no database" * 1000)
    other = tmp_path / "other"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    newer = tmp_path / "newer"
    with writing(newer):
        pass
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path in (rubbish, other, newer):
        before = path.read_bytes()
        with pytest.raises(NpuschedError, match="as a store of results"), writing(path):
            pass
        with pytest.raises(NpuschedError, match="as a store of results"):
            stored(path)
        assert path.read_bytes() == before
    with pytest.raises(NpuschedError, match="no such file"):
        stored(tmp_path / "absent")
    with pytest.raises(NpuschedError, match="cannot write"), writing(tmp_path / "no" / "folder"):
        pass


def test_an_interrupted_write_leaves_what_was_finished(tmp_path: Path) -> None:
    plan, path = small_plan(tmp_path), tmp_path / "r.sqlite"
    task = plan.tasks[0]
    error = NpuschedError("what", "why")

    def interrupted() -> None:
        with writing(path) as store:
            store.register(plan)
            for row in error_rows(task, task.jobs[:2], error):
                store.write(row)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [row.error for row in stored(path)] == ["what (why)"] * 2
