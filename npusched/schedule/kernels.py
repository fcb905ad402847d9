"""What each scheduled op costs inside a segment: whole or in stripes, in any memories.

A ``Kernels`` object belongs to one graph and target and remembers what it has computed: the
search asks for the same kernel in many segments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from npusched.cost.adapt import cost_op
from npusched.cost.bursts import dma_cycles, lut_dma_cycles
from npusched.cost.cpu import cpu_cost
from npusched.cost.cycles import npu_cycles
from npusched.cost.energy import Energy, energy_of
from npusched.cost.op_cost import slack_of
from npusched.cost.stripe import stripe_block, stripe_cost
from npusched.cost.types import Basis, BlockConfig, CostOp, OpCost, WeightBytes
from npusched.cost.weights import uses_sparse_weights
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.hardware.target import MemoryKind, Target
from npusched.schedule.block_choice import Striped, choose_encoding, encodes_alike, refine
from npusched.schedule.objective import Goal, Objective
from npusched.schedule.stripes import touched_maps, window_of
from npusched.schedule.tally import KernelCost, Places, Tally
from npusched.schedule.types import Amounts, WeightMode

__all__ = ["KernelCost", "Kernels", "Places", "Sizes", "Tally", "WeightSizes", "offchip_memories"]

WeightSizes = Callable[[ScheduledOp, BlockConfig], WeightBytes]
"""Encoded bytes of an op's weights for a block config (its depth and traversal decide)."""

Sizes = tuple[tuple[int, int, int], ...]
"""Distinct stripes of one op: (start, end, how many cost the same); OFM rows."""

OFF_CHIP = frozenset({MemoryKind.DRAM, MemoryKind.OFF_CHIP_FLASH})


def offchip_memories(target: Target) -> tuple[str, ...]:
    """Names of the memories off the chip."""
    return tuple(memory.name for memory in target.memories if memory.kind in OFF_CHIP)


class Kernels:
    """Costs of the kernels of one graph on one target, remembered."""

    def __init__(
        self,
        graph: OpGraph,
        target: Target,
        sizes: WeightSizes,
        objective: Objective,
        *,
        choose_blocks: bool = False,
    ) -> None:
        self.graph = graph
        self.target = target
        self.objective = objective
        self._sizes = sizes
        self._offchip = offchip_memories(target)
        self._cost_ops: dict[tuple[int, Places], CostOp] = {}
        self._runs: dict[tuple[object, ...], KernelCost] = {}
        self._weights: dict[tuple[int, int, WeightMode | None], WeightBytes] = {}
        self._sparse: dict[int, bool] = {}
        self._hidden_lut: dict[int, int] = {}
        self._choose_blocks = choose_blocks
        self._chosen: dict[tuple[int, int, WeightMode], BlockConfig] = {}

    def on(self, target: Target) -> Kernels:
        """The same graph's kernels on another target, which has memories of the same names."""
        return Kernels(
            self.graph, target, self._sizes, self.objective, choose_blocks=self._choose_blocks
        )

    def whole(self, v: int, places: Places, mode: WeightMode) -> KernelCost:
        """Op ``v`` in one piece."""
        rows = window_of(self.graph.ops[v]).ofm_rows
        return self.run(v, rows, ((0, rows, 1),), places, mode)

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
            known = cost_op(
                self.graph.ops[v],
                self.graph.feature_maps,
                dict(places.of),
                const_memory=self.target.roles.const,
                sparse=self._is_sparse(v),
            )
            self._cost_ops[key] = known
        return known

    def _is_sparse(self, v: int) -> bool:
        known = self._sparse.get(v)
        if known is None:
            known = self._sparse[v] = uses_sparse_weights(self.target, self.graph.ops[v])
        return known

    def weights(
        self, v: int, stripe_rows: int, places: Places, mode: WeightMode = WeightMode.RESIDENT
    ) -> WeightBytes:
        """Encoded weights of op ``v`` for the block that stripes of this height get."""
        op = self.graph.ops[v]
        if op.weights is None:
            return WeightBytes(exact=True)
        key = (v, stripe_rows, mode if self._choose_blocks else None)
        known = self._weights.get(key)
        if known is None:  # the depth depends on shapes alone, not on where things lie
            block = self.block(v, stripe_rows, places, mode)
            known = self._weights[key] = self._sizes(op, block)
        return known

    def block(
        self, v: int, stripe_rows: int, places: Places, mode: WeightMode = WeightMode.RESIDENT
    ) -> BlockConfig:
        """Block config of op ``v`` in stripes of this height; it decides how weights are encoded.

        Vela's, or with chosen blocks one of a depth that is nowhere worse (``block_choice``).
        """
        rule = stripe_block(self.target, self.cost_op(v, places), stripe_rows)
        if not self._choose_blocks:
            return rule
        known = self._chosen.get((v, stripe_rows, mode))
        if known is None:
            known = choose_encoding(
                self._striped(v, stripe_rows),
                rule,
                self._possible_places(v),
                lambda homes: self.cost_op(v, Places(homes)),
                self._weights_home(mode),
            )
            self._chosen[v, stripe_rows, mode] = known
        return known

    def best_block(
        self, v: int, stripe_rows: int, sizes: Sizes, places: Places, mode: WeightMode
    ) -> BlockConfig:
        """The block that these stripes run with: ``block``, or a cheaper one that encodes alike."""
        block = self.block(v, stripe_rows, places, mode)
        if not self._choose_blocks:
            return block
        here = self.cost_op(v, places)
        return refine(self._striped(v, stripe_rows), block, sizes, here, self._weights_home(mode))

    def _striped(self, v: int, stripe_rows: int) -> Striped:
        op = self.graph.ops[v]
        sizes = partial(self._sizes, op) if op.weights is not None else _no_weights
        return Striped(self.target, op, stripe_rows, sizes, self._value)

    def _possible_places(self, v: int) -> list[tuple[int, list[str]]]:
        roles = self.target.roles
        either = sorted({roles.arena, roles.cache})
        return [
            (t, [roles.const] if self.graph.feature_maps[t].is_constant else either)
            for t in touched_maps(self.graph.ops[v])
        ]

    def _weights_home(self, mode: WeightMode) -> str:
        roles = self.target.roles
        return roles.const if mode is WeightMode.STREAMED else roles.cache

    def _value(self, cost: OpCost) -> float:
        tally = Tally()
        tally.add(cost, 1)
        return self.tallied(tally, WeightBytes()).score

    def rows(self, v: int) -> int:
        """OFM rows of op ``v``."""
        return window_of(self.graph.ops[v]).ofm_rows

    def bound_by(self, v: int, places: Places, cost: KernelCost) -> str:
        """What sets the pace of a kernel: a memory's name, weights, or a part of the NPU.

        The busiest memory if it is busier than the NPU (``weights`` if it holds only constants),
        else the longer of the MAC and output stages (``mac``, ``output``, ``elementwise``).
        """
        assert cost.block is not None
        roles = self.target.roles
        busiest = max(cost.busy.items(), key=lambda pair: pair[1], default=("", 0))
        if busiest[1] > cost.core_cycles:
            only_constants = roles.const not in (roles.arena, roles.cache)
            return "weights" if busiest[0] == roles.const and only_constants else busiest[0]
        parts = npu_cycles(self.target, self.cost_op(v, places), cost.block, basis=Basis.PHYSICAL)
        if parts.mac == 0:
            return "elementwise"
        return "mac" if parts.mac >= parts.output else "output"

    def amounts(self, cost: KernelCost) -> Amounts:
        """The cost as amounts that add up, energy included."""
        energy = self._energy(cost)
        return Amounts(
            npu_cycles=cost.cycles,
            core_cycles=cost.core_cycles,
            cpu_cycles=cost.cpu_cycles,
            macs=cost.macs,
            energy_nj=(energy.low, energy.typical, energy.high),
            bytes_read=tuple(sorted((k, n) for k, n in cost.read.items() if n)),
            bytes_written=tuple(sorted((k, n) for k, n in cost.written.items() if n)),
        )

    def offchip_bytes(self, cost: KernelCost) -> int:
        """Bytes that a kernel moves from and to memories off the chip."""
        return sum(cost.read.get(name, 0) + cost.written.get(name, 0) for name in self._offchip)

    def _energy(self, cost: KernelCost) -> Energy:
        """A CPU cycle's energy has its memory accesses in it (GROUND_TRUTH §4.1)."""
        on_cpu = cost.block is None and not cost.cycles  # a copy has no block either
        return energy_of(
            self.target,
            macs=0 if on_cpu else cost.macs,
            npu_cycles=cost.cycles,
            cpu_cycles=cost.cpu_cycles,
            bytes_read={} if on_cpu else cost.read,
            bytes_written={} if on_cpu else cost.written,
        )

    def _scored(self, cost: KernelCost) -> KernelCost:
        """The cost with its value in the objective; CPU cycles count at the NPU clock."""
        target = self.target
        energy = self._energy(cost).typical if self.objective.goal is Goal.ENERGY else 0.0
        score = self.objective.score(
            cycles=cost.cycles + cost.cpu_cycles * target.clock_hz / target.cpu.clock_hz,
            offchip_bytes=self.offchip_bytes(cost),
            energy_nj=energy,
        )
        return replace(cost, score=score)

    def _on_cpu(self, op: ScheduledOp) -> KernelCost:
        cost = cpu_cost(self.target, op, self.graph)
        return self._scored(
            KernelCost(
                block=None,
                weights=WeightBytes(exact=True),
                cycles=0,
                core_cycles=0,
                cpu_cycles=cost.cycles,
                macs=cost.macs,
                busy={},
                read=dict(cost.bytes_read),
                written=dict(cost.bytes_written),
                score=0.0,
            )
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
        """With Vela's block, fitted to each stripe, or with a chosen one."""
        plain = partial(self._with_block, v, op, stripe_rows, sizes, places, mode)
        if not self._choose_blocks:
            return plain(None)
        best = plain(self.best_block(v, stripe_rows, sizes, places, mode))
        rule = stripe_block(self.target, self.cost_op(v, places), stripe_rows)
        if op.weights is None or encodes_alike(self.block(v, stripe_rows, places, mode), rule):
            best = min(best, plain(None), key=lambda cost: cost.score)
        return best

    def _with_block(
        self,
        v: int,
        op: ScheduledOp,
        stripe_rows: int,
        sizes: Sizes,
        places: Places,
        mode: WeightMode,
        block: BlockConfig | None,
    ) -> KernelCost:
        """Every stripe reads its weights again: from their home, or from SRAM if resident."""
        described = self.cost_op(v, places)
        weights = self.weights(v, stripe_rows, places, mode)
        roles = self.target.roles
        home = self._weights_home(mode)
        tally = Tally()
        wait = self._visible_lut(v, described) if described.lut_is_primary else 0
        for start, end, count in sizes:
            cost = stripe_cost(
                self.target,
                described,
                start,
                end,
                weights,
                nominal_rows=stripe_rows,
                weights_memory=home,
                scales_memory=home,
                lut_loaded=True,
                block=block,
            )
            first = 1 if wait and start == 0 else 0
            if first:
                tally.add(cost, first, wait_cycles=wait)
            tally.add(cost, count * op.count - first)
        if mode is WeightMode.RESIDENT:
            tally.copy(
                weights.total,
                roles.const,
                roles.cache,
                dma_cycles(
                    self.target,
                    weights.total,
                    source=self.target.const,
                    destination=self.target.cache,
                    basis=Basis.PHYSICAL,
                ),
            )
        return self.tallied(tally, weights)

    def copy(self, size_bytes: int) -> KernelCost:
        """Cost of a copy from the arena to the staging memory that nothing hides."""
        target, tally = self.target, Tally()
        cycles = dma_cycles(
            target,
            size_bytes,
            source=target.memory(target.roles.arena),
            destination=target.cache,
            basis=Basis.PHYSICAL,
        )
        tally.copy(size_bytes, target.roles.arena, target.roles.cache, cycles)
        return self.tallied(tally, WeightBytes(exact=True))

    def tallied(self, tally: Tally, weights: WeightBytes) -> KernelCost:
        """The sums of a tally as a cost with its value in the objective."""
        return self._scored(
            KernelCost(
                block=tally.block,
                weights=weights,
                cycles=tally.cycles,
                core_cycles=tally.core,
                cpu_cycles=0,
                macs=tally.macs,
                busy=tally.busy,
                read=tally.read,
                written=tally.written,
                score=0.0,
            )
        )

    def _visible_lut(self, v: int, described: CostOp) -> int:
        """Cycles that loading the op's own look-up table adds: what the op before cannot hide."""
        known = self._hidden_lut.get(v)
        if known is None:
            load = lut_dma_cycles(
                self.target, described.lut_bytes, source=self.target.const, basis=Basis.PHYSICAL
            )
            known = self._hidden_lut[v] = max(load - self._slack_before(v), 0)
        return known

    def _slack_before(self, v: int) -> int:
        """NPU cycles of the op before (at scheduling time, whole): they hide DMA."""
        if not v or self.graph.ops[v - 1].placement is Placement.CPU:
            return 0
        before = self.graph.ops[v - 1]
        arena = self.target.roles.arena
        places = Places(tuple((t, arena) for t in touched_maps(before)))
        described = self.cost_op(v - 1, places)
        block = None
        if self._choose_blocks:
            rows = self.rows(v - 1)
            whole = ((0, rows, 1),)
            block = self.best_block(v - 1, rows, whole, places, WeightMode.RESIDENT)
        return before.count * slack_of(self.target, described, basis=Basis.PHYSICAL, block=block)


def _no_weights(_: BlockConfig) -> WeightBytes:
    return WeightBytes(exact=True)
