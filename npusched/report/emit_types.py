"""The published form of an emitted file: its sidecar, and ``npusched emit --format json``."""

from __future__ import annotations

from typing import Literal

from npusched.report.execution_types import OutputFacts
from npusched.report.types import Published
from npusched.sim.proof import Verdict

EMIT_SCHEMA_VERSION = "1.0"


class EmittedPlan(Published, frozen=True, kw_only=True):
    """The plan that was emitted. ``source``: whose schedule it is, ours or one of Vela's.

    ``attempts``: plans made until the real sizes kept the budget. ``planned_bytes``: budget given
    to the last of them.
    """

    origin: str
    source: Literal["npusched", "vela"]
    objective: str
    cycles: int
    budget_memory: str
    budget_bytes: int | None
    planned_bytes: int | None
    attempts: int
    segments: int
    fused_ops: int
    rolling_buffers: int


class SizeFacts(Published, frozen=True, kw_only=True):
    """Bytes of one kind: as planned (null: not planned), and as the file has them."""

    what: Literal["sram", "arena", "constants", "streams", "file"]
    planned_bytes: int | None
    file_bytes: int


class CheckFacts(Published, frozen=True, kw_only=True):
    """A check that the file passed."""

    name: str
    meaning: str


class EmitProof(Published, frozen=True, kw_only=True):
    """The file executed on random inputs, against LiteRT's reference kernels."""

    verdict: Verdict
    inputs: int
    seed: int
    outputs: tuple[OutputFacts, ...]
    compared: int
    equal: int
    tensors: int
    covered: int
    missing: tuple[str, ...]
    exceptions: tuple[str, ...]


class BufferFacts(Published, frozen=True, kw_only=True):
    """A feature map of a kernel in memory.

    ``capacity_rows``: rows of a rolling buffer; 0: the whole tensor is there.
    """

    role: str
    name: str
    memory: Literal["scratch", "scratch_fast"]
    address: int
    first_row: int
    rows: int
    capacity_rows: int


class KernelFacts(Published, frozen=True, kw_only=True):
    """A kernel of the file and where it comes from; ``op`` and ``segment`` are the plan's.

    Rows and channels of its result are [first, end).
    """

    operator: int
    kernel: int
    name: str
    op: int
    segment: int
    source_ops: tuple[int, ...]
    rows: tuple[int, int]
    channels: tuple[int, int]
    block: tuple[int, int, int]
    buffers: tuple[BufferFacts, ...]


class EmitReport(Published, frozen=True, kw_only=True):
    """A deployable file: what it was made from, what it holds, what it passed."""

    schema_version: str
    npusched_version: str
    vela_version: str
    name: str
    sha256: str
    target: str
    accelerator: str
    system_config: str
    memory_mode: str
    schedule: Literal["plan", "identity"]
    plan: EmittedPlan | None
    options: tuple[str, ...]
    file_sha256: str
    npu_operators: int
    npu_kernels: int
    sizes: tuple[SizeFacts, ...]
    checks: tuple[CheckFacts, ...]
    proof: EmitProof | None
    kernels: tuple[KernelFacts, ...]
    warnings: tuple[str, ...]

    def size(self, what: str) -> SizeFacts | None:
        """The size of that kind, None if the file has none."""
        return next((each for each in self.sizes if each.what == what), None)
