"""What figures and tables call the parts of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npusched.report.types import AllocationFacts, OpFacts, PlanReport, SegmentFacts
from npusched.report.units import human_bytes, plain_text, short_name

BUFFER_CLASSES: Final = {"feature_map": "c1", "rolling": "c2", "weights": "c3", "lut": "c4"}
BUFFER_NAMES: Final = {
    "feature_map": "feature map",
    "rolling": "rolling rows",
    "weights": "weights",
    "lut": "table",
}


def bound_name(bound: str) -> str:
    """``bound_by`` in words."""
    named = {"mac": "MAC array", "output": "output stage", "cpu": "CPU"}
    return named.get(bound, plain_text(bound, 16))


def bound_style(bound: str) -> tuple[int, str]:
    """Shape (see ``draw.dot``) and colour class of what a kernel waits for."""
    styles = {"mac": (0, "c1"), "output": (1, "c2"), "weights": (3, "c3"), "elementwise": (4, "c7")}
    return styles.get(bound, (2, "c5"))


def op_number(op: OpFacts) -> str:
    """Number of the kernel's first op in the file: #12; "" for kernels without one."""
    return f"#{op.source_ops[0][1]}" if op.source_ops else ""


def op_title(op: OpFacts) -> str:
    """Number, kind and name of a kernel: #3 Conv2D+Relu conv_2d3."""
    kind = "+".join(plain_text(part, 32) for part in (op.kind, *op.fused))
    return " ".join(part for part in (op_number(op), kind, short_name(op.name, 40)) if part)


def ops_of_segments(report: PlanReport) -> list[list[OpFacts]]:
    """The kernels of every segment, in order."""
    by_id = {op.id: op for op in report.ops}
    return [[by_id[v] for v in segment.ops] for segment in report.segments]


def segment_range(segment: SegmentFacts) -> str:
    """The source ops of a segment: #3 or #3-#5; "" if it has none."""
    refs = [index for _, index in segment.source_ops]
    if not refs:
        return ""
    return f"#{refs[0]}" if refs[0] == refs[-1] else f"#{refs[0]}-#{refs[-1]}"


def shape_text(shape: Sequence[int]) -> str:
    """Height x width x channels of a shape (n, h, w, c)."""
    return "×".join(str(size) for size in shape[1:]) or "scalar"


def buffer_lines(item: AllocationFacts, when: str) -> list[str]:
    """What is said of a buffer: name, size, address, padding, and when it is alive."""
    size = f"{BUFFER_NAMES[item.kind]}, {human_bytes(item.size_bytes)}"
    if item.rows and item.kind == "rolling":
        size = f"{item.rows} rolling rows, {human_bytes(item.size_bytes)}"
    padding = item.size_bytes - item.logical_bytes
    lines = [
        short_name(item.tensor, 60),
        f"{size} at {item.offset:,}".replace(",", " "),
    ]
    if padding > 0:
        lines.append(f"{human_bytes(padding)} of it are padding")
    return [*lines, when]
