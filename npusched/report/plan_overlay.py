"""Figures for Model Explorer: custom node data, keyed by op index.

Model Explorer's built-in adapter names a node of a ``.tflite`` graph by the index of its op, and
the graph by the subgraph's name, or "main" where the file gives none. Load the file with
``model-explorer model.tflite --node_data_paths=overlay.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from npusched.report.types import OpFacts, PlanReport, SourceOp
from npusched.report.units import plain_text

OverlayMetric: TypeAlias = Literal["cycles", "macs", "offchip", "sram", "bound-by", "placement"]

OVERLAY_METRICS: Final[tuple[OverlayMetric, ...]] = (
    "cycles",
    "macs",
    "offchip",
    "sram",
    "bound-by",
    "placement",
)
"""What a node can show; the numbers get a gradient, the words a colour each."""

_TITLES: Final = {
    "cycles": "cycles (NPU and CPU, predicted)",
    "macs": "MACs",
    "offchip": "off-chip bytes (predicted)",
    "sram": "bytes alive in the budget memory",
    "bound-by": "bound by",
    "placement": "placement",
}

_GRADIENT: Final = ({"stop": 0, "bgColor": "#f6f3e7"}, {"stop": 1, "bgColor": "#d9762b"})

_COLOURS: Final = ("#7aa6c2", "#e3b04b", "#86b38a", "#cf8a8a", "#b39bc8", "#9aa0a6", "#c9a27e")


def render_plan_overlay(report: PlanReport, *, metric: OverlayMetric = "cycles") -> str:
    """Return the node data of one metric as JSON. Views and folded ops have no entry."""
    ops = {op.id: op for op in report.ops}
    values: dict[str, int | str] = {}
    for source in report.source_ops:
        own = [ops[number] for number in source.scheduled_ops if _owner(ops[number], source)]
        if own:
            values[str(source.index)] = _VALUES[metric](report, own)
    form: dict[str, object] = {"name": f"npusched {_TITLES[metric]}"}
    if all(isinstance(value, int) for value in values.values()):
        form["results"] = {node: {"value": value} for node, value in values.items()}
        form["gradient"] = list(_GRADIENT)
    else:
        words = sorted({str(value) for value in values.values()})
        colour = {word: _COLOURS[k % len(_COLOURS)] for k, word in enumerate(words)}
        form["results"] = {
            node: {"value": value, "bgColor": colour[str(value)]} for node, value in values.items()
        }
    return json.dumps({report.model.subgraph_name or "main": form}, indent=2) + "\n"


def _owner(op: OpFacts, source: SourceOp) -> bool:
    """True if the op's work is counted for this source op: the first of those fused into it."""
    return op.source_ops[:1] == ((source.subgraph, source.index),)


def _offchip(report: PlanReport, ops: list[OpFacts]) -> int:
    chip = {memory.name for memory in report.target.memories if memory.kind.value == "sram"}
    return sum(
        size
        for op in ops
        for moved in (op.bytes_read, op.bytes_written)
        for name, size in moved.items()
        if name not in chip
    )


def _slowest(ops: list[OpFacts]) -> OpFacts:
    return max(ops, key=lambda op: op.cycles + op.cpu_cycles)


_VALUES: Final[dict[OverlayMetric, Callable[[PlanReport, list[OpFacts]], int | str]]] = {
    "cycles": lambda _, ops: sum(op.cycles + op.cpu_cycles for op in ops),
    "macs": lambda _, ops: sum(op.macs for op in ops),
    "offchip": _offchip,
    "sram": lambda report, ops: max(report.live_sram_bytes[op.segment] for op in ops),
    "bound-by": lambda _, ops: plain_text(_slowest(ops).bound_by, 16),
    "placement": lambda _, ops: _slowest(ops).placement,
}
