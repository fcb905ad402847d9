"""-o FILE: in one step, never half, never in place of a device."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from npusched.cli import run
from npusched.cli.output import showable, write_file
from npusched.demos import demo
from npusched.errors import NpuschedError

PLAN = ["plan", "demo:chain:2", "-c", "ethos-u55-128", "--no-vela", "-f", "json", "-o"]


def test_writes_json_and_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.json"
    assert run([*PLAN, str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text())["schema_version"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_an_existing_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")
    target.chmod(0o640)
    assert run([*PLAN, str(target)]) == 0
    assert target.read_text() != "old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "x", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, b"hello")
    assert os.read(reader, 10) == b"hello"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["absent/plan.json", "file/plan.json", "loop"])
def test_places_that_cannot_be_written_are_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert run([*PLAN, str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert "error: cannot write" in shown.err
    assert "hint: " in shown.err


def test_a_folder_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(NpuschedError, match="cannot write"):
        write_file(target, b"new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_demo_writes_the_model(tmp_path: Path) -> None:
    target = tmp_path / "m.tflite"
    assert run(["demo", "resnet8", "-o", str(target)]) == 0
    assert target.read_bytes() == demo("resnet8")


def test_an_error_writes_no_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert run(["plan", "absent.tflite", "-c", "ethos-u55-128", "-o", str(target)]) == 2
    assert not target.exists()


def test_stand_ins_are_as_wide_as_what_they_stand_for(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w", encoding="ascii") as stream:
        assert showable("▁█░ 3×4 · µJ …", stream) == "_#. 3x4 - uJ ~"
        assert showable('{"a": "é🙂"}', stream, is_json=True) == '{"a": "\\u00e9\\ud83d\\ude42"}'
