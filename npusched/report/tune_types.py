"""The published form of ``npusched tune``: our frontier and Vela's results on one basis."""

from __future__ import annotations

from typing import Literal, TypeAlias

from npusched.hardware.target import Target
from npusched.report.types import Interval, ModelFacts, Published

TUNE_SCHEMA_VERSION = "1.0"

Source: TypeAlias = Literal["npusched", "vela"]
Goal: TypeAlias = Literal["floor", "knee", "near_fastest", "fastest", "least_energy"]


class TunePoint(Published, frozen=True, kw_only=True):
    """One way to run the model: a plan of ours, or a result of Vela's.

    ``cycles``, bytes, energy and objective are costed stripe by stripe like our plans (null for a
    result of Vela's that is no plan over our ops: ``reason``). ``adopted``: a point of our frontier
    that is Vela's own schedule. ``asked_bytes`` and what follows it are of Vela's results and
    adopted points only.
    """

    index: int
    source: Source
    adopted: bool
    sram_bytes: int
    arena_bytes: int
    cycles: int | None
    latency_s: float
    dram_bytes: int | None
    flash_bytes: int | None
    energy_nj: Interval | None
    objective: float | None
    dominated_by: int | None
    asked_bytes: int | None
    sram_bytes_vela_reported: int | None
    is_over_budget: bool
    cycles_vela_reported: int | None
    vela_options: str
    vela_command: str | None
    reason: str


class TuneChoice(Published, frozen=True, kw_only=True):
    """A point for a purpose; ``point`` is its index."""

    goal: Goal
    source: Source
    point: int


class NonMonotone(Published, frozen=True, kw_only=True):
    """More SRAM asked of Vela, and a slower result by its own report.

    With the limit ``from_bytes`` it takes ``best_cycles``; at the limits that were tried between
    ``first_bytes`` and ``last_bytes`` more, ``worst_cycles`` at ``worst_bytes``.
    """

    vela_options: str
    from_bytes: int
    best_cycles: int
    first_bytes: int
    last_bytes: int
    worst_bytes: int
    worst_cycles: int


class ArenaPartFacts(Published, frozen=True, kw_only=True):
    """One part of the tensor arena of TensorFlow Lite Micro."""

    kind: Literal["arena", "alignment", "npu_tables", "persistent"]
    size_bytes: int
    is_estimate: bool
    why: str


class ArenaAdvice(Published, frozen=True, kw_only=True):
    """``kTensorArenaSize`` for a point: the sum of its parts.

    ``arena_memory`` is where the array belongs; ``cache_bytes`` the separate buffer that the NPU
    driver is given as fast memory (Dedicated_Sram), ``constant_bytes`` lie in ``constant_memory``.
    """

    point: int
    size_bytes: int
    parts: tuple[ArenaPartFacts, ...]
    arena_memory: str
    cache_bytes: int
    constant_bytes: int
    constant_memory: str


class VelaIni(Published, frozen=True, kw_only=True):
    """A vela.ini that the commands name; to be written beside them."""

    name: str
    text: str


class TuneReport(Published, frozen=True, kw_only=True):
    """Our frontier and Vela's results for one model and target, and what they say.

    ``basis``: what Vela's points are judged by: striped, or vela_reported where one of them is no
    plan over our ops.
    """

    schema_version: str
    npusched_version: str
    vela_version: str | None
    model: ModelFacts
    target: Target
    budget_memory: str
    budget_bytes: int | None
    max_latency_s: float | None
    within_percent: float
    objective: str
    basis: Literal["striped", "vela_reported"]
    compilations: int
    frontier: tuple[TunePoint, ...]
    curve: tuple[TuneChoice, ...]
    recommended: tuple[TuneChoice, ...]
    over_budget: tuple[int, ...]
    non_monotone: tuple[NonMonotone, ...]
    arena_advice: tuple[ArenaAdvice, ...]
    vela_ini: VelaIni | None
    warnings: tuple[str, ...]

    def chosen(self, goal: Goal, source: Source) -> TunePoint | None:
        """The recommended point for a purpose; None if none keeps the limits."""
        for each in self.recommended:
            if (each.goal, each.source) == (goal, source):
                return self.frontier[each.point]
        return None

    def _repr_html_(self) -> str:
        """Show figures in a notebook, everything in them escaped."""
        from npusched.report.html.fragment import tune_fragment

        return tune_fragment(self)
