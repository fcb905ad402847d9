"""Exact figures inside the page: JSON that a browser does not run."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Final

import msgspec
from markupsafe import Markup

from npusched.report.types import Published

MAX_PLAIN: Final = 120_000
"""Bytes of JSON above which it is packed: a page stays small whatever the model's size."""


def embedded(report: Published) -> Markup:
    """The report as JSON, safe inside ``<script type="application/json">``.

    Long ones are packed: {"encoding": "gzip+base64", "size_bytes": N, "data": "..."}.
    """
    content = msgspec.json.encode(report)
    if len(content) <= MAX_PLAIN:
        return Markup(_inert(json.dumps(json.loads(content), separators=(",", ":"))))
    packed = base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
    form = {"encoding": "gzip+base64", "size_bytes": len(content), "data": packed}
    return Markup(json.dumps(form, separators=(",", ":")))


def unpacked(text: str) -> bytes:
    """The JSON of ``embedded``, packed or not."""
    form = json.loads(text)
    if form.get("encoding") == "gzip+base64":
        return gzip.decompress(base64.b64decode(form["data"]))
    return text.encode()


def _inert(text: str) -> str:
    """No tag can end or begin in it; it stays the same value (all else is ASCII already)."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
