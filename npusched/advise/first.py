"""What every plan says of changes: what a glance at it tells, and what folding would gain.

Silent where there is nothing to say. An effect is only stated where the change was planned; the
other notes say what ``npusched advise`` then weighs.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from npusched.advise.types import Advice, Confidence, Effect, Severity
from npusched.errors import InfeasibleError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Layout, Placement
from npusched.hardware import Target
from npusched.ir import Subgraph
from npusched.schedule import BufferKind, Plan

PADDING_SHARE = 0.10
"""Padding below this share of the peak is not worth a word."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what it is about. ``folded`` plans the model with its batch norms folded.

    (None where there is nothing to fold.)
    """

    subgraph: Subgraph
    graph: OpGraph
    target: Target
    plan: Plan
    foldable: int
    folded: Callable[[], Plan] | None


def advise(situation: Situation) -> tuple[Advice, ...]:
    """All advice, warnings first."""
    found = [
        *_float_model(situation),
        *_batch_norms(situation),
        *_cpu_islands(situation),
        *_padding(situation),
    ]
    return tuple(sorted(found, key=lambda advice: advice.severity is Severity.INFO))


def _float_model(situation: Situation) -> list[Advice]:
    """NS001: a target with an NPU, and nothing that it can run."""
    graph = situation.graph
    if situation.target.accelerator is None or not graph.ops:
        return []
    if any(op.placement is Placement.NPU for op in graph.ops):
        return []
    floats = [t for t in situation.subgraph.tensors if t.dtype.is_float and not t.is_constant]
    if not floats:
        return []
    return [
        Advice(
            id="NS001",
            severity=Severity.WARNING,
            message="no op runs on the NPU because the model is in floating point: quantise it "
            "to int8 (post-training, with a representative data set)",
            effect=Effect(),
            confidence=Confidence.HIGH,
        )
    ]


def _batch_norms(situation: Situation) -> list[Advice]:
    """NS102: batch norms that ``npusched fold`` can take away."""
    if situation.folded is None:
        return []
    try:
        after, before = situation.folded(), situation.plan
    except InfeasibleError:  # a budget that only just holds may not hold the folded weights
        return []
    cycles = after.amounts.npu_cycles - before.amounts.npu_cycles
    if after.objective >= before.objective:
        return []
    count = situation.foldable
    return [
        Advice(
            id="NS102",
            severity=Severity.WARNING,
            message=f"{count} batch norm{' is' if count == 1 else 's are'} left as MUL+ADD: "
            f"'npusched fold' puts {'it' if count == 1 else 'them'} into the weights "
            f"({cycles:+,} cycles; results may move by some LSB)",
            effect=Effect(
                sram_bytes=after.sram_peak_bytes - before.sram_peak_bytes,
                cycles=cycles,
                energy_nj=after.amounts.energy_nj[1] - before.amounts.energy_nj[1],
            ),
            confidence=Confidence.HIGH,
        )
    ]


def _cpu_islands(situation: Situation) -> list[Advice]:
    """NS103: ops on the CPU that cut the NPU's work into several calls."""
    graph = situation.graph
    if graph.npu_invocations < 2:
        return []
    inner = sorted(
        {
            ref[1]
            for part in graph.partitions[1:-1]
            if part.placement is Placement.CPU
            for op in graph.ops[part.first : part.end]
            for ref in op.source_ops
        }
    )
    if not inner:
        return []
    first = situation.subgraph.ops[inner[0]]
    handed = sum(hand.size_bytes for hand in graph.hand_offs)
    saved = (graph.npu_invocations - 1) * situation.target.cpu.npu_invoke_cycles
    reasons = graph.sources[inner[0]].cpu_reasons
    fix = f": {reasons[0].fix}" if reasons and reasons[0].fix else ""
    return [
        Advice(
            id="NS103",
            severity=Severity.INFO,
            message=f"{len(inner)} op{'' if len(inner) == 1 else 's'} on the CPU "
            f"(#{inner[0]} {first.custom_code or first.kind.value}, ...) cut the NPU's work into "
            f"{graph.npu_invocations} calls, hand over {handed:,} bytes and cost about "
            f"{saved:,.0f} CPU cycles in calls alone{fix}",
            effect=Effect(),
            confidence=Confidence.MEDIUM,
        )
    ]


def _padding(situation: Situation) -> list[Advice]:
    """NS101: channel padding that makes a good part of the peak."""
    plan, graph = situation.plan, situation.graph
    if not plan.segments or not plan.sram_peak_bytes:
        return []
    maps = [b for b in plan.in_memory(plan.budget_memory) if b.kind is BufferKind.FEATURE_MAP]

    def alive(step: int) -> int:
        return sum(b.size_bytes for b in maps if b.first_step <= step < b.end_step)

    peak = max(range(len(plan.segments)), key=alive)
    wasted = {
        b.tensor: b.size_bytes - graph.feature_maps[b.tensor].logical_bytes
        for b in maps
        if b.first_step <= peak < b.end_step
        and graph.feature_maps[b.tensor].layout is Layout.NHCWB16
    }
    total = sum(wasted.values())
    if total < PADDING_SHARE * plan.sram_peak_bytes:
        return []
    worst = graph.feature_maps[max(wasted, key=lambda tensor: wasted[tensor])]
    channels = worst.shape[3]
    rounded = -(-channels // 16) * 16
    below = rounded - 16
    change = f"{rounded} would cost no more" + (f", {below} would save them" if below else "")
    return [
        Advice(
            id="NS101",
            severity=Severity.INFO,
            message=f"{total:,} bytes of the peak are padding: {channels} "
            f"channel{' is' if channels == 1 else 's are'} stored as {rounded} (bricks of 16); "
            f"{change}",
            effect=Effect(),
            confidence=Confidence.MEDIUM,
        )
    ]
