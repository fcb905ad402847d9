"""The JSON Schema of a published type, with the sentences of the field tables in it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import msgspec

from npusched.report.types import Published


def schema_of(
    root_type: type[Published],
    docs: Mapping[str, Mapping[str, str]],
    *,
    form: str,
    version: str,
    title: str,
) -> dict[str, object]:
    """Return the schema (draft 2020-12) of a type's JSON.

    ``docs``: type name -> field -> sentence. ``form`` and ``version`` make the schema's id.
    """
    (root,), parts = msgspec.json.schema_components([root_type])
    for name, part in parts.items():
        part["description"] = inspect.cleandoc(str(part.get("description", "")))
        for field, properties in part.get("properties", {}).items():
            if field in docs.get(name, {}):
                properties["description"] = docs[name][field]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:npusched:{form}:{version}",
        "title": title,
        **root,
        "$defs": {name: parts[name] for name in sorted(parts)},
    }


def text_of(schema: Mapping[str, object]) -> str:
    """Return a schema as the text of its shipped file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
