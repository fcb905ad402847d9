"""The lowered graph and our own plans, executed and compared with LiteRT's reference kernels.

Every model on two accelerators: the graph interpreter, then the plan executor on the plans of
``npusched plan`` at three budgets. Each feature map that holds a tensor of the file is compared
with that tensor at tolerance 0, temporaries with the interpreter's. Then every plan is broken on
purpose: one row fewer in each rolling buffer, two overlapping addresses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.evidence import Case, Evidence, Row, corpus, corpus_files, hw_configs
from benchmarks.plan_damage import fewer_rows, overlaps
from npusched.api.planning import Prepared, prepare
from npusched.errors import NpuschedError, SimError
from npusched.graph.opgraph import OpGraph
from npusched.hardware import Target, load_target
from npusched.ir import OpKind, Subgraph
from npusched.schedule import Plan, Planner
from npusched.schedule.types import BufferKind
from npusched.sim.execute_plan import Executed, PlanExecutor
from npusched.sim.interpret import Interpreter, Values
from npusched.sim.kernels.arrays import Array
from npusched.sim.proof import known_exceptions
from npusched.sim.reference import random_inputs, reference_values

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ACCELERATORS = ("ethos-u55-128", "ethos-u65-256", "ethos-u65-512")
INPUTS = 20
FEW_INPUTS = 4
FEW_ABOVE_MACS = 100_000_000
"""Four inputs instead of 20 above 100 MMAC."""

HEAVY_BYTES = 400_000
"""CI measures no models again whose file is larger than this."""


@dataclass(slots=True)
class Counts:
    """What was compared with the reference: tensors, values, and the tensors that differ."""

    tensors: int = 0
    values: int = 0
    temporaries: int = 0
    rolled: int = 0
    differing: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> (differing values, largest difference)."""

    def add(self, name: str, got: Array, wanted: Array) -> None:
        """Compare the values of all inputs."""
        self.values += wanted.size
        gap = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
        if gap.any():
            self.differing[name] = (int(np.count_nonzero(gap)), int(gap.max()))

    def row(self) -> Row:
        """As figures of a report."""
        return {
            "tensors": self.tensors,
            "values": self.values,
            "temporaries": self.temporaries,
            "rolled": self.rolled,
            "differing": {name: list(found) for name, found in sorted(self.differing.items())},
        }


@dataclass(frozen=True, slots=True)
class Expected:
    """What a case must compute: per run the inputs, the reference's tensors, the interpreter's."""

    runs: list[list[Array]]
    reference: dict[int, Array]
    interpreted: list[Values]


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [(path, config) for path in corpus_files() for config in ACCELERATORS]


def measure(case: Case) -> Row:
    """Execute and compare one model on one accelerator."""
    path, config = case
    target = load_target(config)
    try:
        ready = prepare((corpus() / path).read_bytes(), name=Path(path).stem, target=target)
        interpreter = Interpreter(ready.graph)
    except NpuschedError as error:
        return {"status": _refusal(error)}
    macs = _macs(ready.graph)
    count = INPUTS if macs <= FEW_ABOVE_MACS else FEW_INPUTS
    subgraph = ready.model.subgraphs[ready.graph.subgraph]
    try:
        expected = _expected(ready, interpreter, subgraph, count)
    except SimError as error:
        return {"status": _refusal(error)}
    return {
        "status": "compared",
        "inputs": count,
        "mmac": round(macs / 1e6, 1),
        "exceptions": list(known_exceptions(subgraph)),
        "interpreter": _interpreter_counts(ready.graph, expected).row(),
        "plans": [
            {"budget": name, **_plan_row(ready.graph, plan, expected)}
            for name, plan in three_plans(ready, target)
        ],
    }


def _refusal(error: NpuschedError) -> str:
    """Why nothing was executed."""
    if "runs on the CPU" in error.why:
        return f"not executed: CPU op {error.what.partition(', Cpu ')[2]}"
    return f"not executed: {error.what}; {error.why}"[:200]


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
    planner = Planner.of(ready.graph, target, ready.sizes.of)
    largest, smallest = planner.plan(None), planner.smallest_budget_bytes()
    yield "largest", largest
    half = largest.sram_peak_bytes // 2
    if half < smallest:
        half = (largest.sram_peak_bytes + smallest) // 2
    yield "half", planner.plan(half)
    yield "smallest", planner.plan(smallest)


# --- comparing ------------------------------------------------------------------------------


def _expected(
    ready: Prepared, interpreter: Interpreter, subgraph: Subgraph, count: int
) -> Expected:
    drawn = random_inputs(subgraph, count, seed=0)
    runs = [[drawn[index][k] for index in subgraph.inputs] for k in range(count)]
    wanted = {
        fm.source[1]
        for fm in ready.graph.feature_maps.values()
        if fm.source is not None and not fm.is_constant and not fm.is_graph_input
    }
    reference = reference_values(
        ready.model.content,
        drawn,
        sorted(wanted | set(subgraph.outputs)),
        keeps_all=True,
        is_stateful=any(op.kind is OpKind.VAR_HANDLE for op in subgraph.ops),
    )
    return Expected(runs, reference, [interpreter.run(inputs) for inputs in runs])


def _wanted(graph: OpGraph, tensor: int, expected: Expected) -> Array | None:
    """The reference's values of a map (runs, elements), None for temporaries and constants."""
    fm = graph.feature_maps[tensor]
    found = None if fm.source is None else expected.reference.get(fm.source[1])
    return None if found is None else found.reshape(len(found), -1)


def _stacked(arrays: Sequence[Array]) -> Array:
    return np.stack([array.ravel() for array in arrays])


def _interpreter_counts(graph: OpGraph, expected: Expected) -> Counts:
    counts = Counts()
    for tensor in expected.interpreted[0].tensors:
        wanted = _wanted(graph, tensor, expected)
        if wanted is None or tensor in graph.inputs:
            continue
        counts.tensors += 1
        got = _stacked([values.tensors[tensor] for values in expected.interpreted])
        counts.add(graph.feature_maps[tensor].name, got, wanted)
    _add_outputs(graph, counts, [values.outputs for values in expected.interpreted], expected)
    return counts


def _add_outputs(
    graph: OpGraph, counts: Counts, outputs: Sequence[tuple[Array, ...]], expected: Expected
) -> None:
    """Compare the graph's outputs once more, as they are read after the last op."""
    for position, tensor in enumerate(graph.outputs):
        wanted = _wanted(graph, tensor, expected)
        if wanted is not None:
            counts.add(f"output {position}", _stacked([run[position] for run in outputs]), wanted)


def _plan_row(graph: OpGraph, plan: Plan, expected: Expected) -> Row:
    """Run a plan on all inputs, compare, and try to break it."""
    executor = PlanExecutor(graph, plan)
    executed = [executor.run(inputs) for inputs in expected.runs]
    counts = Counts()
    for tensor in executed[0].tensors:
        if tensor not in graph.inputs:
            got = _stacked([each.tensors[tensor] for each in executed])
            _add_map(graph, counts, tensor, got, expected)
    for tensor in executed[0].rolled:
        counts.rolled += 1
        _add_rolled(graph, counts, tensor, executed, expected)
    _add_outputs(graph, counts, [each.outputs for each in executed], expected)
    return {
        **counts.row(),
        "rolling_buffers": sum(b.kind is BufferKind.ROLLING for b in plan.buffers),
        "fewer_rows": fewer_rows(graph, plan, expected.runs[0], expected.interpreted[0]),
        "overlaps": overlaps(graph, plan, expected.runs[0], expected.interpreted[0]),
    }


def _add_map(graph: OpGraph, counts: Counts, tensor: int, got: Array, expected: Expected) -> None:
    wanted = _wanted(graph, tensor, expected)
    if wanted is None:
        counts.temporaries += 1
        wanted = _stacked([values.tensors[tensor] for values in expected.interpreted])
    else:
        counts.tensors += 1
    counts.add(graph.feature_maps[tensor].name, got, wanted)


def _add_rolled(
    graph: OpGraph,
    counts: Counts,
    tensor: int,
    executed: Sequence[Executed],
    expected: Expected,
) -> None:
    """Compare the rows that were made of a map that never exists as a whole."""
    wanted = _wanted(graph, tensor, expected)
    if wanted is None:
        counts.temporaries += 1
        wanted = _stacked([values.tensors[tensor] for values in expected.interpreted])
    else:
        counts.tensors += 1
    shape, made = executed[0].rolled[tensor].shape, executed[0].rolled_rows[tensor]
    got = np.stack([each.rolled[tensor][:, :made] for each in executed])
    counts.add(graph.feature_maps[tensor].name, got, wanted.reshape(-1, *shape)[:, :, :made])


# --- the page -------------------------------------------------------------------------------


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator, every difference by name, and what was not executed."""
    done = [row for row in rows if row["status"] == "compared"]
    lines = [
        "The scheduled graph, executed on whole tensors (interpreter) and by plans of",
        "`npusched plan` at three budgets (without a limit, half of what that uses, the smallest",
        "feasible), stripe by stripe through bytes at the plan's addresses. Every feature map that",
        "holds a tensor of the file is compared with LiteRT's `BUILTIN_REF`, temporaries of",
        "decomposed ops with the interpreter; rolled ones never exist as a whole: their rows are",
        f"compared as they are written. Tolerance 0, {INPUTS} seeded random inputs, {FEW_INPUTS}",
        f"above {FEW_ABOVE_MACS // 10**6} MMAC.",
        "",
        "| accelerator | models | executed by | runs equal | tensors equal | of them rolled | "
        "temporaries | values |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for config in ACCELERATORS:
        mine = [row for row in done if _case(row)[1] == config]
        parts = [("interpreter", [_dict(row["interpreter"]) for row in mine])]
        parts += [
            (f"plan, {name}", [plan for row in mine for plan in _plans(row) if _is(plan, name)])
            for name in ("largest", "half", "smallest")
        ]
        lines += [_line(config, len(mine), name, found) for name, found in parts]
    lines += ["", *_damage_lines(done), "", "Not equal:", ""]
    lines += [text for row in done for text in _differences(row)] or ["- none"]
    lines += ["", "Not executed or not compared:", ""]
    lines += [
        f"- {' '.join(_case(row))}: {row['status']}" for row in rows if row["status"] != "compared"
    ]
    return "\n".join(lines)


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


def _differences(row: Row) -> list[str]:
    known = "; ".join(str(each) for each in _items(row["exceptions"])) or "no known exception"
    found = []
    for part in (_dict(row["interpreter"]), *_plans(row)):
        for name, figures in _dict(part["differing"]).items():
            count, largest = _items(figures)
            found.append(
                f"- {' '.join(_case(row))}, {part.get('budget', 'interpreter')}: {name}: {count} "
                f"values, at most {largest} ({known})"
            )
    return found


def _is(plan: Row, budget: str) -> bool:
    return plan["budget"] == budget


def _case(row: Row) -> tuple[str, ...]:
    return tuple(str(part) for part in _items(row["case"]))


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
    heavy=lambda case: (corpus() / case[0]).stat().st_size > HEAVY_BYTES,
)
