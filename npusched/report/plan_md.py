"""A plan as Markdown for a pull request: verdict, fusion, slowest ops, CPU ops, advice."""

from __future__ import annotations

from collections.abc import Sequence

from npusched.report.markdown import markdown_table, markdown_text
from npusched.report.text_tables import chain_rows, fallbacks, level_rows, op_rows
from npusched.report.types import PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    human_frequency,
    human_seconds,
    percent,
    plural,
)


def render_plan_md(report: PlanReport, *, top: int = 10) -> str:
    """Return the page. ``top`` ops are listed; names from the file are inert."""
    sections = [
        _head(report),
        _totals(report),
        _section("Fusion", markdown_table(_LEVELS, level_rows(report))),
        _section("Slowest ops", markdown_table(_OPS, op_rows(report, top))) if top else "",
        _chains(report),
        _fallbacks(report),
        _list("Advice", [f"**{item.id}** {markdown_text(item.message)}" for item in report.advice]),
        _list("Warnings", [markdown_text(text) for text in report.warnings]),
        _foot(report),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


_LEVELS = ("fusion", "feature maps", "kernel calls", "cycles", "energy")
_OPS = ("op", "out h×w×c", "cycles", "of time", "MACs busy", "bound by", "name")
_CHAINS = ("fused chain", "stripes", "alive", "cycles", "vs op by op", "and in energy")


def _head(report: PlanReport) -> str:
    model, target = report.model, report.target
    parts = [f"{markdown_text(target.name, 60)} @ {human_frequency(target.clock_hz)}"]
    if target.accelerator is not None:
        mode = target.memory_mode_name or target.memory_mode.value
        parts += [markdown_text(target.system_config, 60), markdown_text(mode, 60)]
    facts = [plural(model.op_count, "op"), f"{human_count(model.macs)} MAC"]
    return (
        f"## {markdown_text(model.name, 100)}\n\n"
        f"{' · '.join(parts)} · {' · '.join(facts)} · sha256 `{model.sha256[:8]}`"
    )


def _totals(report: PlanReport) -> str:
    totals, budget = report.totals, report.budget_bytes
    sram = human_bytes(totals.sram_peak_bytes)
    if budget:
        sram += f" ({percent(totals.sram_peak_bytes, budget)} of {human_bytes(budget)})"
    energy = totals.energy_nj
    placed = [op.placement for op in report.source_ops]
    rows = [
        ("latency", human_seconds(totals.latency_s)),
        ("NPU cycles", group_digits(totals.cycles)),
        ("CPU cycles", group_digits(totals.cpu_cycles)),
        ("SRAM", sram),
        ("constants", human_bytes(totals.constant_bytes)),
        ("DRAM traffic", human_bytes(totals.dram_bytes)),
        ("flash traffic", human_bytes(totals.flash_bytes)),
        (
            "energy",
            f"{human_energy(energy.typical)} ({human_energy(energy.low)} … "
            f"{human_energy(energy.high)})",
        ),
        ("ops on the NPU / CPU", f"{placed.count('npu')} / {placed.count('cpu')}"),
    ]
    return markdown_table(("predicted", "this plan"), rows)


def _chains(report: PlanReport) -> str:
    rows = [row for _, row in chain_rows(report)]
    return _section("Fused chains", markdown_table(_CHAINS, rows)) if rows else ""


def _fallbacks(report: PlanReport) -> str:
    rows: list[Sequence[str]] = [
        (group.which, percent(group.share, 1), group.why, group.reason.fix)
        for group in fallbacks(report)
    ]
    if not rows:
        return ""
    return _section("On the CPU", markdown_table(("ops", "of time", "why", "fix"), rows))


def _section(title: str, body: str) -> str:
    return f"### {title}\n\n{body}"


def _list(title: str, items: Sequence[str]) -> str:
    return _section(title, "\n".join(f"- {item}" for item in items)) if items else ""


def _foot(report: PlanReport) -> str:
    vela = f", Vela {report.vela_version}" if report.vela_version else ""
    return (
        f"{markdown_text(report.bound.proof)}: {markdown_text(report.bound.scope)}. "
        f"npusched {report.npusched_version}{vela}; all figures predicted, none measured."
    )
