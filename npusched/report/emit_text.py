"""What was emitted, as text."""

from __future__ import annotations

from collections.abc import Iterator

from npusched.report.emit_types import EmitProof, EmitReport
from npusched.report.execution_text import labelled, names, outputs_lines, prose
from npusched.report.layout import Line, flow, paint
from npusched.report.units import group_digits, human_bytes, percent, plain_text, plural
from npusched.sim.proof import Verdict

_SIZE_NAMES = {
    "sram": "sram",
    "arena": "arena",
    "constants": "constants",
    "streams": "commands",
    "file": "file",
}
_NAME = 4096
"""Names of files are shown whole."""

_HARDWARE = "not run on hardware: docs/emit.md says what only hardware can tell"


def render_emit_text(
    report: EmitReport, *, width: int, colour: bool, written: tuple[str, ...] = ()
) -> str:
    """Return plan, sizes, checks and proof; ``written``: names of the files."""
    lines: list[Line] = flow(
        [(plain_text(report.name), "bold"), plain_text(report.target), _schedule(report)], width
    )
    if written:
        lines += prose("written", ", ".join(plain_text(name, _NAME) for name in written), width)
    plan = report.plan
    streams = plural(report.npu_operators, "NPU operator")
    text = f"{plural(report.npu_kernels, 'kernel')} in {streams}"
    if plan is not None:
        text = (
            f"{plural(plan.segments, 'segment')} ({plan.fused_ops} ops fused), {text}, "
            f"{plural(plan.rolling_buffers, 'rolling buffer')}; "
            f"{group_digits(plan.cycles)} cycles predicted"
        )
    lines += prose("schedule", text, width)
    lines += list(_sizes(report, width))
    if report.options:
        lines += prose("options", ", ".join(report.options), width, style="warn")
    passed = ", ".join(check.name for check in report.checks)
    lines += prose("checks", f"{passed}: all passed", width, style="good")
    lines += _proof(report.proof, width)
    lines += prose("hardware", _HARDWARE, width, style="warn")
    return paint(lines, width=width, colour=colour)


def _schedule(report: EmitReport) -> str:
    plan = report.plan
    if plan is None:
        return f"Vela {report.vela_version}'s own schedule, every op whole"
    whose = "our plan" if plan.source == "npusched" else "Vela's schedule"
    origin = "" if plan.origin == "planned" else f" of {plain_text(plan.origin)}"
    return f"{whose}{origin}, least {plan.objective}"


def _sizes(report: EmitReport, width: int) -> Iterator[Line]:
    """One line per kind: the file's, the plan's, and the budget of SRAM."""
    for size in report.sizes:
        text = human_bytes(size.file_bytes)
        if size.planned_bytes is not None and size.planned_bytes != size.file_bytes:
            planned = group_digits(size.planned_bytes)
            text += f" ({group_digits(size.file_bytes)} B, planned {planned} B)"
        plan = report.plan
        if size.what == "sram" and plan is not None and plan.budget_bytes is not None:
            text += f" of {human_bytes(plan.budget_bytes)}"
            if plan.attempts > 1:
                text += f", {plural(plan.attempts, 'plan')} made until real sizes fitted"
        yield from prose(_SIZE_NAMES[size.what], text, width)


def _proof(proof: EmitProof | None, width: int) -> list[Line]:
    if proof is None:
        return [labelled("proof", "not asked for (--prove N)")]
    good = proof.verdict is Verdict.EQUAL
    lines = [
        labelled(
            "proof",
            (proof.verdict, "good" if good else "bad"),
            f" on {plural(proof.inputs, 'input')} (seed {proof.seed}); "
            f"{proof.covered} of {plural(proof.tensors, 'tensor')} found whole "
            f"({percent(proof.covered, proof.tensors)})",
        )
    ]
    if not good:
        lines += outputs_lines(proof.outputs)
    lines += names("missing", proof.missing, width)
    for text in proof.exceptions:
        lines += prose("known", text, width, style="warn")
    return lines
