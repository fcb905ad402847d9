"""The page shows what its commands print, to the letter."""

from __future__ import annotations

import re
import shlex

import pytest

from npusched.cli import run
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "explain.md"
BLOCK = re.compile(r"^```text\n\$ npusched (.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def test_the_page_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """With --update-golden the output is written into the page."""
    text = PAGE.read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) >= 4

    def printed(found: re.Match[str]) -> str:
        assert run(shlex.split(found[1])) == 0
        return f"```text\n$ npusched {found[1]}\n{capsys.readouterr().out.rstrip()}\n```"

    shown = BLOCK.sub(printed, text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(shown, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == shown
