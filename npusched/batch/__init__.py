"""Many models on many targets within many budgets: jobs, the store of results, who works."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.batch.jobs import SweepPlan, plan_sweep
    from npusched.batch.sweeping import SweepProgress, run_sweep, show_sweep, sweep, workers_of

__all__ = [
    "SweepPlan",
    "SweepProgress",
    "plan_sweep",
    "run_sweep",
    "show_sweep",
    "sweep",
    "workers_of",
]

_HOMES = {
    "SweepPlan": "jobs",
    "SweepProgress": "sweeping",
    "plan_sweep": "jobs",
    "run_sweep": "sweeping",
    "show_sweep": "sweeping",
    "sweep": "sweeping",
    "workers_of": "sweeping",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
