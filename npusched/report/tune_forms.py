"""``npusched tune`` as JSON, CSV and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from npusched.report.csv_form import csv_text
from npusched.report.tune_matrix import answer_texts, matrix_cells
from npusched.report.tune_matrix_types import TuneMatrix
from npusched.report.tune_text import (
    arena_choice,
    arena_text,
    asked_text,
    command_title,
    commands,
    fact_texts,
    goal_texts,
    limit_texts,
)
from npusched.report.tune_types import TunePoint, TuneReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_energy,
    human_frequency,
    human_seconds,
    plain_text,
)

POINT_COLUMNS: Final = tuple(
    name for name in TunePoint.__struct_fields__ if name not in ("energy_nj", "reason")
)
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|!"})


def render_tune_json(report: TuneReport | TuneMatrix) -> str:
    """Return it as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def read_tune_json(text: str | bytes) -> TuneReport:
    """Return the report of its JSON. Raises msgspec.ValidationError if it is none."""
    return msgspec.json.decode(text, type=TuneReport)


def render_tune_csv(report: TuneReport) -> str:
    """Return all points, one a row; energies are low, typical and high; "" = not known."""
    goals: dict[int, list[str]] = {}
    for each in report.recommended:
        goals.setdefault(each.point, []).append(each.goal)
    energies = ("energy_nj_low", "energy_nj_typical", "energy_nj_high")
    rows: list[list[object]] = [[*POINT_COLUMNS, *energies, "recommended"]]
    for point in report.frontier:
        energy = point.energy_nj
        rows.append(
            [
                *(_cell(getattr(point, name)) for name in POINT_COLUMNS),
                *(["", "", ""] if energy is None else [energy.low, energy.typical, energy.high]),
                " ".join(goals.get(point.index, [])),
            ]
        )
    return csv_text(rows)


def render_matrix_csv(matrix: TuneMatrix) -> str:
    """Return one row per target, two columns (bytes, seconds) per plan."""
    plans = ("floor", "knee", "fastest", "at_budget", "with_more", "vela_knee")
    names = ("config", "system_config", "memory_mode", "budget_memory", "holds_constants")
    head = [f"{plan}_{what}" for plan in plans for what in ("sram_bytes", "latency_s")]
    rows: list[list[object]] = [[*names, *head, "reason"]]
    for row in matrix.rows:
        cells = [getattr(row, plan) for plan in plans]
        rows.append(
            [
                *(_cell(getattr(row, name)) for name in names),
                *(
                    value
                    for cell in cells
                    for value in (("", "") if cell is None else (cell.sram_bytes, cell.latency_s))
                ),
                row.reason,
            ]
        )
    return csv_text(rows)


def _cell(value: object) -> object:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def render_tune_md(report: TuneReport) -> str:
    """Return the choices, the facts and every recommended command as a Markdown page."""
    target = report.target
    limits = "".join(f", {text}" for text in limit_texts(report))
    parts = [
        f"# {_text(report.model.name)}: SRAM against latency",
        f"{_text(target.name)} at {human_frequency(target.clock_hz)}, "
        f"{_text(target.system_config)}, {_text(target.memory_mode_name)}{limits}",
        _table(
            ("choose", "whose", "SRAM", "latency", "cycles", "energy", "reported", "asked"),
            [
                (text, *_point_cells(point))
                for goal, text in goal_texts(report).items()
                for source in ("npusched", "vela")
                if (point := report.chosen(goal, "npusched" if source == "npusched" else "vela"))
                is not None
            ],
        ),
        "\n".join(f"- {_text(text)}" for text in (*fact_texts(report), *report.warnings)),
    ]
    arena = arena_choice(report)
    if arena is not None and target.accelerator is not None:
        parts.append(f"For {arena[0]}: {_text(arena_text(arena[1]))}")
    found = commands(report)
    if found:
        parts.append("## Commands")
        for goals, point in found:
            parts.append(f"{_text(command_title(report, goals, point))}:")
            parts.append(f"```sh\n{point.vela_command}\n```")
    if report.vela_ini is not None and found:
        parts.append(f"`{report.vela_ini.name}`, beside them:")
        parts.append(f"```ini\n{report.vela_ini.text}```")
    parts.append(f"npusched {report.npusched_version}: all figures are predicted.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _point_cells(point: TunePoint) -> tuple[str, ...]:
    reported = point.cycles_vela_reported
    return (
        "ours (Vela's schedule)" if point.adopted else point.source,
        human_bytes(point.sram_bytes),
        human_seconds(point.latency_s),
        "-" if point.cycles is None else group_digits(point.cycles),
        "-" if point.energy_nj is None else human_energy(point.energy_nj.typical),
        "-" if reported is None else group_digits(reported),
        asked_text(point.asked_bytes),
    )


def render_matrix_md(matrix: TuneMatrix) -> str:
    """Return the targets side by side as a Markdown page."""
    name = "" if matrix.model is None else matrix.model.name
    budget = "budget" if matrix.budget_bytes is None else human_bytes(matrix.budget_bytes)
    head = ("target", "memory mode", "least SRAM", "knee", "fastest", f"in {budget}", "and more")
    parts = [
        f"# {_text(name)}: targets side by side",
        _table((*head, "Vela's knee"), [matrix_cells(row) for row in matrix.rows]),
        "\n".join(f"- {_text(text)}" for text in (*answer_texts(matrix), *matrix.warnings)),
        f"npusched {matrix.npusched_version}: all figures are predicted.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(text: str) -> str:
    return plain_text(text, 400).translate(_SPECIAL)
