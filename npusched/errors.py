"""The errors a user can meet: each says what, why and what to do, and carries its values.

Every error is one of the classes below; anything else that escapes is a fault of ours
(exit code 3). ``values`` are plain JSON values, so that an error can be printed as JSON and
survives pickling between processes.
"""

from __future__ import annotations

import os
import traceback
from typing import ClassVar, TypeAlias

JsonValue: TypeAlias = (
    "bool | int | float | str | list[JsonValue] | tuple[JsonValue, ...] | "
    "dict[str, JsonValue] | None"
)


class NpuschedError(Exception):
    """Base of all errors meant for the user.

    ``what`` is one line naming the failure, ``why`` one line with the failing values, ``hint``
    one line that says what to do next. ``values`` holds the same facts for programs.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, why: str = "", hint: str = "", **values: JsonValue) -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint
        self.values = values

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.why, self.hint, self.values))

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.why, self.hint) if part)

    def as_dict(self) -> dict[str, JsonValue]:
        """Return the JSON form: kind, what, why, hint and the values."""
        return {
            "kind": self.kind,
            "what": self.what,
            "why": self.why,
            "hint": self.hint,
            **self.values,
        }


class ModelError(NpuschedError):
    """The model file cannot be read, or describes something that cannot be planned."""

    kind: ClassVar[str] = "model"


class TargetError(NpuschedError):
    """A hardware description, option or budget text is wrong or contradicts itself."""

    kind: ClassVar[str] = "target"


class InfeasibleError(NpuschedError):
    """No plan keeps a limit.

    ``values`` has need_bytes, have_bytes and smallest_feasible_bytes of the budget, or the same
    with ``_offchip_bytes`` of the limit on off-chip bytes; need_s and have_s of a latency.
    """

    kind: ClassVar[str] = "infeasible"
    exit_code: ClassVar[int] = 1


class VelaError(NpuschedError):
    """Vela failed, crashed, hung or is not installed."""

    kind: ClassVar[str] = "vela"
    exit_code: ClassVar[int] = 3


class SimError(NpuschedError):
    """A command stream or weight stream cannot be executed: damaged, or beyond what is modelled.

    Also raised where an optional part is missing (the reference kernels of ``ai-edge-litert``).
    """

    kind: ClassVar[str] = "sim"


class PlanError(SimError):
    """A plan is wrong: a value is not where its buffers, rows and addresses say."""


class EmitError(NpuschedError):
    """A plan or a model cannot be turned into a deployable file."""

    kind: ClassVar[str] = "emit"


class ReleaseError(EmitError):
    """A finished file that failed a check or its proof: it is not written."""

    exit_code: ClassVar[int] = 1


class InternalError(NpuschedError):
    """A fault of ours."""

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 3


def internal_error(error: BaseException) -> InternalError:
    """What to tell a user about an exception that should not have got out."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    said = (str(error).splitlines() or [""])[0]
    return InternalError(
        "internal error: this is a fault in npusched",
        f"{type(error).__name__} at {where}" + (f": {said}" if said else ""),
        "run again with --debug and report the traceback together with the model",
    )


def _rebuild(
    cls: type[NpuschedError], what: str, why: str, hint: str, values: dict[str, JsonValue]
) -> NpuschedError:
    return cls(what, why, hint, **values)
