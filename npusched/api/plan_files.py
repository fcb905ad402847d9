"""Plans that ``npusched plan --format json`` wrote, read back."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import msgspec

from npusched import __version__
from npusched.api.options import PlanOptions
from npusched.errors import NpuschedError
from npusched.report.json_form import read_json
from npusched.report.types import SCHEMA_VERSION

if TYPE_CHECKING:
    from npusched.hardware import Target
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


def given_plan(form: bytes, name: str, content: bytes, target: Target) -> PlanReport:
    """The report in a plan's JSON. Raises NpuschedError unless it is of this model and target."""
    found = read_plan(form, name)
    if found.npusched_version != __version__:
        raise NpuschedError(
            f"{name} was made by another version",
            f"by npusched {found.npusched_version}, this is {__version__}",
            "plan again",
        )
    if found.model.sha256 != hashlib.sha256(content).hexdigest():
        raise NpuschedError(
            f"{name} was made for another model",
            f"for {found.model.name}, SHA-256 {found.model.sha256[:12]}…",
            "name the model that was planned",
        )
    if found.target != target:
        raise NpuschedError(
            f"{name} was made for another target",
            f"for {found.target.name}"
            + (" with other options" if found.target.name == target.name else ""),
            "give --config and the options of the target as for the plan",
        )
    return found


def options_of(given: PlanReport, options: PlanOptions) -> PlanOptions:
    """The options that a plan was made with; what the file does not say is as asked."""
    return msgspec.structs.replace(
        options,
        sram=given.budget_bytes if given.verdict == "fits" else None,
        objective=given.objective,
        lambda_cycles_per_byte=given.lambda_cycles_per_byte,
        max_offchip_bytes=given.max_offchip_bytes,
        allow=given.allowed,
        candidates=given.candidates.mode,
        use_vela=options.use_vela and given.vela_version is not None,
    )


def check_same(given: PlanReport, again: PlanReport, name: str) -> None:
    """Refuse a file whose plan cannot be made again from what it says (NpuschedError)."""
    parts = ("model", "vela_version", "totals", "segments", "ops", "allocation")
    unequal = [part for part in parts if getattr(given, part) != getattr(again, part)]
    if unequal:
        raise NpuschedError(
            f"the plan of {name} cannot be made again",
            f"different now: {', '.join(unequal)}",
            "give --signature and --input-shape as for the plan; if it was edited or Vela is "
            "another one, plan again",
        )
