"""Vela's results over all arena limits on the grid, against what ``npusched.vela.sweep`` finds.

Three kinds of cases: pieces of the exhaustive sweep of one variant (strategy and switched-off
feature), and the sweep of all variants of a model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from benchmarks.evidence import Case, Evidence, Row, case_of, corpus, hw_configs
from npusched.hardware import Target, load_target
from npusched.vela.options import Feature, Optimise
from npusched.vela.sweep import GRID_BYTES, SweepPoint, SweepResult, sweep

TARGETS = {"u55": ("ethos-u55-128", "Shared_Sram"), "u65": ("ethos-u65-256", "Dedicated_Sram")}
"""Short name to target and memory mode: a limit that Vela takes as an aim, and a hard one."""

RANGES = {
    ("models/mlpt_kws.tflite", "u55"): 22208,
    ("models/mlpt_str_ww.tflite", "u55"): 9008,
    ("models/mlpt_resnet8.tflite", "u55"): 51856,
    ("models/mlpt_vww.tflite", "u55"): 74496,
    ("models/mlpt_kws.tflite", "u65"): 22208,
}
"""Largest limit: one step above what Vela uses of an unlimited arena, where results end to change
(a larger range would only flatter the sweep). The smallest is 16 bytes."""

FEATURES: tuple[tuple[Feature, ...], ...] = ((), (Feature.WEIGHT_BUFFERING,))
PIECE_POINTS = 256
FOUND = "sweep"


def cases() -> list[Case]:
    """Pieces of 256 limits of every exhaustive sweep, and one sweep per model and target."""
    found: list[Case] = []
    for (path, target), high in RANGES.items():
        found.append((path, target, FOUND))
        for strategy in Optimise:
            for disabled in FEATURES:
                found += [
                    (path, target, strategy.value, "|".join(disabled), str(start))
                    for start in range(GRID_BYTES, high + 1, PIECE_POINTS * GRID_BYTES)
                ]
    return found


def measure(case: Case) -> Row:
    """Compile every limit of a piece, or sweep."""
    path, name = case[:2]
    content = (corpus() / path).read_bytes()
    high = RANGES[path, name]
    target = _target(name)
    if case[2] == FOUND:
        found = sweep(
            content, target, arena_range=(GRID_BYTES, high), features=FEATURES, cache=None
        )
        return {"compiles": found.compiles, "results": _table(found)}
    strategy, disabled, start = Optimise(case[2]), case[3], int(case[4])
    end = min(start + (PIECE_POINTS - 1) * GRID_BYTES, high)
    compiles = 0
    table: dict[str, object] = {}
    for limit in range(start, end + 1, GRID_BYTES):
        one = sweep(
            content,
            target,
            arena_range=(limit, limit),
            optimise=(strategy,),
            features=(tuple(Feature(name) for name in disabled.split("|") if name),),
            cache=None,
        )
        compiles += one.compiles
        table |= {key: value for key, value in _table(one).items() if key not in table}
    return {"compiles": compiles, "results": table}


@cache
def _target(name: str) -> Target:
    target, mode = TARGETS[name]
    return load_target(target, memory_mode=mode)


def _table(found: SweepResult) -> dict[str, object]:
    """Distinct results by key: limit where first seen, bytes used, cycles, off-chip bytes."""
    return {p.key: [p.asked_bytes, *_figures(p)] for p in sorted(found.distinct, key=_asked)}


def _asked(point: SweepPoint) -> int:
    return point.asked_bytes


def _figures(point: SweepPoint) -> tuple[int, int, int]:
    return point.used_bytes, point.cycles, point.off_chip_bytes


def render(rows: Sequence[Row]) -> str:
    """Per model: what the exhaustive sweep has, what the sweep found, and with how much work."""
    lines = [
        "Exhaustive: every limit from 16 bytes to one step above what Vela uses of an unlimited",
        "arena, on a 16-byte grid, for {Performance, Size} x {all features, no weight buffering}.",
        "Distinct: another schedule or other figures. Non-dominated: none has less of one of bytes",
        "used, reported cycles and off-chip bytes without more of another.",
        "",
        "| model | target | compilations | of an exhaustive sweep | distinct results found |"
        " non-dominated found |",
        "|---|---|---|---|---|---|",
    ]
    missed = []
    for path, name in RANGES:
        mine = [row for row in rows if case_of(row)[:2] == (path, name)]
        exhaustive: dict[str, list[int]] = {}
        compiles: dict[bool, int] = defaultdict(int)
        found: dict[str, list[int]] = {}
        for row in mine:
            is_sweep = case_of(row)[2] == FOUND
            compiles[is_sweep] += _int(row["compiles"])
            into = found if is_sweep else exhaustive
            into |= _results(row)
        best = _non_dominated(exhaustive)
        lines.append(
            f"| `{path}` | {' '.join(TARGETS[name])} | {compiles[True]} of {compiles[False]} | "
            f"{100 * compiles[True] / max(compiles[False], 1):.2f} % | "
            f"{len(exhaustive.keys() & found.keys())} of {len(exhaustive)} | "
            f"{len(best & found.keys())} of {len(best)} |"
        )
        missed += [
            f"- {name} `{path}`: limit {v[0]}, {v[1]} bytes, {v[2]} cycles, {v[3]} off-chip bytes"
            for key, v in exhaustive.items()
            if key not in found
        ]
    return "\n".join([*lines, "", "Missed:", "", *(missed or ["- none"])])


def _non_dominated(results: dict[str, list[int]]) -> set[str]:
    """Keys of results whose figures no other betters."""
    figures = {key: tuple(value[1:]) for key, value in results.items()}
    return {
        key
        for key, mine in figures.items()
        if not any(
            other != mine and all(o <= m for o, m in zip(other, mine, strict=True))
            for other in figures.values()
        )
    }


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _results(row: Row) -> dict[str, list[int]]:
    results = row["results"]
    assert isinstance(results, dict)
    return results


EVIDENCE = Evidence(
    name="sweep",
    title="Vela's results over arena limits, found with few compilations",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=3,
)
