"""A plan's proof as text."""

from __future__ import annotations

from npusched.report.execution_text import labelled, names, outputs_lines, prose
from npusched.report.layout import Line, flow, paint
from npusched.report.plan_proof_types import PlanProofReport
from npusched.report.units import human_bytes, percent, plain_text, plural, short_name
from npusched.sim.proof import Verdict


def render_plan_proof_text(report: PlanProofReport, *, width: int, colour: bool) -> str:
    """Return plan, verdict, first difference and what was compared."""
    good, plan, maps = report.verdict is Verdict.EQUAL, report.plan, report.maps
    lines: list[Line] = [
        *flow(
            [(plain_text(report.name), "bold"), plain_text(report.target), _origin(report)], width
        ),
        labelled(
            "verdict",
            (report.verdict, "good" if good else "bad"),
            f" on {plural(report.inputs, 'input')} (seed {report.seed}), {report.mode} mode",
        ),
    ]
    if report.fault:
        lines += prose("fault", plain_text(report.fault, 400), width, style="bad")
    lines += outputs_lines(report.outputs)
    lines += prose(
        "inside",
        f"{maps.equal} of {plural(maps.compared, 'tensor')} of the file equal "
        f"({percent(maps.equal, maps.compared)}); {plural(maps.stored, 'map')} stored whole, "
        f"{maps.rolled} in rolling buffers, {len(maps.only_interpreted)} without counterpart",
        width,
    )
    lines.append(
        labelled(
            "graph",
            ("equal to the interpreter", "good")
            if report.interpreter_equal
            else ("differs from the interpreter", "bad"),
        )
    )
    if report.difference is not None:
        lines += prose("first", _difference(report), width, style="bad")
    for text in report.exceptions:
        lines += prose("known", text, width, style="warn")
    budget = "" if plan.budget_bytes is None else f" of {human_bytes(plan.budget_bytes)}"
    lines += prose(
        "plan",
        f"{plural(plan.segments, 'segment')}, {plural(plan.stripes, 'stripe')}, "
        f"{plural(plan.npu_ops, 'NPU op')} ({plan.fused_ops} fused), "
        f"{plural(plan.cpu_ops, 'CPU op')}, {plural(plan.rolling_buffers, 'rolling buffer')}; "
        f"{plan.budget_memory} peak {human_bytes(plan.sram_peak_bytes)}{budget}",
        width,
    )
    if not report.interpreter_equal:
        lines += names("temporary", maps.only_interpreted, width)
    return paint(lines, width=width, colour=colour)


def _origin(report: PlanProofReport) -> str:
    if report.plan.origin == "planned":
        whose = "our plan" if report.plan.source == "npusched" else "Vela's own schedule"
        return f"{whose}, least {report.plan.objective}"
    return f"the plan of {plain_text(report.plan.origin)}"


def _difference(report: PlanProofReport) -> str:
    it = report.difference
    assert it is not None
    source = f"op {it.source_op} {it.kind}, " if it.source_op >= 0 else ""
    return (
        f"{short_name(it.tensor)} ({source}kernel {it.op} {it.kernel}) at row {it.row}, column "
        f"{it.column}, channel {it.channel}: {it.got:g} instead of {it.expected:g} "
        f"({it.against}); {it.differing} of {it.total} values"
    )
