"""Workers and whole sweeps that are killed: no row is lost, none is there twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from npusched.batch import cluster as on_dask
from npusched.batch import run_sweep
from npusched.batch.cluster import Cluster
from npusched.batch.jobs import Task
from npusched.batch.pool import ProcessPool, WorkerProcess
from npusched.batch.task import WorkerError, run_task
from npusched.errors import NpuschedError
from npusched.report.sweep_types import SweepRow
from tests.batch.dying_worker import command
from tests.batch.sweep_kit import figures, small_plan, stored
from tests.conftest import REPOSITORY

PATIENCE_S = 120.0

linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")


class Here:
    """Plans in this process."""

    def run(self, tasks: Sequence[Task]) -> Iterator[SweepRow]:
        for task in tasks:
            yield from run_task(task.loaded())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    folder = tmp_path_factory.mktemp("expected")
    return figures(run_sweep(small_plan(folder), folder / "r.sqlite", Here()).rows)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_worker_that_dies_once_loses_nothing(
    after: int, tmp_path: Path, expected: list[tuple[object, ...]]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    dying = command("demo:chain:4", after=after, by=signal.SIGKILL, deaths=1, folder=marks)
    report = run_sweep(small_plan(tmp_path), tmp_path / "r.sqlite", ProcessPool(2, dying))
    assert len(list(marks.iterdir())) == 1
    assert figures(stored(tmp_path / "r.sqlite")) == figures(report.rows) == expected


def test_a_worker_that_dies_again_is_an_error_of_what_is_left(
    tmp_path: Path, expected: list[tuple[object, ...]]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    dying = command("demo:chain:4", after=1, by=signal.SIGSEGV, deaths=99, folder=marks)
    run_sweep(small_plan(tmp_path), tmp_path / "r.sqlite", ProcessPool(1, dying))
    rows = stored(tmp_path / "r.sqlite")
    assert len(rows) == len(expected)
    lost = [row for row in rows if row.error_kind == "worker"]
    # Two targets of three budgets: one row before the first death, one before the second.
    assert [row.model for row in lost] == ["demo:chain:4"] * 2
    assert "demo:chain:4 for ethos-u" in lost[0].error
    assert "SIGSEGV (about to die)" in lost[0].error
    assert len(list(marks.iterdir())) == 4
    gone = {row.key for row in lost}
    assert figures(row for row in rows if row.key not in gone) == [
        each for each in expected if each[0] not in gone
    ]


def test_a_program_that_is_no_worker_is_an_error_of_every_job(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    for program in ("print('hello', flush=True)", "raise SystemExit(7)"):
        pool = ProcessPool(1, (sys.executable, "-c", program))
        rows = list(pool.run(plan.tasks[:1]))
        assert [row.error_kind for row in rows] == ["worker"] * 3
        assert "died 2 times" in rows[0].error


def test_a_worker_that_leaves_jobs_out(tmp_path: Path) -> None:
    """Or a thread of ours that fails: no row is missing, and nobody waits for ever."""
    done = "import sys; from npusched.vela import protocol as p\n"
    done += "while True: p.read_frame(sys.stdin.buffer); p.write_frame(sys.stdout.buffer, b'')"
    pool = ProcessPool(1, (sys.executable, "-c", done))
    plan = small_plan(tmp_path)
    rows = list(pool.run(plan.tasks[:1]))
    assert [row.error_kind for row in rows] == ["worker"] * 3
    assert "it left jobs out" in rows[0].error
    with pytest.raises(WorkerError, match="cannot be started"):
        list(ProcessPool(2, ("/nothing/here",)).run(plan.tasks))


def test_a_worker_that_is_killed_from_outside(
    tmp_path: Path, expected: list[tuple[object, ...]]
) -> None:
    pool = ProcessPool(1)
    path = tmp_path / "r.sqlite"
    killed: list[int] = []

    def kill_once(_: object) -> None:
        pid = pool.processes[0].pid
        if pid is not None and not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    run_sweep(small_plan(tmp_path), path, pool, progress=kill_once)
    assert killed
    assert figures(stored(path)) == expected


def test_the_process_below_a_dask_worker_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dask worker does with a task, here without dask."""
    marks = tmp_path / "marks"
    marks.mkdir()
    dying = command("demo:ds_cnn", after=1, by=signal.SIGKILL, deaths=1, folder=marks)
    worker = WorkerProcess(dying)
    monkeypatch.setattr(on_dask._OWN, "worker", worker, raising=False)
    task = small_plan(tmp_path).tasks[-1].loaded()
    assert task.model.name == "demo:ds_cnn"
    rows = on_dask.plan_remotely(task)
    worker.close()
    assert len(list(marks.iterdir())) == 1
    assert figures(rows) == figures(run_task(task))


@linux
def test_a_dask_worker_that_is_killed(tmp_path: Path, expected: list[tuple[object, ...]]) -> None:
    path = tmp_path / "r.sqlite"
    killed: list[int] = []

    def kill_once(_: object) -> None:
        if not killed:
            killed.append(_dask_worker())
            os.kill(killed[0], signal.SIGKILL)

    run_sweep(small_plan(tmp_path), path, Cluster("local:2"), progress=kill_once)
    assert killed
    assert figures(stored(path)) == expected


def test_a_scheduler_that_is_killed(tmp_path: Path) -> None:
    """What was finished is in the store, and the error says how to go on."""
    code = (
        "import sys\nfrom distributed import LocalCluster\n"
        "with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, "
        "protocol='tcp', host='127.0.0.1', dashboard_address=None) as cluster:\n"
        "  print(cluster.scheduler_address, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()
        path = tmp_path / "r.sqlite"
        with pytest.raises(NpuschedError, match="the scheduler was lost"):
            run_sweep(
                small_plan(tmp_path), path, Cluster(address), progress=lambda _: scheduler.kill()
            )
    assert 0 < len(stored(path)) < 18


def _dask_worker() -> int:
    """A child of this process with a worker of ours below it."""
    for pid in _children(os.getpid()):
        for below in _children(pid):
            if "npusched.batch.worker" in _command_line(below):
                return pid
    raise AssertionError("no dask worker is planning")


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                    found.append(int(entry.name))
    return found


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


ARGUMENTS = ("demo:chain:4", "demo:ds_cnn", "-c", "ethos-u55-128,ethos-u65-256")


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """A sweep of the small plan as a command, in a process group of its own."""
    (folder / "bad.tflite").write_bytes(bytes(range(256)) * 8)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "npusched", "sweep", "bad.tflite", *ARGUMENTS),
            *("--sram", "2KiB,16KiB,capacity", "--no-vela", "--candidates", "none"),
            *("--workers", "2", "-o", "r.sqlite"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )


def _heed_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for_rows(path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the store has so many rows. (Not more than a moment: it goes on meanwhile.)"""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and path.stat().st_size and len(stored(path)) >= count:
            return
        time.sleep(0.005)
    raise AssertionError("the sweep ended before it could be interrupted")


@linux
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_goes_on_where_it_stopped(
    by: signal.Signals, tmp_path: Path, expected: list[tuple[object, ...]]
) -> None:
    path = tmp_path / "r.sqlite"
    with _start(tmp_path) as process:
        _wait_for_rows(path, 4, process)
        below = _children(process.pid)
        assert below
        os.killpg(process.pid, by)
        _, said = process.communicate(timeout=PATIENCE_S)
    if by is signal.SIGINT:
        assert process.returncode == 130
        assert b"the same command goes on" in said
    else:
        assert process.returncode == -by
    assert _all_gone(below)
    before = stored(path)
    assert 4 <= len(before) < len(expected)
    assert set(figures(before)) <= set(expected)
    with _start(tmp_path) as process:
        said, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert f"{len(before)} known".encode() in said
    after = stored(path)
    assert figures(after) == expected
    unchanged = {row.key: row for row in after}
    assert all(unchanged[row.key] == row for row in before)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.tflite", "r.sqlite"]


@linux
def test_workers_end_when_the_sweep_is_killed_alone(tmp_path: Path) -> None:
    """Not their group: nobody tells them, but the pipe that they listen to has closed."""
    with _start(tmp_path) as process:
        _wait_for_rows(tmp_path / "r.sqlite", 4, process)
        below = _children(process.pid)
        process.kill()
    assert below
    assert _all_gone(below)


def _all_gone(processes: Sequence[int]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not any("npusched.batch.worker" in _command_line(pid) for pid in processes):
            return True
        time.sleep(0.05)
    return False


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Workers do not run the caller's main module again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import npusched\n"
        "print('once')\n"
        "found = npusched.sweep('demo:chain:4', 'ethos-u55-128', use_vela=False, workers=2)\n"
        "print(len(found.rows))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["once", "1"]
