"""Static checks: nothing on streams as Vela makes them, something for every wait that is left out.

Every model, default and in a small arena. Of streams with very many waits a seeded sample of them
is left out, one at a time.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from benchmarks.evidence import (
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    counts_of,
    hw_configs,
    not_done,
)
from npusched.errors import NpuschedError
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55
from npusched.sim import hazards
from npusched.sim.check import check_executable, host_spans
from npusched.sim.hazards import HazardKind, find_hazards
from npusched.sim.memory import Span
from npusched.sim.program import Program, Wait
from npusched.sim.run import Executable, open_compiled
from npusched.tflite import is_vela_compiled
from npusched.tflite.reader import read_model
from npusched.vela.cache import VelaCache
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ACCELERATORS = ("ethos-u55-128", "ethos-u65-512")
ARENAS = ("default", "16384")
WAITS = 300
"""Waits that are left out per stream, at most."""

MANY_COMMANDS = 3000
FEW_WAITS = 20
"""So many in streams with more commands."""


def cases() -> list[Case]:
    """(model, accelerator, arena)."""
    return [
        (path, config, arena)
        for path in corpus_files()
        for config in ACCELERATORS
        for arena in ARENAS
    ]


def measure(case: Case) -> Row:
    """Check one compilation, and its streams without some of their waits."""
    path, config, arena = case
    options = VelaOptions(arena_cache_size_bytes=None if arena == "default" else int(arena))
    try:
        model = read_model((corpus() / path).read_bytes(), Path(path).stem)
        compiled = model.content
        if not is_vela_compiled(model):
            target = load_target(config)
            compiled = compile_model(compiled, target, options, cache=VelaCache()).compiled
        ready = open_compiled(compiled)
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}; {error.why}"[:200]}
    made_for = _accelerator(ready)
    found = [each for findings in check_executable(ready, made_for) for each in findings]
    return {
        "status": "checked",
        "commands": sum(len(program.commands) for program in ready.programs),
        "findings": dict(Counter(str(each.kind) for each in found)),
        **_without_waits(ready),
    }


def _accelerator(ready: Executable) -> AcceleratorU55:
    """The one that the first stream's header names."""
    stream = ready.file.operators[0].stream
    found = load_target(f"{stream.family}-{stream.macs_per_cycle}").accelerator
    assert isinstance(found, AcceleratorU55)
    return found


def _without_waits(ready: Executable) -> Row:
    """How many waits there are, were left out, and what was said about it."""
    waits, dropped = 0, 0
    results: Counter[str] = Counter()
    for operator, program in zip(ready.file.operators, ready.programs, strict=True):
        spans = host_spans(operator)
        places = [k for k, each in enumerate(program.commands) if isinstance(each, Wait)]
        waits += len(places)
        most = WAITS if len(program.commands) <= MANY_COMMANDS else FEW_WAITS
        for place in sorted(random.Random(0).sample(places, min(len(places), most))):
            wait = program.commands[place]
            assert isinstance(wait, Wait)
            commands = (*program.commands[:place], *program.commands[place + 1 :])
            dropped += 1
            results[_verdict(replace(program, commands=commands), wait, spans)] += 1
    return {"waits": waits, "dropped": dropped, "results": dict(sorted(results.items()))}


def _verdict(program: Program, wait: Wait, spans: Sequence[tuple[int, Span]]) -> str:
    """Reported; needless, because it would only matter if more kernels could overlap; or missed."""
    kind = HazardKind.MISSING_KERNEL_WAIT if wait.is_kernel else HazardKind.MISSING_DMA_WAIT
    if kind in {each.kind for each in find_hazards(program, spans)}:
        return "reported"
    with patch.object(hazards, "MAX_KERNELS", len(program.commands)):
        needless = kind in {each.kind for each in find_hazards(program, spans)}
    return "needless" if needless else "missed"


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator and arena; findings and misses by name."""
    done = [row for row in rows if row["status"] == "checked"]
    lines = [
        "Streams as Vela makes them must have no finding (waits, block dependencies, reads of what",
        "nobody wrote, stale rows, blocks that do not fit). Then every wait is left out, one at a",
        f"time: each must be reported as missing. At most {WAITS} waits per stream, {FEW_WAITS} of",
        f"streams with more than {MANY_COMMANDS} commands (a seeded sample). Needless waits guard",
        f"bytes that no kernel in flight touches (at most {hazards.MAX_KERNELS} are).",
        "",
        "| accelerator | arena | models | commands | findings | waits | left out | reported | "
        "needless | missed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for config in ACCELERATORS:
        for arena in ARENAS:
            mine = [row for row in done if case_of(row)[1:] == (config, arena)]
            sums = [_sum(mine, key) for key in ("commands", "waits", "dropped")]
            results: Counter[str] = Counter()
            for row in mine:
                results.update(counts_of(row, "results"))
            findings = sum(sum(counts_of(row, "findings").values()) for row in mine)
            lines.append(
                f"| {config} | {arena} | {len(mine)} | {sums[0]} | {findings} | {sums[1]} | "
                f"{sums[2]} | {results['reported']} | {results['needless']} | "
                f"{results['missed']} |"
            )
    lines += ["", "Findings on correct streams, and waits whose absence was not reported:", ""]
    lines += [
        f"- {' '.join(case_of(row))}: {counts_of(row, 'findings') or 'no finding'}; waits: "
        f"{counts_of(row, 'results')}"
        for row in done
        if row["findings"] or set(counts_of(row, "results")) - {"reported"}
    ] or ["- none"]
    lines += ["", "Not checked:", ""]
    lines += not_done(rows, done="checked")
    return "\n".join(lines)


def _sum(rows: Sequence[Row], key: str) -> int:
    return sum(int(str(row[key])) for row in rows)


EVIDENCE = Evidence(
    name="hazards",
    title="Static checks on correct and broken streams",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=8,
    heavy=lambda case: (corpus() / case[0]).stat().st_size > 400_000,
)
