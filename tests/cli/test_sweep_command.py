"""``npusched sweep``: forms, what it says while it works, wrong usage, parts that are missing."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from npusched.batch import SweepProgress
from npusched.cli import run
from npusched.cli import sweep as command
from npusched.report.sweep_json import sweep_schema
from npusched.report.sweep_types import SweepRow

TARGETS = ("-c", "ethos-u55-128,ethos-u65-256")
QUICK = ("--no-vela", "--workers", "1")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of them rubbish, on two targets at three budgets."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "bad.tflite").write_bytes(b"rubbish" * 100)
    path = folder / "r.sqlite"
    arguments = ("demo:chain:4", str(folder), *TARGETS, "--sram", "2KiB, 64KiB", "--sram=capacity")
    assert run(["sweep", *arguments, *QUICK, "-o", str(path)]) == 0
    return path


def test_the_summary(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--show", str(store)]) == 0
    streams = capsys.readouterr()
    text = streams.out
    assert streams.err == ""
    assert text.startswith("12 jobs: 2 models on 2 targets; 5 with a plan, 1 whose budget is too")
    assert "bad.tflite (6 jobs): cannot read the model: not a TFLite file" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("  ethos-u55-128")]
    assert [row[:5] for row in rows[:2]] == [
        ["ethos-u55-128", "2", "2", "1", "3"],  # models, ok, too small, errors
        ["ethos-u55-128", "2.00", "KiB", "0", "1"],
    ]
    assert len(text.splitlines()) <= 40


def test_json_and_csv_have_all_rows(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "--show", str(store), "-f", "json"]) == 0
    form = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(sweep_schema()).validate(form)
    assert run(["sweep", "--show", str(store), "-f", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(form["rows"]) == 12
    for row, expected in zip(rows, form["rows"], strict=True):
        assert list(row) == list(SweepRow.__struct_fields__)
        assert row == {k: "" if v is None else str(v) for k, v in expected.items()}


def test_the_same_command_again_plans_nothing(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("npusched.batch.pool.WORKER_COMMAND", ("false",))
    arguments = ("demo:chain:4", "bad.tflite", *TARGETS, "--sram", "64KiB,2048,capacity")
    assert run(["sweep", *arguments, *QUICK, "-o", str(store), "-f", "json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["known_before"], len(form["rows"])) == (12, 12)
    assert [row["model"] for row in form["rows"][:6]] == ["demo:chain:4"] * 6
    assert [row["budget_bytes"] for row in form["rows"][:3]] == [65536, 2048, None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name models to sweep"),
        (("demo:block",), "name targets with --configs"),
        (("demo:block", "-c", ","), "name targets with --configs"),
        (("demo:block", "-c", "ethos-u55"), "unknown target"),
        (("demo:block", *TARGETS, "--sram", "64KX"), "unknown unit"),
        (("nothing/*.tflite", *TARGETS), "no model matches"),
        (("demo:block", *TARGETS, "--show", "r.sqlite"), "--show plans nothing"),
        (("--show", "absent.sqlite"), "no such file"),
        (("demo:block", *TARGETS, "--scheduler", "udp://x"), "cannot use scheduler"),
        (("demo:block", *TARGETS, "--scheduler", "local:2", "--workers", "2"), "both workers"),
        (("demo:block", *TARGETS, "--workers", "0"), "Invalid value"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", *arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert said in " ".join(streams.err.split())
    assert list(tmp_path.iterdir()) == []


def test_without_dask_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", "demo:block", *TARGETS, "--scheduler", "local:2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "dask.distributed is not installed" in said
    assert 'pip install "npusched[distributed]"' in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 1.0, "10 of 110 jobs"),
        (50, 10.0, "60 of 110 jobs, 10 s left"),
        (10, 10.0, "20 of 110 jobs, 1:30 min left"),
        (1, 100.0, "11 of 110 jobs, 2:45 h left"),
        (100, 7.0, "110 of 110 jobs, 0 s left"),
    ],
)
def test_time_left(done: int, seconds: float, text: str) -> None:
    """100 jobs are not known yet: after 10 of them in 10 s there are 90 s left."""
    progress = SweepProgress(jobs=110, known=10, done=done, errors=0, seconds=seconds)
    assert command.progress_text(progress) == text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_on_stderr(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(command, "NOTE_EVERY_S", 0.0)
    monkeypatch.setattr(command, "REDRAW_EVERY_S", 0.0)
    arguments = ("demo:chain:4", "-c", "ethos-u55-128", "--sram", "2KiB,64KiB", *QUICK)
    assert run(["sweep", *arguments, "-o", str(tmp_path / "r.sqlite")]) == 0
    shown = stream.getvalue()
    if terminal:
        assert "\n" not in shown
        states = [state.strip() for state in shown.split("\r") if state.strip()]
        assert shown.endswith(" \r")
    else:
        states = shown.splitlines()
    assert [state.split(",")[0] for state in states] == ["1 of 2 jobs", "2 of 2 jobs"]
