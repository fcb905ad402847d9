"""What the command line and Python programs call.

Members are imported on first use: planning needs neither a referee nor a writer of models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.api.budgets import frontier, frontier_report
    from npusched.api.caching import cache_clear, cache_info
    from npusched.api.checking import baseline_of, check, check_report, limits_of
    from npusched.api.comparing import compare, compare_report
    from npusched.api.diffing import diff, diff_report
    from npusched.api.emitting import (
        EmitResult,
        EmitSettings,
        emit,
        emit_report,
        sidecar_of,
    )
    from npusched.api.executing import npz_bytes, prove_report, run_compiled
    from npusched.api.folding import FoldResult, fold
    from npusched.api.inspecting import inspect_report, inspect_trace
    from npusched.api.options import PlanOptions
    from npusched.api.planning import plan, plan_report
    from npusched.api.proving import prove_plan, prove_plan_report
    from npusched.api.tuning import tune, tune_report
    from npusched.api.tuning_matrix import targets_of, tune_matrix

__all__ = [
    "EmitResult",
    "EmitSettings",
    "FoldResult",
    "PlanOptions",
    "baseline_of",
    "cache_clear",
    "cache_info",
    "check",
    "check_report",
    "compare",
    "compare_report",
    "diff",
    "diff_report",
    "emit",
    "emit_report",
    "fold",
    "frontier",
    "frontier_report",
    "inspect_report",
    "inspect_trace",
    "limits_of",
    "npz_bytes",
    "plan",
    "plan_report",
    "prove_plan",
    "prove_plan_report",
    "prove_report",
    "run_compiled",
    "sidecar_of",
    "targets_of",
    "tune",
    "tune_matrix",
    "tune_report",
]

_HOMES = {
    "EmitResult": "emitting",
    "EmitSettings": "emitting",
    "FoldResult": "folding",
    "PlanOptions": "options",
    "baseline_of": "checking",
    "cache_clear": "caching",
    "cache_info": "caching",
    "check": "checking",
    "check_report": "checking",
    "compare": "comparing",
    "compare_report": "comparing",
    "diff": "diffing",
    "diff_report": "diffing",
    "emit": "emitting",
    "emit_report": "emitting",
    "fold": "folding",
    "frontier": "budgets",
    "frontier_report": "budgets",
    "inspect_report": "inspecting",
    "inspect_trace": "inspecting",
    "limits_of": "checking",
    "npz_bytes": "executing",
    "plan": "planning",
    "plan_report": "planning",
    "prove_plan": "proving",
    "prove_plan_report": "proving",
    "prove_report": "executing",
    "run_compiled": "executing",
    "sidecar_of": "emitting",
    "targets_of": "tuning_matrix",
    "tune": "tuning",
    "tune_matrix": "tuning_matrix",
    "tune_report": "tuning",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
