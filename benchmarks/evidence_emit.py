"""Our plans emitted as files: checked, executed, and set beside the best of Vela's.

Budgets and Vela's figures are those of reports/frontier.json where it has the model (0 to 100 % of
Vela's SRAM range on a U55, fixed staging SRAM on a U65); else the plan without a limit and the
smallest one. Planned without candidates: no schedule of Vela's competes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from benchmarks.evidence import (
    REPORTS,
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    counts_of,
    hw_configs,
    not_done,
    refusal,
    stored,
)
from npusched.api.inspecting import inspect_report
from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.emit.container import write_file
from npusched.emit.fitting import Fitted, fit
from npusched.emit.gate import check_file, used_bytes
from npusched.emit.matching import match_kernels
from npusched.emit.planned import emit_plan
from npusched.emit.template import Template, make_template
from npusched.errors import EmitError, InfeasibleError, NpuschedError
from npusched.hardware import Target, load_target
from npusched.sim.figures import count_figures
from npusched.sim.proof import prove
from npusched.sim.reference import random_inputs
from npusched.sim.run import Executable
from npusched.vela.cache import VelaCache
from npusched.vela.runner import compile_model
from npusched.vela.sweep import sweep

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CONFIGS = ("ethos-u55-128", "ethos-u65-256", "ethos-u65-512")
STAGING_KIB = (16, 32, 64, 128, 256, 384)
INPUTS = 5
ONE_ABOVE_MACS = 100_000_000
"""One input instead of five above 100 MMAC."""

OPTIONS = PlanOptions(candidates="none")

INSPECTED = tuple(
    (f"models/{name}.tflite", "ethos-u55-128")
    for name in ("mlpt_vww", "mlpt_resnet8", "mlpt_resnet_large", "seeed_fomo_mnv2")
)
"""Files that are looked into beside Vela's with the least SRAM."""

COMPILATIONS = 48
"""Of the sweep that finds those."""

HEAVY_BYTES = 100_000
"""CI measures no models again whose file is larger than this, and only those on a U55."""

NOT_EXECUTED = "not executed"


SMALL_BYTES = 300_000
"""Largest file that is also emitted for two cores: six budgets, each planned."""

SLOW = ("coral_deeplabv3",)
"""Vela makes 5,600 kernels of it, each budget takes minutes."""


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [
        (path, config)
        for path in corpus_files()
        for config in CONFIGS
        if not any(name in path for name in SLOW)
        and (config != CONFIGS[2] or (corpus() / path).stat().st_size <= SMALL_BYTES)
    ]


def measure(case: Case) -> Row:
    """Emit one model at all budgets."""
    path, config = case
    target = load_target(config)
    content = (corpus() / path).read_bytes()
    try:
        template = make_template(content, target, cache=VelaCache())
        ready = prepare(content, name=Path(path).stem, target=target, options=OPTIONS)
        points = [
            {"budget": label, **_point(template, ready, size, vela)}
            for label, size, vela in _budgets(case, ready, target)
        ]
    except NpuschedError as error:
        return {"status": refusal(error)}
    row: Row = {"status": "emitted", "points": points}
    if case in INSPECTED:
        row["inspected"] = _inspected(template, ready)
    return row


def _inspected(template: Template, ready: Prepared) -> Row:
    """``npusched inspect`` of Vela's files with the least SRAM (the fastest), and of ours in it."""
    target, content = template.target, ready.model.content
    swept = sweep(content, target, cache=VelaCache(), max_compiles=COMPILATIONS)
    least = min(point.used_bytes for point in swept.points)
    files = [
        compile_model(content, target, point.options, cache=VelaCache()).compiled
        for point in swept.distinct
        if point.used_bytes == least
    ]
    fitted = _fitted(template, ready, least)
    ours = write_file(fitted.emitted)
    return {
        "bytes": least,
        "vela": min(_timed(each, target) for each in files),
        "ours": _timed(ours, target),
    }


def _timed(content: bytes, target: Target) -> list[int]:
    """[cycles, SRAM peak] as inspect shows them."""
    report = inspect_report(content, name="file", target=target)
    assert report.timing is not None
    return [report.timing.cycles, report.totals.sram_peak_bytes]


@lru_cache
def _frontier() -> dict[tuple[str, ...], list[Row]]:
    """Points of the frontier report, by case."""
    rows = stored("frontier")["rows"]
    assert isinstance(rows, list)
    return {case_of(row): row["points"] for row in rows if row["status"] == "compared"}


def _budgets(
    case: Case, ready: Prepared, target: Target
) -> Iterator[tuple[str, int | None, list[float] | None]]:
    """(label, bytes, Vela's best plan: objective, cycles, off-chip bytes, SRAM)."""
    points = _frontier().get(case)
    if points is not None:
        for point in points:
            size, vela = point["bytes"], point["vela"]
            assert isinstance(size, int)
            assert vela is None or isinstance(vela, list)
            yield str(point["budget"]), size, vela
        return
    if case[1] == "ethos-u65-512":
        yield from ((f"{kib} KiB", 1024 * kib, None) for kib in STAGING_KIB)
        return
    planner = OPTIONS.planner(ready.graph, target, ready.sizes.of)
    yield "largest", planner.plan(None).sram_peak_bytes, None
    yield "smallest", planner.smallest_budget_bytes(), None


def _point(
    template: Template, ready: Prepared, budget: int | None, vela: list[float] | None
) -> Row:
    """One file: sizes, checks, proof."""
    target = template.target
    try:
        fitted = _fitted(template, ready, budget)
    except (EmitError, InfeasibleError) as error:
        kind = "infeasible" if isinstance(error, InfeasibleError) else refusal(error)
        return {"bytes": budget, "refused": kind}
    written = write_file(fitted.emitted)
    gate = check_file(written, fitted.emitted, target, budget)
    row = {"bytes": budget, **_sizes(fitted, target, written), "vela": vela}
    row["failed"] = {str(check.name): len(check.findings) for check in gate.failed}
    if gate.executable is not None:
        row |= _proof(ready, gate.executable)
    return row


def _fitted(template: Template, ready: Prepared, budget: int | None) -> Fitted:
    model, graph, target = ready.model, ready.graph, template.target
    planner = OPTIONS.planner(graph, target, ready.sizes.of)
    match = match_kernels(template, model, graph)
    return fit(
        planner.plan,
        lambda plan: emit_plan(template, model, graph, plan, match=match),
        target,
        budget,
    )


def _sizes(fitted: Fitted, target: Target, written: bytes) -> Row:
    plan, emitted = fitted.plan, fitted.emitted
    amounts = plan.amounts
    cpu = amounts.cpu_cycles * target.clock_hz / target.cpu.clock_hz
    return {
        "attempts": fitted.attempts,
        "cycles": round(amounts.npu_cycles + cpu),
        "sram": used_bytes(emitted, target),
        "planned_sram": plan.sram_peak_bytes,
        "constants": len(emitted.read_only),
        "planned_constants": plan.constant_bytes,
        "words": sum(len(stream.words) for stream in emitted.streams),
        "kernels": sum(len(stream.kernels) for stream in emitted.streams),
        "fused": sum(len(segment.ops) > 1 for segment in plan.segments),
        "file": len(written),
    }


def _proof(ready: Prepared, executable: Executable) -> Row:
    """Execute and compare; a model that LiteRT cannot run is not executed."""
    macs = sum(count_figures(program).macs for program in executable.programs)
    count = 1 if macs > ONE_ABOVE_MACS else INPUTS
    try:
        drawn = random_inputs(ready.model.subgraphs[0], count, seed=0)
        proof = prove(ready.model, executable, drawn)
    except NpuschedError as error:
        return {"verdict": NOT_EXECUTED, "why": refusal(error)}
    inside = proof.intermediates
    return {
        "verdict": str(proof.verdict),
        "inputs": proof.inputs,
        "tensors": inside.tensors,
        "covered": inside.covered,
        "exceptions": list(proof.exceptions),
    }


# --- the page -------------------------------------------------------------------------------


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator, every exception by name, and all files."""
    done = [row for row in rows if row["status"] == "emitted"]
    lines = [
        "Plans of `npusched plan` (candidates off) emitted as files. Each has passed the release",
        f"gate or is listed, and was executed on {INPUTS} seeded random inputs (one above "
        f"{ONE_ABOVE_MACS // 10**6} MMAC): outputs and",
        "what every kernel writes, against LiteRT's `BUILTIN_REF`, tolerance 0. None was run on",
        "hardware. Cycles are predicted, stripe by stripe on both sides (reports/frontier.md);",
        "Vela: the plan of its results within the budget that is best in the objective.",
        "",
        "| accelerator | models | files | kernels | gate passed | equal | not executed | SRAM <= "
        "budget | refused at a budget |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for config in CONFIGS:
        mine = [row for row in done if case_of(row)[1] == config]
        lines.append(_summary(config, mine))
    lines += ["", "Findings of the gate, differences, budgets not kept:", ""]
    lines += [text for row in done for text in _faults(row)] or ["- none"]
    lines += ["", "Refused at a budget (no plan of ours at all is not counted):", ""]
    lines += sorted({text for row in done for text in _refused(row)}) or ["- none"]
    lines += ["", "Not executed:", ""]
    lines += sorted({text for row in done for text in _unexecuted(row)}) or ["- none"]
    lines += [
        "",
        f"Left out: {', '.join(SLOW)}.",
        "",
        "Not emitted at all:",
        "",
        *not_done(rows, "emitted"),
    ]
    lines += ["", *_inspected_table(done), "", *_table(done)]
    return "\n".join(lines)


def _points(row: Row) -> list[Row]:
    found = row["points"]
    assert isinstance(found, list)
    return found


def _files(row: Row) -> list[Row]:
    return [point for point in _points(row) if "refused" not in point]


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _keeps(point: Row) -> bool:
    return point["bytes"] is None or _int(point["sram"]) <= _int(point["bytes"])


def _summary(config: str, mine: Sequence[Row]) -> str:
    files = [point for row in mine for point in _files(row)]
    refused = sum(
        point.get("refused", "infeasible") != "infeasible" for row in mine for point in _points(row)
    )
    verdicts = [point.get("verdict") for point in files]
    return (
        f"| {config} | {len(mine)} | {len(files)} | {sum(_int(p['kernels']) for p in files)} | "
        f"{sum(not p['failed'] for p in files)} | {verdicts.count('equal')} | "
        f"{verdicts.count(NOT_EXECUTED)} | {sum(map(_keeps, files))} | {refused} |"
    )


def _name(row: Row, point: Row) -> str:
    path, config = case_of(row)
    return f"- {path} ({config}, {point['budget']})"


def _faults(row: Row) -> Iterator[str]:
    for point in _files(row):
        for check, count in counts_of(point, "failed").items():
            yield f"{_name(row, point)}: {check}, {count} findings"
        if point.get("verdict") == "different":
            known = point["exceptions"]
            assert isinstance(known, list)
            yield f"{_name(row, point)}: different ({'; '.join(known) or 'no known exception'})"
        if not _keeps(point):
            yield f"{_name(row, point)}: {point['sram']} bytes"


def _refused(row: Row) -> Iterator[str]:
    for point in _points(row):
        why = str(point.get("refused", "infeasible"))
        if why != "infeasible":
            yield f"{_name(row, point)}: {why}"


def _unexecuted(row: Row) -> Iterator[str]:
    for point in _files(row):
        if point.get("verdict") == NOT_EXECUTED:
            yield f"- {case_of(row)[0]}: {point['why']}"


def _inspected_table(done: Sequence[Row]) -> list[str]:
    """Both files of ``INSPECTED``."""
    lines = [
        "At the least SRAM of any of Vela's results, `npusched inspect` of both files (Vela's",
        "fastest one of that size):",
        "",
        "| model | SRAM: Vela | ours | cycles: Vela | ours | |",
        "|---|---|---|---|---|---|",
    ]
    for row in done:
        if "inspected" in row:
            found = row["inspected"]
            assert isinstance(found, dict)
            ours, vela = found["ours"], found["vela"]
            lines.append(
                f"| {Path(case_of(row)[0]).stem} | {vela[1]} | {ours[1]} | {vela[0]} | {ours[0]} | "
                f"{100 * (ours[0] / vela[0] - 1):+.1f} % |"
            )
    return lines


def _table(done: Sequence[Row]) -> list[str]:
    """All files for which there is a plan of Vela's."""
    lines = [
        "Files beside Vela's best plan (flash: constants and command words):",
        "",
        "| model | accelerator | budget | SRAM: Vela | ours | cycles: Vela | ours | | flash | "
        "words | kernels | attempts |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in done:
        path, config = case_of(row)
        for point in _files(row):
            vela = point["vela"]
            if not isinstance(vela, list):
                continue
            change = _int(point["cycles"]) / vela[1] - 1 if vela[1] else 0.0
            flash = _int(point["constants"]) + 4 * _int(point["words"])
            lines.append(
                f"| {Path(path).stem} | {config} | {point['budget']} | {vela[3]} | "
                f"{point['sram']} | {vela[1]} | {point['cycles']} | {100 * change:+.1f} % | "
                f"{flash} | {point['words']} | {point['kernels']} | {point['attempts']} |"
            )
    return lines


def _inputs() -> list[Path]:
    return [*hw_configs(), REPORTS / "frontier.json"]


EVIDENCE = Evidence(
    name="emit",
    title="Our plans as files",
    cases=cases,
    measure=measure,
    render=render,
    inputs=_inputs,
    sample_size=2,
    heavy=lambda case: (
        case[1] != CONFIGS[0]
        or case in INSPECTED
        or (corpus() / case[0]).stat().st_size > HEAVY_BYTES
    ),
)
