"""What advice predicts comes true: every change of every model is applied, and planned anew.

Advice is asked for on every model; each change is then applied from outside: the edited file is
written and read again, and planned by ``npusched.plan``; another target or budget is given as a
user gives it. The change of every figure is held against the band of the advice. Where weights
would be trained anew, the same is done with other weights in place of those that the edit wrote.
Where advice says that results stay the same, LiteRT's reference kernels run both files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import npusched
from benchmarks.evidence import Case, Evidence, Row, case_of, corpus, corpus_files, hw_configs
from npusched.advise import BANDS, Confidence
from npusched.advise.types import FLOOR
from npusched.api.advising import NO_LIMIT_BYTES, advise_model
from npusched.api.options import PlanOptions
from npusched.errors import NpuschedError, SimError
from npusched.hardware import Target, load_target
from npusched.ir import Model
from npusched.report.types import Advice, PlanReport
from npusched.sim.deviation import compare_models
from npusched.tflite import read_model
from npusched.tflite.editor import Editor

CASES = (
    ("ethos-u55-128", "cycles"),
    ("ethos-u55-128", "sram"),
    ("ethos-u55-128", "64KiB"),
    ("ethos-u65-256", "cycles"),
)
"""Target, and what is asked for: an objective, or the least time within a budget."""

FIELDS = ("latency_s", "cycles", "sram_bytes", "energy_nj", "constant_bytes")
TRAINED = ("NS101", "NS205")
"""Rules whose change asks for training: the weights will be others."""

LEFT_OUT = "deeplab"
"""20 s a compilation."""

SMALL_BYTES = 40_000
"""Larger files are looked at on the first target only."""

HEAVY_BYTES = 60_000
SLOW = ("crnn_lstm", "attn_197x64", "softmax_only_197", "mv2_head_224", "yolo_stem_640", "rnnoise")
"""Small files with many kernels."""

INPUTS = 2
MAX_RUN_BYTES = 1_000_000


def cases() -> list[Case]:
    """Every model for time, small ones on a second target; those of bug reports for SRAM, too."""
    first = CASES[0]
    return [
        (path, config, asked)
        for config, asked in CASES
        for path in corpus_files()
        if LEFT_OUT not in path
        and (asked == "cycles" or path.startswith("cases/"))
        and ((config, asked) == first or (corpus() / path).stat().st_size < SMALL_BYTES)
    ]


def measure(case: Case) -> Row:
    """Ask for advice, apply each, and count what is outside its band."""
    path, config, asked = case
    content, target = (corpus() / path).read_bytes(), load_target(config)
    options = PlanOptions(sram=asked) if asked.endswith("B") else PlanOptions(objective=asked)
    try:
        advised = advise_model(content, name=Path(path).name, target=target, options=options)
    except NpuschedError as error:
        return {"status": error.what}
    if not advised.report.fits:
        options = PlanOptions(sram=NO_LIMIT_BYTES, objective="sram")
    before = _planned(content, target, options)
    rows = []
    for number, advice in enumerate(advised.report.advice):
        change = advised.changes[number]
        changed = options if advice.changes != "budget" else replace(options, sram=None)
        after = _planned(change.content or content, change.target or target, changed)
        row: Row = {
            "id": advice.id,
            "confidence": advice.confidence,
            "gain": round(advice.gain or 0.0, 4),
            "true_gain": round(_gain(before, after, options.objective), 4),
            "off": _off(advice, before, after),
        }
        if change.content is not None and advice.id in TRAINED:
            other = _planned(_retrained(content, change.content), target, options)
            row["off_other_weights"] = _off(advice, before, other)
        if "stay the same" in advice.message and change.content is not None:
            row["results"] = _results(content, change.content)
        rows.append(row)
    return {"status": "compared", "planned": advised.report.planned_changes, "advice": rows}


def _planned(content: bytes, target: Target, options: PlanOptions) -> PlanReport:
    return npusched.plan(
        content, target, sram=options.sram, objective=options.objective, advice="none"
    )


def _figures(report: PlanReport) -> dict[str, float]:
    totals = report.totals
    return {
        "latency_s": totals.latency_s,
        "cycles": totals.cycles,
        "sram_bytes": totals.sram_peak_bytes,
        "energy_nj": totals.energy_nj.typical,
        "constant_bytes": totals.constant_bytes,
    }


def _gain(before: PlanReport, after: PlanReport, objective: str) -> float:
    """Share of the objective that is saved."""
    if objective == "sram":
        return 1 - after.totals.sram_peak_bytes / before.totals.sram_peak_bytes
    return 1 - after.totals.latency_s / before.totals.latency_s


def _off(advice: Advice, before: PlanReport, after: PlanReport) -> float:
    """The largest distance between what was predicted and what came, in half widths of the band."""
    old, new = _figures(before), _figures(after)
    worst = 0.0
    for name in FIELDS:
        predicted = getattr(advice.delta, name)
        band = max(BANDS[Confidence(advice.confidence)] * abs(predicted), FLOOR * abs(old[name]))
        apart = abs(new[name] - old[name] - predicted)
        worst = max(worst, apart / band if band else float(apart > 0))
    return round(worst, 3)


def _retrained(before: bytes, after: bytes) -> bytes:
    """The changed file with other weights where the change wrote some: as many zeros, else normal.

    The normal distribution has the mean square of those that the edit wrote.
    """
    known = {
        t.data.tobytes()
        for graph in read_model(before, "before").subgraphs
        for t in graph.tensors
        if t.data is not None
    }
    model = read_model(after, "after")
    rng = np.random.default_rng(0)
    for graph in model.subgraphs:
        editor = Editor(model, graph.index)
        for tensor in graph.tensors:
            if tensor.data is None or tensor.dtype.label not in ("int8", "uint8"):
                continue
            if tensor.elements > 1 and tensor.data.tobytes() not in known:
                known_zeros = tensor.quantization and tensor.quantization.zero_points
                zero = known_zeros[0] if known_zeros else 0
                real = tensor.data.astype(np.float64) - zero
                width = float(np.sqrt(np.mean(real[real != 0] ** 2))) if real.any() else 1.0
                low, high = (0, 255) if tensor.dtype.label == "uint8" else (-127, 127)
                drawn = np.clip(np.rint(rng.normal(0, width, tensor.shape)) + zero, low, high)
                drawn[real == 0] = zero
                editor.set_constant(tensor.index, drawn)
        model = read_model(editor.content(), "after")
    return model.content


def _results(before: bytes, after: bytes) -> str:
    """Whether both files give the same, as LiteRT's reference kernels see it."""
    model: Model = read_model(before, "before")
    if len(before) > MAX_RUN_BYTES:
        return "not run"
    try:
        found = compare_models(before, after, model.subgraphs[0], INPUTS, 0)
    except SimError as error:
        return error.what
    return "equal" if not found.differing else f"{found.differing} of {found.values} differ"


def _advice(row: Row) -> list[Mapping[str, object]]:
    found = row.get("advice", [])
    assert isinstance(found, list)
    return found


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def render(rows: Sequence[Row]) -> str:
    """Per rule: how often, how much, and how far off; then what could not be planned."""
    lines = [
        "Every advice was applied to the file (or the target), and planned again. `off` is the "
        "largest distance between predicted and found change of time, cycles, SRAM, energy and "
        "constants, in half widths of the band of the advice: 0 is what was predicted, above 1 is "
        "outside. `other weights`: with normal ones in place of those that the edit wrote, where "
        "training would change them.",
        "",
        "| rule | advices | models | median gain | least gain found | largest off | outside |"
        " other weights: largest off | outside | results the same |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    found = [(row, item) for row in rows for item in _advice(row)]
    for rule in sorted({str(item["id"]) for _, item in found}):
        mine = [(row, item) for row, item in found if item["id"] == rule]
        lines.append(_rule_row(rule, mine))
    silent = sum(1 for row in rows if row["status"] == "compared" and not _advice(row))
    worse = [item for _, item in found if _number(item["true_gain"]) <= 0]
    outside = [
        (row, item, name)
        for row, item in found
        for name in ("off", "off_other_weights")
        if _number(item.get(name, 0)) > 1
    ]
    lines += [
        "",
        f"{len(found)} advices on {len(rows)} cases; {silent} cases without any. "
        f"Advices that make the objective worse or leave it: {len(worse)}.",
        "",
        f"Outside of the band: {len(outside)}.",
    ]
    lines += [
        f"- {' '.join(case_of(row))}: {item['id']} {name.replace('_', ' ')} {item[name]}"
        for row, item, name in outside
    ]
    failed = [row for row in rows if row["status"] != "compared"]
    lines += ["", f"Not planned: {len(failed)}."]
    lines += [f"- {' '.join(case_of(row))}: {row['status']}" for row in failed]
    return "\n".join(lines)


def _rule_row(rule: str, mine: Sequence[tuple[Row, Mapping[str, object]]]) -> str:
    gains = sorted(_number(item["gain"]) for _, item in mine)
    true = min(_number(item["true_gain"]) for _, item in mine)
    off = [_number(item["off"]) for _, item in mine]
    other = [_number(i["off_other_weights"]) for _, i in mine if "off_other_weights" in i]
    run = [item["results"] for _, item in mine if "results" in item]
    same = f"{sum(r == 'equal' for r in run)} of {len(run)}" if run else "-"
    cells = [
        rule,
        str(len(mine)),
        str(len({case_of(row)[0] for row, _ in mine})),
        f"{gains[len(gains) // 2]:.1%}",
        f"{true:.1%}",
        f"{max(off):.2f}",
        str(sum(o > 1 for o in off)),
        f"{max(other):.2f}" if other else "-",
        str(sum(o > 1 for o in other)) if other else "-",
        same,
    ]
    return f"| {' | '.join(cells)} |"


def _is_heavy(case: Case) -> bool:
    large = (corpus() / case[0]).stat().st_size > HEAVY_BYTES
    return large or any(name in case[0] for name in SLOW)


EVIDENCE = Evidence(
    name="advice",
    title="Advice, applied",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=4,
    heavy=_is_heavy,
)
