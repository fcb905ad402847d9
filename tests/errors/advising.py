"""Triggers of the errors of ``npusched advise`` and of editing models."""

from __future__ import annotations

from types import SimpleNamespace

from npusched import api
from npusched.tflite.editor import Editor
from tests.errors.files import _outside
from tests.errors.place import CHAIN, PLAIN, Place, Table, cli


def _no_such_advice(_: Place) -> None:
    api.changed_model(SimpleNamespace(changes=[]), 3)  # type: ignore[arg-type]


def _about_the_target(_: Place) -> None:
    """An advice about the target: there is no file with its change."""
    advised = SimpleNamespace(
        changes=[SimpleNamespace(content=None)],
        report=SimpleNamespace(advice=[SimpleNamespace(id="NS601")]),
    )
    api.changed_model(advised, 1)  # type: ignore[arg-type]


def _behind_the_flatbuffer(_: Place) -> None:
    """As ``read_model`` would give it for a file of 2 GiB."""
    content = _outside()
    Editor(SimpleNamespace(content=content, subgraphs=()))  # type: ignore[arg-type]


ADVISING: Table = {
    "api.advising:changed_model": _no_such_advice,
    "api.advising:changed_model#2": _about_the_target,
    "cli.advise:advise": cli("advise", CHAIN, *PLAIN, "--apply", "1"),
    "tflite.rewrite:decode_to_write": _behind_the_flatbuffer,
}
