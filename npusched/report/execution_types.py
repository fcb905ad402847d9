"""The published forms of an execution: what ``npusched inspect`` and ``prove`` print as JSON.

Figures are counted from the stream's own addresses (``sim.figures``), not estimated. ``operator``
is the number of the NPU operator in the file, 0 for a bare stream.
"""

from __future__ import annotations

from typing import Literal

from npusched.report.types import Published
from npusched.sim.figures import Purpose
from npusched.sim.hazards import HazardKind
from npusched.sim.proof import Mode, Verdict

EXECUTION_SCHEMA_VERSION = "1.1"


class MemoryUse(Published, frozen=True, kw_only=True):
    """A memory of an NPU operator: its size, how many bytes are touched, the high-water mark.

    ``peak_bytes``: most bytes alive at a time in command order, from the first write to the last
    read (results to the end); for constants the bytes touched.
    """

    operator: int
    memory: str
    size_bytes: int
    touched_bytes: int
    high_water_bytes: int
    peak_bytes: int


class TrafficFacts(Published, frozen=True, kw_only=True):
    """Bytes of one purpose in one memory, all operators.

    ``read_bytes`` counts each element that a kernel touches once, ``fetched_bytes`` what the NPU
    fetches block by block (halos and weights again).
    """

    memory: str
    purpose: Purpose
    read_bytes: int
    written_bytes: int
    fetched_bytes: int


class ExecutedFacts(Published, frozen=True, kw_only=True):
    """What the streams do, all operators together.

    ``macs`` are without padding of depths and blocks. ``sram_peak_bytes`` is the largest
    high-water mark of ``scratch_fast`` where the file has one apart, else of ``scratch``.
    ``constant_bytes``: weights, scales and tables in the file (0 for a bare stream).
    ``stream_bytes``: command words.
    """

    npu_operators: int
    npu_ops: int
    kernels: dict[str, int]
    macs: int
    dmas: int
    dma_bytes: int
    waits: int
    sram_peak_bytes: int
    constant_bytes: int
    stream_bytes: int
    traffic: tuple[TrafficFacts, ...]


class HazardFacts(Published, frozen=True, kw_only=True):
    """A finding of the static checks, at a byte of the stream."""

    operator: int
    kind: HazardKind
    offset_bytes: int
    where: str
    why: str


class StreamOpFacts(Published, frozen=True, kw_only=True):
    """A kernel or DMA, in issue order.

    Shapes are (h, w, c), (0, 0, 0) for a DMA; ``ifm2`` is null without a second feature map.
    ``read_from`` and ``written_to`` are memories. ``start_cycle`` and ``end_cycle`` are predicted,
    from the operator's begin; null where no time is predicted.
    """

    operator: int
    offset_bytes: int
    kind: str
    dtype: str
    ifm: tuple[int, int, int]
    ifm2: tuple[int, int, int] | None
    ofm: tuple[int, int, int]
    block: tuple[int, int, int]
    macs: int
    weight_bytes: int
    scale_bytes: int
    dma_bytes: int
    read_from: str
    written_to: str
    start_cycle: int | None
    end_cycle: int | None


class FitFacts(Published, frozen=True, kw_only=True):
    """Whether the file fits a target; ``reasons`` say why not."""

    target: str
    fits: bool
    reasons: tuple[str, ...]


TIMING_COVERS = (
    "kernels, DMAs and waits of the NPU; not ops of the host, driver calls, cache maintenance, "
    "fetching commands, nor kernels and DMAs that slow each other down in one memory"
)


class TimingFacts(Published, frozen=True, kw_only=True):
    """Predicted time of these very streams on a target; nothing was measured.

    ``cycles``: of the NPU, all operators one after the other (``operator_cycles`` each), until the
    last kernel and DMA have ended; ``latency_s`` the same at ``clock_hz``. In ``kernel_cycles`` a
    kernel runs, in ``idle_cycles`` none does (waits for DMAs); ``dma_cycles`` are of all DMAs,
    hidden or not. ``call_s``: estimated driver calls and cache maintenance, not in ``latency_s``.
    ``covers`` says what the figures hold.
    """

    basis: Literal["predicted"]
    covers: str
    target: str
    system_config: str
    memory_mode: str
    clock_hz: float
    cycles: int
    latency_s: float
    kernel_cycles: int
    idle_cycles: int
    dma_cycles: int
    operator_cycles: tuple[int, ...]
    call_s: float


class InspectReport(Published, frozen=True, kw_only=True):
    """What is inside a compiled file or a bare stream.

    ``accelerator``: the one it was made for. ``fit`` is null if no target was named, ``timing``
    also if the target has another accelerator; ``untimed`` then says why.
    ``host_ops``: ops that stay on the host, by kind.
    """

    schema_version: str
    npusched_version: str
    name: str
    sha256: str
    form: Literal["tflite", "stream"]
    accelerator: str
    fit: FitFacts | None
    timing: TimingFacts | None
    untimed: str
    host_ops: dict[str, int]
    totals: ExecutedFacts
    ops: tuple[StreamOpFacts, ...]
    memory_map: tuple[MemoryUse, ...]
    hazards: tuple[HazardFacts, ...]


class OutputFacts(Published, frozen=True, kw_only=True):
    """A graph output: differing values of all inputs, and the largest difference."""

    name: str
    values: int
    differing: int
    largest: float


class IntermediateFacts(Published, frozen=True, kw_only=True):
    """Kernel results looked for among the tensors of the original.

    ``compared`` kernels of 8 and 16 bits, ``equal`` of them found verbatim; ``temporaries`` have
    no counterpart. ``tensors`` should be in memory; ``covered`` of them were found whole,
    ``coverage`` is their share, ``missing`` were not found. ``absorbed`` tensors never reach
    memory; ``reasons`` counts them by reason. ``different`` ones between operators differ;
    ``skipped`` kernels were not looked for.
    """

    compared: int
    equal: int
    coverage: float
    tensors: int
    covered: int
    temporaries: tuple[str, ...]
    missing: tuple[str, ...]
    absorbed: tuple[str, ...]
    reasons: dict[str, int]
    different: tuple[str, ...]
    skipped: int


class DifferenceFacts(Published, frozen=True, kw_only=True):
    """The first kernel that differs: where in the stream, in which tensor, both values.

    ``op`` is the source op that makes the tensor, -1 unknown.
    """

    operator: int
    kernel: str
    offset_bytes: int
    tensor: str
    op: int
    kind: str
    row: int
    column: int
    channel: int
    got: int
    expected: int
    differing: int
    total: int


class ProveReport(Published, frozen=True, kw_only=True):
    """A compiled file against LiteRT's reference kernels on the original.

    ``compiler``: "Vela" and its version, or the name of the file that was given.
    ``single_rounding``: kernels that round once, as the reference does (proof mode).
    """

    schema_version: str
    npusched_version: str
    name: str
    sha256: str
    target: str
    accelerator: str
    compiler: str
    verdict: Verdict
    mode: Mode
    inputs: int
    seed: int
    outputs_equal: bool
    outputs: tuple[OutputFacts, ...]
    intermediates: IntermediateFacts
    difference: DifferenceFacts | None
    single_rounding: int
    exceptions: tuple[str, ...]
    hazards: tuple[HazardFacts, ...]
    executed: ExecutedFacts
    memory_map: tuple[MemoryUse, ...]
    warnings: tuple[str, ...]


class RunOutput(Published, frozen=True, kw_only=True):
    """A graph output of a run: shape with the batch in front, extremes, its first values.

    ``sha256``: of all values (C order, little-endian).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    lowest: float
    highest: float
    first: tuple[float, ...]
    sha256: str


class RunReport(Published, frozen=True, kw_only=True):
    """A run: on what, how many inputs, what came out. ``seed`` is null for given inputs."""

    schema_version: str
    npusched_version: str
    name: str
    sha256: str
    accelerator: str
    npu_operators: int
    npu_ops: int
    host_ops: int
    inputs: int
    seed: int | None
    outputs: tuple[RunOutput, ...]
