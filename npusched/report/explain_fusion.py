"""The plan's chains, and why every segment ends where it does."""

from __future__ import annotations

from npusched.graph.edits.norms import forward_norms
from npusched.graph.fold import fold_batch_norms
from npusched.graph.types import Placement
from npusched.report.explain_inputs import Explained
from npusched.report.explain_op import kernels_of
from npusched.report.explain_types import ChainEnd, ChainFacts, FusionFacts, NormFacts
from npusched.schedule import BufferKind, whole_cost
from npusched.schedule.boundaries import Boundary, EndReason, boundaries_of

Ref = tuple[int, int]


def build_fusion(about: Explained) -> FusionFacts:
    """Return chains, ends, and batch norms that are ops of their own."""
    found = boundaries_of(about.own, about.plan, about.limit_bytes) if about.plan.segments else []
    return FusionFacts(
        chains=tuple(
            _chain(about, k) for k, each in enumerate(about.plan.segments) if len(each.ops) > 1
        ),
        ends=tuple(_end(about, boundary) for boundary in found),
        segments=len(about.plan.segments),
        batch_norms=_norms(about),
    )


def _norms(about: Explained) -> tuple[NormFacts, ...]:
    """Batch norms, with the op before or behind that could take them."""
    folded, left = fold_batch_norms(about.subgraph)
    before = {item.removed: item.op for item in folded}
    behind = {each.norm.ops: each.linear for each in forward_norms(about.subgraph)}
    blockers = {norm.ops: why for norm, why in left}
    found = []
    for ops in sorted({*before, *blockers}):
        kernels = [v for index in ops for v in kernels_of(about, index)]
        found.append(
            NormFacts(
                source_ops=ops,
                cycles=sum(about.runs[v].amounts.npu_cycles for v in dict.fromkeys(kernels)),
                into=before.get(ops, behind.get(ops)),
                where="before" if ops in before else "behind" if ops in behind else "",
                blocker=blockers.get(ops, ""),
            )
        )
    return tuple(found)


def _chain(about: Explained, k: int) -> ChainFacts:
    segment = about.plan.segments[k]
    segments = about.own.segments
    rolling = [
        buffer
        for buffer in about.plan.buffers
        if buffer.kind is BufferKind.ROLLING and buffer.first_step == k
    ]
    maps = {buffer.tensor for buffer in rolling}
    return ChainFacts(
        segment=k,
        source_ops=tuple(sorted({r for v in segment.ops for r in about.graph.ops[v].source_ops})),
        ops=len(segment.ops),
        stripes=segment.stripes,
        stripe_rows=segment.stripe_rows,
        sram_bytes=segment.sram_bytes,
        rolling_bytes=sum(buffer.size_bytes for buffer in rolling),
        cycles=segment.amounts.npu_cycles,
        unfused_cycles=sum(whole_cost(segments, v).npu_cycles for v in segment.ops),
        kept_bytes=sum(about.graph.feature_maps[t].logical_bytes for t in maps),
    )


def _end(about: Explained, boundary: Boundary) -> ChainEnd:
    plan, k = about.plan, boundary.segment
    last = plan.segments[k].ops[-1]
    following = plan.segments[k + 1].ops[0] if k + 1 < len(plan.segments) else None
    planned = boundary.grown is not None
    return ChainEnd(
        segment=k,
        last_op=_ref(about, last),
        next_op=None if following is None else _ref(about, following),
        last_kind=_kind(about, last),
        next_kind="" if following is None else _kind(about, following),
        reason=boundary.reason.value,
        why=_why(about, boundary),
        cycles_change=boundary.cycles_change if planned else None,
        offchip_change_bytes=boundary.offchip_change_bytes if planned else None,
        objective_change=boundary.score_change if planned else None,
        needed_sram_bytes=_needed(about, boundary) if planned else None,
    )


def _needed(about: Explained, boundary: Boundary) -> int:
    """SRAM of the best longer segment; of one that does not fit, the least that it needs."""
    if boundary.reason is EndReason.BUDGET:
        return boundary.least_sram_bytes + about.own.shared_bytes
    return boundary.sram_bytes + about.own.shared_bytes


def _why(about: Explained, boundary: Boundary) -> str:
    match boundary.reason:
        case EndReason.NETWORK_ENDS:
            return "the network ends"
        case EndReason.LENGTH:
            return f"segments of more than {about.own.segments.cap} ops are not looked at"
        case EndReason.BARRIER:
            assert boundary.stop is not None
            ref = _ref(about, boundary.stop.op)
            where = "" if ref is None else f"#{ref[1]} {about.kind_of(ref)}: "
            return where + boundary.stop.text
        case EndReason.BUDGET:
            return "a longer chain does not fit the budget"
        case EndReason.COSTS:
            return "a longer chain fits, and is worse"


def _ref(about: Explained, v: int) -> Ref | None:
    refs = about.graph.ops[v].source_ops
    return refs[0] if refs else None


def _kind(about: Explained, v: int) -> str:
    op = about.graph.ops[v]
    if op.placement is Placement.CPU and op.source_ops:
        return about.kind_of(op.source_ops[0])
    return op.kind.value
