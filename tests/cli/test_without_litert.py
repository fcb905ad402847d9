"""Without LiteRT: what needs it says what to install, the rest works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from npusched.cli import run
from npusched.sim.reference import close_worker
from tests.conftest import REPOSITORY

TARGET = ["-c", "ethos-u55-128"]


@pytest.fixture(autouse=True)
def no_litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the same name, found first by the process that runs LiteRT, fails to load."""
    package = tmp_path / "hidden" / "ai_edge_litert"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('hidden by a test')\n")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{REPOSITORY}")
    close_worker()
    yield
    close_worker()


@pytest.mark.parametrize("options", [["--plan", "--no-vela"], []], ids=["plan", "vela"])
def test_prove_says_what_to_install(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    if not options:
        pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    assert run(["prove", "demo:chain:4", *TARGET, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    text = " ".join(shown.err.split())
    assert "error: the reference kernels are not installed" in text
    assert 'hint: install them: pip install "npusched[prove]"' in text


def test_fold_works_and_says_what_it_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "folded.tflite"
    assert run(["fold", "demo:block", "-o", str(path)]) == 0
    assert path.stat().st_size > 1000
    text = " ".join(capsys.readouterr().err.split())
    assert text.startswith("folded 2 batch norms; deviation not measured: pip install")
    assert "'npusched[prove]'" in text


def test_plans_of_cpu_ops_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "demo:chain:4", "-c", "cortex-m55"]) == 0
    capsys.readouterr()
    assert run(["prove", "demo:chain:4", "-c", "cortex-m55", "--plan"]) == 2
    assert "npusched[prove]" in capsys.readouterr().err
