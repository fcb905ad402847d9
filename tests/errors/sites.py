"""Where errors are made: every construction of an error meant for the user, found by AST.

A site's id is ``module:function``, with ``#2``, ``#3`` … from the second one of a function on.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

import click
import pytest

import npusched
from npusched.errors import NpuschedError

PACKAGE = Path(npusched.__file__).resolve().parent
_CLICK = frozenset({"UsageError", "BadParameter", "BadOptionUsage", "ClickException"})


@dataclass(frozen=True, slots=True)
class Site:
    """One call of an error's class: its id, its lines and how many of its texts it states."""

    id: str
    path: Path
    lines: range
    is_click: bool


def _trees() -> dict[Path, ast.Module]:
    """The files that make or define errors, parsed."""
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        path: ast.parse(text)
        for path, text in texts.items()
        if "Error(" in text or "Error):" in text
    }


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _family(trees: dict[Path, ast.Module]) -> set[str]:
    """Names of ``NpuschedError`` and all classes below it, wherever they are defined."""
    classes = [
        (node.name, {_name(base) for base in node.bases})
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    found = {NpuschedError.__name__}
    while more := {name for name, bases in classes if bases & found} - found:
        found |= more
    return found


@cache
def sites() -> dict[str, Site]:
    """All sites by id."""
    trees = _trees()
    family = _family(trees)
    found: dict[str, Site] = {}
    for path, tree in trees.items():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        counts: Counter[str] = Counter()
        for function, call in _calls(tree, ""):
            is_click = isinstance(call.func, ast.Attribute) and _name(call.func.value) == "click"
            if _name(call.func) not in (_CLICK if is_click else family):
                continue
            counts[function] += 1
            number = "" if counts[function] == 1 else f"#{counts[function]}"
            lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
            site = Site(f"{module}:{function}{number}", path, lines, is_click)
            found[site.id] = site
    return found


def _calls(node: ast.AST, where: str) -> Iterator[tuple[str, ast.Call]]:
    """(qualified name of the function, call) of every call below a node, in the file's order."""
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{where}.{child.name}" if where else child.name
        if isinstance(child, ast.Call):
            yield where, child
        yield from _calls(child, inside)


@dataclass(slots=True)
class Made:
    """The errors that were made, each with the id of its site, in order."""

    errors: list[tuple[str, Exception]] = field(default_factory=list)

    def at(self, site: str) -> list[Exception]:
        """The errors of a site."""
        return [error for each, error in self.errors if each == site]


@contextmanager
def watching(patch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Note every error that is made at a site of the package."""
    made = Made()
    for kind in (NpuschedError, click.ClickException):
        _watch(kind, made, patch)
    yield made


def _watch(kind: type[Exception], made: Made, patch: pytest.MonkeyPatch) -> None:
    original = kind.__init__

    def noted(self: Exception, *arguments: object, **values: object) -> None:
        original(self, *arguments, **values)
        site = _site_of(sys._getframe(1))
        if site is not None:
            made.errors.append((site.id, self))

    patch.setattr(kind, "__init__", noted)


def _site_of(frame: FrameType | None) -> Site | None:
    """The site that a constructor was called from: the innermost frame that is at one."""
    for _ in range(6):
        if frame is None:
            return None
        path, line = Path(frame.f_code.co_filename), frame.f_lineno
        for site in _by_path().get(path, ()):
            if line in site.lines:
                return site
        frame = frame.f_back
    return None


@cache
def _by_path() -> dict[Path, list[Site]]:
    found: dict[Path, list[Site]] = {}
    for site in sites().values():
        found.setdefault(site.path, []).append(site)
    return found
