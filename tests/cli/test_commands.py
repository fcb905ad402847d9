"""configs, demo, fold, cache, doctor: text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npusched.cli import doctor, run
from npusched.demos import demo_names
from npusched.errors import TargetError, VelaError
from npusched.hardware import describe_target, target_names


def out(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def test_configs_lists_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    rows = out(capsys, "configs").splitlines()
    assert [row.split()[0] for row in rows[1:-1]] == list(target_names())
    form = json.loads(out(capsys, "configs", "-f", "json"))
    assert [each["name"] for each in form] == list(target_names())
    assert form[0]["macs_per_cycle"] == 32


@pytest.mark.parametrize("name", target_names())
def test_configs_shows_every_target_with_its_sources(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(out(capsys, "configs", name).split())
    described = describe_target(name)
    for what, source in described.sources:
        assert f"{what}: {source}" in text
    for memory in described.target.memories:
        assert f" {memory.name} " in text
    form = json.loads(out(capsys, "configs", name, "--format", "json"))
    assert form["target"]["clock_hz"] == described.target.clock_hz


def test_configs_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["configs", "ethos-u55-129"]) == 2
    assert "did you mean 'ethos-u55-128'?" in capsys.readouterr().err


def test_demo_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "demo").split() == [*demo_names(), "chain:N"]


def test_fold_writes_a_smaller_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "folded.tflite"
    assert run(["fold", "demo:block", "-o", str(target)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("folded 2 batch norms; ")
    assert "measured" in shown.err
    assert run(["plan", str(target), "-c", "ethos-u55-128", "--no-vela"]) == 0
    assert "4 ops" in capsys.readouterr().out


def test_cache_info_and_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUSCHED_CACHE_DIR", str(tmp_path / "cache"))
    assert out(capsys, "cache").startswith("0 Vela results, 0 B of at most 512 MiB, in ")
    folder = tmp_path / "cache" / "vela"
    folder.mkdir(parents=True)
    (folder / "a.vela").write_bytes(b"x" * 2048)
    form = json.loads(out(capsys, "cache", "info", "-f", "json"))
    assert (form["entries"], form["size_bytes"]) == (1, 2048)
    assert out(capsys, "cache", "clear") == "1 Vela result deleted\n"
    assert not list(folder.iterdir())


def test_doctor_on_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    rows = out(capsys, "doctor").splitlines()
    assert all(row.startswith("ok  ") for row in rows)
    checks = json.loads(out(capsys, "doctor", "-f", "json"))["checks"]
    assert {check["name"] for check in checks} >= {"python", "npusched", "targets", "vela", "cache"}


def test_doctor_warns_without_vela(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans work without Vela, so it is no failure."""

    def fail(*_: object, **__: object) -> object:
        raise VelaError("Vela is not installed, or cannot be loaded", "no distribution")

    monkeypatch.setattr("npusched.vela.runner.vela_version", fail)
    monkeypatch.setattr("npusched.vela.runner.compile_model", fail)
    text = out(capsys, "doctor")
    assert text.count("warn  vela") == 2
    assert "hint: pip install" in text


@pytest.mark.parametrize(("version", "state"), [("5.2.0", "ok"), ("5.20.0", "warning")])
def test_doctor_knows_the_vela_that_it_understands(
    version: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npusched.vela.runner.vela_version", lambda: version)
    found = {check.name: check.state for check in doctor.examine()}
    assert found["vela"] == state


def test_doctor_fails_without_targets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> object:
        raise TargetError("no targets", "the folder is gone", "install npusched again")

    monkeypatch.setattr("npusched.hardware.target_names", fail)
    assert "FAIL  targets" in out(capsys, "doctor", code=3)
