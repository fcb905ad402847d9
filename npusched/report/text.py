"""A plan in at most 40 lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from npusched.report.layout import Line, Span, flow, line, paint, wrap
from npusched.report.text_tables import (
    chain_lines,
    fallback_lines,
    kernel_label,
    level_lines,
    op_lines,
)
from npusched.report.types import AllocationFacts, PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_count,
    human_energy,
    human_frequency,
    human_seconds,
    percent,
    percent_change,
    plain_text,
    plural,
    short_name,
)

SPARKS: Final = "▁▂▃▄▅▆▇█"
DEFAULT_TOP: Final = 6
MAX_LINES: Final = 40
"""Most lines of the text form, unless the user asks for more ops."""

BAR: Final = 16
"""Cells of the bar that shows how full the budget is."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows each list may have."""

    ops: int
    chains: int
    fallbacks: int
    advice: int


def render_text(
    report: PlanReport, *, width: int = 100, colour: bool = False, top: int = DEFAULT_TOP
) -> str:
    """Return the plan as text: header, verdict, SRAM over time, ops, chains, fallbacks, advice.

    ``top`` ops are listed; what is left out is counted. At most ``MAX_LINES`` lines at ``width``
    80 and above for the default ``top``; lists shrink until that holds.
    """
    width = max(width, 40)
    limits = Limits(ops=top, chains=4, fallbacks=4, advice=3)
    sections = _sections(report, limits, width)
    while _height(sections) > MAX_LINES and (smaller := _smaller(limits, top)) is not None:
        limits = smaller
        sections = _sections(report, limits, width)
    gaps = MAX_LINES - sum(len(section) for section in sections)
    lines = list(sections[0])
    for section in sections[1:]:
        if gaps > 0 or top > DEFAULT_TOP:
            lines.append(line(""))
            gaps -= 1
        lines += section
    return paint(lines, width=width, colour=colour)


def _height(sections: Sequence[Sequence[Line]]) -> int:
    return sum(len(section) for section in sections) + len(sections) - 1


def _smaller(limits: Limits, top: int) -> Limits | None:
    """Shorten the longest list by one; the ops stay as they are if the user chose their number."""
    spare = {
        "chains": limits.chains - 1,
        "fallbacks": limits.fallbacks - 1,
        "advice": limits.advice - 1,
        "ops": limits.ops - 3 if top <= DEFAULT_TOP else 0,
    }
    name = max(spare, key=lambda key: spare[key])
    if spare[name] <= 0:
        return None
    return replace(limits, **{name: getattr(limits, name) - 1})


def _sections(report: PlanReport, limits: Limits, width: int) -> list[list[Line]]:
    """What is shown, in order; a blank line goes between sections where there is room."""
    sections = [
        _header(report, width),
        _verdict(report, width),
        level_lines(report, width),
        op_lines(report, width, limits.ops),
        chain_lines(report, width, limits.chains),
        fallback_lines(report, width, limits.fallbacks),
        _advice(report, width, limits.advice),
        _footer(report, width),
    ]
    return [section for section in sections if section]


def _header(report: PlanReport, width: int) -> list[Line]:
    model, target = report.model, report.target
    first: list[str | Span] = [
        (plain_text(model.name, 48), "bold"),
        plural(model.op_count, "op"),
        f"{human_count(model.macs)} MAC",
        type_text(report),
        human_bytes(model.size_bytes),
        f"sha256 {model.sha256[:8]}",
    ]
    second = [f"{plain_text(target.name, 40)} @ {human_frequency(target.clock_hz)}"]
    if target.accelerator is not None:
        mode = target.memory_mode_name or target.memory_mode.value
        second += [plain_text(target.system_config, 40), plain_text(mode, 40)]
    return [*flow([part for part in first if part], width), *flow(second, width)]


def type_text(report: PlanReport) -> str:
    """Element types of the computed tensors, the most common first."""
    counts = report.model.tensor_types
    types = sorted(counts.keys() - {"resource", "variant"}, key=lambda name: -counts[name])
    return "/".join(types[:3]) + ("/…" if len(types) > 3 else "")


def _verdict(report: PlanReport, width: int) -> list[Line]:
    totals = report.totals
    low, high = human_energy(totals.energy_nj.low), human_energy(totals.energy_nj.high)
    interval = [f"{low} … {high}, an order of magnitude"]
    return [
        *_fact("latency", human_seconds(totals.latency_s), speed_parts(report), width),
        *_sram(report, width),
        *_fact("energy", human_energy(totals.energy_nj.typical), interval, width),
        *_fact("traffic", "", traffic_parts(report), width),
        *_fact("ops", "", placement_parts(report), width),
        *_over_time(report, width),
    ]


def _fact(title: str, value: str, parts: Sequence[str | Span], width: int) -> list[Line]:
    """One row of the verdict; what does not fit goes on below its own beginning."""
    head = f"  {title:<8} {value:>9}  " if value else f"  {title:<8} "
    rows = flow(parts, max(24, width - len(head)))
    return [line(head if k == 0 else " " * len(head), *row) for k, row in enumerate(rows)]


def speed_parts(report: PlanReport) -> list[str]:
    """Cycles, inferences per second, and how busy the MACs are."""
    totals, target = report.totals, report.target
    parts = []
    if target.accelerator is not None and (totals.cycles or not totals.cpu_cycles):
        parts.append(f"{group_digits(totals.cycles)} NPU cycles")
    if totals.cpu_cycles:
        parts.append(f"{group_digits(totals.cpu_cycles)} CPU cycles")
    if totals.latency_s:
        parts.append(f"{human_count(1 / totals.latency_s)} inferences/s")
    if target.accelerator is not None and totals.cycles:
        done = sum(op.macs for op in report.ops if op.placement == "npu")
        parts.append(
            f"MACs busy {percent(done, totals.cycles * target.accelerator.macs_per_cycle)}"
        )
    return parts


def _sram(report: PlanReport, width: int) -> list[Line]:
    """Peak against budget or capacity, and what the figure counts."""
    peak, budget = report.totals.sram_peak_bytes, report.budget_bytes
    parts: list[str | Span] = []
    if budget is not None:
        share = peak / budget if budget else 0.0
        cells = BAR if width >= 72 else BAR // 2
        filled = min(cells, round(cells * share))
        bar = "█" * filled + "░" * (cells - filled)
        text = f"{bar} {100 * share:.0f} % of {human_bytes(budget)}"
        asked = report.verdict == "fits"
        parts.append((f"{text}: fits", "good") if asked else f"{text} there is")
    parts.append(counted_text(report))
    if budget is None:
        parts.append("no --sram given, capacity not known")
    return _fact("SRAM", human_bytes(peak), parts, width)


def counted_text(report: PlanReport) -> str:
    """What the SRAM figure counts in this memory mode."""
    target = report.target
    roles = target.roles
    if roles.cache != roles.arena:
        arena = _high_water(report.allocation, roles.arena)
        return f"cache; arena in {plain_text(roles.arena, 16)} {human_bytes(arena)}"
    if roles.const == roles.arena:
        return f"arena + {human_bytes(report.totals.constant_bytes)} constants"
    return "arena"


def _high_water(allocation: Sequence[AllocationFacts], memory: str) -> int:
    ends = [item.offset + item.size_bytes for item in allocation if item.memory == memory]
    return max(ends, default=0)


def traffic_parts(report: PlanReport) -> list[str]:
    """Bytes per inference of each memory that is used, its bandwidth, and what lies in it."""
    target = report.target
    moved: dict[str, int] = {}
    for op in report.ops:
        for name, count in (*op.bytes_read.items(), *op.bytes_written.items()):
            moved[name] = moved.get(name, 0) + count
    constants = f"constants {human_bytes(report.totals.constant_bytes)}"
    roles = {constants: target.roles.const, "arena": target.roles.arena}
    if target.roles.cache != target.roles.arena:
        roles["cache"] = target.roles.cache
    parts = []
    for memory in target.memories:
        uses = [use for use, where in roles.items() if where == memory.name]
        if uses or moved.get(memory.name):
            parts.append(
                f"{plain_text(memory.name, 16)} {human_bytes(moved.get(memory.name, 0))} at "
                f"{memory.bandwidth_bytes_per_cycle:.3g} B/cycle ({', '.join(uses)})"
            )
    return parts


def placement_parts(report: PlanReport) -> list[str]:
    """How many ops run where, and how many kernel calls that makes."""
    count = dict.fromkeys(("npu", "cpu", "view", "folded"), 0)
    for op in report.source_ops:
        count[op.placement] += 1
    calls = report.totals.npu_invocations
    parts = []
    if report.target.accelerator is not None:
        parts.append(f"{count['npu']} on the NPU" + (f" in {plural(calls, 'call')}" * bool(calls)))
    if count["cpu"] or not parts:
        parts.append(f"{count['cpu']} on the CPU")
    parts += [plural(count["view"], "view")] if count["view"] else []
    parts += [f"{count['folded']} folded"] if count["folded"] else []
    return [*parts, plural(report.totals.dispatches, "kernel call")]


def _over_time(report: PlanReport, width: int) -> list[Line]:
    """The budget memory per step as a row of bars, and what lives at the peak."""
    live = report.live_sram_bytes
    if not any(live):
        return []
    peak = live.index(max(live))
    bars = _spark(live, min(60, width - 12))
    alive = [
        item
        for item in report.allocation
        if item.memory == report.budget_memory and item.first_step <= peak < item.end_step
    ]
    alive.sort(key=lambda item: -item.size_bytes)
    parts = [
        f"{human_bytes(item.size_bytes)} {_KINDS[item.kind]}{short_name(item.tensor)}"
        for item in alive[:2]
    ]
    if len(alive) > 2:
        rest = sum(item.size_bytes for item in alive[2:])
        parts.append(f"{human_bytes(rest)} in {len(alive) - 2} more")
    head = f"  peak     at {_segment_name(report, peak)}: "
    rows = flow(
        [head + part if k == 0 else part for k, part in enumerate(parts)], width, separator=" + "
    )
    return [
        line(f"  {'SRAM/t':<8} ", (bars, "mark")),
        *rows[:1],
        *(line(" " * 11 + "+ ", *row) for row in rows[1:2]),
    ]


_KINDS: Final = {"feature_map": "", "rolling": "rows of ", "weights": "", "lut": "table of "}


def _segment_name(report: PlanReport, index: int) -> str:
    segment = report.segments[index]
    if not segment.source_ops:
        return "the start"
    first, last = segment.source_ops[0][1], segment.source_ops[-1][1]
    kind = kernel_label(report.ops[segment.ops[0]])
    return f"#{first} {kind}" if first == last else f"#{first}-#{last}"


def _spark(values: Sequence[int], width: int) -> str:
    """Largest value of each column as a bar; narrower than ``width`` for few values."""
    columns = min(width, len(values))
    top = max(values)
    bars = []
    for column in range(columns):
        lo = column * len(values) // columns
        hi = max(lo + 1, (column + 1) * len(values) // columns)
        bars.append(SPARKS[min(7, 8 * max(values[lo:hi]) // (top + 1))])
    return "".join(bars)


def _advice(report: PlanReport, width: int, count: int) -> list[Line]:
    lines = []
    for item in report.advice[:count]:
        room = width - 4 - len(item.id)
        rows = wrap(plain_text(item.message, 2 * room - 20), room)[:2]
        lines.append(line("  ", (item.id, "mark"), "  ", *rows[0]))
        lines += [line(" " * (4 + len(item.id)), *row) for row in rows[1:]]
    return lines


def competition_text(report: PlanReport) -> str:
    """Our plan beside the best of Vela's own, on one basis; "" if there is none to name."""
    ours, theirs = report.candidates.ours, report.candidates.vela
    if theirs is None:
        return ""
    name = f"Vela's own schedule ({theirs.options})"
    if ours is None:
        return f"this is {name}: no plan of ours fits"
    if report.candidates.shown == "vela":
        return f"this is {name}: our best plan is at {percent_change(ours.value, theirs.value)}"
    return f"{name}, costed stripe by stripe like ours: {percent_change(theirs.value, ours.value)}"


def proof_text(report: PlanReport) -> str:
    """How far the plan may be from the best one, and of which scope."""
    bound = report.bound
    proof = {
        "optimal": "best plan of its scope",
        "bounded": f"within {100 * bound.gap:.2g} % of the best plan of its scope",
        "feasible": "a plan, not proven best in its scope",
    }[bound.proof]
    return f"{proof}: {bound.scope}"


def weights_text(report: PlanReport) -> str:
    """Whether the sizes of encoded weights are Vela's or estimated."""
    version = f" (Vela {report.vela_version})" if report.vela_version else ""
    return {
        "none": "no encoded weights",
        "exact": f"weight sizes exact{version}",
        "mixed": f"weight sizes partly estimated{version}",
        "estimated": "weight sizes estimated",
    }[report.provenance.weights]


def _footer(report: PlanReport, width: int) -> list[Line]:
    return [
        *wrap(proof_text(report), width, style="dim"),
        *wrap(competition_text(report), width, style="dim"),
        *flow(
            [
                (f"npusched {report.npusched_version}", "dim"),
                (weights_text(report), "dim"),
                ("all figures predicted, none measured", "dim"),
            ],
            width,
        ),
    ]
