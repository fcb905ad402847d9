"""Cost of isolating Vela: compilations through the worker process against bare in-process ones.

``python -m benchmarks.vela_runner MODEL.tflite [RUNS]`` measures both in one run, three times
alternating, debug database included on both sides, cache off. The bare side needs ethos-u-vela in
this process; its printing goes to the null device.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from pathlib import Path

from npusched.hardware import load_target
from npusched.vela.options import VelaOptions, address_space_bytes, compiler_text, system_text
from npusched.vela.runner import close_worker, compile_config, config_of

TARGET = "ethos-u55-128"
ROUNDS = 3


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


def measure(content: bytes, runs: int = 100) -> tuple[float, float]:
    """Return the median seconds of (bare, runner) for ``runs`` compilations."""
    pairs = [(bare_seconds(content, runs), runner_seconds(content, runs)) for _ in range(ROUNDS)]
    bare, isolated = zip(*pairs, strict=True)
    return statistics.median(bare), statistics.median(isolated)


def main(arguments: list[str]) -> None:
    """Print one line with both times and their ratio."""
    path = Path(arguments[0])
    runs = int(arguments[1]) if len(arguments) > 1 else 100
    bare, isolated = measure(path.read_bytes(), runs)
    print(
        f"{path.name}, {runs} compilations for {TARGET}: bare {bare:.3f} s, "
        f"runner {isolated:.3f} s, ratio {isolated / bare:.2f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
