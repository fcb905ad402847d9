"""Weights that are copied to SRAM while something else runs.

Under the segment before, or slice by slice under the op itself.

An op run whole may get its weights in one piece, copied while the segment before runs or just
before the op, or in depth slices that take turns in two buffers, the next one copied while one is
used (Vela's weight buffering; the cycles are its formula, VELA_SPEC_2 §5, applied with the segment
before as slack and feature maps where they lie).
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
from msgspec.structs import replace

from npusched.cost.bursts import dma_cycles
from npusched.cost.op_cost import Staging, op_cost, staged_slack_of
from npusched.cost.types import Basis, BlockConfig, WeightBytes
from npusched.cost.weights import scale_bytes
from npusched.graph.types import Placement
from npusched.memory import align_up
from npusched.schedule.kernels import KernelCost, Kernels, Places, Tally
from npusched.schedule.stripes import touched_maps
from npusched.schedule.types import Buffering, WeightMode

SLICE_COUNTS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of depth slices that are tried."""

SLICE_GRANULE = 16
"""Slices start at multiples of 16 channels (VELA_SPEC §3.6)."""

_HIDDEN = 1 << 50
"""Slack that hides any copy."""


class Way(msgspec.Struct, frozen=True):
    """One way to stage the weights of an op that runs whole.

    ``buffer_bytes``: sizes of its buffers (two for slices that take turns). ``slot_bytes``: what
    the segment before must keep free for a prefetch, 0 = none. Its cost follows from ``staging``
    and ``StagedWeights.lag_cycles``, which depends on where feature maps lie.
    """

    buffering: Buffering
    buffer_bytes: tuple[int, ...]
    slot_bytes: int
    staging: Staging

    @property
    def is_plain(self) -> bool:
        """True for one copy of everything, just before the op."""
        return self.buffering.slices == 1 and not self.buffering.prefetched


class _Terms(msgspec.Struct, frozen=True):
    """Cycles that decide how long an op with staged weights waits; ``value``: score per cycle."""

    full: float
    first: float
    core: float
    busy: float
    hidden: float
    value: float


class StagedWeights:
    """Ways to stage the weights of the ops of one graph, with their costs, remembered."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self._ways: dict[int, tuple[Way, ...]] = {}
        self._waits: dict[tuple[int, Places, int], _Terms] = {}
        self._costs: dict[tuple[int, Places, int, int], KernelCost] = {}
        self._lags: dict[tuple[int, Places, int], int] = {}

    def ways(self, v: int, places: Places) -> tuple[Way, ...]:
        """Ways of op v: whole and in slices, each prefetched and not.

        Sizes and slices do not depend on where feature maps lie; ``places`` may be any.
        """
        known = self._ways.get(v)
        if known is None:
            known = self._ways[v] = tuple(self._find(v, places))
        return known

    def cost(self, v: int, places: Places, way: int, slack_cycles: float) -> KernelCost:
        """Cost of op v with one of its ways if the segment before lends so many cycles."""
        slack = _HIDDEN if slack_cycles >= _HIDDEN else int(slack_cycles)
        key = (v, places, way, slack)
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = self._cost(v, places, way, slack)
        return known

    def lag_cycles(self, v: int, places: Places, way: int) -> int:
        """Cycles of op v's last slice: no copy of its own hides under them, the next op's does."""
        key = (v, places, way)
        known = self._lags.get(key)
        if known is None:
            borders = self._ways[v][way].buffering.borders
            known = self._lags[key] = staged_slack_of(
                self.kernels.target,
                self.kernels.cost_op(v, places),
                depth=borders[-1] - borders[-2],
                basis=Basis.PHYSICAL,
                block=self._block(v, places),
                slices=len(borders) - 1,
            )
        return known

    def hidden(self, v: int, places: Places, way: int) -> KernelCost:
        """Cost of op v if the segment before hides all that it can."""
        return self.cost(v, places, way, _HIDDEN)

    def hides(self, v: int, places: Places, way: int) -> float:
        """Cycles under which the next op's weights may be copied, after all copies of its own."""
        found = self._ways[v][way]
        if found.buffering.slices > 1 or found.buffering.prefetched:
            return float(self.lag_cycles(v, places, way))
        copy = copy_cycles(self.kernels, found.staging.full_dma_bytes)
        return float(self.cost(v, places, way, 0).cycles - copy)

    def wait(self, v: int, places: Places, way: int, slack_cycles: float) -> float:
        """What op v's score grows by if the segment before lends only so many cycles.

        The formula of ``op_cost`` for staged weights, with its terms worked out once.
        """
        key = (v, places, way)
        terms = self._waits.get(key)
        if terms is None:
            terms = self._waits[key] = self._terms(v, places, way)
        late = terms.core
        if terms.first > slack_cycles:
            late += terms.first - slack_cycles
        late = max(late, terms.full - slack_cycles, terms.busy) - terms.hidden
        return late * terms.value if late > 0.0 else 0.0

    def _terms(self, v: int, places: Places, index: int) -> _Terms:
        way = self._ways[v][index]
        best, worst = self.hidden(v, places, index), self.cost(v, places, index, 0.0)
        full = copy_cycles(self.kernels, way.staging.full_dma_bytes)
        lag = self.lag_cycles(v, places, index)
        longer = worst.cycles - best.cycles
        return _Terms(
            full=full + lag,
            first=copy_cycles(self.kernels, way.staging.first_dma_bytes),
            core=best.core_cycles,
            busy=max(best.busy.values(), default=0),
            hidden=best.cycles,
            value=(worst.score - best.score) / longer if longer else 0.0,
        )

    def _cost(self, v: int, places: Places, index: int, slack: int) -> KernelCost:
        kernels, way = self.kernels, self._ways[v][index]
        lag = self.lag_cycles(v, places, index)
        weights = self._weights(v, places)
        described = kernels.cost_op(v, places)
        cost = op_cost(
            kernels.target,
            described,
            weights,
            basis=Basis.PHYSICAL,
            block=self._block(v, places),
            staging=replace(way.staging, self_slack_cycles=lag),
            slack_cycles=slack,
        )
        tally = Tally()
        tally.add(cost, 1)
        exact = weights.exact and way.buffering.slices == 1
        known = WeightBytes(weights=weights.weights, scales=weights.scales, exact=exact)
        return kernels.tallied(tally, known)

    def _weights(self, v: int, places: Places) -> WeightBytes:
        return self.kernels.weights(v, self.kernels.rows(v), places)

    def _block(self, v: int, places: Places) -> BlockConfig:
        rows = self.kernels.rows(v)
        return self.kernels.best_block(v, rows, ((0, rows, 1),), places, WeightMode.RESIDENT)

    def _scheduled_block(self, v: int) -> BlockConfig:
        """The block with every feature map in the arena: ways do not depend on where maps lie."""
        roles, maps = self.kernels.target.roles, self.kernels.graph.feature_maps
        tensors = touched_maps(self.kernels.graph.ops[v])
        arena = [(t, roles.const if maps[t].is_constant else roles.arena) for t in tensors]
        return self._block(v, Places(tuple(arena)))

    def _find(self, v: int, places: Places) -> list[Way]:
        target, op = self.kernels.target, self.kernels.graph.ops[v]
        apart = target.roles.const != target.roles.cache
        if op.weights is None or op.placement is Placement.CPU or op.count > 1 or not apart:
            return []
        weights = self._weights(v, places)
        depth = op.weights.shape[0]
        found = [self._way(v, weights, (0, depth), prefetched=early) for early in (True, False)]
        if op.transpose is not None or any(sub.transpose for sub in op.sub_ops):
            return found
        granule = max(SLICE_GRANULE, self._block(v, places).ofm_ublock.c)
        for borders in sorted({slice_borders(depth, n, granule) for n in SLICE_COUNTS}):
            if len(borders) > 2:
                found += [
                    self._way(v, weights, borders, prefetched=early) for early in (True, False)
                ]
        return found

    def _way(
        self,
        v: int,
        weights: WeightBytes,
        borders: tuple[int, ...],
        *,
        prefetched: bool,
    ) -> Way:
        target = self.kernels.target
        assert target.accelerator is not None
        block = self._scheduled_block(v)
        depth = borders[-1]
        sizes = [weights.total]
        if len(borders) > 2:
            sizes = [
                align_up(weights.weights * (end - start) // depth)
                + scale_bytes(target.accelerator, end - start, block.ofm_ublock.c)
                for start, end in pairwise(borders)
            ]
        buffers = (max(sizes[::2]), *([max(sizes[1::2])] if len(sizes) > 1 else []))
        return Way(
            buffering=Buffering(borders=borders, buffers=min(len(sizes), 2), prefetched=prefetched),
            buffer_bytes=tuple(align_up(size) for size in buffers),
            slot_bytes=align_up(max(sizes[::2])) if prefetched else 0,
            staging=Staging(
                full_dma_bytes=sum(sizes),
                first_dma_bytes=sizes[0],
                pre_buffered_bytes=sizes[0] if prefetched else 0,
            ),
        )


def slice_borders(depth: int, count: int, granule: int) -> tuple[int, ...]:
    """Borders of ``count`` slices (fewer if the granule asks for it), all but the last equal."""
    step = -(-depth // count)
    step = -(-step // granule) * granule
    return (*range(0, depth, step), depth)


def copy_cycles(kernels: Kernels, size_bytes: int) -> int:
    """NPU cycles that a copy of constants to the staging memory takes when nothing hides it."""
    target = kernels.target
    return dma_cycles(
        target,
        size_bytes,
        source=target.const,
        destination=target.cache,
        basis=Basis.PHYSICAL,
    )
