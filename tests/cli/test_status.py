"""The line of progress: only on a terminal, only after a while, gone before anything is printed."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest

from npusched.cli import output, status
from npusched.cli.status import STATUS, StatusLine


class Terminal(io.StringIO):
    """Keeps what is written, and says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> str:
        """What is left on the line: a carriage return starts it again."""
        cells: list[str] = []
        column = 0
        for character in self.getvalue():
            if character == "\r":
                column = 0
                continue
            cells[column : column + 1] = [character]
            column += 1
        return "".join(cells).rstrip()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(status, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setattr(status, "FIRST_S", 0.05)
    monkeypatch.setattr(status, "REDRAW_S", 0.01)
    return found


def wait_for(terminal: Terminal, text: str) -> None:
    end = time.monotonic() + 10
    while text not in terminal.screen:
        assert time.monotonic() < end, terminal.getvalue()
        time.sleep(0.005)


def test_a_quick_command_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "FIRST_S", 60.0)
    with StatusLine().showing("npusched plan"):
        pass
    assert terminal.getvalue() == ""


def test_a_slow_command_is_named_and_leaves_nothing(terminal: Terminal) -> None:
    line = StatusLine()
    with line.showing("npusched tune"):
        wait_for(terminal, "npusched tune: 0 s")
        line.say("7 compilations by Vela")
        wait_for(terminal, "npusched tune: 0 s, 7 compilations by Vela")
    assert terminal.screen == ""


def test_output_comes_after_the_line_is_gone(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    with STATUS.showing("npusched plan"):
        output.show_compilations(7, 5)
        wait_for(terminal, "7 compilations by Vela, 5 distinct results")
        output.print_note("noted")
        assert "\r" + " " * 20 in terminal.getvalue().replace("noted", "")
        wait_for(terminal, "npusched plan")
        output.write_result("the result", None)
        shown = terminal.getvalue()
        time.sleep(0.05)
        assert terminal.getvalue() == shown
    assert capsys.readouterr().out == "the result\n"


def test_an_exception_ends_it(terminal: Terminal) -> None:
    line = StatusLine()

    def fail() -> None:
        with line.showing("npusched plan"):
            wait_for(terminal, "npusched plan")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert terminal.screen == ""


def test_nothing_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "FIRST_S", 0.0)
    with StatusLine().showing("npusched plan"):
        time.sleep(0.02)
    assert capsys.readouterr().err == ""
