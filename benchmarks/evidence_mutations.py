"""Damaged command streams: how many changes that matter are refused, reported or change a value."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.evidence import Case, Evidence, Row, corpus, hw_configs
from npusched.errors import NpuschedError
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55
from npusched.sim.check import check_executable
from npusched.sim.kernels.arrays import Array
from npusched.sim.mutate import Mutation, draw_mutations, effect, mutate
from npusched.sim.reference import random_inputs
from npusched.sim.run import Executable, open_compiled
from npusched.vela.cache import VelaCache
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

STREAMS = (
    ("models/mlpt_kws.tflite", "ethos-u55-128", None),
    ("models/mlpt_resnet8.tflite", "ethos-u65-512", None),
    ("models/mlpt_vww.tflite", "ethos-u55-128", 16384),
    ("models/mlzoo_ds_cnn_s_int16.tflite", "ethos-u65-256", None),
)
PER_CASE = 60
SEEDS = 15
INPUTS = 3


def cases() -> list[Case]:
    """(model, accelerator, arena, seed): 4 streams x 15 seeds x 60 mutations."""
    return [
        (path, config, str(arena or "default"), str(seed))
        for path, config, arena in STREAMS
        for seed in range(SEEDS)
    ]


def measure(case: Case) -> Row:
    """Try the mutations of one seed on one stream."""
    path, config, arena, seed = case
    target = load_target(config)
    limit = None if arena == "default" else int(arena)
    content = (corpus() / path).read_bytes()
    options = VelaOptions(arena_cache_size_bytes=limit)
    ready = open_compiled(compile_model(content, target, options, cache=VelaCache()).compiled)
    accelerator = target.accelerator
    assert isinstance(accelerator, AcceleratorU55)
    inputs = random_inputs(ready.graph, INPUTS, seed=0)
    trace = _written(ready, inputs)
    results: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for mutation in draw_mutations(ready.file.operators[0].stream, PER_CASE, int(seed)):
        outcome = _outcome(ready, mutation, accelerator, inputs, trace)
        results[outcome] += 1
        if outcome == "missed":
            missed[mutation.register] += 1
    return {"status": "tried", "results": dict(sorted(results.items())), "missed": dict(missed)}


def _written(ready: Executable, inputs: dict[int, Array]) -> list[bytes]:
    """What every kernel writes."""
    found: list[bytes] = []
    ready.run(inputs, lambda _, __, written: found.append(written.tobytes()))
    return found


def _outcome(
    ready: Executable,
    mutation: Mutation,
    accelerator: AcceleratorU55,
    inputs: dict[int, Array],
    trace: list[bytes],
) -> str:
    operator = ready.file.operators[0]
    try:
        program = replace(operator, stream=mutate(operator.stream, mutation)).load()
    except NpuschedError:
        return "refused"
    changed = replace(ready, programs=(program,))
    same = effect(program) == effect(ready.programs[0])
    if any(check_executable(changed, accelerator)):
        return "reported, no effect" if same else "reported"
    if same:
        return "no effect"
    return "missed" if _written(changed, inputs) == trace else "value"


def render(rows: Sequence[Row]) -> str:
    """Totals, and what was missed by register."""
    results: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for row in rows:
        for total, key in ((results, "results"), (missed, "missed")):
            found = row[key]
            assert isinstance(found, dict)
            total.update(found)
    caught = results["refused"] + results["reported"] + results["value"]
    matter = caught + results["missed"]
    loaded = results["reported"] + results["value"] + results["missed"]
    lines = [
        "One bit of one register write flips. A mutation matters if the stream is refused, or if",
        "addresses of elements, arithmetic or DMAs change; it is caught if the stream is refused,",
        f"a static check reports it, or what some kernel writes changes on {INPUTS} inputs.",
        "",
        f"{sum(results.values())} mutations, {matter} matter, {caught} caught "
        f"({100 * caught / matter:.1f} %). Of the {loaded} among them that still load, "
        f"{loaded - results['missed']} are caught "
        f"({100 - 100 * results['missed'] / loaded:.1f} %).",
        "",
        "| result | mutations |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(results.items())),
        "",
        "Missed, by register:",
        "",
        *(f"- {name}: {count}" for name, count in missed.most_common()),
    ]
    return "\n".join(lines)


EVIDENCE = Evidence(
    name="mutations",
    title="Damaged streams are noticed",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=2,
)
