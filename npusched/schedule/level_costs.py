"""What each fusion level costs: the plan's own kernels, arranged as the level runs them."""

from __future__ import annotations

from npusched.cost.cpu import host_cycles
from npusched.cost.energy import energy_of
from npusched.cost.op_cost import op_cost
from npusched.cost.types import Basis, CostFm, CostOp
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import NOT_STORED, KernelKind, ScheduledOp
from npusched.ir import DataType, Subgraph
from npusched.ops import CostClass, HostWork
from npusched.schedule.levels import Level, source_levels
from npusched.schedule.rows import Policy, chain_runs, stripe_candidates
from npusched.schedule.segments import Segments
from npusched.schedule.types import Amounts, Plan, WeightMode, add_amounts

NPU_TYPES = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16})
"""Types that an activation of its own can have on the NPU (LOWERING §2)."""

_WIDEST_PASS_BITS = 16


def fusion_levels(
    subgraph: Subgraph, segments: Segments, folded: Segments, plan: Plan
) -> tuple[Level, ...]:
    """All levels of a network. ``folded``: the segments of the graph with batch norms folded.

    (The same object as ``segments`` where there is none to fold.)
    """
    own = SourceCosts(subgraph, segments)
    return (
        *source_levels(subgraph, own.of_op, own.of_activation),
        _kernels_alone(segments),
        _maximal_chains(folded),
        Level(
            level="plan",
            traffic_bytes=_plan_traffic(segments.graph, plan),
            dispatches=sum(run.runs for segment in plan.segments for run in segment.runs),
            amounts=plan.amounts,
        ),
    )


class SourceCosts:
    """Costs of source ops, each run on its own with streamed weights and maps in the arena."""

    def __init__(self, subgraph: Subgraph, segments: Segments) -> None:
        self.subgraph = subgraph
        self.segments = segments
        self.target = segments.target
        self._parts: dict[int, list[Amounts]] = {}
        for v, op in enumerate(segments.graph.ops):
            if op.source_ops:
                owner = op.source_ops[0][1]
                self._parts.setdefault(owner, []).append(whole_cost(segments, v))
            for sub in op.sub_ops:
                owners = [ref[1] for ref in sub.source_ops if ref not in op.source_ops]
                for owner in owners[:1]:
                    shape = sub.ofm.shape
                    self._parts.setdefault(owner, []).append(self._pass(shape, sub.ofm.dtype.bits))

    def of_op(self, index: int) -> Amounts:
        """The op's own kernels; nothing for a view."""
        return add_amounts(self._parts.get(index, []))

    def of_activation(self, tensor: int) -> Amounts:
        """One pass of an activation over a tensor of the file."""
        t = self.subgraph.tensors[tensor]
        padded = (1, 1, 1, *t.shape)
        n = 1
        for size in padded[:-3]:
            n *= size
        shape = (n, padded[-3], padded[-2], padded[-1])
        on_npu = t.dtype in NPU_TYPES and self.target.accelerator is not None and min(shape) > 0
        return self._pass(shape, t.dtype.bits, on_npu=on_npu)

    def _pass(self, shape: tuple[int, int, int, int], bits: int, *, on_npu: bool = True) -> Amounts:
        n, h, w, c = shape
        if not on_npu:
            work = HostWork(cost_class=CostClass.ACTIVATION, macs=0, elements=n * h * w * c)
            return host_amounts(self.segments, host_cycles(self.target.cpu, work))
        fm = CostFm(shape, bits, c % 16 == 0, self.target.roles.arena)
        # 32-bit data has no activation pass of its own; a clamp is one element-wise minimum.
        kind = KernelKind.MINIMUM if bits > _WIDEST_PASS_BITS else KernelKind.RELU
        cost = op_cost(self.target, CostOp(kind=kind, ifm=fm, ofm=fm), basis=Basis.PHYSICAL)
        read = {m.memory: m.bytes_read for m in cost.transfers if m.bytes_read}
        written = {m.memory: m.bytes_written for m in cost.transfers if m.bytes_written}
        energy = energy_of(
            self.target,
            macs=0,
            npu_cycles=cost.cycles,
            cpu_cycles=0,
            bytes_read=read,
            bytes_written=written,
        )
        return Amounts(
            npu_cycles=cost.cycles,
            core_cycles=cost.npu_cycles,
            energy_nj=(energy.low, energy.typical, energy.high),
            bytes_read=tuple(sorted(read.items())),
            bytes_written=tuple(sorted(written.items())),
        )


def host_amounts(segments: Segments, cycles: int) -> Amounts:
    """So many cycles of the host CPU."""
    energy = energy_of(
        segments.target,
        macs=0,
        npu_cycles=0,
        cpu_cycles=cycles,
        bytes_read={},
        bytes_written={},
    )
    return Amounts(cpu_cycles=cycles, energy_nj=(energy.low, energy.typical, energy.high))


def whole_cost(segments: Segments, v: int) -> Amounts:
    """Op v run whole, weights streamed, feature maps in the arena."""
    places = segments.places_of(v, len(segments.graph.ops), -1, {})
    kernels = segments.kernels
    return kernels.amounts(kernels.whole(v, places, WeightMode.STREAMED))


def _kernels_alone(segments: Segments) -> Level:
    ops = segments.graph.ops
    return Level(
        level="L2",
        traffic_bytes=sum(op.count * op_traffic(segments.graph, op, frozenset()) for op in ops),
        dispatches=sum(op.count for op in ops),
        amounts=add_amounts([whole_cost(segments, v) for v in range(len(ops))]),
    )


def _maximal_chains(segments: Segments) -> Level:
    """Every maximal chain in the stripes that cost least, whatever SRAM that takes."""
    traffic = 0
    parts: list[Amounts] = []
    for chain in segments.graph.chains:
        inner = frozenset(segments.graph.ops[v].final_ofm.tensor for v in chain.ops[:-1])
        for v in chain.ops:
            op = segments.graph.ops[v]
            traffic += op.count * op_traffic(segments.graph, op, inner)
        parts.extend(_best_chain(segments, chain.first, chain.end - 1))
    return Level(
        level="L3",
        traffic_bytes=traffic,
        dispatches=sum(op.count for op in segments.graph.ops),
        amounts=add_amounts(parts),
    )


def _best_chain(segments: Segments, i: int, j: int) -> list[Amounts]:
    if i == j:
        return [whole_cost(segments, i)]
    best: list[Amounts] | None = None
    best_score = 0.0
    windows = segments.windows[i : j + 1]
    for rows in stripe_candidates(windows[-1].ofm_rows):
        costs = []
        for v, run in zip(range(i, j + 1), chain_runs(windows, rows, Policy.ALIGNED), strict=True):
            sizes = tuple(run.sizes(segments.windows[v]))
            places = segments.places_of(v, i, j, {})
            choices = [
                segments.kernels.run(v, run.stripe_rows, sizes, places, mode)
                for mode in segments.modes(v)
            ]
            costs.append(min(choices, key=lambda cost: cost.score))
        score = sum(cost.score for cost in costs)
        if best is None or score < best_score:
            best, best_score = [segments.kernels.amounts(cost) for cost in costs], score
    return best or [whole_cost(segments, v) for v in range(i, j + 1)]


def _plan_traffic(graph: OpGraph, plan: Plan) -> int:
    total = 0
    for segment in plan.segments:
        inner = frozenset(graph.ops[v].final_ofm.tensor for v in segment.ops[:-1])
        for v in segment.ops:
            total += graph.ops[v].count * op_traffic(graph, graph.ops[v], inner)
    return total


def op_traffic(graph: OpGraph, op: ScheduledOp, inner: frozenset[int]) -> int:
    """Logical bytes an op reads and writes, constants and the tensors ``inner`` left out."""
    total = 0
    for accesses in (op.reads, op.writes):
        distinct = {(access.tensor, access.offset, access.shape): access for access in accesses}
        for access in distinct.values():
            if access.tensor == NOT_STORED or access.tensor in inner:
                continue
            if not graph.feature_maps[access.tensor].is_constant:
                total += (access.elements * access.dtype.bits + 7) // 8
    return total
