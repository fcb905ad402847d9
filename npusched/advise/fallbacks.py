"""Rules about ops on the CPU: the same written so that the NPU runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from npusched.advise.types import Case, Change, Confidence, Proposal, Rule, Severity
from npusched.graph.edits import legal, pools, subpixel
from npusched.graph.edits.uses import label
from npusched.graph.opgraph import SourcePlacement
from npusched.graph.types import Placement
from npusched.ir import Model, Op, OpKind

MAX_PLACES = 12
"""Most ops on the CPU that are looked at."""

_EQUAL = "results stay the same"
_STEP = "results may move by a step"

REMEDIES: Final[tuple[tuple[str, Callable[[Model, int, int], bytes | None], str], ...]] = (
    ("pad with a PAD before it, and convolve with VALID padding", legal.padded_apart, _EQUAL),
    ("stride in two steps (a pool of 1x1 skips the rest)", legal.strided_in_two, _EQUAL),
    ("pad with a PADV2 before it, and pool with VALID padding", legal.padded_pool_apart, _EQUAL),
    ("a convolution per phase, interleaved", subpixel.subpixel_transpose_conv, _EQUAL),
    ("single slices, joined in the other order", legal.slices_of_reversed, _EQUAL),
    ("QUANTIZE its inputs to the scale of the result", legal.requantised_operands, _STEP),
    ("take the MEAN before the TRANSPOSE", legal.mean_before_transpose, _STEP),
    ("an average pool", pools.mean_as_pool, _STEP),
    ("one axis after the other", legal.mean_in_two, _STEP),
    ("a MEAN", pools.pool_as_mean, _STEP),
)
"""(what is done, the edit, what results do) for ops that break a limit."""


NO_PATH: Final = "op_kind"
"""Limit of ops that the NPU runs in no form."""

_NOT_OURS: Final = frozenset({NO_PATH, "feature_map_type", "no_npu"})
"""Limits that another form of the same op cannot keep."""


def _on_cpu(case: Case, *, no_path: bool = False) -> list[Op]:
    """Ops that the CPU runs because of a limit (or because the NPU has no path for the kind)."""
    if case.target.accelerator is None:
        return []
    found = []
    for source in case.graph.sources:
        if source.placement is SourcePlacement.CPU and source.cpu_reasons:
            limit = source.cpu_reasons[0].limit
            if limit == NO_PATH if no_path else limit not in _NOT_OURS:
                found.append(case.subgraph.ops[source.ref[1]])
    return found[:MAX_PLACES]


def _why(case: Case, op: Op) -> str:
    reason = case.graph.sources[op.index].cpu_reasons[0]
    return f"{label(op)} runs on the CPU ({reason.limit.replace('_', ' ')}: {reason.value})"


def _pools(case: Case) -> list[Proposal]:
    """NS107: pools beyond the window in two steps."""
    found = []
    for op in _on_cpu(case):
        for text, content in pools.pools_in_two(case.model, case.graph.subgraph, op.index):
            exact = op.kind is OpKind.MAX_POOL_2D
            found.append(
                Proposal(
                    rule="NS107",
                    group=f"cpu {op.index}",
                    what=f"{_why(case, op)}: pool in two steps, {text}",
                    change=Change(content=content),
                    severity=Severity.WARNING,
                    price=_EQUAL if exact else _STEP,
                )
            )
    return found


def _limits(case: Case) -> list[Proposal]:
    """NS108: other limits, each by ops of the same shape that keep them."""
    found = []
    for op in _on_cpu(case):
        for text, edit, price in REMEDIES:
            content = edit(case.model, case.graph.subgraph, op.index)
            if content is not None:
                found.append(
                    Proposal(
                        rule="NS108",
                        group=f"cpu {op.index}",
                        what=f"{_why(case, op)}: {text}",
                        change=Change(content=content),
                        severity=Severity.WARNING,
                        price=price,
                    )
                )
    return found


def _islands(case: Case) -> list[Proposal]:
    """NS103: an op that the NPU has no path for, with NPU work before and behind it."""
    npu = [op.id for op in case.graph.ops if op.placement is Placement.NPU]
    found = []
    for op in _on_cpu(case, no_path=True):
        made = case.graph.sources[op.index].scheduled_ops
        if not npu or not made or not npu[0] < made[0] < npu[-1]:
            continue
        content = legal.as_table(case.model, case.graph.subgraph, op.index)
        if content is not None:
            found.append(
                Proposal(
                    rule="NS103",
                    group=f"cpu {op.index}",
                    what=f"{label(op)} runs on the CPU and cuts the NPU's work in two: if a "
                    "function of one value can stand for it, the NPU runs that from a table",
                    change=Change(content=content),
                    confidence=Confidence.LOW,
                    price="a table was planned in its place",
                )
            )
    return found


RULES = (
    Rule(
        id="NS103",
        title="a custom op between NPU ops",
        when="an op that the NPU has no path for keeps its input's shape, amid NPU ops",
        plans="a table op in its place",
        propose=_islands,
    ),
    Rule(
        id="NS107",
        title="pools beyond the limits",
        when="a pool runs on the CPU because of its window",
        plans="two pools that do the same, in up to three ways",
        propose=_pools,
    ),
    Rule(
        id="NS108",
        title="ops beyond a limit",
        when="an op runs on the CPU because of a stride, an axis or a quantisation, and ops that "
        "the NPU runs can do the same",
        plans="these in its place",
        propose=_limits,
    ),
)
