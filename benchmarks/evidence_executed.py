"""Executed bytes of compiled files beside what Vela's database says of the same transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence import Case, Evidence, Row, corpus, corpus_files, hw_configs
from npusched.errors import NpuschedError
from npusched.hardware import load_target
from npusched.sim.check import host_spans
from npusched.sim.figures import Figures, Purpose, count_figures
from npusched.sim.run import open_compiled
from npusched.tflite.reader import read_model
from npusched.vela.cache import VelaCache
from npusched.vela.options import VelaOptions
from npusched.vela.reader import read_ops
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model

CONFIGS = ("ethos-u55-128", "ethos-u65-512")
ARENAS = {"default": None, "small": 16384}


def cases() -> list[Case]:
    """(model, accelerator, arena)."""
    return [
        (path, config, arena) for path in corpus_files() for config in CONFIGS for arena in ARENAS
    ]


def measure(case: Case) -> Row:
    """Compile and count one case; several subgraphs leave only one's rows in the database."""
    path, config, arena = case
    try:
        model = read_model((corpus() / path).read_bytes(), Path(path).stem)
        options = VelaOptions(arena_cache_size_bytes=ARENAS[arena])
        result = compile_model(model.content, load_target(config), options, cache=VelaCache())
        ready = open_compiled(result.compiled)
        figures = [
            count_figures(program, host_spans(operator))
            for program, operator in zip(ready.programs, ready.file.operators, strict=True)
            if operator.subgraph == 0
        ]
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}; {error.why}"[:200]}
    alone = len(model.subgraphs) == 1
    return {"status": "counted", "one_graph": alone, **_executed(figures, result)}


def _executed(figures: Sequence[Figures], result: VelaResult) -> Row:
    """Executed bytes, and what Vela's database says of the same transfers."""
    sums: Counter[str] = Counter()
    for figure in figures:
        for traffic in figure.traffic:
            if traffic.purpose is Purpose.DMA:
                place = "tables" if traffic.memory == "shram" else "external"
                sums[f"dma_{place}"] += traffic.written_bytes
            else:
                sums[f"{traffic.purpose}_read"] += traffic.read_bytes
                sums[f"{traffic.purpose}_fetched"] += traffic.fetched_bytes
                sums[f"{traffic.purpose}_written"] += traffic.written_bytes
    transfers = [
        traffic
        for op in read_ops(result.database)
        for each in (op, *op.followers)
        for traffic in each.traffic
    ]
    feature_maps = [each for each in transfers if each.purpose == "FeatureMap"]
    staged = [each for each in transfers if each.purpose in ("Weights", "Scales")]
    return {
        "issued": sum(each.kernel_count for each in figures),
        "dmas": sum(each.dmas for each in figures),
        "waits": sum(each.waits for each in figures),
        "macs": sum(each.macs for each in figures),
        "bytes": dict(sorted(sums.items())),
        "vela_feature_map_read": sum(each.read_bytes for each in feature_maps),
        "vela_feature_map_written": sum(each.written_bytes for each in feature_maps),
        "vela_staged_weights": sum(each.written_bytes for each in staged),
        "high_water": {
            touched.memory: max(
                other.high_water_bytes
                for figure in figures
                for other in figure.memories
                if other.memory == touched.memory
            )
            for figure in figures
            for touched in figure.memories
        },
    }


def render(rows: Sequence[Row]) -> str:
    """One line per case."""
    counted = [row for row in rows if row["status"] == "counted"]
    exact = [row for row in counted if _bytes(row, "dma_external") == row["vela_staged_weights"]]
    lines = [
        "Bytes that the streams really move, and what Vela's database says of them. Staged:",
        "weights and scales copied by DMA (tables apart). Feature maps: each element that a",
        "kernel touches once; fetched block by block, halos and depth passes again; Vela's figure",
        "includes burst inflation and the padding of bricks (VELA_SPEC §3.1).",
        "",
        f"Staged bytes equal Vela's in {len(exact)} of {len(counted)} cases. The others:",
        "",
        *(_unequal(row) for row in counted if row not in exact),
        "",
        "| model | accelerator | arena | kernels | DMAs | staged | Vela | maps read | fetched | "
        "Vela | maps written | Vela |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in counted:
        case = row["case"]
        assert isinstance(case, list)
        lines.append(
            f"| {' | '.join(map(str, case))} | {row['issued']} | {row['dmas']} | "
            f"{_bytes(row, 'dma_external')} | {row['vela_staged_weights']} | "
            f"{_bytes(row, 'feature_map_read')} | {_bytes(row, 'feature_map_fetched')} | "
            f"{row['vela_feature_map_read']} | {_bytes(row, 'feature_map_written')} | "
            f"{row['vela_feature_map_written']} |"
        )
    lines += ["", "Not counted:", ""]
    lines += [f"- {row['case']}: {row['status']}" for row in rows if row not in counted]
    return "\n".join(lines)


def _unequal(row: Row) -> str:
    """Say why staged bytes may differ: what the database does not cover, or counts twice."""
    case = row["case"]
    assert isinstance(case, list)
    why = "weights that two ops share are copied once"
    if not row["one_graph"]:
        why = "of several subgraphs the database keeps one"
    elif row["vela_staged_weights"] == 0:
        why = "the file was compiled before, so Vela counts nothing"
    return (
        f"- {' '.join(map(str, case))}: {_bytes(row, 'dma_external')} moved, "
        f"{row['vela_staged_weights']} in the database ({why})"
    )


def _bytes(row: Row, key: str) -> int:
    found = row["bytes"]
    assert isinstance(found, dict)
    return int(found.get(key, 0))


EVIDENCE = Evidence(
    name="executed",
    title="Executed bytes",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=6,
    heavy=lambda case: "deeplab" in case[0],
)
