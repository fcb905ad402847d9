"""Every error is provoked and reviewed: what it says, how it is printed, how a command ends.

``tests.errors.sites`` finds each place in the package that makes an error; the tables of
``tests.errors`` have a trigger for each: a command line, or a call with damaged values where no
command leads there. To add an error, run this test: it names the new site, which belongs into the
table of its subject. Its trigger need not raise, but must make the error at that site. An error
has all three texts unless it stands below with the reason.
"""

from __future__ import annotations

import json
import pickle
import re
from contextlib import suppress
from pathlib import Path

import pytest

from npusched.errors import InfeasibleError, ModelError, NpuschedError
from npusched.report import render_error
from npusched.report.units import plain_text
from tests.conftest import REPOSITORY
from tests.errors.advising import ADVISING
from tests.errors.commands import COMMANDS
from tests.errors.compiler import COMPILER
from tests.errors.emitting import EMITTING
from tests.errors.explaining import EXPLAINING
from tests.errors.files import FILES
from tests.errors.hardware import HARDWARE
from tests.errors.pages import PAGES
from tests.errors.place import Ended, Place, Table
from tests.errors.planning import PLANNING
from tests.errors.plans import PLANS
from tests.errors.sites import Made, sites, watching
from tests.errors.streams import STREAMS
from tests.errors.sweeps import SWEEPS

TABLES = (
    COMMANDS,
    PLANNING,
    EXPLAINING,
    ADVISING,
    PAGES,
    HARDWARE,
    FILES,
    STREAMS,
    PLANS,
    COMPILER,
    SWEEPS,
    EMITTING,
)
TRIGGERS: Table = {site: trigger for table in TABLES for site, trigger in table.items()}

NO_WHY = {"cli.run:_usage_error": "the message of the command line names option and value"}
"""Errors without a why, and the reason."""

LONGEST = 200
"""Characters of what, with names of ordinary length."""


def test_every_site_has_one_trigger() -> None:
    """A new error needs a trigger, and a trigger an error; none is in two tables."""
    missing = sorted(set(sites()) - set(TRIGGERS))
    gone = sorted(set(TRIGGERS) - set(sites()))
    assert not missing, f"no trigger makes the errors of {missing}: see this file's first lines"
    assert not gone, f"no error is made at {gone}"
    assert len(TRIGGERS) == sum(map(len, TABLES))


@pytest.mark.parametrize("site", sorted(TRIGGERS))
def test_error(
    site: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if site not in sites():
        pytest.skip("no such site: test_every_site_has_one_trigger fails")
    place = Place(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with watching(monkeypatch) as made, suppress(NpuschedError):
        TRIGGERS[site](place)
    error = _error_of(site, made)
    _review(error, site)
    if place.ended is not None:
        assert made.errors[-1][1] is error
        _review_end(place.ended, error)


def _error_of(site: str, made: Made) -> NpuschedError:
    """The error of that site; what click finds is shown as an error of ours."""
    found = made.at(site)
    assert found, f"{site} made no error, but {[each for each, _ in made.errors]} did"
    if sites()[site].is_click:
        found = made.at("cli.run:_usage_error")
    error = found[-1]
    assert isinstance(error, NpuschedError)
    return error


def _review(error: NpuschedError, site: str) -> None:
    """One line each, all there, nothing that moves a cursor; JSON, pickle and text work."""
    assert error.what
    assert error.hint
    assert error.why or site in NO_WHY or sites()[site].is_click
    for text in (error.what, error.why, error.hint):
        assert text.isprintable()
        assert text == " ".join(text.split())
        assert not text.endswith((".", "!", ":"))
    assert len(error.what.replace("n" * 300, "").replace("x" * 5000, "")) <= LONGEST
    assert error.why != error.what
    assert error.exit_code in (1, 2, 3)
    form = json.loads(json.dumps(error.as_dict()))
    assert list(form)[:4] == ["kind", "what", "why", "hint"]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.as_dict()) == (type(error), error.as_dict())
    shown = render_error(error)
    assert len(shown.splitlines()) <= 20
    assert all(len(line) <= 100 and line.isprintable() for line in shown.splitlines())


def _review_end(ended: Ended, error: NpuschedError) -> None:
    """The command ends with the error's code, and says it and nothing else."""
    assert ended.code == error.exit_code
    assert "Traceback" not in ended.err
    said = " ".join(ended.err.split())
    assert "error: " in said
    assert plain_text(error.what)[:40].rstrip("…") in said


def test_infeasible_errors_carry_their_figures() -> None:
    """The class says which values a program finds."""
    error = InfeasibleError("no plan fits", need_bytes=2, have_bytes=1)
    assert error.as_dict()["need_bytes"] == 2


def test_hostile_names_stay_on_their_line() -> None:
    """Whatever an error is made of, its texts are one line that is printable."""
    odd = "a\r\nb\x00\x1b[2J\u202e\u2028\ud800c"
    error = ModelError(odd, odd, odd, name=odd)
    for text in (error.what, error.why, error.hint):
        assert text == "a\\x0d\\x0ab\\x00\\x1b[2J\\u202e\\u2028\\ud800c"
    assert error.values["name"] == odd
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_page_has_every_kind() -> None:
    """docs/errors.md: each kind with its exit code."""
    page = (REPOSITORY / "docs" / "errors.md").read_text("utf-8")
    stated = dict(re.findall(r"^\| `(\w+)` \| (\d) \|", page, re.MULTILINE))
    kinds = {each.kind: str(each.exit_code) for each in _classes(NpuschedError)}
    assert stated == kinds


def _classes(kind: type[NpuschedError]) -> list[type[NpuschedError]]:
    """A class and all below it, the general ones last."""
    return [found for each in kind.__subclasses__() for found in _classes(each)] + [kind]
