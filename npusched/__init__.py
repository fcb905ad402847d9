"""Plan quantised networks on Arm Ethos-U NPUs.

``plan("model.tflite", "ethos-u55-128", sram="64KiB")`` returns a ``PlanReport``; what cannot be
planned raises an ``NpuschedError``. Members are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.api import check, compare, diff, emit, fold, frontier, plan, prove_plan, tune
    from npusched.batch import sweep
    from npusched.errors import (
        EmitError,
        InfeasibleError,
        ModelError,
        NpuschedError,
        SimError,
        TargetError,
        VelaError,
    )
    from npusched.hardware import Target, load_target, target_names
    from npusched.report import PlanReport, plan_schema, render_json, render_text
    from npusched.report.check_types import CheckReport
    from npusched.report.compare_types import CompareReport
    from npusched.report.diff_types import DiffReport
    from npusched.report.emit_types import EmitReport
    from npusched.report.frontier_types import FrontierReport
    from npusched.report.plan_proof_types import PlanProofReport
    from npusched.report.sweep_types import SweepReport
    from npusched.report.tune_types import TuneReport

__version__ = "0.1.0"

__all__ = [
    "CheckReport",
    "CompareReport",
    "DiffReport",
    "EmitError",
    "EmitReport",
    "FrontierReport",
    "InfeasibleError",
    "ModelError",
    "NpuschedError",
    "PlanProofReport",
    "PlanReport",
    "SimError",
    "SweepReport",
    "Target",
    "TargetError",
    "TuneReport",
    "VelaError",
    "__version__",
    "check",
    "compare",
    "diff",
    "emit",
    "fold",
    "frontier",
    "load_target",
    "plan",
    "plan_schema",
    "prove_plan",
    "render_json",
    "render_text",
    "sweep",
    "target_names",
    "tune",
]

_HOMES = {
    "CheckReport": "report.check_types",
    "CompareReport": "report.compare_types",
    "DiffReport": "report.diff_types",
    "EmitError": "errors",
    "EmitReport": "report.emit_types",
    "FrontierReport": "report.frontier_types",
    "InfeasibleError": "errors",
    "ModelError": "errors",
    "NpuschedError": "errors",
    "PlanProofReport": "report.plan_proof_types",
    "PlanReport": "report",
    "SimError": "errors",
    "SweepReport": "report.sweep_types",
    "Target": "hardware",
    "TargetError": "errors",
    "TuneReport": "report.tune_types",
    "VelaError": "errors",
    "check": "api",
    "compare": "api",
    "diff": "api",
    "fold": "api",
    "frontier": "api",
    "load_target": "hardware",
    "plan": "api",
    "plan_schema": "report",
    "prove_plan": "api",
    "render_json": "report",
    "render_text": "report",
    "sweep": "batch",
    "target_names": "hardware",
    "tune": "api",
}


def __getattr__(name: str) -> object:
    if name == "emit":  # a package that is callable
        return import_module("npusched.emit")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
