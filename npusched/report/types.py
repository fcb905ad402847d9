"""The published form of a plan: what ``npusched plan --format json`` prints, field by field.

Values are exact (bytes, cycles); seconds and nanojoules are floats. The JSON Schema is generated
from these types (``npusched.report.schema``). Bump ``SCHEMA_VERSION`` when a field changes its
meaning or goes away.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from npusched.hardware.target import Target

SCHEMA_VERSION = "1.0"

AdviceMode: TypeAlias = Literal["none", "quick", "all"]
"""What a plan's report says of changes: nothing, what a glance tells, or all that help."""


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of published values."""


class Interval(Published, frozen=True, kw_only=True):
    """A figure known within a factor."""

    low: float
    typical: float
    high: float


class ModelFacts(Published, frozen=True, kw_only=True):
    """The model as its file states it.

    ``macs`` counts source ops (CPU ops included; conv, depthwise, transpose conv, fully
    connected, batch matmul, LSTM and SVDF only). ``naive_peak_bytes`` is the largest sum of live
    unpadded tensors, graph inputs and outputs included, at op ``naive_peak_op``. ``tensor_types``
    counts the graph's inputs and the results of its ops by element type.
    """

    name: str
    sha256: str
    size_bytes: int
    subgraph: int
    subgraph_name: str = ""
    op_count: int
    op_counts: dict[str, int]
    tensor_types: dict[str, int]
    macs: int
    const_bytes: int
    naive_peak_bytes: int
    naive_peak_op: int | None
    notes: tuple[str, ...]


class Totals(Published, frozen=True, kw_only=True):
    """Sums over the plan. ``cycles`` are NPU-op cycles at the NPU clock.

    ``npu_cycles`` leaves memory stalls out. ``latency_s`` has NPU and CPU time, hand-offs and
    the cost of invoking the NPU. ``dram_bytes``/``flash_bytes`` are transferred bytes per
    inference, ``dispatches`` kernel calls.
    """

    cycles: int
    npu_cycles: int
    cpu_cycles: int
    latency_s: float
    macs: int
    energy_nj: Interval
    sram_peak_bytes: int
    sram_bound_bytes: int
    dram_bytes: int
    flash_bytes: int
    sram_bytes: int
    constant_bytes: int
    dispatches: int
    npu_invocations: int


class FusionLevel(Published, frozen=True, kw_only=True):
    """One level of fusion (docs/planning.md): feature-map bytes (logical) and kernel calls."""

    level: Literal["as_stored", "L0", "L1", "L2", "L3", "plan"]
    traffic_bytes: int
    dispatches: int
    cycles: int
    energy_nj: Interval


class BoundFacts(Published, frozen=True, kw_only=True):
    """How far the plan may be from the best one of ``scope``, in the plan's own objective.

    ``cycles``: NPU cycles that no plan of any scope can go below (compulsory work).
    """

    cycles: int
    objective: float
    value: float
    gap: float
    proof: Literal["optimal", "bounded", "feasible"]
    scope: str


CandidateMode: TypeAlias = Literal["none", "asked", "sweep"]
"""Which of Vela's schedules compete with ours."""


class Contestant(Published, frozen=True, kw_only=True):
    """A plan that competed: its objective, NPU cycles and peak. ``options``: of Vela, "" for ours.

    Vela's plans are costed stripe by stripe like ours, not as Vela reports them.
    """

    value: float
    cycles: int
    sram_peak_bytes: int
    options: str


class CandidateFacts(Published, frozen=True, kw_only=True):
    """Vela's own schedules beside our plan; the better one is shown.

    ``results`` of Vela were looked at, ``plans`` of them are plans of the same ops (``reasons``
    says why others are not). ``ours`` None: no plan of ours fits the budget; ``vela`` None: none of
    Vela's does.
    """

    mode: CandidateMode
    results: int
    plans: int
    reasons: tuple[str, ...]
    shown: Literal["npusched", "vela"]
    ours: Contestant | None
    vela: Contestant | None


class Reason(Published, frozen=True, kw_only=True):
    """A limit that keeps an op off the NPU."""

    limit: str
    value: str
    text: str
    fix: str


class SourceOp(Published, frozen=True, kw_only=True):
    """One op of the file and what became of it. ``scheduled_ops`` are ids in ``ops``."""

    subgraph: int
    index: int
    kind: str
    name: str
    placement: Literal["npu", "cpu", "view", "folded"]
    cpu_reasons: tuple[Reason, ...]
    scheduled_ops: tuple[int, ...]


class SegmentFacts(Published, frozen=True, kw_only=True):
    """Ops that run together, stripe by stripe (or one op, whole).

    ``reads_from``: the segments that write what it reads, in order.
    """

    index: int
    placement: Literal["npu", "cpu"]
    ops: tuple[int, ...]
    source_ops: tuple[tuple[int, int], ...]
    stripe_rows: int
    stripes: int
    buffers: tuple[int, ...]
    weights: tuple[WeightFacts, ...]
    cycles: int
    cpu_cycles: int
    dram_bytes: int
    flash_bytes: int
    energy_nj: Interval
    sram_bytes: int
    bound_by: str
    unfused_cycles: int
    unfused_energy_nj: Interval
    stops_because: str
    reads_from: tuple[int, ...] = ()


class WeightFacts(Published, frozen=True, kw_only=True):
    """Encoded weights and scales of one op of a segment."""

    op: int
    mode: Literal["streamed", "resident"]
    size_bytes: int
    provenance: Literal["exact", "estimated"]


class OpFacts(Published, frozen=True, kw_only=True):
    """One scheduled op. ``cycles`` over all its stripes; cpu ops have cycles 0, see cpu_cycles."""

    id: int
    source_ops: tuple[tuple[int, int], ...]
    kind: str
    fused: tuple[str, ...]
    name: str
    placement: Literal["npu", "cpu"]
    segment: int
    count: int
    ifm_shapes: tuple[tuple[int, ...], ...]
    ofm_shape: tuple[int, ...]
    dtype: str
    layout: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    block: tuple[int, int, int] | None
    macs: int
    cycles: int
    npu_cycles: int
    cpu_cycles: int
    memory_cycles: dict[str, int]
    bytes_read: dict[str, int]
    bytes_written: dict[str, int]
    bound_by: str
    fusion_blocker: str


class AllocationFacts(Published, frozen=True, kw_only=True):
    """One buffer with its address; alive in segments [first_step, end_step)."""

    tensor: str
    kind: Literal["feature_map", "rolling", "weights", "lut"]
    memory: str
    rows: int
    offset: int
    size_bytes: int
    logical_bytes: int
    first_step: int
    end_step: int


class Delta(Published, frozen=True, kw_only=True):
    """Predicted change if an advice is followed; None = not predicted."""

    sram_bytes: int | None = None
    cycles: int | None = None
    energy_nj: float | None = None
    latency_s: float | None = None
    cpu_cycles: int | None = None
    offchip_bytes: int | None = None
    constant_bytes: int | None = None
    cpu_ops: int | None = None


class Advice(Published, frozen=True, kw_only=True):
    """One thing worth changing."""

    id: str
    severity: Literal["info", "warning"]
    message: str
    delta: Delta
    confidence: Literal["low", "medium", "high"]
    band: float = 0.0
    changes: Literal["model", "target", "budget", ""] = ""
    gain: float | None = None


class Provenance(Published, frozen=True, kw_only=True):
    """Where each class of figures comes from."""

    cycles: Literal["predicted"]
    bytes: Literal["predicted"]
    energy: Literal["predicted"]
    weights: Literal["exact", "estimated", "mixed", "none"]


class PlanReport(Published, frozen=True, kw_only=True):
    """Everything that ``npusched plan`` knows."""

    schema_version: str
    npusched_version: str
    vela_version: str | None
    verdict: Literal["fits", "no_budget"]
    provenance: Provenance
    model: ModelFacts
    target: Target
    budget_memory: str
    budget_bytes: int | None
    objective: str
    lambda_cycles_per_byte: float
    max_offchip_bytes: int | None
    allowed: tuple[str, ...]
    totals: Totals
    fusion_levels: tuple[FusionLevel, ...]
    bound: BoundFacts
    candidates: CandidateFacts
    source_ops: tuple[SourceOp, ...]
    segments: tuple[SegmentFacts, ...]
    ops: tuple[OpFacts, ...]
    allocation: tuple[AllocationFacts, ...]
    live_sram_bytes: tuple[int, ...]
    advice: tuple[Advice, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show figures in a notebook, everything in them escaped."""
        from npusched.report.html.fragment import plan_fragment

        return plan_fragment(self)
