"""The page about CI: its commands, its workflow, its tests and its hook do what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npusched.cli import run
from npusched.cli.app import app
from npusched.demos import demo
from tests.conftest import REPOSITORY

pytest_plugins = ["pytester"]

PAGE = (REPOSITORY / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [block[2] for block in BLOCK.finditer(PAGE) if block[1] == language]


def commands(text: str) -> Iterator[list[str]]:
    for row in text.splitlines():
        found = re.search(r"(?:^|run: )npusched (.*)$", row)
        if found is not None:
            yield shlex.split(found[1])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the model that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(demo("ds_cnn"))
    return tmp_path


def test_the_commands_run_one_after_the_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [words for text in blocks("bash") for words in commands(text)]
    assert len(found) >= 5
    for words in found:
        assert run(words) == 0, f"{words}\n{capsys.readouterr().err}"
    assert {"plan.json", "smaller.json", "comment.md"} <= {path.name for path in folder.iterdir()}


def test_the_text_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The command with exit code 1, and the block of text after it."""
    command = next(row for row in PAGE.splitlines() if row.endswith("# exit code 1"))
    words = shlex.split(command.removeprefix("$ npusched ").partition(" # ")[0])
    assert run(words) == 1
    (shown,) = blocks("text")
    assert capsys.readouterr().out.startswith(shown.rstrip("\n"))


def test_the_workflow_is_yaml_whose_commands_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yaml: Any = pytest.importorskip("yaml", reason="needs PyYAML")
    workflow = yaml.safe_load(blocks("yaml")[0])
    (job,) = workflow["jobs"].values()
    steps = [words for step in job["steps"] for words in commands(f"run: {step.get('run', '')}")]
    assert len(steps) == 2
    for words in steps:
        assert run(words) == 0, capsys.readouterr().err
    assert (folder / "out.sarif").is_file()
    assert "::notice file=model.tflite," in capsys.readouterr().out


def test_the_tests_of_the_page_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    (pytester.path / "model.tflite").write_bytes(demo("ds_cnn"))
    (code,) = blocks("py")
    pytester.makepyfile(code)
    result = pytester.runpytest_subprocess("-p", "npusched.pytest_plugin", "--strict-markers")
    result.assert_outcomes(passed=2)


def test_the_hook_is_declared_as_the_page_uses_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What pre-commit would run: the entry, then the arguments of the example."""
    yaml: Any = pytest.importorskip("yaml", reason="needs PyYAML")
    text = (REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    (hook,) = yaml.safe_load(text)
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["pass_filenames"] is False
    assert re.search(hook["files"], "models/kws.tflite")
    (used,) = yaml.safe_load(blocks("yaml")[1])["repos"][0]["hooks"]
    assert used["id"] == hook["id"]
    assert re.search(used["files"], used["args"][0])
    program, command = hook["entry"].split()
    assert program == "npusched"
    assert command in app.commands
    (folder / "models").mkdir()
    (folder / "model.tflite").rename(folder / used["args"][0])
    assert run([command, *used["args"]]) == 0, capsys.readouterr().err
