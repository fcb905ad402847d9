"""What ``npusched tune`` promises, on every model: its commands are run as printed.

Every recommended command of Vela's is run in an empty folder; the SRAM and the cycles that Vela
states are held against those printed. No dominated point may be recommended, and none of Vela's
points may better ours (candidates on) in the objective with no more SRAM.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path

from benchmarks.evidence import Case, Evidence, Row, corpus, corpus_files, hw_configs
from benchmarks.printed_commands import run_printed
from npusched.api.options import PlanOptions
from npusched.api.tuning import tune_report
from npusched.errors import NpuschedError
from npusched.hardware import load_target
from npusched.report.tune_types import TuneReport

CONFIGS = ("ethos-u55-128", "ethos-u65-256")
HEAVY_BYTES = 400_000


def cases() -> list[Case]:
    """Every model on a target whose limit Vela takes as an aim, and on one where it is hard."""
    return [(path, config) for config in CONFIGS for path in corpus_files()]


def measure(case: Case) -> Row:
    """Tune, run what is recommended, and count what is broken."""
    path, config = case
    content = (corpus() / path).read_bytes()
    try:
        report = tune_report(
            content,
            name=Path(path).name,
            target=load_target(config),
            options=PlanOptions(use_cache=False),
        )
    except NpuschedError as error:
        return {"error": error.what}
    vela = [point for point in report.frontier if point.source == "vela"]
    return {
        "basis": report.basis,
        "plans": len(report.frontier) - len(vela),
        "adopted": sum(point.adopted for point in report.frontier),
        "vela": len({(p.sram_bytes, p.cycles_vela_reported, p.vela_options) for p in vela}),
        "compilations": report.compilations,
        "dominated": sum(point.dominated_by is not None for point in vela),
        "over_budget": len(report.over_budget),
        "non_monotone": len(report.non_monotone),
        "dominated_recommended": sum(
            report.frontier[each.point].dominated_by is not None for each in report.recommended
        ),
        "beaten_by_vela": _beaten(report),
        "knees": {
            each.source: [report.frontier[each.point].sram_bytes, _cycles(report, each.point)]
            for each in report.curve
            if each.goal == "knee"
        },
        **_commands(report, content),
    }


def _cycles(report: TuneReport, point: int) -> int | None:
    found = report.frontier[point]
    return found.cycles_vela_reported if found.cycles is None else found.cycles


def _beaten(report: TuneReport) -> int:
    """Points of Vela's that are better than all of ours with no more SRAM."""
    ours = [point for point in report.frontier if point.source == "npusched"]
    capacity = report.target.sram_budget_bytes or inf
    beaten = 0
    for point in report.frontier:
        if point.source == "vela" and point.objective is not None and point.sram_bytes <= capacity:
            best = min(
                (
                    p.objective
                    for p in ours
                    if p.objective is not None and p.sram_bytes <= point.sram_bytes
                ),
                default=inf,
            )
            beaten += best > point.objective
    return beaten


def _commands(report: TuneReport, content: bytes) -> Row:
    """How many commands were run, how many of them used more SRAM or gave other cycles."""
    wanted = sorted({each.point for each in report.recommended if each.source == "vela"})
    more = other = 0
    with tempfile.TemporaryDirectory() as folder:
        for index in wanted:
            point = report.frontier[index]
            used, cycles = run_printed(report, index, content, Path(folder) / str(index))
            more += used > point.sram_bytes
            other += cycles != point.cycles_vela_reported
    return {"commands": len(wanted), "more_sram": more, "other_cycles": other}


def render(rows: Sequence[Row]) -> str:
    """Sums per target, the promises first, then what could not be tuned."""
    lines = [
        "Every recommended command of Vela's was run as printed in an empty folder.",
        "",
        "| target | models | commands run | used more SRAM | gave other cycles | dominated points"
        " recommended | points of Vela's better than ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for config in CONFIGS:
        mine = [row for row in rows if _case(row)[1] == config and "error" not in row]
        names = ("commands", "more_sram", "other_cycles", "dominated_recommended", "beaten_by_vela")
        sums = " | ".join(str(_sum(mine, name)) for name in names)
        lines.append(f"| {config} | {len(mine)} | {sums} |")
    lines += [
        "",
        "| target | compilations | results | dominated | use more than asked for | models with"
        " slower results for more SRAM | points of ours taken over from Vela |",
        "|---|---|---|---|---|---|---|",
    ]
    for config in CONFIGS:
        mine = [row for row in rows if _case(row)[1] == config and "error" not in row]
        wrong = sum(_int(row["non_monotone"]) > 0 for row in mine)
        kinds = ("compilations", "vela", "dominated", "over_budget")
        sums = " | ".join(str(_sum(mine, name)) for name in kinds)
        lines.append(f"| {config} | {sums} | {wrong} | {_sum(mine, 'adopted')} |")
    reported = [row for row in rows if row.get("basis") == "vela_reported"]
    failed = [row for row in rows if "error" in row]
    lines += ["", f"Judged by Vela's own report, for lack of a plan over our ops: {len(reported)}."]
    lines += [f"- {' '.join(_case(row))}" for row in reported]
    lines += ["", f"Not tuned: {len(failed)}."]
    lines += [f"- {' '.join(_case(row))}: {row['error']}" for row in failed]
    return "\n".join(lines)


def _case(row: Row) -> list[str]:
    case = row["case"]
    assert isinstance(case, list)
    return [str(part) for part in case]


def _sum(rows: Sequence[Row], name: str) -> int:
    return sum(_int(row[name]) for row in rows)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


EVIDENCE = Evidence(
    name="tune",
    title="What `npusched tune` recommends, and its commands run as printed",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=3,
    heavy=lambda case: (corpus() / case[0]).stat().st_size > HEAVY_BYTES,
)
