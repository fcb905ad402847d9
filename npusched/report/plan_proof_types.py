"""The published form of a plan's proof: what ``npusched prove --plan --format json`` prints."""

from __future__ import annotations

from typing import Literal

from npusched.report.execution_types import OutputFacts
from npusched.report.types import Published
from npusched.sim.proof import Mode, Verdict

PLAN_PROOF_SCHEMA_VERSION = "1.0"


class ProvedPlan(Published, frozen=True, kw_only=True):
    """The plan that was executed, and where it comes from.

    ``origin``: "planned" here, or the name of the plan file whose plan was made again. ``source``:
    whose schedule it is; Vela's own competes with ours.
    """

    origin: str
    source: Literal["npusched", "vela"]
    objective: str
    budget_memory: str
    budget_bytes: int | None
    sram_peak_bytes: int
    segments: int
    stripes: int
    npu_ops: int
    cpu_ops: int
    fused_ops: int
    rolling_buffers: int
    vela_version: str | None


class ProvedMaps(Published, frozen=True, kw_only=True):
    """Feature maps that the plan makes: read back from its memories, and compared.

    ``only_interpreted`` have no counterpart in the file: they are compared with the interpreter.
    """

    stored: int
    rolled: int
    compared: int
    equal: int
    only_interpreted: tuple[str, ...]


class PlanDifferenceFacts(Published, frozen=True, kw_only=True):
    """The first map, in execution order, with a value that differs: where, and both values."""

    tensor: str
    op: int
    kernel: str
    source_op: int
    kind: str
    row: int
    column: int
    channel: int
    got: float
    expected: float
    differing: int
    total: int
    against: str


class PlanProofReport(Published, frozen=True, kw_only=True):
    """A plan of ours, executed stripe by stripe, against LiteRT's reference kernels.

    ``fault``: why the plan could not be carried out; empty if it could.
    """

    schema_version: str
    npusched_version: str
    name: str
    sha256: str
    target: str
    plan: ProvedPlan
    verdict: Verdict
    mode: Mode
    inputs: int
    seed: int
    outputs_equal: bool
    outputs: tuple[OutputFacts, ...]
    maps: ProvedMaps
    interpreter_equal: bool
    difference: PlanDifferenceFacts | None
    fault: str
    exceptions: tuple[str, ...]
    warnings: tuple[str, ...]
