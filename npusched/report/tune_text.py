"""``npusched tune`` as text for a terminal: plot, what to choose, what Vela does, how to run it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from npusched.report.layout import Column, Line, flow, line, paint, table, wrap
from npusched.report.tune_plot import LEGEND, plot_lines
from npusched.report.tune_types import ArenaAdvice, Goal, TunePoint, TuneReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    human_frequency,
    human_seconds,
    plain_text,
    plural,
)

COMMANDS: Final = 2
"""Most commands of Vela's that the text form shows; the others are in JSON and Markdown."""

_UNCUT: Final = 1 << 16
"""Width of lines that hold a command: without its end it is another command."""

UNLIMITED_BYTES: Final = 1 << 32
"""Limits from here on are no limit (the address space of the smallest accelerator)."""

_COMMAND_ORDER: Final[tuple[Goal, ...]] = (
    "knee",
    "near_fastest",
    "fastest",
    "least_energy",
    "floor",
)


def goal_texts(report: TuneReport) -> dict[Goal, str]:
    """What the purposes are called."""
    return {
        "floor": "least SRAM",
        "knee": "knee",
        "near_fastest": f"within {report.within_percent:g} % of fastest",
        "fastest": "fastest",
        "least_energy": "least energy",
    }


def render_tune(report: TuneReport, *, width: int = 100, colour: bool = False) -> str:
    """Return the text form, at most 45 lines of 100 columns."""
    width = max(width, 60)
    parts: list[tuple[list[Line], int]] = [
        (_header(report, width), width),
        (_plot(report, width), width),
        (_choices(report, width), width),
        (_facts(report, width), width),
        (_arena(report, width), width),
        (_commands(report, width), _UNCUT),
        (_footer(report, width), width),
    ]
    painted = [paint(lines, width=most, colour=colour) for lines, most in parts if lines]
    return "\n".join(painted)


def _header(report: TuneReport, width: int) -> list[Line]:
    target = report.target
    mode = target.memory_mode_name or target.memory_mode.value
    ours = sum(point.source == "npusched" for point in report.frontier)
    return [
        *flow(
            [
                (plain_text(report.model.name, 48), "bold"),
                plural(report.model.op_count, "op"),
                f"{plural(ours, 'plan')} of ours",
                f"{plural(report.compilations, 'compilation')} by Vela",
                f"SRAM = {report.budget_memory}{_constants(report)}",
            ],
            width,
        ),
        *flow(
            [
                f"{plain_text(target.name, 40)} @ {human_frequency(target.clock_hz)}",
                plain_text(target.system_config, 40),
                plain_text(mode, 40),
                *limit_texts(report),
            ],
            width,
        ),
    ]


def _constants(report: TuneReport) -> str:
    roles = report.target.roles
    return ", weights included" if roles.const == report.budget_memory else ""


def limit_texts(report: TuneReport) -> list[str]:
    """The limits on what is recommended."""
    found = []
    if report.budget_bytes is not None:
        found.append(f"budget {human_bytes(report.budget_bytes)}")
    if report.max_latency_s is not None:
        found.append(f"at most {human_seconds(report.max_latency_s)}")
    return found


def _plot(report: TuneReport, width: int) -> list[Line]:
    rows = plot_lines(report, min(width, 100))
    if not rows:
        return []
    budget = "  │ budget" if report.budget_bytes is not None else ""
    return [line(("  latency over SRAM   " + LEGEND + budget, "dim")), *rows]


def _choices(report: TuneReport, width: int) -> list[Line]:
    columns = [
        Column(title="choose"),
        Column(title="ours: SRAM", right=True),
        Column(title="latency", right=True),
        Column(title="energy", right=True, rank=2),
        Column(title="Vela: SRAM", right=True),
        Column(title="latency", right=True),
        Column(title="energy", right=True, rank=3),
        Column(title="reported", right=True, rank=1),
        Column(title="asked", right=True, rank=1),
    ]
    rows = []
    for goal, text in goal_texts(report).items():
        ours, vela = report.chosen(goal, "npusched"), report.chosen(goal, "vela")
        if ours is not None or vela is not None:
            rows.append([text, *_cells(ours), *_cells(vela), *_asked_cells(vela)])
    return table(columns, rows, width=width)


def _cells(point: TunePoint | None) -> list[str]:
    if point is None:
        return ["-", "-", "-"]
    energy = "-" if point.energy_nj is None else human_energy(point.energy_nj.typical)
    star = "*" if point.adopted else ""
    return [human_bytes(point.sram_bytes) + star, human_seconds(point.latency_s), energy]


def _asked_cells(point: TunePoint | None) -> list[str]:
    if point is None or point.cycles_vela_reported is None:
        return ["-", "-"]
    return [group_digits(point.cycles_vela_reported), asked_text(point.asked_bytes)]


def asked_text(asked_bytes: int | None) -> str:
    """An arena limit as people say it."""
    if asked_bytes is None:
        return "-"
    return "no limit" if asked_bytes >= UNLIMITED_BYTES else human_bytes(asked_bytes)


def fact_texts(report: TuneReport) -> list[str]:
    """What Vela's curve shows, one sentence each."""
    vela = [point for point in report.frontier if point.source == "vela"]
    if not vela:
        return []
    worse = sum(point.dominated_by is not None for point in vela)
    found = [f"{plural(len(vela), 'result')} of Vela's: {worse} dominated by another of them"]
    if report.over_budget:
        most = max(
            (report.frontier[i] for i in report.over_budget),
            key=lambda point: (point.sram_bytes_vela_reported or 0) - (point.asked_bytes or 0),
        )
        found[0] += (
            f", {len(report.over_budget)} use more than was asked for (worst: "
            f"asked {asked_text(most.asked_bytes)}, "
            f"used {human_bytes(most.sram_bytes_vela_reported or 0)})"
        )
    if report.non_monotone:
        worst = max(report.non_monotone, key=lambda each: each.worst_cycles / each.best_cycles)
        change = 100 * (worst.worst_cycles / worst.best_cycles - 1)
        found.append(
            f"more SRAM asked, slower: {plural(len(report.non_monotone), 'range')} of limits; "
            f"worst {worst.vela_options}: "
            f"{asked_text(worst.from_bytes)} gives {group_digits(worst.best_cycles)} cycles, "
            f"{asked_text(worst.worst_bytes)} gives {change:.2g} % more"
        )
    if report.basis == "vela_reported":
        reason = next((point.reason for point in vela if point.reason), "")
        found.append(
            "Vela's results are judged by its own report, which ignores striping and leaves tensors"
            f" of CPU ops out: not all are plans over our ops ({plain_text(reason, 80)})"
        )
    if any(point.adopted for point in report.frontier):
        count = sum(point.adopted for point in report.frontier)
        found.append(f"* Vela's own schedule, better than ours there ({plural(count, 'point')})")
    return found


def _facts(report: TuneReport, width: int) -> list[Line]:
    lines: list[Line] = []
    for text in fact_texts(report):
        lines += wrap(f"  {text}", width, indent=4)
    return lines


def arena_text(advice: ArenaAdvice) -> str:
    """The suggested size for a point, with all parts."""
    names = {
        "arena": "feature maps",
        "alignment": "alignment",
        "npu_tables": "NPU call tables",
        "persistent": "interpreter's own",
    }
    parts = " + ".join(
        f"{part.size_bytes} {names[part.kind]}{' (estimate)' if part.is_estimate else ''}"
        for part in advice.parts
    )
    text = f"kTensorArenaSize = {advice.size_bytes} in {advice.arena_memory}: {parts}"
    if advice.cache_bytes:
        text += f"; {advice.cache_bytes} bytes of fast memory for the NPU driver apart"
    return text


def arena_choice(report: TuneReport) -> tuple[str, ArenaAdvice] | None:
    """The advice that the text form shows, and whose point it is: our knee's."""
    for choice in report.recommended:
        if (choice.goal, choice.source) == ("knee", "npusched"):
            found = next(each for each in report.arena_advice if each.point == choice.point)
            return "our knee", found
    return None


def _arena(report: TuneReport, width: int) -> list[Line]:
    found = arena_choice(report)
    if found is None or report.target.accelerator is None:
        return []
    whose, advice = found
    return wrap(f"  TFLM, for {whose}: {arena_text(advice)}", width, indent=4)


def commands(report: TuneReport) -> list[tuple[list[Goal], TunePoint]]:
    """Vela's recommended points with a command, and what each is recommended for."""
    goals: dict[int, list[Goal]] = {}
    for goal in _COMMAND_ORDER:
        point = report.chosen(goal, "vela")
        if point is not None and point.vela_command is not None:
            goals.setdefault(point.index, []).append(goal)
    return [(found, report.frontier[index]) for index, found in goals.items()]


def command_title(report: TuneReport, goals: Sequence[Goal], point: TunePoint) -> str:
    """What a command is for and what it gives."""
    names = goal_texts(report)
    assert point.cycles_vela_reported is not None
    return (
        f"{', '.join(names[goal] for goal in goals)}: {group_digits(point.sram_bytes)} bytes, "
        f"{group_digits(point.cycles_vela_reported)} cycles reported"
    )


def broken_command(command: str, width: int) -> list[str]:
    """A command on lines of at most ``width`` where words allow, for a POSIX shell."""
    rows: list[str] = []
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if rows and len(rows[-1]) + len(quoted) + 3 <= width:
            rows[-1] += f" {quoted}"
        else:
            rows.append(quoted if not rows else f"  {quoted}")
    return [f"{row} \\" for row in rows[:-1]] + rows[-1:]


def _commands(report: TuneReport, width: int) -> list[Line]:
    found = commands(report)
    lines: list[Line] = []
    for goals, point in found[:COMMANDS]:
        assert point.vela_command is not None
        title = wrap(command_title(report, goals, point), width - 4)
        lines += [line((f"  # {row[0][0]}", "dim")) for row in title]
        rows = broken_command(point.vela_command, width - 2)
        lines += [line(plain_text(f"  {row}", _UNCUT)) for row in rows]
    if report.vela_ini is not None and found:
        text = f"  # beside {plain_text(report.vela_ini.name)}: npusched tune … --write-ini ."
        lines.append(line((text, "dim")))
    return lines


def _footer(report: TuneReport, width: int) -> list[Line]:
    rest = len(commands(report)) - COMMANDS
    more = [f"{plural(rest, 'more command')}: --format md"] if rest > 0 else []
    version = f"Vela {report.vela_version}" if report.vela_version else "no Vela"
    return flow(
        [
            *more,
            "latency and energy striped, by our cost"
            if report.basis == "striped"
            else "latency of Vela's as reported",
            f"npusched {report.npusched_version}",
            version,
            "all figures predicted",
        ],
        width,
    )
