"""Blocks chosen by cost: the legal block whose stripes cost least, instead of Vela's.

Vela fits blocks to fetch few bytes per output element and then pays for the edges of the pipeline,
which grow with the block. Here every legal block is costed, in two steps that make no plan worse.
The depth decides how weights are encoded, so it changes only if no stripe costs more than with
Vela's block wherever feature maps lie, and if the weights do not grow. Height and width change
nothing else: for each op, stripes and places the cheapest is taken. The gain is one of the cost
model, not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import msgspec

from npusched.cost.stripe import legal_stripe_blocks, stripe_cost
from npusched.cost.types import BlockConfig, CostOp, OpCost, WeightBytes
from npusched.graph.types import ScheduledOp
from npusched.hardware import Target
from npusched.memory import align_up
from npusched.schedule.stripes import window_of

DOMINANCE_TRIES = 24
"""Best blocks of another depth that are compared with Vela's in every place."""

REFINED = 12
"""Best blocks by an interior stripe that are costed on all stripes."""

Stripes = Sequence[tuple[int, int, int]]
"""(start, end, how many cost the same)."""


class Striped(msgspec.Struct, frozen=True):
    """An op in stripes of ``rows`` rows, and how to cost it.

    ``sizes`` gives encoded weights, ``value`` what one stripe adds to the score.
    """

    target: Target
    op: ScheduledOp
    rows: int
    sizes: Callable[[BlockConfig], WeightBytes]
    value: Callable[[OpCost], float]

    def cost(
        self,
        block: BlockConfig | None,
        here: CostOp,
        memory: str,
        weights: WeightBytes,
        start: int,
        end: int,
    ) -> float:
        """What rows [start, end) add to the score; no block: Vela's, weights read there."""
        return self.value(
            stripe_cost(
                self.target,
                here,
                start,
                end,
                weights,
                nominal_rows=self.rows,
                weights_memory=memory,
                scales_memory=memory,
                lut_loaded=True,
                block=block,
            )
        )

    def legal(self, here: CostOp) -> list[BlockConfig]:
        """Blocks to choose from; none for an op that transposes."""
        if self.op.transpose is not None or any(sub.transpose for sub in self.op.sub_ops):
            return []
        return list(legal_stripe_blocks(self.target, here, self.rows))


def choose_encoding(
    striped: Striped,
    rule: BlockConfig,
    places: Sequence[tuple[int, Sequence[str]]],
    describe: Callable[[tuple[tuple[int, str], ...]], CostOp],
    memory: str,
) -> BlockConfig:
    """Return a block, of any depth, that is nowhere worse than ``rule`` (Vela's).

    ``places``: where each feature map may lie; ``memory``: where weights are read.
    """
    tensors = [tensor for tensor, _ in places]
    everywhere = [
        describe(tuple(zip(tensors, homes, strict=True)))
        for homes in product(*(homes for _, homes in places))
    ]
    if striped.op.weights is None:
        return rule
    found = striped.legal(everywhere[0])
    weights = striped.sizes(rule)
    stripes = _sample(striped)
    extremes = [everywhere[0], everywhere[-1]]

    def ranking(block: BlockConfig) -> float:
        start, end = stripes[0]
        return sum(striped.cost(block, o, memory, weights, start, end) for o in extremes)

    def all_costs(block: BlockConfig | None) -> list[float]:
        return [
            striped.cost(block, here, memory, weights, start, end)
            for here in everywhere
            for start, end in stripes
        ]

    ranked = sorted((ranking(block), number) for number, block in enumerate(found))
    bar: list[float] = []
    for _, number in ranked[:DOMINANCE_TRIES]:
        block, bar = found[number], bar or all_costs(None)
        if encodes_alike(block, rule):
            break  # the best ones of Vela's depth are as good
        dominates = all(a <= b for a, b in zip(all_costs(block), bar, strict=True))
        if dominates and align_up(striped.sizes(block).total) <= align_up(weights.total):
            return block
    return rule


def refine(
    striped: Striped, block: BlockConfig, stripes: Stripes, here: CostOp, memory: str
) -> BlockConfig:
    """Return the block of least cost over all stripes among those that encode weights alike."""
    weights = striped.sizes(block)
    start, end, _ = max(stripes, key=lambda stripe: stripe[2])
    free = striped.op.weights is None
    others = [
        other
        for other in striped.legal(here)
        if other != block and (free or encodes_alike(other, block))
    ]
    ranked = sorted(
        (striped.cost(other, here, memory, weights, start, end), number)
        for number, other in enumerate(others)
    )

    def total(block: BlockConfig) -> float:
        return sum(
            count * striped.cost(block, here, memory, weights, start, end)
            for start, end, count in stripes
        )

    best, least = block, total(block)
    for _, number in ranked[:REFINED]:
        value = total(others[number])
        if value < least:
            best, least = others[number], value
    return best


def encodes_alike(a: BlockConfig, b: BlockConfig) -> bool:
    """True if weights are encoded alike for both."""
    return (a.ofm_block.c, a.traversal, a.ofm_ublock) == (b.ofm_block.c, b.traversal, b.ofm_ublock)


def _sample(striped: Striped) -> list[tuple[int, int]]:
    """An interior stripe, the first, the last, and single rows of each."""
    rows, total = striped.rows, window_of(striped.op).ofm_rows
    middle = (total // rows // 2) * rows
    starts = sorted({0, middle, (total - 1) // rows * rows} - {total})
    whole = [(start, min(start + rows, total)) for start in starts]
    whole.sort(key=lambda part: part[0] != middle)
    single = [(start, start + 1) for start, end in whole if end - start > 1] if rows < total else []
    return [*whole, *single]
