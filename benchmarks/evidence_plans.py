"""The lowered graph and our own plans, executed and compared with LiteRT's reference kernels.

Every model on two accelerators: the graph interpreter, then the plan executor on the plans of
``npusched plan`` at three budgets. Each feature map that holds a tensor of the file is compared
with that tensor at tolerance 0, temporaries with the interpreter's. Then every plan is broken on
purpose: one row fewer in each rolling buffer, two overlapping addresses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.evidence import (
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    hw_configs,
    refusal,
)
from benchmarks.plan_compare import Counts, Expected, compare_interpreter, compare_plan, expect
from benchmarks.plan_damage import fewer_rows, overlaps
from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.errors import NpuschedError
from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement
from npusched.hardware import Target, load_target
from npusched.ir import Model
from npusched.schedule import Plan
from npusched.schedule.types import BufferKind
from npusched.sim.execute_plan import PlanExecutor
from npusched.sim.host_ops import HostOps
from npusched.sim.proof import known_exceptions

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ACCELERATORS = ("ethos-u55-128", "ethos-u65-512")
INPUTS = 20
FEW_INPUTS = 4
FEW_ABOVE_MACS = 100_000_000
ONE_ABOVE_MACS = 500_000_000
"""Four inputs instead of 20 above 100 MMAC, one above 500."""

OPTIONS = PlanOptions(candidates="none")
"""Our own plans: Vela's schedules do not compete."""

HEAVY_BYTES = 400_000
"""CI measures no models again whose file is larger than this."""


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [(path, config) for path in corpus_files() for config in ACCELERATORS]


def measure(case: Case) -> Row:
    """Execute and compare one model on one accelerator."""
    path, config = case
    target = load_target(config)
    try:
        content = (corpus() / path).read_bytes()
        ready = prepare(content, name=Path(path).stem, target=target, options=OPTIONS)
        if all(op.placement is Placement.CPU for op in ready.graph.ops):
            return {"status": "nothing runs on the NPU"}
        macs = _macs(ready.graph)
        count = INPUTS if macs <= FEW_ABOVE_MACS else FEW_INPUTS
        count = count if macs <= ONE_ABOVE_MACS else 1
        expected = expect(ready.model, ready.graph, count)
    except NpuschedError as error:
        return {"status": refusal(error)}
    return {
        "status": "compared",
        "inputs": count,
        "mmac": round(macs / 1e6, 1),
        "host_ops": sum(op.placement is Placement.CPU for op in ready.graph.ops),
        "exceptions": list(known_exceptions(ready.model.subgraphs[ready.graph.subgraph])),
        "interpreter": _figures(compare_interpreter(expected)),
        "plans": [
            {"budget": name, **_plan_row(ready.model, plan, expected)}
            for name, plan in three_plans(ready, target)
        ],
    }


def _macs(graph: OpGraph) -> int:
    """Multiplications by weights."""
    return sum(
        op.count * op.ofm.elements * op.weights.elements // op.weights.shape[0]
        for op in graph.ops
        if op.weights is not None
    )


def three_plans(ready: Prepared, target: Target) -> Iterator[tuple[str, Plan]]:
    """Plans without a budget, for half of what that needs, and for the smallest feasible budget.

    Half-way between the two where half is not feasible.
    """
    planner = OPTIONS.planner(ready.graph, target, ready.sizes.of)
    largest, smallest = planner.plan(None), planner.smallest_budget_bytes()
    yield "largest", largest
    half = largest.sram_peak_bytes // 2
    if half < smallest:
        half = (largest.sram_peak_bytes + smallest) // 2
    yield "half", planner.plan(half)
    yield "smallest", planner.plan(smallest)


def _plan_row(model: Model, plan: Plan, expected: Expected) -> Row:
    """Run a plan on all inputs, compare, and try to break it."""
    graph = reordered(expected.graph, plan.order)
    host = HostOps(model, graph)
    counts = compare_plan(PlanExecutor(graph, plan, host=host).run_batch(expected.runs), expected)
    inputs, values = expected.runs[0], expected.interpreted[0]
    limit = {"most_runs": 1} if len(expected.runs) == 1 else {}
    return {
        **_figures(counts),
        "rolling_buffers": sum(b.kind is BufferKind.ROLLING for b in plan.buffers),
        "fewer_rows": fewer_rows(graph, plan, inputs, values, host, **limit),
        "overlaps": overlaps(graph, plan, inputs, values, host, **limit),
    }


def _figures(counts: Counts) -> Row:
    return {
        "tensors": counts.tensors,
        "values": counts.values,
        "temporaries": counts.temporaries,
        "rolled": counts.rolled,
        "differing": {name: list(found) for name, found in sorted(counts.differing.items())},
    }


# --- the page -------------------------------------------------------------------------------


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator, every difference by name, and what was not executed."""
    done = [row for row in rows if row["status"] == "compared"]
    lines = [
        "The scheduled graph, executed on whole tensors (interpreter) and by plans of",
        "`npusched plan` at three budgets (without a limit, half of what that uses, the smallest",
        "feasible), CPU ops by LiteRT, NPU ops stripe by stripe through bytes at the plan's",
        "addresses. Every feature map that holds a tensor of the file is compared with LiteRT's",
        "`BUILTIN_REF`, temporaries of decomposed ops with the interpreter; rolled ones never",
        "exist as a whole: their rows are compared as they are written. Tolerance 0,",
        f"{INPUTS} seeded random inputs, {FEW_INPUTS} above {FEW_ABOVE_MACS // 10**6} MMAC, one",
        f"above {ONE_ABOVE_MACS // 10**6}.",
        "",
        "| accelerator | models | executed by | runs equal | tensors equal | of them rolled | "
        "temporaries | values |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for config in ACCELERATORS:
        mine = [row for row in done if case_of(row)[1] == config]
        parts = [("interpreter", [_dict(row["interpreter"]) for row in mine])]
        parts += [
            (f"plan, {name}", [plan for row in mine for plan in _plans(row) if _is(plan, name)])
            for name in ("largest", "half", "smallest")
        ]
        lines += [_line(config, len(mine), name, found) for name, found in parts]
    lines += ["", *_damage_lines(done), "", "Not equal:", ""]
    lines += _by_accelerators([pair for row in done for pair in _differences(row)]) or ["- none"]
    lines += ["", "Not executed or not compared:", ""]
    lines += _by_accelerators([(row, "") for row in rows if row["status"] != "compared"])
    return "\n".join(lines)


def _by_accelerators(found: Sequence[tuple[Row, str]]) -> list[str]:
    """One line per model and text; rows without a text tell their status."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    for row, text in found:
        path, config = case_of(row)
        lines.setdefault((path, text or str(row["status"])), {})[config] = None
    return [f"- {path} ({', '.join(where)}): {text}" for (path, text), where in lines.items()]


def _line(config: str, models: int, name: str, found: Sequence[Row]) -> str:
    equal = sum(not _dict(each["differing"]) for each in found)
    tensors = sum(_int(each["tensors"]) for each in found)
    wrong = sum(len(_dict(each["differing"])) for each in found)
    sums = [sum(_int(each[key]) for each in found) for key in ("rolled", "temporaries", "values")]
    return (
        f"| {config} | {models} | {name} | {equal} of {len(found)} | {tensors - wrong} of "
        f"{tensors} | {sums[0]} | {sums[1]} | {sums[2]} |"
    )


def _damage_lines(done: Sequence[Row]) -> list[str]:
    """What became of the plans that were broken on purpose."""
    plans = [plan for row in done for plan in _plans(row)]

    def total(kind: str, key: str) -> int:
        return sum(_int(_dict(plan[kind])[key]) for plan in plans)

    return [
        "Broken on purpose:",
        "",
        f"- One row fewer in a rolling buffer: {total('fewer_rows', 'refused')} of "
        f"{total('fewer_rows', 'tried')} refused; run without checks, "
        f"{total('fewer_rows', 'wrong')} of {total('fewer_rows', 'ran')} give wrong values.",
        f"- Two buffers at one address: {total('overlaps', 'refused')} of "
        f"{total('overlaps', 'tried')} refused for their addresses; of {total('overlaps', 'ran')} "
        f"that were run all the same, {total('overlaps', 'noticed')} were noticed by what was "
        f"read, and {total('overlaps', 'harmless')} compute the right values (what was "
        "overwritten had been read).",
    ]


def _differences(row: Row) -> list[tuple[Row, str]]:
    known = "; ".join(str(each) for each in _items(row["exceptions"])) or "no known exception"
    budgets: dict[str, list[str]] = {}
    for part in (_dict(row["interpreter"]), *_plans(row)):
        for name, figures in _dict(part["differing"]).items():
            count, largest = _items(figures)
            text = f"{name}: {count} values, at most {largest} ({known})"
            budgets.setdefault(text, []).append(str(part.get("budget", "interpreter")))
    return [(row, f"{text}: {', '.join(names)}") for text, names in budgets.items()]


def _is(plan: Row, budget: str) -> bool:
    return plan["budget"] == budget


def _plans(row: Row) -> list[Row]:
    return [_dict(plan) for plan in _items(row["plans"])]


def _items(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _dict(value: object) -> Row:
    assert isinstance(value, dict)
    return value


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


EVIDENCE = Evidence(
    name="plans",
    title="Lowering and plans, executed",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=10,
    heavy=lambda case: (
        "keyword_scrambled" in case[0]  # LiteRT crashes on it, or loops for ever
        or (corpus() / case[0]).stat().st_size > HEAVY_BYTES
    ),
)
