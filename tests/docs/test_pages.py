"""The documentation is current: generated pages, commands that run, output as shown."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import npusched
from npusched.cli import run
from npusched.cli.app import app
from npusched.report.field_docs import FIELD_DOCS
from tests.conftest import REPOSITORY
from tests.docs.advice_page import advice_page
from tests.docs.pages import cli_page, compare_page, json_page
from tests.docs.python_page import python_page
from tests.docs.sweep_page import sweep_page

DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown_commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every line that starts with `$ npusched`."""
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            for row in block[2].splitlines():
                if row.startswith("$ npusched "):
                    yield page.name, row.removeprefix("$ ")


def words_of(command: str) -> tuple[list[str], int]:
    """Arguments, and the exit code that a comment announces."""
    text, _, comment = command.partition(" # exit code ")
    return shlex.split(text)[1:], int(comment or 0)


def test_the_command_line_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "cli.md", cli_page())


def test_the_json_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "json.md", json_page())


def test_the_compare_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "compare.md", compare_page())


def test_the_sweep_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "sweep.md", sweep_page())


def test_the_python_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "python.md", python_page())


def test_everything_in_python_is_described() -> None:
    """Every public name has a docstring of its own, functions say what they raise or need not."""
    page = python_page()
    for name in npusched.__all__:
        if name != "__version__":
            assert f"## {name}\n" in page or f"| `{name}` | " in page
    assert "|  |" not in page


def test_the_advice_page(golden: Callable[[Path, str], None]) -> None:
    golden(DOCS / "advice.md", advice_page())


def test_the_json_page_has_every_field() -> None:
    page = json_page()
    for name, fields in FIELD_DOCS.items():
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for field, meaning in fields.items():
            assert f"| `{field}` |" in section
            assert meaning in section


def test_every_command_has_an_example_and_ascii_help() -> None:
    """The help of a command goes to any terminal."""
    sections = cli_page().split("\n## ")[1:]
    assert len(sections) >= 8
    for section in sections:
        assert "\n```text\nnpusched " in section.split("\n| option")[-1]
    assert set(app.commands) <= {s.split()[1] for s in sections if len(s.split()) > 1}
    for path in ("", *app.commands):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            assert run([*path.split(), "--help"]) == 0
        text = shown.getvalue()
        assert text.isascii()
        assert "\n  Examples:\n    npusched " in text
        assert "\\b" not in text


COMMANDS = sorted({page for page, _ in shown_commands()})


@pytest.mark.parametrize("page", COMMANDS)
def test_shown_commands_run(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the order of the page, in one folder: a command may read what one before it wrote."""
    monkeypatch.chdir(tmp_path)
    for command in dict.fromkeys(each for where, each in shown_commands() if where == page):
        words, code = words_of(command)
        assert run(words) == code, f"{page}: {command}\n{capsys.readouterr().err}"


def test_commands_without_a_prompt_parse() -> None:
    """Command lines with placeholders (model.tflite) have options that exist."""
    known = set(app.commands)
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            for row in block[2].splitlines():
                found = re.match(r"(?:\$ )?npusched (\w+)(.*)", row)
                if found is None or block[1] == "text":
                    continue
                assert found[1] in known
                command = app.commands[found[1]]
                names = {name for parameter in command.params for name in parameter.opts}
                for option in re.findall(r"(?<= )--?[a-z][\w-]*", found[2].split("#")[0]):
                    assert option in names, f"{page.name}: {row}"


def test_the_start_page_shows_what_the_readme_s_first_command_prints(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """To the letter; with --update-golden the output is written into the page."""
    first = re.search(
        r"^pip install \. && npusched (.*)$",
        (REPOSITORY / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert first is not None
    assert run([*shlex.split(first[1]), "--no-cache"]) == 0
    shown = capsys.readouterr().out.rstrip("\n")
    page = DOCS / "index.md"
    text = page.read_text(encoding="utf-8")
    assert f"$ npusched {first[1]}\n" in text
    block = re.search(r"(?<=^```text\n).*?(?=\n```$)", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    if request.config.getoption("--update-golden"):
        page.write_text(text[: block.start()] + shown + text[block.end() :], encoding="utf-8")
    else:
        assert block[0] == shown


def test_the_readme_names_every_command_of_its_table() -> None:
    """Commands of the table parse, and those that answer a question are all there."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `npusched (\w+) ([^`]*)` \|", text)
    for name, rest in named:
        options = {option for each in app.commands[name].params for option in each.opts}
        assert set(re.findall(r"(?<= )--?[a-z][\w-]*", f" {rest}")) <= options, name
    aside = {"cache", "completion", "configs", "demo", "doctor", "fold", "plot", "run"}
    assert {name for name, _ in named} == set(app.commands) - aside


def test_the_python_examples_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README and pages; a model.tflite stands for a built-in one."""
    monkeypatch.chdir(tmp_path)
    count = 0
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block[1] == "python":
                code = block[2].replace("model.tflite", "demo:ds_cnn")
                exec(compile(code, page.name, "exec"), {})
                count += 1
    assert count >= 2
    assert capsys.readouterr().out.strip()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pages_name_no_private_place() -> None:
    places = re.compile(r"/(tmp|work|root|home)/")
    for page in PAGES:
        assert not places.search(page.read_text(encoding="utf-8"))
