"""Deployable files: bytes -> plan -> emitted -> checked (and executed) -> file and sidecar."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from npusched import __version__
from npusched.api.files import write_in_one_step
from npusched.api.options import PlanOptions
from npusched.api.plan_files import check_same, given_plan, options_of
from npusched.api.planning import Planned, content_of, make_plan, read, report_of
from npusched.emission.container import write_file
from npusched.emission.fitting import fit
from npusched.emission.gate import MEANINGS, Gate, arena_bytes, check_file, used_bytes
from npusched.emission.identity import emit_identity
from npusched.emission.matching import KernelMatch, match_kernels
from npusched.emission.parts import Emitted
from npusched.emission.planned import emit_plan
from npusched.emission.safe_rolling import with_safe_rolling
from npusched.emission.serial import with_serial_kernels
from npusched.emission.template import Template, make_template
from npusched.errors import EmitError, ReleaseError
from npusched.report.emit_types import (
    EMIT_SCHEMA_VERSION,
    BufferFacts,
    CheckFacts,
    EmitProof,
    EmitReport,
    EmittedPlan,
    KernelFacts,
    SizeFacts,
)
from npusched.report.execution_types import OutputFacts
from npusched.schedule import BufferKind, Plan
from npusched.sim.container import SCRATCH
from npusched.sim.proof import Proof, Verdict, prove
from npusched.sim.reference import random_inputs

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Model, Shape
    from npusched.report import PlanReport
    from npusched.report.types import CandidateMode
    from npusched.sim.run import Executable

SUPPORTED_VELA = "5.2."
"""Versions of Vela whose streams and container are known: those that begin so."""

PLANNED = "planned"


class EmitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a file, beside the plan.

    ``identity``: Vela's own schedule instead of a plan. ``safe_rolling``: rolling buffers as large
    as Vela would make them; ``serial_kernels``: no kernel starts before the one before has ended.
    ``prove``: random inputs that the file is executed on, by ``seed``.
    """

    identity: bool = False
    safe_rolling: bool = False
    serial_kernels: bool = False
    prove: int = 0
    seed: int = 0


def sidecar_of(output: Path) -> Path:
    """Name of the sidecar: OUT.json for OUT.tflite, else the file's name with .json behind it."""
    if output.suffix == ".tflite":
        return output.with_suffix(".json")
    return output.with_name(output.name + ".json")


class EmitResult(NamedTuple):
    """A deployable file, and what is known about it."""

    content: bytes
    report: EmitReport

    @property
    def sidecar(self) -> str:
        """The report as JSON, as it is written beside the file."""
        return msgspec.json.format(msgspec.json.encode(self.report), indent=2).decode() + "\n"

    def write(self, output: str | Path) -> tuple[Path, Path]:
        """Write the file, and the sidecar beside it (.json); return both names.

        Each appears in one step. Raises NpuschedError if one cannot be written.
        """
        path = Path(output)
        beside = sidecar_of(path)
        write_in_one_step(beside, self.sidecar.encode(errors="backslashreplace"))
        write_in_one_step(path, self.content)
        return path, beside


def emit(
    model: str | Path | bytes,
    target: str | Target,
    *,
    output: str | Path | None = None,
    plan_file: str | Path | None = None,
    identity: bool = False,
    safe_rolling: bool = False,
    serial_kernels: bool = False,
    prove: int = 0,
    seed: int = 0,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    input_shapes: Mapping[str, Shape] | None = None,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
) -> EmitResult:
    """Plan a model and make the deployable .tflite for an Ethos-U55 or U65 of it.

    Arguments as for ``plan``; ``plan_file``: JSON that ``npusched plan`` wrote, whose plan is
    emitted; ``identity`` to ``seed`` as in ``EmitSettings``.
    ``output``: also write it there, with a sidecar beside it (.json).

    Raises what ``plan`` raises, VelaError, EmitError for what cannot be emitted, and its kind
    ReleaseError for a file that did not pass the checks: nothing is written then.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    result = emit_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        plan_file=None if plan_file is None else Path(plan_file).read_bytes(),
        plan_name="" if plan_file is None else Path(plan_file).name,
        settings=EmitSettings(
            identity=identity,
            safe_rolling=safe_rolling,
            serial_kernels=serial_kernels,
            prove=prove,
            seed=seed,
        ),
        options=PlanOptions(
            sram=sram,
            objective=objective,
            lambda_cycles_per_byte=lambda_cycles_per_byte,
            max_offchip_bytes=max_offchip_bytes,
            allow=tuple(allow),
            input_shapes=input_shapes,
            use_cache=use_cache,
            candidates=candidates,
        ),
    )
    if output is not None:
        result.write(output)
    return result


def emit_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    plan_file: bytes | None = None,
    plan_name: str = "",
    settings: EmitSettings | None = None,
    options: PlanOptions | None = None,
) -> EmitResult:
    """Like ``emit``, for bytes and a resolved target."""
    settings, options = settings or EmitSettings(), options or PlanOptions()
    model = read(content, name, options.input_shapes)
    given = None
    if plan_file is not None:
        given = given_plan(plan_file, plan_name, content, target)
        options = options_of(given, options)
    template = _template(content, target, use_cache=options.use_cache)
    made = _Made(emit_identity(template), None, 1, None)
    if not settings.identity:
        made = _fitting(content, name, template, options, settings, given, plan_name)
    if settings.serial_kernels:
        made = made._replace(emitted=with_serial_kernels(made.emitted))
    written = write_file(made.emitted)
    limit = None if made.planned is None else options.budget_bytes(target)
    gate = check_file(written, made.emitted, target, limit)
    executable = gate.require()
    proof = _prove(model, executable, settings) if settings.prove else None
    return EmitResult(
        written,
        EmitReport(
            schema_version=EMIT_SCHEMA_VERSION,
            npusched_version=__version__,
            vela_version=template.result.vela_version,
            name=name,
            sha256=hashlib.sha256(content).hexdigest(),
            target=target.name,
            accelerator=template.accelerator.name,
            system_config=target.system_config,
            memory_mode=target.memory_mode,
            schedule="identity" if made.planned is None else "plan",
            plan=_plan_facts(made, plan_name or PLANNED, options, target),
            options=_options(options, settings),
            file_sha256=hashlib.sha256(written).hexdigest(),
            npu_operators=len(made.emitted.streams),
            npu_kernels=sum(len(stream.kernels) for stream in made.emitted.streams),
            sizes=_sizes(made, target, executable, len(written)),
            checks=_checks(gate),
            proof=None if proof is None else _proof_facts(proof, settings),
            kernels=_kernels(made),
            warnings=_warnings(made, target),
        ),
    )


class _Made(NamedTuple):
    """What was emitted, from which plan (None: identity), after how many, with what budget."""

    emitted: Emitted
    planned: Planned | None
    attempts: int
    budget_bytes: int | None


def _template(content: bytes, target: Target, *, use_cache: bool) -> Template:
    """Compile the template. Raises EmitError for another Vela than the supported ones."""
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import vela_version

    version = vela_version()
    if not version.startswith(SUPPORTED_VELA):
        raise EmitError(
            f"cannot emit with Vela {version}",
            f"streams and files of Vela {SUPPORTED_VELA}x are known, those of others were not "
            "looked at",
            'pip install "ethos-u-vela>=5.2,<5.3"',
            vela_version=version,
        )
    return make_template(content, target, cache=VelaCache() if use_cache else None)


def _fitting(
    content: bytes,
    name: str,
    template: Template,
    options: PlanOptions,
    settings: EmitSettings,
    given: PlanReport | None,
    plan_name: str,
) -> _Made:
    """Plan until the file keeps the budget. A given plan is taken as it is."""
    target = template.target
    budget = options.budget_bytes(target)
    plans: list[Planned] = []
    match: KernelMatch | None = None

    def make(limit: int | None) -> Plan:
        asked = options if limit == budget else msgspec.structs.replace(options, sram=limit)
        planned = make_plan(content, name=name, target=target, options=asked)
        if given is not None:
            check_same(given, report_of(planned, target), plan_name)
        plans.append(planned)
        return planned.plan

    def build(plan: Plan) -> Emitted:
        nonlocal match
        model, graph = plans[-1].ready[:2]
        match = match or match_kernels(template, model, graph)
        if settings.safe_rolling:
            plan = with_safe_rolling(graph, plan)
        return emit_plan(template, model, graph, plan, match=match)

    fitted = fit(make, build, target, budget, may_plan_again=given is None)
    return _Made(fitted.emitted, plans[-1], fitted.attempts, fitted.limit_bytes)


def _prove(model: Model, executable: Executable, settings: EmitSettings) -> Proof:
    """Execute the file. Raises ReleaseError if anything differs from the reference."""
    inputs = random_inputs(model.subgraphs[0], settings.prove, settings.seed)
    proof = prove(model, executable, inputs, seed=settings.seed)
    if proof.verdict is not Verdict.EQUAL:
        wrong = [each.name for each in proof.outputs if each.differing]
        where = "a tensor inside" if proof.difference is None else proof.difference.tensor
        raise ReleaseError(
            "the file is not written: its results differ from the reference kernels",
            f"outputs {', '.join(wrong) or 'are equal'}; first difference in {where}",
            "; ".join(proof.exceptions) or "report the model, target and options",
            outputs=tuple(wrong),
        )
    return proof


def _proof_facts(proof: Proof, settings: EmitSettings) -> EmitProof:
    inside = proof.intermediates
    return EmitProof(
        verdict=proof.verdict,
        inputs=proof.inputs,
        seed=settings.seed,
        outputs=tuple(OutputFacts(**asdict(output)) for output in proof.outputs),
        compared=inside.kernels,
        equal=inside.equal,
        tensors=inside.tensors,
        covered=inside.covered,
        missing=inside.missing,
        exceptions=proof.exceptions,
    )


def _plan_facts(
    made: _Made, origin: str, options: PlanOptions, target: Target
) -> EmittedPlan | None:
    if made.planned is None:
        return None
    plan = made.planned.plan
    return EmittedPlan(
        origin=origin,
        source=made.planned.candidates.shown,
        objective=options.objective,
        cycles=plan.amounts.npu_cycles,
        budget_memory=plan.budget_memory,
        budget_bytes=options.budget_bytes(target),
        planned_bytes=made.budget_bytes,
        attempts=made.attempts,
        segments=len(plan.segments),
        fused_ops=sum(len(each.ops) for each in plan.segments if len(each.ops) > 1),
        rolling_buffers=sum(buffer.kind is BufferKind.ROLLING for buffer in plan.buffers),
    )


def _sizes(
    made: _Made, target: Target, executable: Executable, file_bytes: int
) -> tuple[SizeFacts, ...]:
    """What was planned, and what the file has."""
    plan = None if made.planned is None else made.planned.plan
    emitted = made.emitted
    used = used_bytes(emitted, target)
    streams = sum(
        each.stream.start_bytes + 4 * len(each.stream.words) for each in executable.file.operators
    )
    found = [
        SizeFacts(
            what="sram",
            planned_bytes=None if plan is None else plan.sram_peak_bytes,
            file_bytes=used,
        )
    ]
    arena = arena_bytes(emitted)
    if arena != used:
        found.append(SizeFacts(what="arena", planned_bytes=None, file_bytes=arena))
    found += [
        SizeFacts(
            what="constants",
            planned_bytes=None if plan is None else plan.constant_bytes,
            file_bytes=len(emitted.read_only),
        ),
        SizeFacts(what="streams", planned_bytes=None, file_bytes=streams),
        SizeFacts(what="file", planned_bytes=None, file_bytes=file_bytes),
    ]
    return tuple(found)


def _checks(gate: Gate) -> tuple[CheckFacts, ...]:
    return tuple(CheckFacts(name=each.name, meaning=MEANINGS[each.name]) for each in gate.checks)


def _options(options: PlanOptions, settings: EmitSettings) -> tuple[str, ...]:
    """What is not the conservative default."""
    rolling = ("safe-rolling",) if settings.safe_rolling else ()
    serial = ("serial-kernels",) if settings.serial_kernels else ()
    return (*(f"allow {name}" for name in options.allow), *rolling, *serial)


def _kernels(made: _Made) -> tuple[KernelFacts, ...]:
    segments: dict[int, int] = {}
    if made.planned is not None:
        for number, segment in enumerate(made.planned.plan.segments):
            segments.update(dict.fromkeys(segment.ops, number))
    return tuple(
        KernelFacts(
            operator=stream.partition,
            kernel=record.index,
            name=record.name,
            op=record.op,
            segment=segments.get(record.op, -1),
            source_ops=record.source_ops,
            rows=record.rows,
            channels=record.channels,
            block=record.block,
            buffers=tuple(
                BufferFacts(
                    role=use.role,
                    name=use.name,
                    memory="scratch" if use.region == SCRATCH else "scratch_fast",
                    address=use.address,
                    first_row=use.first_row,
                    rows=use.rows,
                    capacity_rows=use.capacity_rows,
                )
                for use in record.buffers
            ),
        )
        for stream in made.emitted.streams
        for record in stream.kernels
    )


def _warnings(made: _Made, target: Target) -> tuple[str, ...]:
    if made.planned is None:
        return made.emitted.notes
    ready, plan = made.planned.ready, made.planned.plan
    more = used_bytes(made.emitted, target) - plan.sram_peak_bytes
    larger = (
        f"the file uses {more} bytes of SRAM more than planned: encoded depth slices are larger"
    )
    notes = (*ready.model.notes, *ready.warnings, *plan.notes, *made.emitted.notes)
    return (*notes, larger) if more > 0 else notes
