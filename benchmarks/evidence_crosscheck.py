"""The corpus on all accelerators and memory modes: our vela-compatible cost of Vela's schedules.

One case is a model on one accelerator in one memory mode; it is compiled with Vela's defaults, for
size, and for an arena so small that cascades, stripes and sliced weights appear.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchmarks.crosscheck import QUANTITIES, Check, check, network_cause, worst
from benchmarks.evidence import Case, Evidence, Row, corpus, corpus_files, hw_configs
from npusched.errors import NpuschedError
from npusched.hardware import Target, load_target
from npusched.ir import Model
from npusched.tflite import read_model
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model

SYSTEMS = {
    "ethos-u55-32": "Ethos_U55_Deep_Embedded",
    "ethos-u55-64": "Ethos_U55_Deep_Embedded",
    "ethos-u55-128": "Ethos_U55_High_End_Embedded",
    "ethos-u55-256": "Ethos_U55_High_End_Embedded",
    "ethos-u65-256": "Ethos_U65_Mid_End",
    "ethos-u65-512": "Ethos_U65_High_End",
    "ethos-u85-128": "Ethos_U85_SYS_DRAM_Low",
    "ethos-u85-256": "Ethos_U85_SYS_DRAM_Mid",
    "ethos-u85-512": "Ethos_U85_SYS_DRAM_Low",
    "ethos-u85-1024": "Ethos_U85_SYS_DRAM_High",
    "ethos-u85-2048": "Ethos_U85_SYS_DRAM_Mid",
}
"""All accelerators, each with one of Arm's system configs."""

SMALL_SHARE = 0.3
"""The small arena, as a share of what Vela uses of its default one."""

VARIANTS = ("performance", "size", "small")
SLOW = "models/coral_deeplabv3_mnv2_dm05_uint8.tflite"
"""Becomes 64,000 pools, so it is compiled once only, for U55-128."""

Variant: TypeAlias = "dict[str, object]"


def modes(accelerator: str) -> tuple[str, ...]:
    """Arm's memory modes that the accelerator may be used with."""
    both = ("Sram_Only", "Shared_Sram")
    return both if "u55" in accelerator else (*both, "Dedicated_Sram_384KB")


def cases() -> list[Case]:
    """Every model on every accelerator in every legal memory mode."""
    return [
        (path, accelerator, mode)
        for path in corpus_files()
        for accelerator in SYSTEMS
        for mode in modes(accelerator)
        if path != SLOW or (accelerator, mode) == ("ethos-u55-128", "Shared_Sram")
    ]


def measure(case: Case) -> Row:
    """Compile the three variants and compare; a text says why that is not possible."""
    path, accelerator, mode = case
    target = load_target(accelerator, system_config=SYSTEMS[accelerator], memory_mode=mode)
    content = (corpus() / path).read_bytes()
    try:
        model = read_model(content, Path(path).stem)
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}"}
    default: VelaResult | None = None
    row: Row = {"status": "compiled"}
    for variant in VARIANTS[:1] if path == SLOW else VARIANTS:
        options = VelaOptions(optimise=Optimise.SIZE if variant == "size" else Optimise.PERFORMANCE)
        if variant == "small":
            if default is None:
                continue
            options = msgspec.structs.replace(options, arena_cache_size_bytes=_small(default))
        try:
            result = compile_model(content, target, options, cache=None)
        except NpuschedError as error:
            row[variant] = f"{error.what}: {error.why}"
            continue
        default = default or result
        row[variant] = _figures(target, result, model)
    return row


def _small(result: VelaResult) -> int:
    """An arena limit that makes Vela cascade: a share of what it used, on its 16-byte grid."""
    use = result.report.memories.get(result.report.staging_memory)
    peak = 0 if use is None else use.peak_bytes
    return max(16, int(peak * SMALL_SHARE) // 16 * 16)


def _figures(target: Target, result: VelaResult, model: Model) -> Variant:
    found = check(target, result, model)
    figures: Variant = {
        "rows": found.rows,
        "exact": found.exact,
        "sliced": found.sliced,
        "cascaded": found.cascaded,
        "estimates": [found.equal_estimates, found.estimates],
        "cycles": [found.ours, found.theirs],
    }
    unequal = {name: found.rows - found.equal[name] for name in QUANTITIES}
    if any(unequal.values()):
        figures["unequal"] = {name: count for name, count in unequal.items() if count}
        figures["worst"] = [list(pair) for pair in worst(found.errors, 3)]
        figures["errors"] = histogram(found)
    if cause := network_cause(model, found):
        figures["cause"] = cause
    return figures


BANDS = (0.0, 0.001, 0.01, 0.1)
"""Upper ends of the bands of relative errors."""


def histogram(found: Check) -> list[int]:
    """Inexact rows by relative error of their total: 0, to 0.1 %, to 1 %, to 10 %, above."""
    counts = [0] * (len(BANDS) + 1)
    for error, _ in found.errors:
        counts[sum(abs(error) > band for band in BANDS)] += 1
    return counts


def render(rows: Sequence[Row]) -> str:
    """Per accelerator and mode, then distributions, networks that differ, and failures."""
    lines = [
        "Vela's own schedules, costed by our vela-compatible model from facts alone (shapes,",
        "windows, blocks, stripes, slices, layouts, memories, encoded sizes), row by row against",
        "the debug database. Three compilations per model: default, `--optimise Size`, and an",
        f"arena of {SMALL_SHARE:.0%} of what the default used. A row is exact if NPU cycles, the",
        "access cycles of every memory and the block are equal; shares are means over networks.",
        "Bytes: read and written per row and memory. Estimate: our `striped_nominal` of a",
        "cascaded op against",
        "`est_op_cycles_without_buffering` of Vela's scheduler. Totals: networks whose sum equals",
        "Vela's total, of those with one subgraph (of several, Vela's database keeps the rows of",
        f"one). `{SLOW}` is compiled once, by default, for U55-128 Shared_Sram.",
        "",
        "| accelerator, mode | networks | rows | exact | bytes equal | in slices | in cascades |"
        " estimates equal | totals equal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = [(name, mode) for name in SYSTEMS for mode in modes(name)]
    for name, mode in groups:
        mine = [v for c, v in _variants(rows) if c[1:3] == [name, mode]]
        lines.append(_line(f"{name} {mode}", mine))
    for family in ("u55", "u65", "u85"):
        mine = [v for c, v in _variants(rows) if family in c[1]]
        lines.append(_line(f"**all {family}**", mine))
    for variant in VARIANTS:
        mine = [v for c, v in _variants(rows) if c[3] == variant]
        lines.append(_line(f"**all, {variant}**", mine))
    lines += ["", *_differences(rows), "", *_failures(rows)]
    return "\n".join(lines)


def _variants(rows: Sequence[Row]) -> Iterator[tuple[list[str], Variant]]:
    """(path, accelerator, mode, variant) and figures of every compilation compared."""
    for row in rows:
        case = row["case"]
        assert isinstance(case, list)
        for variant in VARIANTS:
            figures = row.get(variant)
            if isinstance(figures, dict):
                yield [*case, variant], figures


def _line(title: str, networks: Sequence[Variant]) -> str:
    counted = [v for v in networks if _int(v, "rows")]
    count = sum(_int(v, "rows") for v in counted)
    exact = _mean(counted, lambda v: _int(v, "exact") / _int(v, "rows"))
    moved = _mean(counted, lambda v: 1 - _unequal(v, "bytes") / _int(v, "rows"))
    tried = [_pair(v, "estimates") for v in networks]
    whole = [v for v in networks if not str(v.get("cause", "")).startswith("several subgraphs")]
    equal = sum("cause" not in v for v in whole)
    return (
        f"| {title} | {len(networks)} | {count} | {exact} | {moved} | "
        f"{sum(_int(v, 'sliced') for v in networks)} | "
        f"{sum(_int(v, 'cascaded') for v in networks)} | "
        f"{sum(a for a, _ in tried)} of {sum(b for _, b in tried)} | {equal} of {len(whole)} |"
    )


def _mean(networks: Sequence[Variant], share: Callable[[Variant], float]) -> str:
    if not networks:
        return "-"
    mean = sum(map(share, networks)) / len(networks)
    return "100 %" if mean == 1 else f"{100 * mean:.3f} %"


def _differences(rows: Sequence[Row]) -> list[str]:
    """Distribution of errors, worst rows, and networks whose total differs, by cause."""
    sums = [0] * (len(BANDS) + 1)
    quantities: Counter[str] = Counter()
    lines, causes = [], defaultdict(set)
    for case, figures in _variants(rows):
        if "errors" in figures:
            errors, unequal, rows_ = figures["errors"], figures["unequal"], figures["worst"]
            assert isinstance(errors, list)
            assert isinstance(unequal, dict)
            assert isinstance(rows_, list)
            sums = [a + b for a, b in zip(sums, errors, strict=True)]
            quantities.update(unequal)
            lines += [f"- `{case[0]}` {' '.join(case[1:])}: {e:+.4%} {text}" for e, text in rows_]
        if "cause" in figures:
            ours, theirs = _pair(figures, "cycles")
            error = f"{ours / theirs - 1:+.2%}" if theirs else "Vela has no cycles"
            causes[str(figures["cause"])].add((case[0], error))
    bands = ["equal total", *(f"up to {band:.1%}" for band in BANDS[1:]), "more"]
    listed = ", ".join(f"{count} {band}" for count, band in zip(sums, bands, strict=True))
    parts = ", ".join(f"{name} {count}" for name, count in sorted(quantities.items())) or "none"
    result = [f"Rows with any difference, by error of their total: {listed}. By quantity: {parts}."]
    result += ["", "Worst rows:", "", *(sorted(lines)[:40] or ["- none"])]
    result += ["", "Networks whose total is not the sum of our rows:", ""]
    for cause, networks in sorted(causes.items()):
        names = sorted({path for path, _ in networks})
        result.append(f"- {cause}: {', '.join(f'`{name}`' for name in names)}")
    return result if causes else [*result, "- none"]


def _failures(rows: Sequence[Row]) -> list[str]:
    """What Vela said about models that it did not compile, and where."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        case = row["case"]
        assert isinstance(case, list)
        if row["status"] != "compiled":
            found[case[0], str(row["status"])].append(" ".join(case[1:]))
        for variant in VARIANTS:
            if isinstance(row.get(variant), str):
                found[case[0], str(row[variant])].append(" ".join([*case[1:], variant]))
    lines = ["Not compared:", ""]
    for (path, message), places in sorted(found.items()):
        where = places[0] if len(places) == 1 else f"{len(places)} compilations"
        lines.append(f"- `{path}` ({where}): {' '.join(message.split())}")
    return lines if found else [*lines, "- none"]


def _int(figures: Variant, name: str) -> int:
    value = figures[name]
    assert isinstance(value, int)
    return value


def _pair(figures: Variant, name: str) -> tuple[int, int]:
    value = figures[name]
    assert isinstance(value, list)
    return int(value[0]), int(value[1])


def _unequal(figures: Variant, name: str) -> int:
    unequal = figures.get("unequal", {})
    assert isinstance(unequal, dict)
    return int(unequal.get(name, 0))


def _is_heavy(case: Case) -> bool:
    """True for models that take Vela more than a second."""
    return case[0] == SLOW or any(name in case[0] for name in HEAVY)


HEAVY = ("movenet", "mobilenet_v3", "mobilenet_v2_pytorch", "unet", "yolo_stem", "ssd_slim")


EVIDENCE = Evidence(
    name="crosscheck",
    title="Vela's schedules costed by our vela-compatible model",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=40,
    heavy=_is_heavy,
)
