"""Plans that ``npusched plan --format json`` wrote, read back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from npusched.errors import NpuschedError
from npusched.report.json_form import read_json
from npusched.report.types import SCHEMA_VERSION

if TYPE_CHECKING:
    from npusched.report import PlanReport


def read_plan(form: bytes, name: str) -> PlanReport:
    """The report in a plan's JSON. Raises NpuschedError if it is none of this version's form."""
    try:
        found = read_json(form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(name, str(error).partition("\n")[0]) from None
    if found.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise _refused(name, f"its form is {found.schema_version}, not {SCHEMA_VERSION}")
    if not (math.isfinite(found.target.clock_hz) and found.target.clock_hz > 0):
        raise _refused(name, f"its NPU runs at {found.target.clock_hz:g} Hz")
    return found


def _refused(name: str, why: str) -> NpuschedError:
    return NpuschedError(
        f"{name} is no plan of this version",
        why,
        "write it with 'npusched plan MODEL -c NAME --format json -o FILE'",
    )
