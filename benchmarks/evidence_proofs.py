"""Compiled files run by the simulator: outputs, intermediates, hazards.

Every model that Vela puts (at least partly) on an Ethos-U55 or U65, with its defaults, optimised
for size and in a small arena; the four MLPerf Tiny models on all accelerators.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
    refusal,
)
from npusched.errors import NpuschedError
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55
from npusched.sim.check import check_executable
from npusched.sim.figures import count_figures
from npusched.sim.proof import Proof, prove
from npusched.sim.reference import random_inputs
from npusched.sim.run import Executable, open_compiled
from npusched.tflite.reader import read_model
from npusched.vela.cache import VelaCache
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.runner import compile_model

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

MAIN = ("ethos-u55-128", "ethos-u65-512")
OTHERS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-256", "ethos-u65-256")
TINY = tuple(f"models/mlpt_{name}.tflite" for name in ("ad01", "kws", "resnet8", "vww"))
SETTINGS = {
    "default": VelaOptions(),
    "size": VelaOptions(optimise=Optimise.SIZE),
    "small": VelaOptions(arena_cache_size_bytes=16384),
}
INPUTS = 20
FEW_ABOVE_MACS = 10**9
FEW_ABOVE_COMMANDS = 5000
"""One input instead of 20 above 1 GMAC or 5,000 commands."""


def cases() -> list[Case]:
    """(model, accelerator, setting)."""
    found = [
        (path, config, setting)
        for path in corpus_files()
        for config in MAIN
        for setting in SETTINGS
    ]
    found += [(path, config, setting) for path in TINY for config in OTHERS for setting in SETTINGS]
    return sorted(found)


def measure(case: Case) -> Row:
    """Compile, run, compare and check one case."""
    path, config, setting = case
    try:
        model = read_model((corpus() / path).read_bytes(), Path(path).stem)
        target = load_target(config)
        result = compile_model(model.content, target, SETTINGS[setting], cache=VelaCache())
        ready = open_compiled(result.compiled)
        commands = sum(len(program.commands) for program in ready.programs)
        macs = sum(count_figures(program).macs for program in ready.programs)
        count = 1 if macs > FEW_ABOVE_MACS or commands > FEW_ABOVE_COMMANDS else INPUTS
        proof = prove(model, ready, random_inputs(model.subgraphs[0], count, seed=0))
    except NpuschedError as error:
        return {"status": refusal(error)}
    accelerator = target.accelerator
    assert isinstance(accelerator, AcceleratorU55)
    hazards = [each for found in check_executable(ready, accelerator) for each in found]
    return {
        "status": "compared",
        "operators": len(ready.programs),
        "host_ops": _host_ops(ready),
        "hazards": dict(Counter(str(each.kind) for each in hazards)),
        **_compared(proof),
    }


def _host_ops(ready: Executable) -> int:
    """Ops that stay on the host."""
    return len(ready.graph.ops) - sum(each.subgraph == 0 for each in ready.file.operators)


def _compared(proof: Proof) -> Row:
    """What was equal. ``missing``: tensors that should be in memory, but no kernel wrote them."""
    inside = proof.intermediates
    return {
        "verdict": str(proof.verdict),
        "inputs": proof.inputs,
        "values": sum(each.values for each in proof.outputs),
        "differing": sum(each.differing for each in proof.outputs),
        "largest": max((each.largest for each in proof.outputs), default=0.0),
        "difference": "" if proof.difference is None else str(proof.difference),
        "kernels": inside.kernels,
        "kernels_equal": inside.equal,
        "tensors": inside.tensors,
        "covered": inside.covered,
        "missing": sorted(inside.missing),
        "absorbed": inside.reasons,
        "single_rounding": proof.single_rounding,
        "exceptions": list(proof.exceptions),
    }


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator and setting, then every exception by name."""
    lines = [
        "Compiled files executed by the simulator and compared with LiteRT's reference kernels on",
        "seeded random inputs, tolerance 0; fully connected layers round once, as the reference",
        "does. Kernels: 8- and 16-bit results found among the reference's tensors (the others are",
        "temporaries of decomposed ops). Covered: tensors found whole, of those that should be in",
        "memory; the others are absorbed by their neighbours, and counted below by reason.",
        "",
        "| accelerator | setting | models | equal | values | kernels equal | tensors covered | "
        "hazards |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for config in (*MAIN, *OTHERS):
        for setting in SETTINGS:
            mine = [
                row
                for row in rows
                if row["status"] == "compared" and case_of(row)[1:] == (config, setting)
            ]
            hazards = sum(sum(counts_of(row, "hazards").values()) for row in mine)
            lines.append(
                f"| {config} | {setting} | {len(mine)} | "
                f"{sum(row['verdict'] == 'equal' for row in mine)} | {_sum(mine, 'values')} | "
                f"{_sum(mine, 'kernels_equal')} of {_sum(mine, 'kernels')} | "
                f"{_sum(mine, 'covered')} of {_sum(mine, 'tensors')} | {hazards} |"
            )
    lines += ["", "Tensors that should be in memory and were not found:", ""]
    lines += [
        f"- {' '.join(case_of(row))}: {', '.join(map(str, _list(row, 'missing')))}"
        for row in rows
        if row["status"] == "compared" and row["missing"]
    ] or ["- none"]
    reasons: Counter[str] = Counter()
    for row in rows:
        if row["status"] == "compared":
            reasons.update(counts_of(row, "absorbed"))
    lines += ["", "Tensors that never reach memory, by reason:", ""]
    lines += [f"- {reason}: {count}" for reason, count in reasons.most_common()] or ["- none"]
    lines += ["", "Not equal:", ""]
    lines += [
        f"- {' '.join(case_of(row))}: {row['differing']} of {row['values']} values, at most "
        f"{row['largest']} ({', '.join(map(str, _list(row, 'exceptions'))) or row['difference']})"
        for row in rows
        if row["status"] == "compared" and row["verdict"] != "equal"
    ] or ["- none"]
    lines += ["", "Not run:", ""]
    lines += not_done(rows)
    return "\n".join(lines)


def _list(row: Row, key: str) -> list[object]:
    found = row[key]
    assert isinstance(found, list)
    return found


def _sum(rows: Sequence[Row], key: str) -> int:
    return sum(int(str(row[key])) for row in rows)


EVIDENCE = Evidence(
    name="proofs",
    title="Execution equals the reference",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=8,
    heavy=lambda case: "yolo" in case[0] or (corpus() / case[0]).stat().st_size > 400_000,
)
