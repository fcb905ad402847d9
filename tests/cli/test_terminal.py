"""On real terminals, pipes and files: in processes of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PLAN = ["plan", "demo:chain:4", "-c", "ethos-u55-128", "--no-vela"]


def environment(**changes: str) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONIOENCODING")
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), **changes}


def npusched(*arguments: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "npusched", *arguments],
        capture_output=True,
        check=False,
        env=environment(**changes),
    )


def on_terminal(*arguments: str, **changes: str) -> str:
    """What a command prints on a pseudo-terminal (stdout and stderr)."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "npusched", *arguments],
        stdout=theirs,
        stderr=theirs,
        env=environment(**changes),
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    process.wait()
    return b"".join(chunks).decode()


def test_version_imports_nothing_heavy() -> None:
    """Only click; startup time is measured in benchmarks/."""
    code = (
        "import sys; from npusched.cli import run; run(['--version']); run(['--help']);"
        "print([m for m in sys.modules if m.split('.')[0] in"
        "('numpy', 'networkx', 'msgspec', 'rich', 'tflite', 'ethosu', 'flatbuffers', 'difflib')"
        " or m.startswith('npusched.') and not m.startswith(('npusched.cli', 'npusched.errors'))])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=environment(), text=True
    )
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_pipe_that_closes_is_quiet() -> None:
    """As `npusched plan … | head -0`: the reader is gone before anything is written."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "npusched", *PLAN, "-f", "json"],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(write)
    os.close(read)
    _, errors = process.communicate()
    assert errors == b""
    assert process.returncode == 0


STARTED = "from npusched.__main__ import main; print('started', flush=True); main()"
"""A program that says when Python has started: how long that takes is not what is tested."""


def test_control_c_is_130() -> None:
    """Interrupted while it works, the command says one word and ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, "plan", "demo:mobilenet_v2", "-c", "ethos-u55-128",
         "--no-vela"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors
    assert process.returncode in (130, 0)
    assert process.returncode == 0 or (out == b"" and errors.strip() == b"interrupted")


@pytest.mark.parametrize(
    ("changes", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_on_a_terminal(changes: dict[str, str], coloured: bool) -> None:
    assert ("\x1b[" in on_terminal(*PLAN, **changes)) is coloured
    assert ("\x1b[" in on_terminal("plan", "nowhere", "-c", "x", **changes)) is coloured


def test_colour_in_a_pipe() -> None:
    assert b"\x1b[" not in npusched(*PLAN).stdout
    assert b"\x1b[" in npusched(*PLAN, FORCE_COLOR="1").stdout
    assert b"\x1b[" not in npusched(*PLAN, FORCE_COLOR="0").stdout


@pytest.mark.parametrize("columns", ["40", "60", "120"])
def test_columns_set_the_width(columns: str) -> None:
    for arguments in (PLAN, ["configs"], ["configs", "ethos-u85-256"], ["plan", "x", "-c", "y"]):
        shown = npusched(*arguments, COLUMNS=columns)
        text = (shown.stdout + shown.stderr).decode()
        assert max(len(line) for line in text.splitlines()) <= int(columns)


def test_output_is_the_same_in_a_pipe_and_a_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.txt"
    assert npusched(*PLAN, "-o", str(target), FORCE_COLOR="1").stdout == b""
    assert target.read_bytes() == npusched(*PLAN).stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_terminals_without_unicode(encoding: str) -> None:
    """Bars and signs have stand-ins; JSON stays the same value."""
    shown = npusched(*PLAN, PYTHONIOENCODING=encoding)
    assert (shown.returncode, shown.stderr) == (0, b"")
    text = shown.stdout.decode(encoding)
    assert "SRAM/t" in text
    assert "\\u" not in text
    assert "\\x" not in text
    failed = npusched("plan", "demo:µ→日", "-c", "ethos-u55-128", PYTHONIOENCODING=encoding)
    assert failed.returncode == 2
    form = npusched(*PLAN, "-f", "json", PYTHONIOENCODING=encoding)
    exact = npusched(*PLAN, "-f", "json")
    assert json.loads(form.stdout.decode(encoding)) == json.loads(exact.stdout)


def test_json_of_names_beyond_the_encoding(tmp_path: Path) -> None:
    name = "日本 µ 🙂.tflite"
    assert npusched("demo", "chain:2", "-o", str(tmp_path / name)).returncode == 0
    shown = npusched(
        "plan", str(tmp_path / name), *PLAN[2:], "-f", "json", PYTHONIOENCODING="ascii"
    )
    assert shown.stdout.isascii()
    assert json.loads(shown.stdout)["model"]["name"] == name


def test_file_names_that_are_not_unicode(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"bad\xff\x1b[31m.tflite")
    model = npusched("demo", "chain:2", "-o", "-").stdout
    with open(path, "wb") as stream:
        stream.write(model)
    shown = npusched("plan", os.fsdecode(path), *PLAN[2:])
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.startswith("bad\N{REPLACEMENT CHARACTER}\\x1b[31m.tflite".encode())
    form = npusched("plan", os.fsdecode(path), *PLAN[2:], "-f", "json")
    assert json.loads(form.stdout)["model"]["name"] == "bad\ufffd\x1b[31m.tflite"


def test_a_full_disk_is_2() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "npusched", *PLAN],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=environment(),
        )
    assert shown.returncode == 2
    assert shown.stderr.startswith(b"error: cannot write to stdout")
    assert b"Traceback" not in shown.stderr


def test_completion_knows_commands_and_options() -> None:
    shown = npusched(_NPUSCHED_COMPLETE="bash_complete", COMP_WORDS="npusched pl", COMP_CWORD="1")
    assert b"plain,plan" in shown.stdout
    source = npusched(_NPUSCHED_COMPLETE="bash_source")
    assert b"_NPUSCHED_COMPLETE=bash_complete" in source.stdout
