"""The models of a sweep: files, folders, patterns and built-in ones, told apart by content."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from npusched.errors import ModelError

DEMO_PREFIX = "demo:"


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A model by content. ``place``: its path or demo:NAME; ``fault``: why it cannot be read.

    ``sha256`` of a file that cannot be read is that of its path, after "unreadable-".
    """

    name: str
    sha256: str
    size_bytes: int
    place: str
    fault: ModelError | None = None

    def content(self) -> bytes:
        """The bytes whose hash is ``sha256``. Raises ModelError if they are no more."""
        if self.fault is not None:
            raise self.fault
        found = _read(self.place)
        if hashlib.sha256(found).hexdigest() != self.sha256:
            raise ModelError(
                f"{self.name} changed while the sweep ran",
                "its content is no longer that of the job",
                "run the sweep again",
            )
        return found


class FoundModels(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct models in the order in which they were named; ``copies``: files left out."""

    models: tuple[ModelSource, ...]
    copies: int


def find_models(names: Iterable[str | Path]) -> FoundModels:
    """Find the models that ``names`` mean: files, folders (all .tflite below), globs, demo:NAME.

    A file that is there but cannot be read is a model with a fault. Raises ModelError for a name
    that means nothing.
    """
    found: dict[str, ModelSource] = {}
    places: set[str] = set()
    copies = 0
    for place, name in _places(names):
        real = place if place.startswith(DEMO_PREFIX) else os.path.realpath(place)
        if real in places:
            continue
        places.add(real)
        source = _source(place, name)
        copies += source.sha256 in found
        found.setdefault(source.sha256, source)
    return FoundModels(models=_told_apart(found.values()), copies=copies)


def _places(names: Iterable[str | Path]) -> Iterator[tuple[str, str]]:
    """(path or demo:NAME, shown name) of every model; files below a folder by their path in it."""
    for each in names:
        text = os.fspath(each)
        path = Path(text)
        if text.startswith(DEMO_PREFIX):
            yield text, text
        elif path.is_dir():
            inside = sorted(p for p in path.rglob("*.tflite") if p.is_file())
            if not inside:
                raise ModelError(
                    f"no models in {text}", "no .tflite file is below", "check the path"
                )
            yield from ((str(p), _valid(p.relative_to(path).as_posix())) for p in inside)
        elif glob.has_magic(text) and not path.exists():
            matches = sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
            if not matches:
                raise ModelError(f"no model matches {text}", "no such file", "check the pattern")
            yield from ((p, _valid(os.path.basename(p))) for p in matches)
        else:
            yield text, _valid(path.name or text)


def _source(place: str, name: str) -> ModelSource:
    try:
        content = _read(place)
    except ModelError as fault:
        if place.startswith(DEMO_PREFIX) or not os.path.exists(place):
            raise
        digest = hashlib.sha256(os.fsencode(os.path.abspath(place))).hexdigest()
        sha256 = f"unreadable-{digest}"
        return ModelSource(name=name, sha256=sha256, size_bytes=0, place=place, fault=fault)
    digest = hashlib.sha256(content).hexdigest()
    return ModelSource(name=name, sha256=digest, size_bytes=len(content), place=place)


def _read(place: str) -> bytes:
    from npusched.api.planning import content_of

    return content_of(place)[0]


def _told_apart(models: Iterable[ModelSource]) -> tuple[ModelSource, ...]:
    """Different models of one name get the start of their hash behind it."""
    models = tuple(models)
    count = Counter(model.name for model in models)
    return tuple(
        replace(model, name=f"{model.name} ({model.sha256[-8:]})")
        if count[model.name] > 1
        else model
        for model in models
    )


def _valid(name: str) -> str:
    """``name`` as valid Unicode."""
    return os.fsencode(name).decode(errors="replace")
