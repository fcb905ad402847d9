"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def corpus_path() -> Path | None:
    """Return the folder that holds models/, cases/ and silicon/, or None where it is absent."""
    named = os.environ.get("NPUSCHED_CORPUS")
    folder = Path(named) if named else REPOSITORY.parent / "shared"
    return folder if (folder / "models" / "MANIFEST.json").is_file() else None


def corpus_models() -> list[Path]:
    """Return every .tflite file of the corpus (models, then cases), or [] where it is absent."""
    folder = corpus_path()
    if folder is None:
        return []
    return sorted((folder / "models").glob("*.tflite")) + sorted(
        (folder / "cases").glob("*.tflite")
    )


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """The corpus folder; skips the test where there is none."""
    folder = corpus_path()
    if folder is None:
        pytest.skip("no model corpus: set NPUSCHED_CORPUS to the folder with models/ and cases/")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files, generated pages and outputs shown in README and docs",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file of the repository; with --update-golden write the file."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest --update-golden"
        assert path.read_text(encoding="utf-8") == text

    return check


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is as wide and as plain as in a pipe, wherever the tests run (xdist sets COLUMNS)."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
