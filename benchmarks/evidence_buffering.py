"""Our own choice of staged weights and depth slices against Vela's at the default arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.evidence import Case, Evidence, Row, case_of, corpus, corpus_files, hw_configs
from npusched.cost.buffer_candidates import candidates_of
from npusched.cost.buffering import Staged, propose_all
from npusched.errors import NpuschedError
from npusched.graph.build import build_graph
from npusched.hardware import load_target
from npusched.tflite import read_model
from npusched.vela.cache import VelaCache
from npusched.vela.match import match_ops
from npusched.vela.options import VelaOptions
from npusched.vela.reader import read_ops
from npusched.vela.records import VelaOp
from npusched.vela.runner import compile_model

TARGETS = (
    "ethos-u55-32",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-512",
    "ethos-u85-256",
    "ethos-u85-1024",
)
"""All in Shared_Sram, where feature maps compete with weights for nothing."""

UNROLLED = "models/coral_deeplabv3_mnv2_dm05_uint8.tflite"
"""Becomes 65,866 ops on U55 and U65: left out there."""


def cases() -> list[Case]:
    """Every model on every target."""
    return [
        (path, target)
        for path in corpus_files()
        for target in TARGETS
        if path != UNROLLED or "u85" in target
    ]


def measure(case: Case) -> Row:
    """Compare one model on one target, op by op."""
    path, name = case
    target = load_target(name, memory_mode="Shared_Sram")
    assert target.accelerator is not None
    content = (corpus() / path).read_bytes()
    try:
        model = read_model(content, path)
        result = compile_model(content, target, VelaOptions(), cache=VelaCache())
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}"}
    graph = build_graph(model, target.accelerator.family)
    counts = [len(each.ops) for each in model.subgraphs]
    matching = match_ops(graph, read_ops(result.database, counts))
    candidates = candidates_of(target, graph)
    choices = propose_all(target, [candidate for _, candidate in candidates])
    waiting = {v: list(rows) for v, rows in matching.rows.items()}
    found: Counter[str] = Counter()
    wrong = []
    for (v, candidate), choice in zip(candidates, choices, strict=True):
        row = waiting[v].pop(0) if waiting.get(v) else None
        if row is None or row.weights is None or candidate.encode is None:
            continue
        theirs, ours = _of_row(row), _of_choice(choice)
        found["ops"] += 1
        found["staged"] += theirs is not None
        found["equal"] += theirs == ours
        found["staged_equal"] += theirs is not None and theirs == ours
        if theirs != ours:
            wrong.append(f"op {v} {row.operator}: {ours}; Vela {theirs}")
    return {"status": "compared", **found, "wrong": wrong[:10]}


def _of_row(row: VelaOp) -> str | None:
    """What Vela does; a transposed result is in one slice whatever its depth is called."""
    weights = row.weights
    if weights is None or weights.buffering == "None":
        return None
    borders = weights.depth_slices if len(weights.depth_slices) > 2 else "whole"
    return f"{borders} {weights.buffering} {'early' if weights.pre_buffer else 'late'}"


def _of_choice(choice: Staged | None) -> str | None:
    if choice is None:
        return None
    borders = choice.borders if len(choice.borders) > 2 else "whole"
    buffering = "Double" if choice.is_double else "Single"
    return f"{borders} {buffering} {'early' if choice.prefetched else 'late'}"


def render(rows: Sequence[Row]) -> str:
    """Totals per target, then every exception."""
    lines = [
        "For every op with weights: staged or not, borders of the depth slices, one buffer or two,",
        "slice 0 prefetched or not. Ours follow from the graph alone (`cost.buffering`), op after",
        "op; nothing of Vela's enters. Shared_Sram, default arena.",
        "",
        "| target | networks | ops with weights | equal | staged by Vela | of these equal |",
        "|---|---|---|---|---|---|",
    ]
    for target in TARGETS:
        mine = [r for r in rows if case_of(r)[1] == target and r["status"] == "compared"]
        ops, equal, staged, same = (
            sum(_count(r, key) for r in mine) for key in ("ops", "equal", "staged", "staged_equal")
        )
        lines.append(f"| {target} | {len(mine)} | {ops} | {equal} | {staged} | {same} |")
    lines += ["", "Ops that differ:", ""]
    different = [
        f"- {case_of(r)[1]} `{case_of(r)[0]}` {text}"
        for r in rows
        if isinstance(texts := r.get("wrong", []), list)
        for text in texts
    ]
    lines += different or ["- none"]
    failed = [
        f"- {case_of(r)[1]} `{case_of(r)[0]}`: {r['status']}"
        for r in rows
        if r["status"] != "compared"
    ]
    lines += ["", "Not compared:", "", *(failed or ["- none"])]
    return "\n".join(lines)


def _count(row: Row, key: str) -> int:
    value = row.get(key, 0)
    assert isinstance(value, int)
    return value


EVIDENCE = Evidence(
    name="buffering",
    title="Choice of staged weights against Vela 5.2",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
)
