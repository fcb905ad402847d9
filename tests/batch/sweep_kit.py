"""A small sweep that several tests run: three models, one of them rubbish, on two targets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from npusched.api import PlanOptions
from npusched.batch.jobs import SweepPlan, plan_sweep
from npusched.batch.store import reading
from npusched.report.sweep_types import SweepRow

TARGETS = ("ethos-u55-128", "ethos-u65-256")
BUDGETS = ("2KiB", "16KiB", None)
OPTIONS = PlanOptions(use_vela=False, candidates="none")
RUBBISH = bytes(range(256)) * 8


def small_plan(folder: Path, *more: str) -> SweepPlan:
    """18 jobs (and more): 6 of them errors, and at least one whose budget is too small."""
    bad = folder / "bad.tflite"
    bad.write_bytes(RUBBISH)
    return plan_sweep([bad, "demo:chain:4", "demo:ds_cnn", *more], TARGETS, BUDGETS, OPTIONS)


def stored(path: Path) -> list[SweepRow]:
    """All rows of a store, in its order."""
    with reading(path) as store:
        return list(store.rows())


def figures(rows: Iterable[SweepRow]) -> list[tuple[object, ...]]:
    """What must be the same whoever planned it: all but the clock."""
    clock = ("finished_at", "seconds")
    fields = [name for name in SweepRow.__struct_fields__ if name not in clock]
    return sorted((tuple(getattr(row, name) for name in fields) for row in rows), key=repr)
