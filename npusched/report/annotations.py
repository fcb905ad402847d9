"""What machines that watch builds read: GitHub's workflow commands and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath, PureWindowsPath
from typing import Final
from urllib.parse import quote

from npusched.report.units import plain_text

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

MOST_CHARACTERS: Final = 2000
"""Of a message or a path."""


def github_command(level: str, path: str, title: str, text: str) -> str:
    """A workflow command (level ``error``, ``warning`` or ``notice``), on one line.

    ``path``: of the file that it is about, "" if there is none. Whatever the syntax heeds is
    percent-encoded.
    """
    properties = [f"title={_property(title)}"]
    if path:
        properties.insert(0, f"file={_property(plain_text(path, MOST_CHARACTERS))}")
    return f"::{level} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif_log(
    version: str, rules: Sequence[tuple[str, str]], results: Sequence[dict[str, object]]
) -> str:
    """A log of one run, indented. ``rules``: (id, what it means) in the order of ``ruleIndex``."""
    driver = {
        "name": "npusched",
        "version": version,
        "semanticVersion": version,
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in rules],
    }
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }
    return json.dumps(log, indent=2)


def sarif_location(path: str) -> dict[str, object]:
    """SARIF wants a place in a text; a model has none, so results are on its first line."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(path)},
            "region": {"startLine": 1},
        }
    }


def _uri(path: str) -> str:
    """A path as a URI reference."""
    text = path.encode("utf-8", "replace").decode()
    plain = PureWindowsPath(text).as_posix() if "\\" in text else text
    quoted = quote(plain, safe="/")
    return f"file://{quoted}" if PurePath(plain).is_absolute() else quoted
