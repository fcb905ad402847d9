"""How fast the stream simulator is: loading a compiled file, and each inference.

``python -m benchmarks.speed_sim`` prints the rows that ``benchmarks.speed`` puts into
reports/benchmarks.md. CPU seconds of this process with one BLAS thread (numpy's other work has one
anyway), medians; compiling is not counted.
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
SMALL = "mlpt_vww"
LARGE = "tflm_mobilenet_v2_pytorch_nchw"
"""A MobileNet V2 of 301 million MACs."""

LOAD_BAR_MS = 50.0
INFERENCE_BAR_MS = 30.0
LARGE_BAR_S = 10.0
RUNS = 9


def measured() -> dict[str, float]:
    """Run ``main`` in a process of its own, whose BLAS has one thread; return its figures."""
    command = [sys.executable, "-m", "benchmarks.speed_sim", "--json"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def lines(found: dict[str, float]) -> list[str]:
    """The table of the report."""
    return [
        f"Executing compiled files in numpy ({CONFIG}, CPU time, one BLAS thread, medians of "
        f"{RUNS} runs; the large model once):",
        "",
        "| what | took | bar |",
        "|---|---|---|",
        f"| {SMALL}: load, first in a process | {found['cold_ms']:.0f} ms | {LOAD_BAR_MS:.0f} ms |",
        f"| {SMALL}: load | {found['load_ms']:.0f} ms | {LOAD_BAR_MS:.0f} ms |",
        f"| {SMALL}: one inference | {found['one_ms']:.1f} ms | {INFERENCE_BAR_MS:.0f} ms |",
        f"| {SMALL}: per inference of 20 | {found['batch_ms']:.1f} ms | "
        f"{INFERENCE_BAR_MS:.0f} ms |",
        f"| {LARGE} ({found['large_mmacs']:.0f} MMACs): load and one inference | "
        f"{found['large_s']:.1f} s | {LARGE_BAR_S:.0f} s |",
    ]


def _seconds(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def _median_ms(action: Callable[[], object]) -> float:
    action()
    return 1000 * statistics.median(_seconds(action) for _ in range(RUNS))


def figures() -> dict[str, float]:
    """Measure in this process."""
    from npusched.hardware import load_target
    from npusched.sim.figures import count_figures
    from npusched.sim.run import draw_inputs, open_compiled
    from npusched.vela.cache import VelaCache
    from npusched.vela.runner import compile_model

    target = load_target(CONFIG)
    small, large = (
        compile_model(
            (corpus() / "models" / f"{name}.tflite").read_bytes(), target, cache=VelaCache()
        ).compiled
        for name in (SMALL, LARGE)
    )
    cold = _seconds(lambda: open_compiled(small))
    ready = open_compiled(small)
    one, many = draw_inputs(ready, 1, 0), draw_inputs(ready, 20, 0)
    heavy = open_compiled(large)
    drawn = draw_inputs(heavy, 1, 0)
    return {
        "cold_ms": 1000 * cold,
        "load_ms": _median_ms(lambda: open_compiled(small)),
        "one_ms": _median_ms(lambda: ready.run(one)),
        "batch_ms": _median_ms(lambda: ready.run(many)) / 20,
        "large_s": _seconds(lambda: open_compiled(large).run(drawn)),
        "large_mmacs": sum(count_figures(each).macs for each in heavy.programs) / 1e6,
    }


def main() -> None:
    """Print the figures, as JSON with ``--json``."""
    found = figures()
    text = json.dumps(found) if "--json" in sys.argv else "\n".join(lines(found))
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
