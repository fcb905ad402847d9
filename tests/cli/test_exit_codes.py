"""Every way a command can end: exit code, what is on stdout and stderr, and the JSON form."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from npusched import __version__
from npusched.cli import run
from npusched.demos import demo
from npusched.errors import VelaError
from npusched.tflite import Builder
from tests.conftest import corpus_path

U55 = ["-c", "ethos-u55-128", "--no-vela"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tflite"
    path.write_bytes(demo("chain:4"))
    return path


def float_model() -> bytes:
    b = Builder("float")
    x = b.input("x", (1, 8, 8, 4), "float32")
    b.output(b.relu(x))
    return b.build()


def dynamic_model() -> bytes:
    b = Builder("dynamic")
    x = b.input("image", (1, 1, 1, 8), shape_signature=(1, -1, -1, 8))
    b.output(b.conv2d(x, 8, 3))
    return b.build()


def check_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, *said: str
) -> dict[str, object]:
    """Run twice (text, JSON): same code, nothing but the error object on stdout, few lines."""
    assert run(arguments) == code
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith("error: ")
    assert len(text.err.splitlines()) <= 20
    assert "Traceback" not in text.err
    for part in said:
        assert part in " ".join(text.err.split())
    assert run([*arguments, "--format", "json"]) == code
    form = json.loads(capsys.readouterr().out)
    assert list(form) == ["error"]
    error: dict[str, object] = form["error"]
    assert {"kind", "what", "why", "hint"} <= error.keys()
    return error


def test_a_plan_is_0(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(model), *U55]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("chain.tflite · 4 ops")
    assert shown.err == ""


def test_a_plan_in_json_is_0(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(model), *U55, "-f", "json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert form["model"]["name"] == "chain.tflite"
    assert form["verdict"] == "no_budget"
    assert form["totals"]["cycles"] == sum(op["cycles"] for op in form["ops"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x00" * 64, ""),
        (bytes(range(256)) * 20, ""),
        (demo("chain:4")[:2000], ""),
        (demo("chain:4")[:20], ""),
        (b"TFL3" * 40, ""),
    ],
    ids=["empty", "zeros", "random", "truncated", "stub", "words"],
)
def test_damaged_files_are_2(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.tflite"
    path.write_bytes(content)
    error = check_error(capsys, ["plan", str(path), *U55], 2, said, "hint: ")
    assert error["kind"] == "model"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.tflite", "does not exist"),
        (".", "is a directory"),
        ("demo:mobilnet", "did you mean 'mobilenet'?"),
        ("demo:chain:0", "chain:300"),
        ("a\x00b", "cannot read"),
        ("x" * 5000, "cannot read"),
    ],
)
def test_files_that_are_none_are_2(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = name if name.startswith("demo:") else str(tmp_path / name)
    assert check_error(capsys, ["plan", path, *U55], 2, said)["kind"] == "model"


def test_a_device_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    check_error(capsys, ["plan", "/dev/zero", *U55], 2, "is a device")


def test_a_model_may_come_through_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `npusched plan <(fetch model)` in a shell."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(demo("chain:2"),))
    writer.start()
    assert run(["plan", str(pipe), *U55]) == 0
    writer.join()
    assert "2 ops" in capsys.readouterr().out


def test_a_compiled_model_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    folder = corpus_path()
    path = None if folder is None else folder / "models" / "tflm_person_detect_vela.tflite"
    if path is None or not path.is_file():
        pytest.skip("needs a model that Vela compiled, from the corpus")
    error = check_error(capsys, ["plan", str(path), *U55], 2, "already compiled by Vela")
    assert error["compiled"] is True


def test_a_compiled_model_of_our_own_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = Builder("compiled")
    x = b.input("x", (1, 8, 8, 4))
    y = b.tensor("y", (1, 8, 8, 4), "int8", scale=0.1)
    b.custom("ethos-u", [x], [y])
    b.output(y)
    path = tmp_path / "m_vela.tflite"
    path.write_bytes(b.build())
    check_error(capsys, ["plan", str(path), *U55], 2, "already compiled by Vela")


def test_a_float_model_is_0_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "float.tflite"
    path.write_bytes(float_model())
    assert run(["plan", str(path), *U55]) == 0
    shown = capsys.readouterr().out
    assert "on the CPU: 1 of 1 op, 100.0 % of the time" in shown
    assert "type float32" in shown
    assert "fix: quantise the model" in shown


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (["-c", "ethos-u55-12"], "target", "did you mean 'ethos-u55-128'?"),
        (["-c", "ethos-u55-128", "--system-config", "Ethos_U55_Deep"], "target", "did you mean"),
        (["-c", "ethos-u55-128", "--memory-mode", "Sram_Onyl"], "target", "Sram_Only"),
        (["-c", "ethos-u55-128", "--memory-mode", "Dedicated_Sram"], "target", ""),
        (["-c", "ethos-u55-128", "--derate", "srm=0.5"], "target", "sram"),
        (["-c", "ethos-u55-128", "--derate", "sram=2"], "target", ""),
        (["-c", "ethos-u55-128", "--derate", "sram"], "target", "sram=0.5"),
        (["-c", "ethos-u55-128", "--clock", "fast"], "target", ""),
        (["-c", "ethos-u55-128", "--vela-config", "absent.ini"], "target", "absent.ini"),
        (["-c", "absent.toml"], "target", "absent.toml"),
        (["-c", "ethos-u55-128", "--sram", "much"], "target", "64KiB"),
        (["-c", "ethos-u55-128", "--sram", "0"], "target", ""),
        (["-c", "ethos-u55-128", "--sram", "-5"], "target", ""),
        (["-c", "ethos-u55-128", "--objective", "cycle"], "usage", "did you mean 'cycles'?"),
        (["-c", "ethos-u55-128", "--lambda", "-1"], "usage", "--help"),
        (["-c", "ethos-u55-128", "--confg"], "usage", "did you mean '--config'?"),
        (["-c", "ethos-u55-128", "--top", "many"], "usage", "--top"),
        ([], "usage", "'npusched configs' lists the targets"),
        (["-c", "ethos-u55-128", "--signature", "serve"], "model", "no signature 'serve'"),
        (["-c", "ethos-u55-128", "--input-shape", "x=1,a"], "error", "NAME=N,N,..."),
        (["-c", "ethos-u55-128", "--input-shape", "nix=1,2,3,4"], "model", "nix"),
    ],
)
def test_bad_options_are_2(
    options: list[str], kind: str, said: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = check_error(capsys, ["plan", str(model), "--no-vela", *options], 2, said)
    assert error["kind"] == kind


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plam"], "did you mean 'npusched plan'?"),
        (["cache", "clera"], "did you mean 'npusched cache clear'?"),
        (["--vresion"], "did you mean '--version'?"),
        (["plan"], "demo:mobilenet"),
        (["demo", "mobilenet"], "-o FILE"),
        (["fold", "demo:block"], "-o FILE"),
        (["configs", "a", "b"], "--help"),
    ],
)
def test_bad_command_lines_are_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err


@pytest.mark.parametrize(
    ("target", "model_name"),
    [
        (["-c", "ethos-u55-128"], "demo:chain:6"),
        (["-c", "ethos-u55-128", "--memory-mode", "Sram_Only"], "demo:resnet8"),
        (["-c", "cortex-m55"], "demo:ds_cnn"),
        (["-c", "renesas-ra8p1"], "demo:ds_cnn"),
    ],
)
def test_an_infeasible_budget_is_1_and_the_named_one_works(
    target: list[str], model_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", model_name, "--no-vela", *target]
    error = check_error(capsys, [*arguments, "--sram", "1000"], 1, "no plan fits", "alive there")
    assert error["kind"] == "infeasible"
    smallest = error["smallest_feasible_bytes"]
    assert isinstance(smallest, int)
    assert error["need_bytes"] == smallest
    assert error["have_bytes"] == 1000
    assert error["excess_bytes"] == smallest - 1000
    assert run([*arguments, "--sram", str(smallest), "-f", "json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert totals["sram_peak_bytes"] <= smallest
    assert run([*arguments, "--sram", str(smallest - 16)]) == 1


def test_dynamic_shapes_are_2_until_they_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dynamic.tflite"
    path.write_bytes(dynamic_model())
    check_error(capsys, ["plan", str(path), *U55], 2, "--input-shape")
    assert run(["plan", str(path), *U55, "--input-shape", "image=1,32,32,8"]) == 0
    assert "32×32×8" in capsys.readouterr().out


@pytest.mark.parametrize(
    "failure",
    [
        VelaError("Vela is not installed, or cannot be loaded", "no distribution"),
        VelaError("Vela crashed (SIGSEGV)", "the compiler's process ended"),
        VelaError("Vela did not finish within 20 s"),
    ],
    ids=["missing", "crash", "timeout"],
)
def test_a_plan_survives_vela(
    failure: VelaError,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise failure

    monkeypatch.setattr("npusched.vela.runner.compile_model", fail)
    assert run(["plan", str(model), "-c", "ethos-u55-128", "--no-cache", "-f", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(f"warning: weight sizes are estimated: {failure.what}")
    form = json.loads(shown.out)
    assert form["provenance"]["weights"] == "estimated"
    assert form["vela_version"] is None
    assert form["warnings"]


def test_a_fault_of_ours_is_3(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise ZeroDivisionError("a \x1b[2J fault")

    monkeypatch.setattr("npusched.report.plan_forms.render", fail)
    error = check_error(capsys, ["plan", str(model), *U55], 3, "fault in npusched", "--debug")
    assert error["kind"] == "internal"
    assert run(["plan", str(model), *U55, "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_debug_shows_the_traceback_of_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "missing.tflite", *U55, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_interruption_is_130(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("npusched.api.plan_report", stop)
    assert run(["plan", str(model), *U55]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_version_and_help_are_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"npusched {__version__}\n"
    for arguments in ([], ["--help"], ["-h"]):
        assert run(arguments) == 0
        assert "Examples:" in capsys.readouterr().out
