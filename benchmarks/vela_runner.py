"""Cost of isolating Vela: compilations through the worker process against bare in-process ones.

``python -m benchmarks.vela_runner [MODEL.tflite [RUNS]]`` measures both in one run, three times
alternating, debug database included on both sides, cache off, and writes
``reports/vela_runner.md``. The bare side needs ethos-u-vela in this process; its printing goes to
the null device.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.evidence import REPORTS, corpus
from npusched.hardware import load_target
from npusched.vela.options import VelaOptions, address_space_bytes, compiler_text, system_text
from npusched.vela.runner import close_worker, compile_config, config_of

TARGET = "ethos-u55-128"
ROUNDS = 3
BAR = 1.6
"""Largest ratio of the medians that is accepted."""


def bare_seconds(content: bytes, runs: int) -> float:
    """Time ``runs`` compilations in this process, tables fetched as Python lists."""
    regor = importlib.import_module("ethosu.regor")
    config = config_of(load_target(TARGET))
    system = system_text(config)
    options = compiler_text(VelaOptions(), address_space_bytes(config.architecture))
    sys.stdout.flush()
    saved, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        started = time.perf_counter()
        for _ in range(runs):
            output = regor.compile(config.architecture, content, "TFLITE", system, options=options)
            for table in output.opt_database.tables.values():
                _ = table.header, table.data
        return time.perf_counter() - started
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(null)


def runner_seconds(content: bytes, runs: int) -> float:
    """Time ``runs`` compilations through the worker, its start-up included."""
    config = config_of(load_target(TARGET))
    close_worker()
    started = time.perf_counter()
    for _ in range(runs):
        compile_config(content, config, cache=None)
    return time.perf_counter() - started


def measure(content: bytes, runs: int = 100) -> list[tuple[float, float]]:
    """Return the seconds of (bare, runner) for ``runs`` compilations, per round."""
    return [(bare_seconds(content, runs), runner_seconds(content, runs)) for _ in range(ROUNDS)]


def page(name: str, runs: int, rounds: list[tuple[float, float]]) -> str:
    """The report: every round, and the ratio of the medians."""
    bare, isolated = (statistics.median(side) for side in zip(*rounds, strict=True))
    lines = [
        "# Cost of isolating Vela",
        "",
        f"{runs} compilations of `{name}` for {TARGET} with the debug database, cache off: in this",
        "process (bare) and through the worker process (its start-up and the transfer and decoding",
        f"of all tables included), in turn. Load average {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| round | bare s | runner s | ratio |",
        "|---|---|---|---|",
        *(
            f"| {number} | {a:.2f} | {b:.2f} | {b / a:.2f} |"
            for number, (a, b) in enumerate(rounds, 1)
        ),
        f"| median | {bare:.2f} | {isolated:.2f} | {isolated / bare:.2f} (bar: {BAR}) |",
        "",
        f"Written by `python -m benchmarks.vela_runner` on {datetime.now(UTC).date()}"
        f" (npusched {version('npusched')}, ethos-u-vela {version('ethos-u-vela')}).",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Measure, write the report and print it."""
    path = Path(arguments[0]) if arguments else corpus() / "models" / "mlpt_vww.tflite"
    runs = int(arguments[1]) if len(arguments) > 1 else 100
    text = page(path.name, runs, measure(path.read_bytes(), runs))
    (REPORTS / "vela_runner.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
