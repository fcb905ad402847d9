"""What a shell is told: commands, options, targets, models, files."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from npusched.cli import run
from npusched.cli.completing import SHELLS
from npusched.demos import demo_names
from npusched.hardware import target_names

FILE = "file,"


def completed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What bash is told for a line whose last word is completed."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_NPUSCHED_COMPLETE", "bash_complete")
    assert run([]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("npusched pl", ["plain,plan", "plain,plot"]),
        ("npusched plan m --form", ["plain,--format"]),
        ("npusched plan m --format g", ["plain,github"]),
        ("npusched plan demo:res", ["plain,demo:resnet8"]),
        ("npusched tune demo:res", ["plain,demo:resnet8"]),
        ("npusched plan model.t", [FILE + "model.t"]),
        ("npusched plan m -c ethos-u55-1", ["plain,ethos-u55-128"]),
        ("npusched plan m -c ./boards/mi", [FILE + "./boards/mi"]),
        (
            "npusched tune m --configs ethos-u65-256,ethos-u55-3",
            ["plain,ethos-u65-256,ethos-u55-32"],
        ),
        ("npusched sweep m -c cortex-m5", ["plain,cortex-m55"]),
        ("npusched completion f", ["plain,fish"]),
    ],
)
def test_completed(
    line: str,
    wanted: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert completed(line, monkeypatch, capsys).splitlines() == wanted


def test_models_and_targets_are_all_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = completed("npusched plan d", monkeypatch, capsys).splitlines()
    assert shown == [*(f"plain,demo:{name}" for name in demo_names()), FILE + "d"]
    shown = completed("npusched plan m -c ", monkeypatch, capsys).splitlines()
    assert shown == [f"plain,{name}" for name in target_names()]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_that_the_shell_takes(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_NPUSCHED_COMPLETE" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [program, "-n"], input=script, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_completing_a_target_needs_no_numpy() -> None:
    """It must be quick: it runs while somebody types."""
    code = (
        "import os, sys; os.environ.update(COMP_WORDS='npusched plan m -c eth', COMP_CWORD='4', "
        "_NPUSCHED_COMPLETE='bash_complete'); from npusched.cli import run; run([]); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
        == 0
    )
