"""Plan quantised networks on Arm Ethos-U NPUs.

``plan("model.tflite", "ethos-u55-128", sram="64KiB")`` returns a ``PlanReport``; what cannot be
planned raises an ``NpuschedError``. Members are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.api import (
        advice,
        check,
        compare,
        diff,
        emit,
        explain,
        fold,
        frontier,
        inspect,
        plan,
        prove,
        prove_plan,
        tune,
    )
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
    from npusched.report import PlanReport, plan_schema, render_html, render_json, render_text
    from npusched.report.advice_types import AdviceReport
    from npusched.report.check_types import CheckReport
    from npusched.report.compare_types import CompareReport
    from npusched.report.diff_types import DiffReport
    from npusched.report.emit_types import EmitReport
    from npusched.report.execution_types import InspectReport, ProveReport
    from npusched.report.explain_types import ExplainReport
    from npusched.report.frontier_types import FrontierReport
    from npusched.report.plan_proof_types import PlanProofReport
    from npusched.report.sweep_types import SweepReport
    from npusched.report.tune_types import TuneReport

__version__ = "0.1.0"

__all__ = [
    "AdviceReport",
    "CheckReport",
    "CompareReport",
    "DiffReport",
    "EmitError",
    "EmitReport",
    "ExplainReport",
    "FrontierReport",
    "InfeasibleError",
    "InspectReport",
    "ModelError",
    "NpuschedError",
    "PlanProofReport",
    "PlanReport",
    "ProveReport",
    "SimError",
    "SweepReport",
    "Target",
    "TargetError",
    "TuneReport",
    "VelaError",
    "__version__",
    "advice",
    "check",
    "compare",
    "diff",
    "emit",
    "explain",
    "fold",
    "frontier",
    "inspect",
    "load_target",
    "plan",
    "plan_schema",
    "prove",
    "prove_plan",
    "render_html",
    "render_json",
    "render_text",
    "sweep",
    "target_names",
    "tune",
]

_HOMES = {
    "AdviceReport": "report.advice_types",
    "CheckReport": "report.check_types",
    "CompareReport": "report.compare_types",
    "DiffReport": "report.diff_types",
    "ExplainReport": "report.explain_types",
    "EmitError": "errors",
    "EmitReport": "report.emit_types",
    "FrontierReport": "report.frontier_types",
    "InfeasibleError": "errors",
    "InspectReport": "report.execution_types",
    "ModelError": "errors",
    "NpuschedError": "errors",
    "PlanProofReport": "report.plan_proof_types",
    "PlanReport": "report",
    "ProveReport": "report.execution_types",
    "SimError": "errors",
    "SweepReport": "report.sweep_types",
    "Target": "hardware",
    "TargetError": "errors",
    "TuneReport": "report.tune_types",
    "VelaError": "errors",
    "advice": "api",
    "check": "api",
    "compare": "api",
    "diff": "api",
    "emit": "api",
    "explain": "api",
    "fold": "api",
    "frontier": "api",
    "inspect": "api",
    "load_target": "hardware",
    "plan": "api",
    "plan_schema": "report",
    "prove": "api",
    "prove_plan": "api",
    "render_html": "report",
    "render_json": "report",
    "render_text": "report",
    "sweep": "batch",
    "target_names": "hardware",
    "tune": "api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
