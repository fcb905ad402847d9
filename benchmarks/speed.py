"""``python -m benchmarks.speed``: how fast, beside what a user knows; writes reports/benchmarks.md.

Commands run in turn in one session (so that a busy machine slows both), each with an empty cache;
medians of the runs are compared. Only ratios are claimed. Both run from compiled bytecode, as after
an installation: a first run, which is not counted, writes it for a package installed in place.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import speed_emit, speed_plan, speed_sim
from benchmarks.evidence import REPORTS, corpus

RUNS = 5


def seconds(command: Sequence[str], folder: Path, cache: Path | None = None) -> tuple[float, float]:
    """Wall-clock and CPU seconds (children included) of one run; ``cache`` None = an empty one."""
    work = Path(tempfile.mkdtemp(dir=folder))
    environment = {
        **os.environ,
        "NPUSCHED_CACHE_DIR": str(cache or work / "cache"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, cwd=work, env=environment, check=True, capture_output=True)
    spent = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(work)
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(ours: Sequence[str], theirs: Sequence[str], folder: Path) -> str:
    """Medians of both commands, run in turn, as table cells: wall-clock and CPU, with ratios."""
    for command in (ours, theirs):
        seconds(command, folder)
    pairs = [(seconds(ours, folder), seconds(theirs, folder)) for _ in range(RUNS)]
    cells = []
    for kind in (0, 1):
        mine, other = (statistics.median(pair[side][kind] for pair in pairs) for side in (0, 1))
        cells.append(f"{mine:.3f} | {other:.3f} | {mine / other:.2f}")
    return " | ".join(cells)


def alone(command: Sequence[str], folder: Path, *, is_cached: bool) -> str:
    """Medians of a command as table cells: wall-clock and CPU seconds."""
    cache = folder / "warm" if is_cached else None
    seconds(command, folder, cache)
    runs = [seconds(command, folder, cache) for _ in range(RUNS)]
    return " | ".join(f"{statistics.median(run[kind] for run in runs):.2f}" for kind in (0, 1))


def peak_mib(command: Sequence[str]) -> float:
    """Largest resident set in MiB of a command and its children."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, capture_output=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, *command], check=True, capture_output=True, text=True
    )
    return int(run.stdout) / 1024


def main() -> None:
    """Measure everything and write the report."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    tools = Path(sys.executable).parent
    npusched, vela = str(tools / "npusched"), str(tools / "vela")
    model = str((corpus() / "models" / "mlpt_vww.tflite").resolve())
    plan = [npusched, "plan", model, "--config", "ethos-u55-128", "--sram", "64KiB"]
    tune = [npusched, "tune", model, "--config", "ethos-u55-128"]
    compiled = [
        vela,
        model,
        "--accelerator-config=ethos-u55-128",
        "--config=Arm/vela.ini",
        "--system-config=Ethos_U55_High_End_Embedded",
        "--memory-mode=Shared_Sram",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = compare([npusched, "--version"], [sys.executable, "-c", "pass"], folder)
        whole = compare(plan, compiled, folder)
        tuned = [
            f"| `npusched tune` (mlpt_vww, u55-128), {text} | "
            f"{alone(tune, folder, is_cached=is_cached)} | {bar} |"
            for text, is_cached, bar in (("cold", False, "6 s"), ("from the cache", True, "0.6 s"))
        ]
    load = os.getloadavg()[0]
    rows = [
        ("`npusched --version`", "`python -c pass`", start, "< 0.2 s"),
        ("`npusched plan` (mlpt_vww, u55-128, 64 KiB)", "`vela` (same model)", whole, "2.5x"),
    ]
    lines = [
        "# Speed",
        "",
        f"Medians of {RUNS} runs in turn, cold cache, {os.cpu_count()} cores, "
        f"load average {load:.1f} at the end.",
        "",
        "| what | beside | ours s | theirs s | ratio | CPU: ours s | theirs s | ratio | bar |",
        "|---|---|---|---|---|---|---|---|---|",
        *(f"| {what} | {beside} | {cells} | {bar} |" for what, beside, cells, bar in rows),
        "",
        "| what | s | CPU s | bar |",
        "|---|---|---|---|",
        *tuned,
        "",
        f"Peak memory of that plan, Vela's worker included: {peak_mib(plan):.0f} MiB (bar: 300).",
        "",
        *speed_plan.lines(),
        "",
        *speed_sim.lines(speed_sim.measured()),
        "",
        *speed_emit.lines(speed_emit.measured()),
        "",
        f"Written by `python -m benchmarks.speed` on {datetime.now(UTC).date().isoformat()} "
        f"(npusched {version('npusched')}, ethos-u-vela {version('ethos-u-vela')}).",
    ]
    (REPORTS / "benchmarks.md").write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
