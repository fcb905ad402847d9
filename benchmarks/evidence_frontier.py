"""Our frontier against the best of Vela's, at equal SRAM, both costed stripe by stripe.

Best of Vela: a sweep over arena limits, both strategies and the features that can be switched off;
as asked: Vela's defaults with the budget as arena limit. Ours without candidates: no schedule of
Vela's competes; with candidates: they do (``npusched plan --candidates sweep``). U55: five budgets
from the least that any result of Vela uses to the most; U65 and U85: fixed budgets of staging SRAM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, log
from statistics import median

from benchmarks.evidence import (
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    hw_configs,
    not_done,
)
from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.errors import InfeasibleError, NpuschedError
from npusched.hardware import Target, load_target
from npusched.hardware.target import MemoryMode
from npusched.schedule import Objective, OrderedPlanner, Plan, Planner, Switch, check_plan
from npusched.schedule.offchip_limit import offchip_bytes
from npusched.vela.cache import VelaCache
from npusched.vela.candidates import Candidates, candidates_of
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.sweep import sweep

CONFIGS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
SHARES = (0, 25, 50, 75, 100)
STAGING_KIB = (8, 16, 32, 64, 128, 256, 384)
ABLATIONS: dict[str, dict[str, object]] = {
    "nothing fused": {"cap": 1},
    "chains only": {"linear": True},
    "no result in place": {"in_place": False},
    "no staged weights": {"staged": False},
}
"""What is left out, and the argument of ``Planner.of`` that leaves it out."""

SWITCHES: dict[str, frozenset[Switch]] = {
    **{str(switch): frozenset({switch}) for switch in Switch},
    "all switches": frozenset(Switch),
}
"""What is allowed beyond the default; the gains rest on Vela's model."""

VARIANTS: dict[str, dict[str, object]] = {
    **ABLATIONS,
    **{name: {"switches": switches} for name, switches in SWITCHES.items()},
}

MOST_OPS = 1000
"""The whole frontier of unrolled networks with more kernels takes very long."""

SLOW = ("coral_deeplabv3",)
"""Vela takes 20 seconds for each compilation of it, a sweep many minutes."""

SMALL_BYTES = 100_000
SMALL_OPS = 100
"""Largest file with most kernels that is also planned with parts left out, switches, and limits."""

COMPILATIONS = ((300_000, 48), (1_500_000, 24), (1 << 62, 12))
"""Most compilations of a sweep by size of the file: large models take seconds each."""


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [
        (path, config)
        for path in corpus_files()
        if not any(name in path for name in SLOW)
        for config in CONFIGS
    ]


def measure(case: Case) -> Row:
    """Both frontiers of one model on one target."""
    path, config = case
    content = (corpus() / path).read_bytes()
    target = load_target(config)
    try:
        prepared = prepare(
            content, name=path, target=target, options=PlanOptions(candidates="none")
        )
        is_whole = target.memory_mode is not MemoryMode.DEDICATED_SRAM
        if is_whole and len(prepared.graph.ops) > MOST_OPS:
            return {"status": f"left out: {len(prepared.graph.ops)} kernels, over {MOST_OPS}"}
        theirs, compiles = _swept(prepared, target)
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}; {error.why}"[:200]}
    if not theirs.found:
        return {"status": f"no plan of Vela's: {'; '.join(theirs.reasons)}"[:200]}
    budgets = _budgets(target, theirs)
    plans = _plans(prepared, target, theirs, [size for _, size in budgets])
    faults = [fault for plan in plans for fault in check_plan(prepared.graph, target, plan)]
    is_small = len(content) <= SMALL_BYTES and len(prepared.graph.ops) <= SMALL_OPS
    variants = {
        name: _planner(prepared, target, arguments, max(size for _, size in budgets))
        for name, arguments in VARIANTS.items()
        if is_small
    }
    return {
        "status": "compared",
        "plans": len(plans),
        "faults": faults,
        "is_fused": any(len(s.ops) > 1 for plan in plans for s in plan.segments),
        "compiles": compiles,
        "vela_plans": len(theirs.found),
        "vela_none": theirs.results - len(theirs.found),
        "least": [plans[-1].sram_peak_bytes, min(c.plan.sram_peak_bytes for c in theirs.found)],
        "points": [
            {"budget": name, **_at(prepared, plans, theirs, variants, target, size)}
            for name, size in budgets
        ],
        **_dominance(plans, theirs),
    }


def _swept(prepared: Prepared, target: Target) -> tuple[Candidates, int]:
    """Vela's plans that a sweep finds, and its compilations."""
    content = prepared.model.content
    limit = next(count for size, count in COMPILATIONS if len(content) <= size)
    swept = sweep(content, target, cache=VelaCache(), max_compiles=limit)
    options = [point.options for point in swept.distinct]
    return _candidates(prepared, target, options), swept.compiles


def _plans(
    prepared: Prepared, target: Target, theirs: Candidates, budgets: Sequence[int]
) -> list[Plan]:
    """Ours from the most SRAM to the least: the whole frontier.

    With a staging memory, where frontiers have hundreds of points: the plans for the budgets and
    for the peak of every plan of Vela's that no other of its own betters, and the smallest one.
    """
    planner = OrderedPlanner(prepared.graph, target, prepared.sizes.of)
    if target.memory_mode is not MemoryMode.DEDICATED_SRAM:
        return planner.frontier(None)
    best, peaks = inf, {*budgets, planner.smallest_budget_bytes()}
    for plan in sorted(
        (c.plan for c in theirs.found), key=lambda p: (p.sram_peak_bytes, p.objective)
    ):
        if plan.objective < best:
            best = plan.objective
            peaks.add(plan.sram_peak_bytes)
    found = [_within(planner, peak) for peak in sorted(peaks, reverse=True)]
    return [plan for plan in found if plan is not None]


def _candidates(prepared: Prepared, target: Target, options: Sequence[VelaOptions]) -> Candidates:
    """Vela's results with these options (from the cache, where a sweep left them) as plans."""
    content = prepared.model.content
    results = (compile_model(content, target, each, cache=VelaCache()) for each in options)
    return candidates_of(results, prepared.model, prepared.graph, target, Objective())


def _budgets(target: Target, theirs: Candidates) -> list[tuple[str, int]]:
    if target.memory_mode is MemoryMode.DEDICATED_SRAM:
        return [(f"{kib} KiB", kib * 1024) for kib in STAGING_KIB]
    peaks = [each.plan.sram_peak_bytes for each in theirs.found]
    low, high = min(peaks), max(peaks)
    return [(f"{share} %", low + (high - low) * share // 100) for share in SHARES]


def _at(
    prepared: Prepared,
    plans: Sequence[Plan],
    theirs: Candidates,
    variants: Mapping[str, Planner],
    target: Target,
    budget: int,
) -> Row:
    """Everybody's best plan within one budget; of Vela also the least cycles of any result."""
    asked = _candidates(prepared, target, [VelaOptions(arena_cache_size_bytes=budget)])
    ours = _best(plans, budget)
    fitting = [each.plan for each in theirs.found if each.plan.sram_peak_bytes <= budget]
    row: Row = {
        "bytes": budget,
        "ours": _figures(target, ours),
        "vela": _figures(target, _best(fitting, budget)),
        "vela_cycles": min((round(_cycles(target, plan)) for plan in fitting), default=None),
        "asked": _figures(target, asked.found[0].plan if asked.found else None),
    }
    for name in VARIANTS:
        plan = _within(variants[name], budget) if name in variants else None
        row[name] = _figures(target, plan)
    row["limited"] = _limited(
        prepared, target, ours, _best(fitting, budget), budget, is_small=bool(variants)
    )
    return row


def _limited(
    prepared: Prepared,
    target: Target,
    ours: Plan | None,
    theirs: Plan | None,
    budget: int,
    *,
    is_small: bool,
) -> list[float] | None:
    """Ours with no more off-chip bytes than the best of Vela's; None if that is no limit.

    Only for small files (``SMALL_BYTES``).
    """
    if ours is None or theirs is None or not is_small:
        return None
    limit = offchip_bytes(target, theirs)
    if offchip_bytes(target, ours) <= limit:
        return None
    planner = _planner(prepared, target, {"max_offchip_bytes": limit}, budget)
    return _figures(target, _within(planner, budget))


def _planner(
    prepared: Prepared, target: Target, arguments: Mapping[str, object], limit: int
) -> Planner:
    make: Callable[..., Planner] = Planner.of
    return make(prepared.graph, target, prepared.sizes.of, limit_bytes=limit, **arguments)


def _within(planner: Planner | OrderedPlanner, budget: int) -> Plan | None:
    """The best plan within a budget; None if there is none."""
    try:
        return planner.plan(budget)
    except InfeasibleError:
        return None


def _best(plans: Sequence[Plan], budget: int) -> Plan | None:
    fitting = [plan for plan in plans if plan.sram_peak_bytes <= budget]
    return min(fitting, key=lambda plan: plan.objective, default=None)


def _figures(target: Target, plan: Plan | None) -> list[float] | None:
    """[objective, NPU cycles with CPU time at the NPU clock, off-chip bytes, SRAM peak]."""
    if plan is None:
        return None
    return [
        round(plan.objective, 1),
        round(_cycles(target, plan)),
        offchip_bytes(target, plan),
        plan.sram_peak_bytes,
    ]


def _cycles(target: Target, plan: Plan) -> float:
    amounts = plan.amounts
    return amounts.npu_cycles + amounts.cpu_cycles * target.clock_hz / target.cpu.clock_hz


def _dominance(plans: Sequence[Plan], theirs: Candidates) -> Row:
    """At every peak of Vela's: how much worse ours is, without candidates (None: no plan)."""
    worse: list[tuple[int, float | None]] = []
    for each in theirs.found:
        best = min(
            (p.objective for p in plans if p.sram_peak_bytes <= each.plan.sram_peak_bytes),
            default=inf,
        )
        ratio = best / each.plan.objective - 1 if each.plan.objective else 0.0
        if ratio > 1e-9:
            percent = None if ratio == inf else round(100 * ratio, 3)
            worse.append((each.plan.sram_peak_bytes, percent))
    return {"worse": [list(pair) for pair in sorted(worse, key=lambda pair: pair[0])]}


class _Point:
    """One budget of one model, as the tables read it."""

    def __init__(self, row: Row, point: Row) -> None:
        case = row["case"]
        assert isinstance(case, list)
        self.model, self.config = str(case[0]), str(case[1])
        self.budget = str(point["budget"])
        self.is_fused = bool(row["is_fused"])
        self.point = point

    def figure(self, who: str, which: int) -> float | None:
        """Objective (0), cycles (1), off-chip bytes (2) or SRAM peak (3) of somebody's plan."""
        found = self.point[who]
        return None if found is None else float(_list(found)[which])

    def ratio(self, which: int, other: str = "vela", mine: str = "ours") -> float | None:
        """Ours / theirs, None where one of them has no plan."""
        a, b = self.figure(mine, which), self.figure(other, which)
        return None if a is None or not b else a / b

    @property
    def cycles(self) -> float | None:
        """Our cycles / the least cycles of any result of Vela's that fits."""
        mine, least = self.figure("ours", 1), self.point["vela_cycles"]
        return None if mine is None or not least else mine / float(str(least))


def _list(value: object) -> list[float]:
    assert isinstance(value, list)
    return value


def _points(rows: Sequence[Row]) -> list[_Point]:
    found = []
    for row in rows:
        if row["status"] == "compared":
            points = row["points"]
            assert isinstance(points, list)
            found += [_Point(row, point) for point in points]
    return found


def _geomean(ratios: Sequence[float]) -> float:
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios)) if ratios else 1.0


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def render(rows: Sequence[Row]) -> str:
    """Summary per target and budget, dominance, ablations, one table of all models."""
    points = _points(rows)
    lines = [
        "Cycles stripe by stripe with physical bandwidths on both sides, CPU time included;",
        "addresses allocated; SRAM as high-water mark of the budget memory. Ours minimises cycles",
        "+ 0.1 x off-chip bytes and knows nothing of Vela's plans (candidates off). Best of Vela:",
        "the least cycles of any result of the sweep that fits. Negative: ours has less.",
        "Everything is predicted, none measured. Left out, because Vela takes 20 s for each",
        f"compilation: {', '.join(SLOW)}.",
    ]
    for config in CONFIGS:
        lines += _summary(config, [p for p in points if p.config == config])
    lines += _dominated(rows)
    for config in CONFIGS:
        lines += _table(config, [row for row in rows if case_of(row)[1] == config])
    lines += ["", "Not compared:", ""]
    lines += not_done(rows)
    return "\n".join(lines)


def _summary(config: str, points: Sequence[_Point]) -> list[str]:
    """Geomeans over the models of which our frontier fuses ops."""
    names = list(dict.fromkeys(point.budget for point in points))
    lines = [
        "",
        f"## {config}",
        "",
        "Models with fused ops. Objective, off-chip bytes: both best plans by the objective.",
        "",
        "| budget | models | cycles, geomean | without the best | median | objective | "
        "off-chip bytes | cycles against Vela as asked |",
        "|---" * 8 + "|",
    ]
    for name in names:
        mine = [p for p in points if p.budget == name and p.is_fused and p.cycles is not None]
        cycles = sorted(p.cycles for p in mine if p.cycles is not None)
        lines.append(
            f"| {name} | {len(mine)} | {_percent(_geomean(cycles))} | "
            f"{_percent(_geomean(cycles[1:]))} | {_percent(median(cycles) if cycles else None)} | "
            f"{_mean(mine, 0)} | {_mean(mine, 2)} | {_asked(mine)} |"
        )
    return [*lines, *_left_out(names, points), *_switched(names, points)]


def _left_out(names: Sequence[str], points: Sequence[_Point]) -> list[str]:
    """What each ingredient is worth."""
    lines = [
        "",
        "Left out of the planner: how much lower ours with everything is in the objective (geomean "
        f"over files of up to {SMALL_BYTES // 1000} kB and {SMALL_OPS} kernels that still have a "
        "plan, in brackets how many).",
        "",
        "| budget | " + " | ".join(ABLATIONS) + " |",
        "|---" * (1 + len(ABLATIONS)) + "|",
    ]
    for name in names:
        mine = [p for p in points if p.budget == name and p.is_fused and p.point["ours"]]
        cells = " | ".join(_mean(mine, 0, other) for other in ABLATIONS)
        lines.append(f"| {name} | {cells} |")
    return lines


def _switched(names: Sequence[str], points: Sequence[_Point]) -> list[str]:
    """What the switches add, under Vela's model."""
    lines = [
        "",
        "With switches, under Vela's model (`--allow`): cycles against the best of Vela, geomean "
        f"over files of up to {SMALL_BYTES // 1000} kB and {SMALL_OPS} kernels.",
        "",
        "| budget | none | " + " | ".join(SWITCHES) + " |",
        "|---" * (2 + len(SWITCHES)) + "|",
    ]
    for name in names:
        mine = [p for p in points if p.budget == name and p.is_fused and p.cycles is not None]
        small = [p for p in mine if p.point["all switches"] is not None]
        cells = " | ".join(_mean(small, 1, "vela", who) for who in ("ours", *SWITCHES))
        lines.append(f"| {name} | {cells} |")
    return lines


def _mean(points: Sequence[_Point], which: int, other: str = "vela", mine: str = "ours") -> str:
    """Geomean of ratios, and of how many models if some have no plan."""
    ratios = [ratio for p in points if (ratio := p.ratio(which, other, mine))]
    missing = "" if len(ratios) == len(points) else f" ({len(ratios)})"
    return f"{_percent(_geomean(ratios))}{missing}"


def _asked(points: Sequence[_Point]) -> str:
    """Cycles against Vela with the budget as arena limit, where its result keeps to the budget."""
    kept = [p for p in points if (p.figure("asked", 3) or 0) <= float(str(p.point["bytes"]))]
    over = len(points) - len(kept)
    return _mean(kept, 1, "asked") + (f" ({over} over budget)" if over else "")


def _dominated(rows: Sequence[Row]) -> list[str]:
    """Where a plan of Vela's betters all of ours with no more SRAM (candidates off)."""
    lines = ["", "## Dominance", ""]
    compared = [row for row in rows if row["status"] == "compared"]
    for config in CONFIGS:
        mine = [row for row in compared if case_of(row)[1] == config]
        total = sum(int(str(row["vela_plans"])) for row in mine)
        worse = [(row, w) for row in mine for w in _pairs(row)]
        much = [(row, w) for row, w in worse if w[1] is None or w[1] > 1]
        lines.append(
            f"- {config}: of {total} plans of Vela's on {len(mine)} models, {len(worse)} are "
            f"better than ours with no more SRAM in the default objective, {len(much)} by more "
            "than 1 %. With candidates none can be: they are on the frontier "
            "(tests/api/test_candidates.py)."
        )
        lines += [
            f"    - {case_of(row)[0]}, {size:.0f} bytes: "
            + ("no plan of ours" if ratio is None else f"ours is {ratio:.1f} % worse")
            for row, (size, ratio) in much
        ]
    lines += _within_bytes(rows)
    faults = [f"{' '.join(case_of(row))}: {fault}" for row in compared for fault in _texts(row)]
    lines.append(f"- Plans of ours that fail a check: {', '.join(faults) or 'none'}.")
    return lines


def _within_bytes(rows: Sequence[Row]) -> list[str]:
    """Ours when it may move no more off the chip than the best of Vela's at the same budget."""
    points = [p for p in _points(rows) if p.point["limited"] is not None]
    worse = [p for p in points if (p.ratio(0, "vela", "limited") or 0) > 1 + 1e-9]
    names = ", ".join(f"{p.model} {p.config} {p.budget}" for p in worse)
    return [
        f"- At {len(points)} budgets (files of up to {SMALL_BYTES // 1000} kB) our best plan "
        "moves more bytes off the chip than the best of Vela's. Limited to Vela's bytes "
        f"(`--max-offchip-bytes`), ours is worse in the objective at {len(worse)}"
        + (f": {names}." if names else ".")
    ]


def _pairs(row: Row) -> list[tuple[float, float | None]]:
    found = row["worse"]
    assert isinstance(found, list)
    return found


def _texts(row: Row) -> list[str]:
    found = row["faults"]
    assert isinstance(found, list)
    return found


def _table(config: str, rows: Sequence[Row]) -> list[str]:
    """Every model: least SRAM, and cycles against the best of Vela at each budget."""
    compared = [row for row in rows if row["status"] == "compared"]
    if not compared:
        return []
    names = list(dict.fromkeys(point.budget for point in _points(compared)))
    fused = [row for row in compared if row["is_fused"]]
    least = [_list(row["least"]) for row in fused]
    smaller = _geomean([a / b for a, b in least if a and b])
    lines = [
        "",
        f"## {config}, every model",
        "",
        f"Least SRAM, geomean over the models with fused ops: {_percent(smaller)}.",
        "",
        "| model | least SRAM, ours | Vela | " + " | ".join(names) + " |",
        "|---" * (3 + len(names)) + "|",
    ]
    for row in compared:
        ours, theirs = _list(row["least"])
        cells = " | ".join(_percent(point.cycles) for point in _points([row]))
        lines.append(f"| {case_of(row)[0]} | {ours} | {theirs} | {cells} |")
    return lines


EVIDENCE = Evidence(
    name="frontier",
    title="Our plans and Vela's at equal SRAM",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=3,
    heavy=lambda case: (corpus() / case[0]).stat().st_size > 100_000,
)
