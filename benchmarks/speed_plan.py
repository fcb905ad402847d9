"""How fast the planner is in a process that has read and lowered the model.

``python -m benchmarks.speed_plan`` prints the rows that ``benchmarks.speed`` puts into
reports/benchmarks.md. CPU seconds with the weight sizes that Vela gave; compiling and
the time to lower a model left out; each case in a process of its own, the best of its runs.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time

from benchmarks.evidence import corpus
from npusched.api.options import PlanOptions
from npusched.api.planning import content_of, prepare
from npusched.hardware import load_target

VWW = "mlpt_vww"
LENGTHS = (50, 100, 200, 500, 1000, 2000)
FRONTIER = 0
"""Instead of a budget."""

CASES: tuple[tuple[str, str, str, int, int, str], ...] = (
    (f"{VWW}, u55-128: one budget (64 KiB)", VWW, "ethos-u55-128", 65536, 5, "0.3 s"),
    (f"{VWW}, u55-128: whole frontier", VWW, "ethos-u55-128", FRONTIER, 3, "2 s"),
    (f"{VWW}, u65-256: whole frontier", VWW, "ethos-u65-256", FRONTIER, 1, "-"),
    ("demo:mobilenet_v2, u55-128: frontier", "demo:mobilenet_v2", "ethos-u55-128", 0, 1, "10 s"),
    ("demo:chain:300, u55-128: frontier", "demo:chain:300", "ethos-u55-128", 0, 1, "60 s"),
    *(
        (f"demo:chain:{n}, u55-128: one budget", f"demo:chain:{n}", "ethos-u55-128", 40_000, 1, "-")
        for n in LENGTHS
    ),
)
"""What, model, target, budget in bytes, runs, bar."""


def spent(model: str, config: str, budget_bytes: int, runs: int) -> tuple[float, int]:
    """(least CPU seconds of so many runs, plans found)."""
    gc.set_threshold(100_000)  # as the command line does
    named = model if model.startswith("demo:") else str(corpus() / "models" / f"{model}.tflite")
    content, name = content_of(named)
    target = load_target(config)
    options = PlanOptions(candidates="none")
    best, count = float("inf"), 0
    for _ in range(runs):
        ready = prepare(content, name=name, target=target, options=options)
        limit = budget_bytes or None
        started = time.process_time()
        planner = options.planner(ready.graph, target, ready.sizes.of, limit_bytes=limit)
        plans = [planner.plan(limit)] if limit else planner.frontier(None)
        best = min(best, time.process_time() - started)
        count = len(plans)
    return best, count


def lines() -> list[str]:
    """The table of the report."""
    rows = []
    per_op = []
    for what, model, config, budget, runs, bar in CASES:
        arguments = json.dumps([model, config, budget, runs])
        command = [sys.executable, "-m", "benchmarks.speed_plan", arguments]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, count = json.loads(run.stdout)
        rows.append(f"| {what} | {count} | {seconds:.2f} s | {bar} |")
        if model.startswith("demo:chain:") and budget:
            per_op.append(1000 * seconds / int(model.rsplit(":", 1)[1]))
    return [
        "Planning in a process that has lowered the model (CPU time):",
        "",
        "| what | plans | took | bar |",
        "|---|---|---|---|",
        *rows,
        "",
        f"One budget of a chain of {LENGTHS[0]} to {LENGTHS[-1]} ops takes "
        f"{', '.join(f'{each:.1f}' for each in per_op)} ms per op: near-linear if these do not "
        "rise much.",
    ]


def main() -> None:
    """One case (given as JSON), or the table."""
    if len(sys.argv) > 1:
        print(json.dumps(spent(*json.loads(sys.argv[1]))))
        return
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
