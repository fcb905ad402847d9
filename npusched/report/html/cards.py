"""The top of the page: verdict cards, advice, and the ops that fall to the CPU."""

from __future__ import annotations

from typing import Literal

import msgspec

from npusched.report.compare_types import CompareReport
from npusched.report.text import (
    counted_text,
    placement_parts,
    speed_parts,
    traffic_parts,
)
from npusched.report.text_tables import fallbacks
from npusched.report.types import Advice, Delta, PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    human_seconds,
    percent,
    percent_change,
    plain_text,
    plural,
    signed,
)


class Note(msgspec.Struct, frozen=True):
    """A line of a card; a ``chip`` before it stands out, in the colour of ``style``."""

    text: str
    chip: str = ""
    style: Literal["", "good", "warn"] = ""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One figure with what belongs to it; ``meter``: how full something is, in percent."""

    title: str
    value: str
    unit: str = ""
    notes: tuple[Note, ...] = ()
    meter: float | None = None
    meter_text: str = ""


def cards(report: PlanReport, comparison: CompareReport | None) -> list[Card]:
    """Latency, SRAM, energy, traffic, placement, and Vela's plan beside ours."""
    totals, energy = report.totals, report.totals.energy_nj
    interval = f"{human_energy(energy.low)} to {human_energy(energy.high)}"
    found = [
        _card("Latency", human_seconds(totals.latency_s), *speed_parts(report)),
        _sram(report),
        _card("Energy", human_energy(energy.typical), interval, "an order of magnitude"),
        _card("Bytes moved per inference", human_bytes(_moved(report)), *traffic_parts(report)),
        _placement(report),
    ]
    vela = _vela(report, comparison)
    return [*found, vela] if vela else found


def _moved(report: PlanReport) -> int:
    """Bytes read and written in all memories."""
    return sum(
        count
        for op in report.ops
        for moved in (op.bytes_read, op.bytes_written)
        for count in moved.values()
    )


def _card(title: str, text: str, *notes: str) -> Card:
    value, unit = _split(text)
    return Card(title=title, value=value, unit=unit, notes=tuple(Note(note) for note in notes))


def _split(text: str) -> tuple[str, str]:
    """Number and unit of a figure."""
    value, _, unit = text.partition(" ")
    return value, unit


def _sram(report: PlanReport) -> Card:
    peak, budget = report.totals.sram_peak_bytes, report.budget_bytes
    value, unit = _split(human_bytes(peak))
    counted = Note(counted_text(report))
    title = "SRAM peak"
    if budget is None:
        notes = (counted, Note("no budget given, capacity not known"))
        return Card(title=title, value=value, unit=unit, notes=notes)
    share = 100 * peak / budget if budget else 0.0
    text = f"{share:.0f} % of {human_bytes(budget)}"
    if report.verdict == "fits":
        first = Note(f"{text} asked for", "fits", "good")
    else:
        first = Note(f"{text} there is")
    return Card(
        title=title,
        value=value,
        unit=unit,
        notes=(first, counted),
        meter=round(min(share, 100.0), 1),
        meter_text=text,
    )


def _placement(report: PlanReport) -> Card:
    cpu = sum(op.placement == "cpu" for op in report.source_ops)
    if report.target.accelerator is None:
        notes = [Note(part) for part in placement_parts(report)]
        value = str(len(report.source_ops))
        return Card(title="Ops, all on the CPU", value=value, notes=tuple(notes))
    on_npu = len(report.source_ops) - cpu
    notes = [Note("", plural(cpu, "op") + " on the CPU", "warn")] if cpu else []
    notes += [Note(part) for part in placement_parts(report) if not part.endswith("on the CPU")]
    return Card(
        title="Ops that stay off the CPU",
        value=str(on_npu),
        unit=f"of {len(report.source_ops)}",
        notes=tuple(notes),
    )


def _vela(report: PlanReport, comparison: CompareReport | None) -> Card | None:
    """Cycles against Vela's schedule at the same budget, costed like ours."""
    theirs = report.candidates.vela
    if theirs is not None and theirs.cycles:
        cycles, peak, what = theirs.cycles, theirs.sram_peak_bytes, theirs.options
    elif comparison is not None and comparison.totals.vela_recosted is not None:
        recosted = comparison.totals.vela_recosted
        if not recosted.cycles or recosted.sram_peak_bytes is None:
            return None
        cycles, peak, what = recosted.cycles, recosted.sram_peak_bytes, ""
    else:
        return None
    value, unit = _split(percent_change(report.totals.cycles, cycles))
    more = report.totals.sram_peak_bytes - peak
    sram = "the same SRAM"
    if more:
        sram = f"{human_bytes(abs(more))} {'more' if more > 0 else 'less'} SRAM"
    notes = [
        Note(f"its {group_digits(cycles)} cycles are costed like ours"),
        Note(f"this plan takes {sram}"),
    ]
    if what:
        notes.append(Note(f"Vela run with: {plain_text(what, 80)}"))
    if report.candidates.shown == "vela":
        notes.insert(0, Note("this plan is Vela's own"))
    return Card(title="Cycles against Vela", value=value, unit=unit, notes=tuple(notes))


def _size(change: int) -> str:
    return f"-{human_bytes(-change)}" if change < 0 else f"+{human_bytes(change)}"


class AdviceItem(msgspec.Struct, frozen=True):
    """One piece of advice in words."""

    id: str
    style: str
    message: str
    effect: str


def advice_items(report: PlanReport) -> list[AdviceItem]:
    """Advice in its order, each with the predicted effect."""
    return [
        AdviceItem(
            plain_text(item.id, 12),
            "warn" if item.severity == "warning" else "",
            plain_text(item.message, 600),
            _effect(item),
        )
        for item in report.advice
    ]


def _effect(item: Advice) -> str:
    parts = effect_parts(item.delta)
    if not parts:
        return ""
    return f"Predicted: {', '.join(parts)} (confidence {item.confidence})."


def effect_parts(delta: Delta) -> list[str]:
    """Changes that are predicted, in words."""
    parts = []
    if delta.sram_bytes is not None:
        parts.append(f"SRAM {_size(delta.sram_bytes)}")
    if delta.cycles is not None:
        parts.append(f"cycles {signed(group_digits(delta.cycles))}")
    if delta.energy_nj is not None:
        parts.append(f"energy {signed(human_energy(delta.energy_nj))}")
    return parts


class FallbackItem(msgspec.Struct, frozen=True):
    """Ops on the CPU for one reason, in words."""

    share: str
    which: str
    why: str
    fix: str


def fallback_items(report: PlanReport) -> list[FallbackItem]:
    """Every reason, the costliest first."""
    return [
        FallbackItem(
            percent(group.share, 1),
            group.which,
            plain_text(group.why, 240),
            plain_text(group.reason.fix, 240),
        )
        for group in fallbacks(report)
    ]
