"""Every row of Vela's debug database against our cost model; encoded weights against the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.crosscheck import slices_of
from benchmarks.evidence import Case, Evidence, Row, case_of, corpus, corpus_files, hw_configs
from npusched.cost.adapt import cost_op
from npusched.cost.blocks import find_block
from npusched.cost.weights import weight_bytes, weight_format
from npusched.errors import ModelError, NpuschedError
from npusched.graph.build import build_graph
from npusched.graph.types import KernelKind
from npusched.hardware import Target, load_target
from npusched.ir import Model
from npusched.tflite import read_model
from npusched.vela.encoded import encoded_weights
from npusched.vela.options import Feature, VelaOptions
from npusched.vela.recost import compatible_costs
from npusched.vela.result import VelaResult
from npusched.vela.rows import read_rows
from npusched.vela.runner import compile_model

SETUPS: dict[str, tuple[str, str, str, int | None]] = {
    "u55-32": ("ethos-u55-32", "Ethos_U55_Deep_Embedded", "Shared_Sram", None),
    "u55-64": ("ethos-u55-64", "Ethos_U55_High_End_Embedded", "Sram_Only", None),
    "u55-128": ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram", 32 << 10),
    "u55-256": ("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram", 64 << 10),
    "u65-256": ("ethos-u65-256", "Ethos_U65_Mid_End", "Dedicated_Sram", 16 << 10),
    "u65-512": ("ethos-u65-512", "Ethos_U65_High_End", "Dedicated_Sram", 384 << 10),
    "u85-128": ("ethos-u85-128", "Ethos_U85_SYS_Flash_High", "Shared_Sram", None),
    "u85-256": ("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram", 384 << 10),
    "u85-512": ("ethos-u85-512", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram", 64 << 10),
    "u85-1024": ("ethos-u85-1024", "Ethos_U85_SYS_DRAM_High", "Dedicated_Sram", 384 << 10),
    "u85-2048": ("ethos-u85-2048", "Ethos_U85_SYS_DRAM_Mid", "Shared_Sram", None),
}
"""Short name to (target, system config, memory mode, arena limit in bytes)."""

UNROLLED = "models/coral_deeplabv3_mnv2_dm05_uint8.tflite"
"""Becomes 65,866 ops on U55: measured on one set-up of each architecture."""

QUANTITIES = ("blocks", "npu", "access", "macs", "totals", "streams", "scales", "formats")


def cases() -> list[Case]:
    """Every model on every set-up (the one that unrolls to 65,866 ops on two)."""
    return [
        (path, setup)
        for path in corpus_files()
        for setup in SETUPS
        if path != UNROLLED or setup in ("u55-128", "u85-256")
    ]


def measure(case: Case) -> Row:
    """Compare one model on one set-up."""
    path, setup = case
    name, system, mode, limit = SETUPS[setup]
    target = load_target(name, system_config=system, memory_mode=mode)
    content = (corpus() / path).read_bytes()
    try:
        model = read_model(content, path)
        result = compile_model(
            content, target, VelaOptions(arena_cache_size_bytes=limit), cache=None
        )
    except ModelError as error:
        return {"status": f"refused: {error.what}"}
    except NpuschedError as error:
        return {"status": f"vela: {error.what}"}
    equal: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    wrong: list[str] = []
    _compare_rows(target, result, model, equal, counted, wrong)
    _compare_weights(target, content, model, equal, counted, wrong)
    return {
        "status": "compared",
        "counted": dict(counted),
        "equal": dict(equal),
        "wrong": wrong[:20],
    }


def _compare_rows(
    target: Target,
    result: VelaResult,
    model: Model,
    equal: Counter[str],
    counted: Counter[str],
    wrong: list[str],
) -> None:
    """Blocks, NPU cycles, access cycles, MACs and totals of every row on the NPU."""
    assert target.accelerator is not None
    rows = read_rows(result.database, target)
    costs = compatible_costs(target, rows, slices_of(target, result, model, rows))
    for row in rows:
        if row.op.kind is not KernelKind.CPU:
            cost = costs[row.id]
            busy = dict(cost.memory_cycles)
            facts = {
                "npu": cost.npu_cycles == row.npu_cycles,
                "access": all(busy.get(name, 0) == cycles for name, cycles in row.access_cycles),
                "macs": cost.macs == row.macs,
                "totals": cost.cycles == row.op_cycles,
            }
            if row.block is not None:
                facts["blocks"] = find_block(target.accelerator, row.stripe_op) == row.block
            _count(facts, f"row {row.id} {row.op.kind}", equal, counted, wrong)


def _compare_weights(
    target: Target,
    content: bytes,
    model: Model,
    equal: Counter[str],
    counted: Counter[str],
    wrong: list[str],
) -> None:
    """Sizes computed from our own graph's weights against those in Vela's command streams."""
    assert target.accelerator is not None
    options = VelaOptions(
        disable=(Feature.CASCADING, Feature.FM_STAGING), arena_cache_size_bytes=1 << 32
    )
    result = compile_model(content, target, options, cache=None)
    rows = result.database.table("perf_debug").rows()
    forms = {int(row["id"]): row["weight_format"] for row in rows}
    known = {(op.source_ref, op.order): op for op in encoded_weights(result, model)}
    for subgraph in model.subgraphs:
        graph = build_graph(model, target.accelerator.family, subgraph=subgraph.index)
        seen: Counter[tuple[int, int]] = Counter()
        for op in graph.ops:
            if op.weights is None:
                continue
            ref = op.source_ops[0]
            encoded = known.get((ref, seen[ref]))
            seen[ref] += 1
            if encoded is None or encoded.slices > 1:
                continue
            form = weight_format(target, op, graph.feature_maps)
            described = cost_op(op, graph.feature_maps, {}, sparse=form.sparse)
            block = find_block(target.accelerator, described)
            computed = weight_bytes(target, op, block, form=form)
            facts = {
                "streams": computed.weights == encoded.weights_bytes,
                "scales": computed.scales == encoded.scales_bytes,
            }
            named = forms.get(encoded.scheduled_id, "")
            if named:
                facts["formats"] = (form.sparse, form.fast) == ("Sparse" in named, "Fast" in named)
            _count(facts, f"weights of {ref}", equal, counted, wrong)


def _count(
    facts: dict[str, bool],
    where: str,
    equal: Counter[str],
    counted: Counter[str],
    wrong: list[str],
) -> None:
    counted.update(facts.keys())
    equal.update(name for name, same in facts.items() if same)
    wrong += [f"{where}: {name}" for name, same in facts.items() if not same]


def render(rows: Sequence[Row]) -> str:
    """Totals per set-up, then every exception."""
    lines = [
        "Rows of Vela's debug database whose figures our cost functions reproduce exactly from",
        "the row's facts: block search, NPU cycles (visible DMA of weights and tables included),",
        "access cycles of each memory, MACs, and the total. Weights: lengths of encoded streams",
        "and of scales, and the format, computed from our own graph, against the command streams",
        "(ops in one slice).",
        "",
        f"| set-up | models | {' | '.join(QUANTITIES)} |",
        "|---|---|" + "---|" * len(QUANTITIES),
    ]
    exceptions = []
    for setup, (target, system, mode, limit) in SETUPS.items():
        mine = [r for r in rows if case_of(r)[1] == setup and r["status"] == "compared"]
        cells = []
        for name in QUANTITIES:
            same, all_ = _sum(mine, "equal", name), _sum(mine, "counted", name)
            cells.append(f"{same}" if same == all_ else f"**{same}** of {all_}")
        arena = "" if limit is None else f", arena {limit // 1024} KiB"
        title = f"{target} {system} {mode}{arena}"
        lines.append(f"| {title} | {len(mine)} | {' | '.join(cells)} |")
        for row in mine:
            exceptions += [f"- {setup} `{case_of(row)[0]}`: {text}" for text in _list(row["wrong"])]
    lines += ["", "A lone number is the count of rows, all of them equal. Exceptions:", ""]
    lines += exceptions or ["- none"]
    failed = sorted(
        {f"- `{case_of(r)[0]}`: {r['status']}" for r in rows if r["status"] != "compared"}
    )
    lines += ["", "Not compared:", "", *(failed or ["- none"])]
    return "\n".join(lines)


def _sum(rows: Sequence[Row], part: str, name: str) -> int:
    total = 0
    for row in rows:
        counts = row[part]
        assert isinstance(counts, dict)
        total += int(counts.get(name, 0))
    return total


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


EVIDENCE = Evidence(
    name="cost",
    title="The cost model against Vela 5.2",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=12,
    heavy=lambda case: case[0] == UNROLLED,
)
