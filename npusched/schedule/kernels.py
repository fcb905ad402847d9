"""What each scheduled op costs inside a segment: whole or in stripes, in any memories.

A ``Kernels`` object belongs to one graph and target and remembers what it has computed: the
search asks for the same kernel in many segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from npusched.cost.adapt import cost_op
from npusched.cost.blocks import find_block
from npusched.cost.bursts import dma_cycles
from npusched.cost.cpu import cpu_cost
from npusched.cost.cycles import npu_cycles
from npusched.cost.energy import energy_of
from npusched.cost.op_cost import op_cost, slack_of
from npusched.cost.types import Basis, BlockConfig, CostOp, OpCost, WeightBytes
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.hardware.target import MemoryKind, Target
from npusched.schedule.objective import Objective
from npusched.schedule.stripes import stripe, touched_maps, window_of
from npusched.schedule.types import Amounts, WeightMode

WeightSizes = Callable[[ScheduledOp, BlockConfig], WeightBytes]
"""Encoded bytes of an op's weights for a block config (its depth and traversal decide)."""

Sizes = tuple[tuple[int, int, int], ...]
"""Distinct (OFM rows, IFM rows, how many stripes) of one op."""

OFF_CHIP = frozenset({MemoryKind.DRAM, MemoryKind.OFF_CHIP_FLASH})
_HIDDEN = 1 << 60
"""Slack that hides any LUT DMA: the table is already there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """Cost of all stripes of one op. ``cycles`` = sum over stripes of max(NPU, memories)."""

    block: BlockConfig | None
    cycles: int
    core_cycles: int
    memory_cycles: tuple[tuple[str, int], ...]
    weights: WeightBytes
    amounts: Amounts
    score: float


@dataclass(frozen=True, slots=True)
class Places:
    """Memories of an op's feature maps: (feature map id, memory), sorted by id."""

    of: tuple[tuple[int, str], ...]


class Kernels:
    """Costs of the kernels of one graph on one target, remembered."""

    def __init__(
        self, graph: OpGraph, target: Target, sizes: WeightSizes, objective: Objective
    ) -> None:
        self.graph = graph
        self.target = target
        self.objective = objective
        self._sizes = sizes
        self._offchip = tuple(m.name for m in target.memories if m.kind in OFF_CHIP)
        self._cost_ops: dict[tuple[int, Places], CostOp] = {}
        self._runs: dict[tuple[object, ...], KernelCost] = {}
        self._slack: dict[int, int] = {}

    def whole(self, v: int, places: Places, mode: WeightMode) -> KernelCost:
        """Op ``v`` in one piece."""
        window = window_of(self.graph.ops[v])
        return self.run(v, window.ofm_rows, ((window.ofm_rows, window.ifm_rows, 1),), places, mode)

    def run(
        self, v: int, stripe_rows: int, sizes: Sizes, places: Places, mode: WeightMode
    ) -> KernelCost:
        """Op ``v`` in stripes of nominally ``stripe_rows`` rows (``sizes`` lists the real ones)."""
        key = (v, stripe_rows, sizes, places, mode)
        known = self._runs.get(key)
        if known is None:
            op = self.graph.ops[v]
            if op.placement is Placement.CPU:
                known = self._on_cpu(op)
            else:
                known = self._on_npu(v, op, stripe_rows, sizes, places, mode)
            self._runs[key] = known
        return known

    def cost_op(self, v: int, places: Places) -> CostOp:
        """Op ``v`` as the cost functions see it."""
        key = (v, places)
        known = self._cost_ops.get(key)
        if known is None:
            known = cost_op(self.graph.ops[v], self.graph.feature_maps, dict(places.of))
            self._cost_ops[key] = known
        return known

    def weights(self, v: int, stripe_rows: int, places: Places) -> WeightBytes:
        """Encoded weights of op ``v`` for the block that stripes of this height get."""
        op = self.graph.ops[v]
        if op.weights is None:
            return WeightBytes(exact=True)
        return self._sizes(op, self._block(self._nominal(v, stripe_rows, places)))

    def bound_by(self, v: int, places: Places, cost: KernelCost) -> str:
        """What sets the pace of a kernel: a memory's name, weights, or a part of the NPU.

        The busiest memory if it is busier than the NPU (``weights`` where most of its bytes are
        weights), else the longer of the MAC and output stages (``mac``, ``output``,
        ``elementwise``).
        """
        assert cost.block is not None
        busiest = max(cost.memory_cycles, key=lambda pair: pair[1], default=("", 0))
        if busiest[1] > cost.core_cycles:
            home = self.target.roles.const
            only_constants = home not in (self.target.roles.arena, self.target.roles.cache)
            return "weights" if busiest[0] == home and only_constants else busiest[0]
        parts = npu_cycles(self.target, self.cost_op(v, places), cost.block, basis=Basis.PHYSICAL)
        if parts.mac == 0:
            return "elementwise"
        return "mac" if parts.mac >= parts.output else "output"

    def score(self, amounts: Amounts, cycles: int) -> float:
        """Value of an amount of work in the objective; CPU cycles count at the NPU clock."""
        target = self.target
        total = cycles + amounts.cpu_cycles * target.clock_hz / target.cpu.clock_hz
        return self.objective.score(
            cycles=total,
            offchip_bytes=sum(amounts.moved(name) for name in self._offchip),
            energy_nj=self.energy(amounts, cycles),
        )

    def energy(self, amounts: Amounts, cycles: int) -> float:
        """Typical energy in nanojoules."""
        return energy_of(
            self.target,
            macs=amounts.macs,
            npu_cycles=cycles,
            cpu_cycles=amounts.cpu_cycles,
            bytes_read=dict(amounts.bytes_read),
            bytes_written=dict(amounts.bytes_written),
        ).typical

    def _on_cpu(self, op: ScheduledOp) -> KernelCost:
        cost = cpu_cost(self.target, op, self.graph)
        amounts = Amounts(
            cpu_cycles=cost.cycles,
            macs=cost.macs,
            bytes_read=cost.bytes_read,
            bytes_written=cost.bytes_written,
        )
        return KernelCost(
            block=None,
            cycles=0,
            core_cycles=0,
            memory_cycles=(),
            weights=WeightBytes(exact=True),
            amounts=amounts,
            score=self.score(amounts, 0),
        )

    def _on_npu(
        self,
        v: int,
        op: ScheduledOp,
        stripe_rows: int,
        sizes: Sizes,
        places: Places,
        mode: WeightMode,
    ) -> KernelCost:
        block = self._block(self._nominal(v, stripe_rows, places))
        weights = self.weights(v, stripe_rows, places)
        home = self.target.roles.const if mode is WeightMode.STREAMED else self.target.roles.cache
        parts: list[tuple[OpCost, int]] = []
        for position, (rows, ifm_rows, count) in enumerate(sizes):
            striped = stripe(self.cost_op(v, places), rows, ifm_rows)
            first_slack = self._slack_before(v) if position == 0 else _HIDDEN
            cost = op_cost(
                self.target,
                striped,
                weights,
                basis=Basis.PHYSICAL,
                block=block,
                slack_cycles=first_slack,
                weights_memory=home,
                scales_memory=home,
            )
            if position == 0 and count > 1 and striped.lut_is_primary:
                parts.append((cost, 1))
                cost = replace(cost, npu_cycles=self._without_lut(striped, weights, block, home))
                count -= 1
            parts.append((cost, count))
        return self._sum(op, block, weights, parts, mode)

    def _without_lut(
        self, striped: CostOp, weights: WeightBytes, block: BlockConfig, home: str
    ) -> int:
        return op_cost(
            self.target,
            striped,
            weights,
            basis=Basis.PHYSICAL,
            block=block,
            slack_cycles=_HIDDEN,
            weights_memory=home,
            scales_memory=home,
        ).npu_cycles

    def _sum(
        self,
        op: ScheduledOp,
        block: BlockConfig,
        weights: WeightBytes,
        parts: Sequence[tuple[OpCost, int]],
        mode: WeightMode,
    ) -> KernelCost:
        """Add up stripes (times the op's own count of equal pieces) and the weights' DMA."""
        read: dict[str, int] = {}
        written: dict[str, int] = {}
        busy: dict[str, int] = {}
        cycles = core = macs = 0
        for cost, stripes in parts:
            count = stripes * op.count
            cycles += count * cost.cycles
            core += count * cost.npu_cycles
            macs += count * cost.macs
            for name, access in cost.memory_cycles:
                busy[name] = busy.get(name, 0) + count * access
            for move in cost.transfers:
                read[move.memory] = read.get(move.memory, 0) + count * move.bytes_read
                written[move.memory] = written.get(move.memory, 0) + count * move.bytes_written
        if mode is WeightMode.RESIDENT:
            source, cache = self.target.const, self.target.cache
            dma = dma_cycles(
                self.target, weights.total, source=source, destination=cache, basis=Basis.PHYSICAL
            )
            cycles += dma
            core += dma
            read[source.name] = read.get(source.name, 0) + weights.total
            written[cache.name] = written.get(cache.name, 0) + weights.total
        amounts = Amounts(
            npu_cycles=cycles,
            macs=macs,
            bytes_read=tuple(sorted((k, n) for k, n in read.items() if n)),
            bytes_written=tuple(sorted((k, n) for k, n in written.items() if n)),
        )
        return KernelCost(
            block=block,
            cycles=cycles,
            core_cycles=core,
            memory_cycles=tuple(sorted(busy.items())),
            weights=weights,
            amounts=amounts,
            score=self.score(amounts, cycles),
        )

    def _nominal(self, v: int, stripe_rows: int, places: Places) -> CostOp:
        """The op on a full stripe, which its block is fitted to."""
        window = window_of(self.graph.ops[v])
        if stripe_rows >= window.ofm_rows:
            return self.cost_op(v, places)
        rows = (stripe_rows - 1) * window.stride + window.extent
        ifm_rows = window.ifm_rows if window.whole else min(rows, window.ifm_rows)
        return stripe(self.cost_op(v, places), stripe_rows, ifm_rows)

    def _block(self, op: CostOp) -> BlockConfig:
        assert self.target.accelerator is not None
        return find_block(self.target.accelerator, op)

    def _slack_before(self, v: int) -> int:
        """NPU cycles of the op before, which hide the DMA of a look-up table."""
        known = self._slack.get(v)
        if known is None:
            known = 0
            if v and self.graph.ops[v - 1].placement is Placement.NPU:
                arena = self.target.roles.arena
                before = self.graph.ops[v - 1]
                places = Places(tuple((t, arena) for t in touched_maps(before)))
                known = before.count * slack_of(
                    self.target, self.cost_op(v - 1, places), basis=Basis.PHYSICAL
                )
            self._slack[v] = known
        return known
