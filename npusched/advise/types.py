"""One piece of advice, what it changes, and what it was weighed against."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.hardware import Target
from npusched.ir import Model, Subgraph
from npusched.schedule import Plan


class Severity(StrEnum):
    """How much it matters."""

    INFO = "info"
    WARNING = "warning"


class Confidence(StrEnum):
    """How sure the predicted effect is.

    HIGH: the very change was planned, weights and all. MEDIUM: weights will be trained or ranges
    calibrated anew, so that their encoding differs. LOW: a stand-in was planned.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


BANDS: Final = {Confidence.HIGH: 0.02, Confidence.MEDIUM: 0.15, Confidence.LOW: 0.5}
"""Half width of the band around a predicted change, as a share of that change."""

FLOOR: Final = 0.005
"""The band is at least this share of the figure before the change: layouts and blocks jump."""


MIN_GAIN: Final = 0.005
"""Share of the objective that a change must gain to be worth a word."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted change if the advice is followed; None = not predicted.

    ``cycles``: NPU cycles; ``cpu_cycles`` at the CPU's clock; ``latency_s`` has both, calls and
    hand-offs. ``constant_bytes``: encoded weights and tables; ``offchip_bytes``: moved from and to
    memories off the chip; ``cpu_ops``: ops of the file that the CPU runs.
    """

    sram_bytes: int | None = None
    cycles: int | None = None
    energy_nj: float | None = None
    latency_s: float | None = None
    cpu_cycles: int | None = None
    offchip_bytes: int | None = None
    constant_bytes: int | None = None
    cpu_ops: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan costs: the fields of ``Effect``, absolute."""

    sram_bytes: int
    cycles: int
    energy_nj: float
    latency_s: float
    cpu_cycles: int
    offchip_bytes: int
    constant_bytes: int
    cpu_ops: int

    def since(self, before: Figures) -> Effect:
        """The change from ``before`` to these."""
        return Effect(
            sram_bytes=self.sram_bytes - before.sram_bytes,
            cycles=self.cycles - before.cycles,
            energy_nj=self.energy_nj - before.energy_nj,
            latency_s=self.latency_s - before.latency_s,
            cpu_cycles=self.cpu_cycles - before.cpu_cycles,
            offchip_bytes=self.offchip_bytes - before.offchip_bytes,
            constant_bytes=self.constant_bytes - before.constant_bytes,
            cpu_ops=self.cpu_ops - before.cpu_ops,
        )


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth changing. ``id`` names the rule and stays the same for ever."""

    id: str
    severity: Severity
    message: str
    effect: Effect
    confidence: Confidence


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned instead: another file, another target, or another budget (None: as it is).

    ``lifts_budget``: no budget but what the target has.
    """

    content: bytes | None = None
    target: Target | None = None
    sram_bytes: int | None = None
    lifts_budget: bool = False


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a rule would like to see planned.

    Of the proposals with one ``group`` only the best is kept. ``what`` says what to change, and
    why, without figures; ``price`` what comes with it besides figures (training, an interface).
    ``least_gain``: share of the objective that it must save. ``free``: a change that may cost
    nothing, and what is said of it if that is so.
    """

    rule: str
    group: str
    what: str
    change: Change
    severity: Severity = Severity.INFO
    confidence: Confidence = Confidence.HIGH
    price: str = ""
    least_gain: float = MIN_GAIN
    free: tuple[str, Change] | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An advice with the proposal behind it, so that it can be applied."""

    advice: Advice
    proposal: Proposal
    gain: float


Replan: TypeAlias = Callable[[Change, bool], "Figures | None"]
"""Plans a change; with True quickly (weight sizes are estimated, no candidates of Vela's).

None where nothing can be planned: the file is refused, or no plan fits the budget.
"""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What advice is asked about: a model on a target, and its best plan.

    ``sram_bytes``: the budget that was asked for, None for what the target has. ``fits``: False if
    no plan keeps the limits, or the board has less; then ``plan`` needs as little as can be.
    ``objective``: what advice has to lower: cycles (the time), energy, offchip or sram; of what
    does not fit, what there is too little of.
    """

    model: Model
    graph: OpGraph
    target: Target
    plan: Plan
    objective: str
    sram_bytes: int | None = None
    fits: bool = True

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph that was planned."""
        return self.model.subgraphs[self.graph.subgraph]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: when it speaks, which change it plans, and what it proposes for a case."""

    id: str
    title: str
    when: str
    plans: str
    propose: Callable[[Case], list[Proposal]]
