"""The published form of an explanation: what ``npusched explain --format json`` prints.

One of ``peak``, ``op``, ``fallbacks``, ``modes``, ``fusion`` and ``vela`` is set, by ``subject``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from npusched.hardware.target import Target
from npusched.report.explain_vela_types import VelaExplanation
from npusched.report.types import Interval, ModelFacts, Published, Reason

EXPLAIN_SCHEMA_VERSION = "1.0"

Subject: TypeAlias = Literal["peak", "op", "fallbacks", "mode", "fusion", "vela"]

Role: TypeAlias = Literal[
    "input",
    "output",
    "activation",
    "variable",
    "temporary",
    "rolling",
    "copy",
    "weights",
    "constants",
]
"""What a buffer is for. temporary: no tensor of the file, made by the decomposition of an op."""


LeverName: TypeAlias = Literal["within_1_percent", "within_10_percent", "floor"]


class PlanFigures(Published, frozen=True, kw_only=True):
    """The plan in a line. ``shown``: whose schedule it is."""

    shown: Literal["npusched", "vela"]
    sram_peak_bytes: int
    cycles: int
    cpu_cycles: int
    latency_s: float
    energy_nj: Interval
    dram_bytes: int
    flash_bytes: int
    constant_bytes: int


class PeakPart(Published, frozen=True, kw_only=True):
    """One buffer that is alive at the peak.

    ``size_bytes`` = ``data_bytes`` + ``padding_bytes`` (channels filled up to bricks of 16) +
    ``rounding_bytes``. ``source_op`` made it (null: an input, or constants). ``widened``: bytes
    per element of a temporary over those of the op's result.
    """

    tensor: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    layout: str
    rows: int
    size_bytes: int
    data_bytes: int
    padding_bytes: int
    rounding_bytes: int
    source_op: tuple[int, int] | None
    kind: str
    in_place: bool
    widened: float


class PeakShare(Published, frozen=True, kw_only=True):
    """All parts of one role together."""

    role: Role
    count: int
    size_bytes: int
    padding_bytes: int


class PeakLever(Published, frozen=True, kw_only=True):
    """Something that lowers the peak, as planned again. Changes are against this plan.

    within_1_percent, within_10_percent: the least SRAM that costs no more than that of the
    objective. floor: the least SRAM that any plan needs. ``how``: the option that gives it.
    """

    id: LeverName
    sram_peak_bytes: int
    cycles: int
    sram_change_bytes: int
    cycles_change: int
    how: str


class PeakFacts(Published, frozen=True, kw_only=True):
    """The moment at which most of the budget memory is taken, and by what.

    ``live_bytes`` = sum of the parts; ``gap_bytes`` = peak - live: lost between addresses.
    ``source_ops``: what runs then. The naive peak is that of the file's own tensors, unpadded, op
    by op. Channels of ``padded_channels`` elements are stored as ``stored_channels`` (of the part
    with the most padding; null if there is none).
    """

    step: int
    source_ops: tuple[tuple[int, int], ...]
    kinds: tuple[str, ...]
    stripes: int
    sram_peak_bytes: int
    live_bytes: int
    gap_bytes: int
    padding_bytes: int
    temporary_bytes: int
    constant_bytes: int
    padded_channels: int | None
    stored_channels: int | None
    naive_peak_bytes: int
    naive_peak_op: int | None
    shares: tuple[PeakShare, ...]
    parts: tuple[PeakPart, ...]
    levers: tuple[PeakLever, ...]


class ResourceFacts(Published, frozen=True, kw_only=True):
    """A resource that an op uses, and the op's cycles with more of it, costed again.

    ``bound_cycles``: of its kernels of which this resource is the busiest. ``doubled_as``: what
    twice as much is (the next accelerator, a bandwidth). Null: there is none.
    """

    name: str
    holds: str
    busy_cycles: int
    bound_cycles: int
    binds: bool
    helps_most: bool
    doubled_as: str
    doubled_cycles: int | None
    doubled_frees_cycles: int | None
    unlimited_cycles: int | None
    unlimited_frees_cycles: int | None


class KernelCount(Published, frozen=True, kw_only=True):
    """Kernels of one kind that do an op's work."""

    kind: str
    kernels: int
    cycles: int


class WeightUse(Published, frozen=True, kw_only=True):
    """Weights of an op: encoded once, read from their memory per inference.

    ``raw_bytes`` in the file, ``encoded_bytes`` without scales, ``stored_bytes`` with them.
    ``reads``: read bytes / stored bytes. ``uses``: kernel runs that need them.
    """

    raw_bytes: int
    encoded_bytes: int
    stored_bytes: int
    read_bytes: int
    reads: float
    memory: str
    modes: tuple[str, ...]
    uses: int


class OpExplanation(Published, frozen=True, kw_only=True):
    """One op of the file: what does its work, what it costs, and what binds it.

    ``share``: of the network's time. ``ideal_cycles``: its MACs with every MAC unit busy.
    ``macs``: as the hardware issues them; ``source_macs``: as the file states them.
    ``fused_operations``: activations and the like inside its kernels. ``temporary_bytes``: largest
    sum of its temporaries alive at once, as stored.
    """

    subgraph: int
    index: int
    kind: str
    name: str
    placement: Literal["npu", "cpu", "view", "folded"]
    cpu_reasons: tuple[Reason, ...]
    kernels: int
    fused_operations: int
    kernel_kinds: tuple[KernelCount, ...]
    cycles: int
    cpu_cycles: int
    share: float
    macs: int
    source_macs: int
    ideal_cycles: int
    mac_utilisation: float
    bound_by: str
    resources: tuple[ResourceFacts, ...]
    not_costed_again: str
    weights: WeightUse | None
    temporary_bytes: int
    result_bytes: int
    segments: tuple[int, ...]
    stripes: int
    stripe_rows: int


class FallbackOp(Published, frozen=True, kw_only=True):
    """An op on the CPU: the limits that it breaks, and what that costs.

    ``handed_bytes``: feature maps that change hands because of it, ``hand_off_cycles`` of the CPU
    for them. ``npu_families``: accelerators whose limits it keeps.
    """

    index: int
    kind: str
    name: str
    result_shape: tuple[int, ...]
    reasons: tuple[Reason, ...]
    cpu_cycles: int
    time_s: float
    share: float
    macs: int
    handed_bytes: int
    hand_off_cycles: int
    npu_families: tuple[str, ...]


class FamilyFallbacks(Published, frozen=True, kw_only=True):
    """How many ops of the file another family of accelerators leaves to the CPU."""

    family: str
    cpu_ops: int
    indices: tuple[int, ...]


class FallbackFacts(Published, frozen=True, kw_only=True):
    """Everything that the CPU runs. ``rules_of``: the Vela release whose limits were held against.

    ``npu_macs`` leave out the MACs of CPU ops, as Vela's figure does.
    """

    rules_of: str
    cpu: str
    ops: tuple[FallbackOp, ...]
    npu_ops: int
    npu_invocations: int
    macs: int
    npu_macs: int
    cpu_s: float
    calls_s: float
    share: float
    families: tuple[FamilyFallbacks, ...]


class BoundShare(Published, frozen=True, kw_only=True):
    """Cycles of the kernels that one resource sets the pace of."""

    bound_by: str
    cycles: int
    share: float


class ModeFacts(Published, frozen=True, kw_only=True):
    """A memory mode, planned. Where nothing fits, ``why_not`` says so and figures are null.

    ``counts``: what the SRAM figure counts. ``weight_reads``: bytes read from the constants'
    memory over the bytes stored there; 0 without constants.
    """

    memory_mode: str
    is_chosen: bool
    constants_in: str
    arena_in: str
    counts: str
    sram_peak_bytes: int | None
    cycles: int | None
    latency_s: float | None
    energy_nj: Interval | None
    dram_bytes: int | None
    flash_bytes: int | None
    constant_bytes: int | None
    weight_reads: float | None
    bound_by: tuple[BoundShare, ...]
    why_not: str


class ChainEnd(Published, frozen=True, kw_only=True):
    """Why a segment ends. Changes are of the whole network if it went on: longer minus planned.

    barrier: no segment can go on there (``why``). length: it has as many ops as are looked at.
    budget: what goes on needs ``needed_sram_bytes``. costs: it fits and is worse. For costs the
    changes are those of the best longer segment within the budget, for budget of the best of all.
    """

    segment: int
    last_op: tuple[int, int] | None
    next_op: tuple[int, int] | None
    last_kind: str
    next_kind: str
    reason: Literal["network_ends", "barrier", "length", "budget", "costs"]
    why: str
    cycles_change: int | None
    offchip_change_bytes: int | None
    objective_change: float | None
    needed_sram_bytes: int | None


class ChainFacts(Published, frozen=True, kw_only=True):
    """A segment of several ops, against the same ops one by one, each whole."""

    segment: int
    source_ops: tuple[tuple[int, int], ...]
    ops: int
    stripes: int
    stripe_rows: int
    sram_bytes: int
    rolling_bytes: int
    cycles: int
    unfused_cycles: int
    kept_bytes: int


class NormFacts(Published, frozen=True, kw_only=True):
    """A batch norm left as MUL (DIV) and ADD (SUB). ``into``: the op whose weights could take it.

    before: ``npusched fold`` does it. behind: in training or export. Else ``blocker`` says why not.
    """

    source_ops: tuple[int, ...]
    cycles: int
    into: int | None
    where: Literal["before", "behind", ""]
    blocker: str


class FusionFacts(Published, frozen=True, kw_only=True):
    """Chains of the plan and every end of a segment. ``kept_bytes``: maps that stay in rows."""

    chains: tuple[ChainFacts, ...]
    ends: tuple[ChainEnd, ...]
    segments: int
    batch_norms: tuple[NormFacts, ...]


class ExplainReport(Published, frozen=True, kw_only=True):
    """An explanation in figures; ``sentences`` say the same in words."""

    schema_version: str
    npusched_version: str
    vela_version: str | None
    subject: Subject
    model: ModelFacts
    target: Target
    budget_memory: str
    budget_bytes: int | None
    objective: str
    plan: PlanFigures
    sentences: tuple[str, ...]
    peak: PeakFacts | None
    op: OpExplanation | None
    fallbacks: FallbackFacts | None
    modes: tuple[ModeFacts, ...]
    fusion: FusionFacts | None
    vela: VelaExplanation | None
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Show the text form in a notebook, everything in it escaped."""
        from html import escape

        from npusched.report.explain_text import render_explanation

        return f"<pre>{escape(render_explanation(self))}</pre>"
