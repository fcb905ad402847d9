"""Prove our own plans: bytes -> plan -> executed and compared -> published values."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from npusched import __version__
from npusched.api.options import PlanOptions
from npusched.api.plan_files import check_same, given_plan, options_of
from npusched.api.planning import content_of, make_plan, report_of
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement
from npusched.report.execution_types import OutputFacts
from npusched.report.plan_proof_types import (
    PLAN_PROOF_SCHEMA_VERSION,
    PlanDifferenceFacts,
    PlanProofReport,
    ProvedMaps,
    ProvedPlan,
)
from npusched.schedule import BufferKind
from npusched.sim import prove_plan as proving
from npusched.sim.proof import Mode
from npusched.sim.reference import random_inputs

if TYPE_CHECKING:
    from npusched.api.planning import Planned
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.types import CandidateMode

PLANNED = "planned"


def prove_plan(
    model: str | Path | bytes,
    target: str | Target,
    *,
    plan_file: str | Path | None = None,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
    inputs: int = 20,
    seed: int = 0,
    mode: str = "proof",
) -> PlanProofReport:
    """Plan a model, execute the plan, and compare it with LiteRT's reference kernels.

    Arguments as for ``plan``; ``inputs`` random ones by ``seed``. ``plan_file``: JSON that
    ``npusched plan`` wrote, whose plan is proved; all options but ``signature`` and
    ``input_shapes`` come from there. Raises what ``plan`` raises, NpuschedError for a file of
    another model, target or version, OSError for one that cannot be read, and SimError for what is
    not modelled and for missing LiteRT.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return prove_plan_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        plan_file=None if plan_file is None else Path(plan_file).read_bytes(),
        plan_name="" if plan_file is None else Path(plan_file).name,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            max_offchip_bytes=max_offchip_bytes,
            allow=tuple(allow),
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
            candidates=candidates,
        ),
        inputs=inputs,
        seed=seed,
        mode=mode,
    )


def prove_plan_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    plan_file: bytes | None = None,
    plan_name: str = "",
    options: PlanOptions | None = None,
    inputs: int = 20,
    seed: int = 0,
    mode: str = "proof",
) -> PlanProofReport:
    """Like ``prove_plan``, for bytes and a resolved target."""
    options = options or PlanOptions()
    given = None
    if plan_file is not None:
        given = given_plan(plan_file, plan_name, content, target)
        options = options_of(given, options)
    planned = make_plan(content, name=name, target=target, options=options)
    if given is not None:
        check_same(given, report_of(planned, target), plan_name)
    model, graph, _, warnings = planned.ready[:4]
    plan, graph = planned.plan, reordered(graph, planned.plan.order)
    proof = proving.prove_plan(
        model,
        graph,
        plan,
        random_inputs(model.subgraphs[graph.subgraph], inputs, seed),
        mode=Mode(mode),
    )
    return PlanProofReport(
        schema_version=PLAN_PROOF_SCHEMA_VERSION,
        npusched_version=__version__,
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        target=target.name,
        plan=_facts(planned, plan_name or PLANNED, options.objective),
        verdict=proof.verdict,
        mode=proof.mode,
        inputs=proof.inputs,
        seed=seed,
        outputs_equal=not proof.fault and not any(each.differing for each in proof.outputs),
        outputs=tuple(OutputFacts(**asdict(output)) for output in proof.outputs),
        maps=ProvedMaps(
            stored=proof.stored,
            rolled=proof.rolled,
            compared=proof.compared,
            equal=proof.equal,
            only_interpreted=proof.only_interpreted,
        ),
        interpreter_equal=proof.interpreter_equal,
        difference=None
        if proof.difference is None
        else PlanDifferenceFacts(**asdict(proof.difference)),
        fault=proof.fault,
        exceptions=proof.exceptions,
        warnings=(*model.notes, *warnings, *plan.notes),
    )


def _facts(planned: Planned, origin: str, objective: str) -> ProvedPlan:
    plan = planned.plan
    ops = planned.ready.graph.ops
    return ProvedPlan(
        origin=origin,
        source=planned.candidates.shown,
        objective=objective,
        budget_memory=plan.budget_memory,
        budget_bytes=plan.budget_bytes,
        sram_peak_bytes=plan.sram_peak_bytes,
        segments=len(plan.segments),
        stripes=sum(segment.stripes for segment in plan.segments),
        npu_ops=sum(op.placement is Placement.NPU for op in ops),
        cpu_ops=sum(op.placement is Placement.CPU for op in ops),
        fused_ops=sum(len(s.ops) for s in plan.segments if len(s.ops) > 1),
        rolling_buffers=sum(buffer.kind is BufferKind.ROLLING for buffer in plan.buffers),
        vela_version=planned.ready.sizes.vela_version,
    )
