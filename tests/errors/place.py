"""What a trigger is handed: a folder, a monkeypatch, the command line and a few small files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from npusched.cli import run
from npusched.demos import demo
from npusched.tflite import Builder

U55 = ("-c", "ethos-u55-128")
PLAIN = (*U55, "--no-vela")
CHAIN = "demo:chain:2"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Place:
    """Where one trigger runs."""

    folder: Path
    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    ended: Ended | None = None

    def file(self, name: str, content: bytes | str) -> str:
        """Write a file; return its path."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def cli(self, *arguments: str) -> str:
        """Run a command; its end is kept for the review. Returns what it printed."""
        self.capture.readouterr()
        code = run(arguments)
        shown = self.capture.readouterr()
        self.ended = Ended(code, shown.out, shown.err)
        return shown.out

    def absent(self, module: str) -> None:
        """Let an import of the module fail."""
        self.patch.setitem(__import__("sys").modules, module, None)

    def compiled(self) -> str:
        """A small model, compiled by Vela (once per process)."""
        return self.file("compiled_vela.tflite", compiled_chain())


Trigger: TypeAlias = Callable[[Place], object]
Table: TypeAlias = dict[str, Trigger]


def cli(*arguments: str) -> Trigger:
    """A command line without files."""
    return lambda place: place.cli(*arguments)


def compiled_chain() -> bytes:
    """``demo:chain:2`` as Vela compiles it for ethos-u55-128."""
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    from tests.sim.sim_models import compiled

    return compiled(demo("chain:2"), "ethos-u55-128")


def built(make: Callable[[Builder], None]) -> bytes:
    """The file that a maker builds."""
    builder = Builder("model")
    make(builder)
    return builder.build()
