"""NPU or CPU, and fusion groups, per source op: ours against Vela's compiled file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.evidence import Case, Evidence, Row, case_of, corpus_files, hw_configs
from benchmarks.referee import Compared, compile_case
from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph, SourcePlacement
from npusched.graph.types import Placement
from npusched.vela.compiled import VelaPlacement, read_placement
from npusched.vela.reader import read_ops

Groups = dict[tuple[int, int], list[tuple[str, ...]]]


def cases() -> list[Case]:
    """Every model on every family."""
    return [(path, family) for path in corpus_files() for family in ("u55", "u65", "u85")]


def measure(case: Case) -> Row:
    """Compare one model on one family."""
    compared = compile_case(case)
    if isinstance(compared, str):
        return {"status": compared}
    accelerator = compared.target.accelerator
    assert accelerator is not None
    graphs = [
        build_graph(compared.model, accelerator.family, subgraph=subgraph.index)
        for subgraph in compared.model.subgraphs
    ]
    ops, wrong = _placements(compared, graphs)
    groups, unequal = _groups(compared, graphs)
    return {
        "status": "compared",
        "ops": ops,
        "wrong": wrong,
        "groups": groups,
        "unequal_groups": unequal,
    }


def _placements(compared: Compared, graphs: Sequence[OpGraph]) -> tuple[int, list[str]]:
    """(ops compared, those placed elsewhere). Views, folds and dropped ops are not counted."""
    theirs = read_placement(compared.result, compared.model).ops
    counted, wrong = 0, []
    for graph in graphs:
        for source in graph.sources:
            vela = theirs[source.ref]
            if source.placement in (SourcePlacement.VIEW, SourcePlacement.FOLDED):
                continue
            if vela in (VelaPlacement.ABSORBED, VelaPlacement.DROPPED):
                continue
            counted += 1
            if source.placement.value != vela.value:
                wrong.append(f"{source.ref} {source.kind.value}: {vela.value}")
    return counted, wrong


def _groups(compared: Compared, graphs: Sequence[OpGraph]) -> tuple[int, list[str]]:
    """(kernels of source ops with as many kernels on both sides, those fused otherwise)."""
    counts = [len(graph.ops) for graph in compared.model.subgraphs]
    theirs: Groups = defaultdict(list)
    for op in read_ops(compared.result.database, counts):
        if op.is_primary and not op.is_cpu and op.source_ref is not None:
            theirs[op.source_ref].append((op.operator, *(f.operator for f in op.followers)))
    ours: Groups = defaultdict(list)
    for graph in graphs:
        for mine in graph.ops:
            if mine.placement is Placement.NPU and mine.source_ops:
                row = (mine.kind.value, *(sub.kind.value for sub in mine.sub_ops))
                ours[mine.source_ops[0]].extend([row] * mine.count)
    counted, unequal = 0, []
    for ref, rows in ours.items():
        if len(rows) != len(theirs.get(ref, [])):
            continue
        counted += len(rows)
        pairs = zip(rows, theirs[ref], strict=True)
        unequal += [f"{ref} {'+'.join(a)}: {'+'.join(b)}" for a, b in pairs if a != b]
    return counted, unequal


def render(rows: Sequence[Row]) -> str:
    """Totals per family, then every exception."""
    lines = [
        "Placement of each source op, read from the compiled file; views, folds and dropped ops",
        "are not counted. Fusion groups: kernels of source ops that have as many kernels on both",
        "sides, compared by kind of the kernel and of everything fused into or chained onto it.",
        "",
        "| family | models | ops | placed alike | kernels | fused alike |",
        "|---|---|---|---|---|---|",
    ]
    exceptions = []
    for family in ("u55", "u65", "u85"):
        mine = [r for r in rows if case_of(r)[1] == family and r["status"] == "compared"]
        ops = sum(_int(r["ops"]) for r in mine)
        wrong = sum(len(_list(r["wrong"])) for r in mine)
        groups = sum(_int(r["groups"]) for r in mine)
        unequal = sum(len(_list(r["unequal_groups"])) for r in mine)
        lines.append(
            f"| {family} | {len(mine)} | {ops} | {_share(ops - wrong, ops)} | {groups} | "
            f"{_share(groups - unequal, groups)} |"
        )
        for row in mine:
            name = case_of(row)[0]
            exceptions += [f"- {family} `{name}`: {text}" for text in _list(row["wrong"])]
            exceptions += [
                f"- {family} `{name}` fusion: {text}" for text in _list(row["unequal_groups"])[:5]
            ]
    lines += ["", "Exceptions (ours: Vela's; at most five fusions per model):", ""]
    lines += exceptions or ["- none"]
    failed = [r for r in rows if r["status"] != "compared"]
    lines += ["", "Not compared:", ""]
    lines += [f"- {case_of(r)[1]} `{case_of(r)[0]}`: {r['status']}" for r in failed] or ["- none"]
    return "\n".join(lines)


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.2f} %)" if whole else "-"


EVIDENCE = Evidence(
    name="placement",
    title="Placement and fusion against Vela 5.2",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
)
