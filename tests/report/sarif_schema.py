"""A JSON Schema of the part of SARIF 2.1.0 that a check uses, after the text of the standard.

Objects have the properties that OASIS' "Static Analysis Results Interchange Format 2.1.0" names for
them (section numbers beside each); what it says "SHALL contain" is required.
"""

from __future__ import annotations

from typing import Any, Final


def _object(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_BAG = {"type": "object"}  # 3.8

_MESSAGE = _object(["text"], {"text": _TEXT})  # 3.11

_LOCATION = _object(  # 3.28
    [],
    {
        "physicalLocation": _object(  # 3.29
            ["artifactLocation"],
            {
                "artifactLocation": _object(  # 3.4
                    ["uri"], {"uri": {"type": "string", "pattern": r"^[!#$%&'()*+,\-./:;=?@\w~]+$"}}
                ),
                "region": _object([], {"startLine": {"type": "integer", "minimum": 1}}),  # 3.30
            },
        )
    },
)

_RESULT = _object(  # 3.27
    ["message"],
    {
        "ruleId": _TEXT,
        "ruleIndex": {"type": "integer", "minimum": -1},
        "kind": {"enum": ["pass", "open", "informational", "notApplicable", "review", "fail"]},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": _MESSAGE,
        "locations": {"type": "array", "items": _LOCATION},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "properties": _BAG,
    },
)

_RULE = _object(["id"], {"id": _TEXT, "shortDescription": _MESSAGE})  # 3.49

_DRIVER = _object(  # 3.19
    ["name"],
    {
        "name": _TEXT,
        "version": _TEXT,
        "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
        "rules": {"type": "array", "items": _RULE, "uniqueItems": True},
    },
)

_RUN = _object(  # 3.14
    ["tool"],
    {
        "tool": _object(["driver"], {"driver": _DRIVER}),  # 3.18
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": _RESULT},
    },
)

SARIF: Final[dict[str, Any]] = {  # 3.13
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        ["version", "runs"],
        {
            "$schema": {"type": "string", "format": "uri"},
            "version": {"const": "2.1.0"},
            "runs": {"type": "array", "items": _RUN},
        },
    ),
}
