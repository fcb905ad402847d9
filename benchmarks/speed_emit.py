"""How fast a plan becomes a file, and how fast the file is checked.

``python -m benchmarks.speed_emit`` prints the rows that ``benchmarks.speed`` puts into
reports/benchmarks.md. CPU seconds of this process with one BLAS thread, and those that Vela says
its compilation took; medians. Planning is not counted. Two cases: no SRAM to spare (Vela's minimum
for the model), and other blocks, for which most weights are encoded again.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.evidence import corpus

CONFIG = "ethos-u55-128"
MODEL = "mlpt_vww"
VELA_MINIMUM_BYTES = 49152
"""The least SRAM of any of Vela's results for the model (EMIT.md §8)."""

CASES: dict[str, tuple[str, ...]] = {"own blocks": (), "other blocks": ("block-choice",)}
EMIT_BAR_S = 0.5
GATE_BAR_S = 1.0
PROOF_INPUTS = 5
RUNS = 9


def measured() -> dict[str, dict[str, float]]:
    """Run ``main`` in a process of its own, whose BLAS has one thread; return its figures."""
    command = [sys.executable, "-m", "benchmarks.speed_emit", "--json"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, float]] = json.loads(run.stdout)
    return found


def lines(found: dict[str, dict[str, float]]) -> list[str]:
    """The table of the report."""
    rows = []
    for case, figures in found.items():
        what = f"{MODEL}, {case}, {figures['kernels']:.0f} kernels"
        rows += [
            f"| {what}: emitted | {figures['emit_s']:.2f} s | {EMIT_BAR_S:g} s |",
            f"| {what}: checked | {figures['gate_s']:.2f} s | {GATE_BAR_S:g} s |",
            f"| {what}: executed on {PROOF_INPUTS} inputs and compared | "
            f"{figures['proof_s']:.2f} s | - |",
        ]
    return [
        f"Emitting a plan ({CONFIG}, {VELA_MINIMUM_BYTES} bytes, one BLAS thread, medians of "
        f"{RUNS} runs): the template, Vela's compilation included, streams, weights and file; then "
        "the release gate:",
        "",
        "| what | took | bar |",
        "|---|---|---|",
        *rows,
    ]


def _seconds(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def figures(allowed: tuple[str, ...]) -> dict[str, float]:
    """Measure one case in this process."""
    from npusched.api.options import PlanOptions
    from npusched.api.planning import make_plan
    from npusched.emission.container import write_file
    from npusched.emission.gate import check_file
    from npusched.emission.matching import match_kernels
    from npusched.emission.planned import emit_plan
    from npusched.emission.template import make_template
    from npusched.hardware import load_target
    from npusched.sim.proof import prove
    from npusched.sim.reference import random_inputs

    target = load_target(CONFIG)
    content = (corpus() / "models" / f"{MODEL}.tflite").read_bytes()
    options = PlanOptions(sram=VELA_MINIMUM_BYTES, allow=allowed, candidates="none")
    planned = make_plan(content, name=MODEL, target=target, options=options)
    model, graph = planned.ready[:2]
    emit_s, gate_s = [], []
    for _ in range(RUNS):
        before = time.process_time()
        template = make_template(content, target)
        match = match_kernels(template, model, graph)
        emitted = emit_plan(template, model, graph, planned.plan, match=match)
        written = write_file(emitted)
        emit_s.append(time.process_time() - before + template.result.seconds)
        before = time.process_time()
        executable = check_file(written, emitted, target, VELA_MINIMUM_BYTES).require()
        gate_s.append(time.process_time() - before)
    inputs = random_inputs(model.subgraphs[0], PROOF_INPUTS, 0)
    return {
        "kernels": sum(len(stream.kernels) for stream in emitted.streams),
        "emit_s": statistics.median(emit_s),
        "gate_s": statistics.median(gate_s),
        "proof_s": _seconds(lambda: prove(model, executable, inputs)),
    }


def main() -> None:
    """Print the figures, as JSON with ``--json``."""
    found = {case: figures(allowed) for case, allowed in CASES.items()}
    text = json.dumps(found) if "--json" in sys.argv else "\n".join(lines(found))
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
