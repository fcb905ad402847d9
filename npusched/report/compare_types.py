"""The published form of a comparison: what ``npusched compare --format json`` prints.

Figures of Vela's are its own, unchanged. The JSON Schema is generated from these types
(``npusched.report.compare_json``).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from npusched.hardware.target import Target
from npusched.report.types import ModelFacts, Published
from npusched.vela.join import JoinedOp, OneSided
from npusched.vela.notes import Note
from npusched.vela.options import VelaOptions
from npusched.vela.totals import SideTotals

COMPARE_SCHEMA_VERSION = "1.0"


class CompareTotals(Published, frozen=True, kw_only=True):
    """The same network four times.

    ``npusched``: our plan. ``vela``: as Vela reports it. ``vela_compatible``: our vela-compatible
    cost of Vela's schedule. ``vela_recosted``: our striped cost of it, on the basis of our plans.
    The last two are null where there is no schedule to cost.
    """

    npusched: SideTotals
    vela: SideTotals
    vela_compatible: SideTotals | None
    vela_recosted: SideTotals | None


class CompareProvenance(Published, frozen=True, kw_only=True):
    """Where each total comes from."""

    npusched: Literal["predicted"] = "predicted"
    vela: Literal["vela-estimated"] = "vela-estimated"
    vela_compatible: Literal["predicted"] = "predicted"
    vela_recosted: Literal["predicted"] = "predicted"
    measured: Literal["measured"] = "measured"
    executed: Literal["executed"] = "executed"


class VelaFacts(Published, frozen=True, kw_only=True):
    """Which Vela, how it was run, and whether its schedule is a plan over our ops.

    ``source``: run here, or read from files. ``core``: regor or legacy. ``options``: null for
    files. ``mismatches``: what keeps the schedule from being a plan of ours, or hides a part of it.
    """

    version: str
    core: str
    source: Literal["run", "files"]
    options: VelaOptions | None
    arena_limit_bytes: int | None
    cascades: int
    cascaded_ops: int
    is_plan: bool
    mismatches: tuple[str, ...]
    messages: tuple[str, ...]


class MeasuredFacts(Published, frozen=True, kw_only=True):
    """A user's measurement beside the predictions. ``source_op`` null = the network.

    Ratios are predicted / measured, of the quantity that was measured; null if there is no
    prediction.
    """

    source_op: tuple[int, int] | None
    cycles: float | None
    latency_s: float | None
    counters: dict[str, float]
    npusched_ratio: float | None
    vela_ratio: float | None
    vela_recosted_ratio: float | None


PurposeName: TypeAlias = Literal["feature_map", "weights", "table"]


class ExecutedRow(Published, frozen=True, kw_only=True):
    """Bytes of one purpose in one memory: counted in Vela's stream, predicted, estimated by Vela.

    ``read_bytes``: fetched block by block, halos and weights again; ``once_bytes`` without
    repetitions. Copies by DMA are in both. Predicted: our cost of Vela's ops, without burst
    inflation, which Vela's estimate has. Cascaded ops are costed whole in both.
    """

    memory: str
    purpose: PurposeName
    read_bytes: int
    once_bytes: int
    written_bytes: int
    predicted_read_bytes: int
    predicted_written_bytes: int
    vela_read_bytes: int
    vela_written_bytes: int


class ExecutedStreams(Published, frozen=True, kw_only=True):
    """What Vela's streams do, counted from their addresses (not run on data).

    ``staged_bytes``: weights and scales that DMAs copy; ``reread_bytes``: weights and scales that
    kernels fetch more than once. ``sram_peak_bytes``: high-water mark of the bytes touched in the
    arena, or in the staging memory where there is one.
    """

    kernels: int
    dmas: int
    dma_bytes: int
    staged_bytes: int
    predicted_staged_bytes: int
    vela_staged_bytes: int
    reread_bytes: int
    sram_peak_bytes: int
    rows: tuple[ExecutedRow, ...]


class CompareReport(Published, frozen=True, kw_only=True):
    """Everything that ``npusched compare`` knows. ``not_executed``: why ``executed`` is null."""

    schema_version: str
    npusched_version: str
    provenance: CompareProvenance
    model: ModelFacts
    target: Target
    budget_memory: str
    budget_bytes: int | None
    objective: str
    vela: VelaFacts
    totals: CompareTotals
    executed: ExecutedStreams | None
    not_executed: str
    ops: tuple[JoinedOp, ...]
    only_npusched: tuple[OneSided, ...]
    only_vela: tuple[OneSided, ...]
    notes: tuple[Note, ...]
    measured: tuple[MeasuredFacts, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show figures in a notebook, everything in them escaped."""
        from npusched.report.html.fragment import compare_fragment

        return compare_fragment(self)
