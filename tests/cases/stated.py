"""A fact about a case, and where the tool states it: a command, a path into its JSON, a value."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from npusched.cli import run

CONFIG = "-c ethos-u55-128"


@dataclass(frozen=True)
class Check:
    """What a value must be; ``text`` says it in the table."""

    text: str
    holds: Callable[[Any], bool]


def kib(value: float) -> Check:
    """Bytes that are so many KiB, to two digits."""
    return Check(f"{value} KiB", lambda found: round(found / 1024, 2) == value)


def near(value: float, share: float = 0.01) -> Check:
    """A number within a share."""
    return Check(f"{value} within {share:.0%}", lambda found: abs(found / value - 1) <= share)


def at_most(value: float) -> Check:
    """A number up to a limit."""
    return Check(f"<= {value}", lambda found: found <= value)


def between(low: float, high: float) -> Check:
    """A number in a range."""
    return Check(f"{low} .. {high}", lambda found: low <= found <= high)


def says(*parts: str) -> Check:
    """Text (or texts) that contain all parts."""

    def holds(found: Any) -> bool:
        text = " ".join(found) if isinstance(found, list) else str(found)
        return all(part in " ".join(text.split()) for part in parts)

    return Check(f"says {', '.join(parts)}", holds)


def each(check: Check) -> Check:
    """A list that is not empty, of whose every entry the check holds."""
    return Check(f"all {check.text}", lambda found: bool(found) and all(map(check.holds, found)))


def total(value: float) -> Check:
    """A list of numbers with a sum."""
    return Check(f"sum {value}", lambda found: sum(found) == value)


def alive_for(tensor: str, *readers: int) -> Check:
    """A plan in which a tensor lives until its readers have run, and nothing lies on it."""

    def holds(plan: Any) -> bool:
        (mine,) = [item for item in plan["allocation"] if item["tensor"] == tensor]
        steps = [
            s["index"] for s in plan["segments"] for ref in s["source_ops"] if ref[1] in readers
        ]
        others = [
            item
            for item in plan["allocation"]
            if item is not mine
            and item["first_step"] < mine["end_step"]
            and mine["first_step"] < item["end_step"]
            and item["offset"] < mine["offset"] + mine["size_bytes"]
            and mine["offset"] < item["offset"] + item["size_bytes"]
        ]
        inside = all(mine["first_step"] <= step < mine["end_step"] for step in steps)
        return len(steps) >= len(readers) and inside and not others

    return Check(f"{tensor} lives for {readers}", holds)


@dataclass(frozen=True)
class Stated:
    """``command``: arguments, with the model as ``MODEL``. ``path``: see ``at``.

    ``over``: the value divided by that of another path (of another command after ``|``).
    """

    command: str
    path: str
    value: object
    over: str = ""
    exit_code: int = 0

    def fault(self, folder: Path, file: str) -> str:
        """What is wrong with the fact; empty if it is stated."""
        found = at(output(self.command, folder, file, self.exit_code), self.path)
        if self.over:
            command, _, path = self.over.rpartition("|")
            base = output(command or self.command, folder, file, self.exit_code)
            found = found / at(base, path)
        holds = self.value.holds(found) if isinstance(self.value, Check) else found == self.value
        wanted = self.value.text if isinstance(self.value, Check) else repr(self.value)
        return "" if holds else f"{self.command}: {self.path} is {found!r}, not {wanted}"


@dataclass(frozen=True)
class NotApplicable:
    """A fact, or a part of one, that is not about the current Vela or this tool."""

    why: str


Entry = Stated | NotApplicable


@cache
def output(command: str, folder: Path, file: str, exit_code: int) -> Any:
    """JSON that a command prints. ``MODEL`` is the case; ``CASE:name`` another one."""
    words = []
    for word in shlex.split(command):
        if word == "MODEL":
            word = str(folder / file)
        elif word.startswith("CASE:"):
            word = str(folder / f"{word.removeprefix('CASE:')}.tflite")
        words.append(word)
    if "-c" not in words:
        words += shlex.split(CONFIG)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()) as said:
        code = run([*words, "--format", "json"])
    assert code == exit_code, f"{command}: exit code {code}\n{said.getvalue()}"
    return json.loads(shown.getvalue())


_STEP = re.compile(r"(\w+)|\[([^\]]*)\]")


def at(value: Any, path: str) -> Any:
    """The value at a path: ``a.b``, ``a[2]``, ``a[x=1,y=z]`` (first that fits), ``a[*].b`` (all),

    ``a[x=1*].b`` (all that fit), and ``#`` at the end for how many.
    """
    count = path.endswith("#")
    steps = [name or f"[{choice}" for name, choice in _STEP.findall(path.removesuffix("#"))]
    found = _walk(value, steps)
    return len(found) if count else found


def _walk(value: Any, steps: list[str]) -> Any:
    for k, step in enumerate(steps):
        if not step.startswith("["):
            value = value[step]
            continue
        choice = step[1:]
        if choice.isdigit():
            value = value[int(choice)]
            continue
        every = choice.endswith("*")
        wanted = [part.split("=", 1) for part in choice.removesuffix("*").split(",") if part]
        fitting = [v for v in value if all(_text(v.get(key)) == text for key, text in wanted)]
        if every:
            return [_walk(v, steps[k + 1 :]) for v in fitting]
        assert fitting, f"no entry with {choice}"
        value = fitting[0]
    return value


def _text(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
