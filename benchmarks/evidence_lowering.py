"""Our own lowering, costed whole-op and vela-compatible, against Vela's uncascaded schedule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.evidence import Case, Evidence, Row, corpus_files, hw_configs
from benchmarks.referee import Compared, compile_case
from npusched.cost.adapt import cost_op
from npusched.cost.op_cost import op_cost
from npusched.cost.types import Basis, WeightBytes
from npusched.cost.weights import uses_sparse_weights
from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, SourceRef
from npusched.vela.encoded import EncodedOp, encoded_weights
from npusched.vela.reader import read_ops
from npusched.vela.records import VelaOp
from npusched.vela.weight_match import match_encoded

NETWORK_TOLERANCE = 0.002
"""Largest relative difference of a network total that counts as equal."""


@dataclass(slots=True)
class Sums:
    """Kernels of one source op: how many, NPU cycles, cycles per memory, and op cycles."""

    kernels: int = 0
    npu: int = 0
    total: int = 0
    memory: tuple[tuple[str, int], ...] = ()

    def add(self, count: int, npu: int, total: int, memory: Mapping[str, int]) -> None:
        """Count ``count`` equal kernels."""
        self.kernels += count
        self.npu += count * npu
        self.total += count * total
        sums = dict(self.memory)
        for name, cycles in memory.items():
            if cycles:
                sums[name] = sums.get(name, 0) + count * cycles
        self.memory = tuple(sorted(sums.items()))


def cases() -> list[Case]:
    """Every model on U55, U65 and U85."""
    return [(path, family) for path in corpus_files() for family in ("u55", "u65", "u85")]


def measure(case: Case) -> Row:
    """Compare one model on one family, source op by source op."""
    compared = compile_case(case)
    if isinstance(compared, str):
        return {"status": compared}
    theirs = vela_sums(compared)
    if not theirs:
        return {"status": "Vela puts nothing on the NPU"}
    ours = our_sums(compared)
    _adopt_orphans(theirs, ours)
    whole = sum(s.total for s in theirs.values())
    wrong = [ref for ref, sums in theirs.items() if ours.get(ref) != sums]
    covered = {ref[0] for ref in theirs if ref is not None}
    extra = [ref for ref in ours if ref not in theirs and ref is not None and ref[0] in covered]
    unequal = sum(theirs[ref].total for ref in wrong)
    network = compared.result.report.total_cycles
    mine = sum(s.total for s in ours.values())
    return {
        "status": "compared",
        "source_ops": len(theirs),
        "equal_source_ops": len(theirs) - len(wrong),
        "vela_cycles": network,
        "our_cycles": mine,
        "rows_cover_network": whole == network,
        "equal_share": (whole - unequal) / whole if whole else 1.0,
        "differences": [_difference(compared, ref, ours.get(ref), theirs[ref]) for ref in wrong],
        "only_ours": [str(ref) for ref in extra],
    }


def vela_sums(compared: Compared) -> dict[SourceRef | None, Sums]:
    """Vela's schedule per source op (None: ops that Vela made up)."""
    counts = [len(graph.ops) for graph in compared.model.subgraphs]
    sums: dict[SourceRef | None, Sums] = defaultdict(Sums)
    for op in read_ops(compared.result.database, counts):
        if op.is_primary and not op.is_cpu:
            sums[op.source_ref].add(1, op.npu_cycles, op.op_cycles, _memories(compared, op))
    return dict(sums)


def _adopt_orphans(
    theirs: dict[SourceRef | None, Sums], ours: Mapping[SourceRef | None, Sums]
) -> None:
    """Give rows without a source op (ARG_MAX, LOWERING §10) to the one source op without rows."""
    orphans = [ref for ref in ours if ref not in theirs]
    if None in theirs and None not in ours and len(orphans) == 1:
        theirs[orphans[0]] = theirs.pop(None)


def _memories(compared: Compared, op: VelaOp) -> dict[str, int]:
    names = {memory.vela_name: memory.name for memory in compared.target.memories}
    return {names[name]: cycles for name, cycles in op.memory_cycles if name in names}


def our_sums(compared: Compared) -> dict[SourceRef | None, Sums]:
    """Our own lowering of every subgraph, costed as Vela would report it."""
    encoded = encoded_weights(compared.result, compared.model)
    accelerator = compared.target.accelerator
    assert accelerator is not None
    sums: dict[SourceRef | None, Sums] = defaultdict(Sums)
    for subgraph in compared.model.subgraphs:
        graph = build_graph(compared.model, accelerator.family, subgraph=subgraph.index)
        _add_graph(compared, graph, match_encoded(graph, encoded), sums)
    return dict(sums)


def _add_graph(
    compared: Compared,
    graph: OpGraph,
    known: Mapping[int, EncodedOp],
    sums: dict[SourceRef | None, Sums],
) -> None:
    target = compared.target
    for op in graph.ops:
        if op.placement is Placement.CPU:
            continue
        ref = op.source_ops[0] if op.source_ops else None
        weights = WeightBytes()
        encoded = known.get(op.id)
        if encoded is not None:
            weights = WeightBytes(
                weights=encoded.weights_bytes, scales=encoded.scales_bytes, exact=True
            )
        described = cost_op(
            op,
            graph.feature_maps,
            {t: target.roles.arena for t, fm in graph.feature_maps.items() if not fm.is_constant},
            const_memory=target.roles.const,
            sparse=uses_sparse_weights(target, op),
        )
        # Without cascading Vela gives no op any slack for DMA (VELA_SPEC_2 §5).
        cost = op_cost(target, described, weights, basis=Basis.VELA)
        sums[ref].add(op.count, cost.npu_cycles, cost.cycles, dict(cost.memory_cycles))


def _difference(compared: Compared, ref: SourceRef | None, ours: Sums | None, theirs: Sums) -> str:
    kind = "made by Vela"
    if ref is not None:
        kind = compared.model.subgraphs[ref[0]].ops[ref[1]].kind.value
    mine = "nothing" if ours is None else f"{ours.kernels} kernels, {ours.npu}, {ours.memory}"
    return f"{ref} {kind}: {mine}; Vela {theirs.kernels} kernels, {theirs.npu}, {theirs.memory}"


def render(rows: Sequence[Row]) -> str:
    """Shares per family, then every network that differs."""
    lines = [
        "Per source op: number of kernels, their NPU cycles and their access cycles in every",
        "memory, summed; our lowering and vela-compatible cost against the debug database of a",
        "compilation without cascades and staging. Only encoded weight sizes are taken from Vela.",
        "",
        "| family | networks | source ops | equal | cycles in equal source ops (mean of networks) |"
        " networks within 0.2 % |",
        "|---|---|---|---|---|---|",
    ]
    notes = []
    for family in ("u55", "u65", "u85"):
        mine = [r for r in rows if _text(r, 1) == family and r["status"] == "compared"]
        if not mine:
            continue
        ops = sum(_number(r["source_ops"]) for r in mine)
        equal = sum(_number(r["equal_source_ops"]) for r in mine)
        share = sum(_number(r["equal_share"]) for r in mine) / len(mine)
        far = [r for r in mine if _relative(r) > NETWORK_TOLERANCE]
        lines.append(
            f"| {family} | {len(mine)} | {ops:.0f} | {equal:.0f} ({100 * equal / ops:.2f} %) | "
            f"{100 * share:.2f} % | {len(mine) - len(far)} "
            f"({100 - 100 * len(far) / len(mine):.1f} %) |"
        )
        notes += [
            f"- {family} `{_text(r, 0)}`: {r['our_cycles']} against {r['vela_cycles']} cycles"
            + ("" if r["rows_cover_network"] else " (the database lacks rows of some subgraphs)")
            for r in far
        ]
        for r in mine:
            differences = r["differences"]
            assert isinstance(differences, list)
            notes += [f"- {family} `{_text(r, 0)}` {text}" for text in differences[:3]]
    lines += ["", "Networks and source ops that differ (three source ops per network):", ""]
    lines += notes or ["- none"]
    failed = [r for r in rows if r["status"] != "compared"]
    lines += ["", "Not compared:", ""]
    lines += [f"- {_text(r, 1)} `{_text(r, 0)}`: {r['status']}" for r in failed] or ["- none"]
    return "\n".join(lines)


def _relative(row: Row) -> float:
    theirs = _number(row["vela_cycles"])
    return abs(_number(row["our_cycles"]) - theirs) / theirs if theirs else 0.0


def _text(row: Row, position: int) -> str:
    case = row["case"]
    assert isinstance(case, list)
    return str(case[position])


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


EVIDENCE = Evidence(
    name="lowering",
    title="Lowering and whole-op cost against Vela 5.2",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
)
