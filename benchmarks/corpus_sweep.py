"""``python -m benchmarks.corpus_sweep``: the corpus on three targets within six budgets.

Runs ``npusched.sweep`` (again after an interruption, it goes on), checks that every job has
exactly one row and that a second run has nothing to do, and writes reports/corpus_sweep.md.
``--smallest N`` tries it on the N smallest models.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import npusched
from benchmarks.evidence import REPORTS, corpus, corpus_files
from npusched.batch import SweepProgress
from npusched.report.sweep_types import SweepGroup, SweepReport, SweepRow
from npusched.report.units import human_bytes, human_seconds

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
BUDGETS = ("32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "2MiB")
SLOWEST = 12


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("corpus_sweep.sqlite"))
    parser.add_argument("--smallest", type=int, metavar="N")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--scheduler")
    parser.add_argument("-o", "--output", type=Path, default=REPORTS / "corpus_sweep.md")
    arguments = parser.parse_args()
    models = [corpus() / name for name in corpus_files()]
    if arguments.smallest is not None:
        models = sorted(models, key=lambda path: path.stat().st_size)[: arguments.smallest]
    start = time.perf_counter()
    report = _sweep(models, arguments.store, arguments.workers, arguments.scheduler)
    wall_s = time.perf_counter() - start
    _check(report, arguments.store)
    again = _sweep(models, arguments.store, arguments.workers, arguments.scheduler)
    assert again.known_before == len(report.rows) == len(again.rows)
    arguments.output.write_text(render(report, len(models), wall_s), encoding="utf-8")


def _sweep(
    models: Sequence[Path], store: Path, workers: int | None, scheduler: str | None
) -> SweepReport:
    return npusched.sweep(
        models,
        TARGETS,
        sram=BUDGETS,
        store=store,
        workers=workers,
        scheduler=scheduler,
        progress=_progress,
    )


def _progress(progress: SweepProgress) -> None:
    if progress.done % 50 == 0:
        eta = progress.eta_s or 0.0
        print(f"{progress.done + progress.known} of {progress.jobs}, {eta:.0f} s", file=sys.stderr)


def _check(report: SweepReport, store: Path) -> None:
    """Every job has exactly one row, and the file is sound."""
    jobs = report.models * len(TARGETS) * len(BUDGETS)
    assert len({row.key for row in report.rows}) == len(report.rows) == jobs
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def render(report: SweepReport, files: int, wall_s: float) -> str:
    """The page: counts, times, what failed, the slowest models."""
    rows = report.rows
    work_s = sum(row.seconds for row in rows)
    count = Counter(row.status for row in rows)
    run = f"{wall_s:.0f} s"
    if report.known_before:
        run += f" for the {len(rows) - report.known_before} jobs that the store did not know"
    lines = [
        "# A sweep of the corpus",
        "",
        f"npusched {npusched.__version__}, ethos-u-vela {version('ethos-u-vela')}, "
        f"{datetime.now(UTC).date()}. Regenerate: `python -m benchmarks.corpus_sweep`.",
        "",
        f"{files} files ({report.models} distinct models) on {len(TARGETS)} targets within "
        f"{len(BUDGETS)} budgets: {len(rows)} jobs, each with exactly one row: "
        f"{count['ok']} with a plan, {count['infeasible']} whose budget is too small, "
        f"{count['error']} errors. Planning them again from the same store plans nothing.",
        "",
        f"Time of the sweep: {run}; of all jobs together {work_s:.0f} s. (Whatever else ran on "
        "the machine is in both.)",
        "",
        *_groups(report.targets, report.budgets),
        "",
        *_slowest(rows),
        "",
        *_dominated(rows),
        *_errors(rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _groups(targets: Sequence[SweepGroup], budgets: Sequence[SweepGroup]) -> list[str]:
    lines = [
        "| target | budget | jobs | plan | too small | error | optimal | Vela's | latency "
        "| slower |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for group in (*budgets, *targets):
        budget = "all" if group.budget_bytes is None else human_bytes(group.budget_bytes)
        latency = group.geomean_latency_s
        lines.append(
            f"| {group.target} | {budget} | {group.jobs} | {group.ok} | {group.infeasible} | "
            f"{group.errors} | {group.optimal} | {group.vela_plans} | "
            f"{'-' if latency is None else human_seconds(latency)} | "
            f"{'-' if group.slowdown is None else f'{group.slowdown:.3f}'} |"
        )
    return [
        *lines,
        "",
        "optimal: plans proved optimal in their scope. Vela's: its own schedule was the better "
        "plan. latency: geometric mean of the jobs with a plan. slower: geometric mean of latency "
        "/ the same model's least on that target.",
    ]


def _slowest(rows: Sequence[SweepRow]) -> list[str]:
    """Models that took longest, over all targets and budgets."""
    seconds: Counter[str] = Counter()
    for row in rows:
        seconds[row.model] += row.seconds  # type: ignore[assignment]
    lines = ["| slowest models | seconds of all jobs | slowest job |", "|---|---:|---:|"]
    for model, total in seconds.most_common(SLOWEST):
        worst = max(row.seconds for row in rows if row.model == model)
        lines.append(f"| {model} | {total:.1f} | {worst:.1f} |")
    return lines


def _dominated(rows: Sequence[SweepRow]) -> list[str]:
    """Budgets whose plan is worse than that of a smaller one.

    Each budget lets the schedule compete that Vela finds for it; a smaller one may find a better.
    """
    plans: dict[tuple[str, str], list[SweepRow]] = {}
    for row in rows:
        if row.status == "ok":
            plans.setdefault((row.model_sha256, row.target_sha256), []).append(row)
    worse = []
    for group in plans.values():
        group.sort(key=lambda row: row.budget_bytes or 0)
        for small, large in pairwise(group):
            if (large.value or 0.0) > (small.value or 0.0) * (1 + 1e-9):
                worse.append((small, large))
    lines = [f"Budgets with a worse plan than the next smaller one: {len(worse)}."]
    for small, large in worse:
        lines.append(
            f"\n* {large.model} on {large.target}: {large.value:.0f} within "
            f"{human_bytes(large.budget_bytes or 0)}, {small.value:.0f} ({small.plan_source}) "
            f"within {human_bytes(small.budget_bytes or 0)}"
        )
    return lines


def _errors(rows: Sequence[SweepRow]) -> list[str]:
    failed: dict[tuple[str, str], SweepRow] = {}
    for row in rows:
        if row.status == "error":
            failed.setdefault((row.model, row.error), row)
    if not failed:
        return []
    lines = ["", "| model | error |", "|---|---|"]
    return lines + [f"| {model} | {error.replace('|', ' ')} |" for model, error in failed]


if __name__ == "__main__":
    main()
