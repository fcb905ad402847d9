"""Block sizes for ``graph.build_graph``: into how many pieces an oversized op is cut.

Vela cuts convolutions and pools with an axis above 65536 (on U85 also those with a far stride and
padding) into OFM blocks of the block config that it finds for the op with a 1x1 kernel
(Vela 5.2.0, ``compiler/scheduler_decompose.cpp``, NewOfmBlockShape).
"""

from __future__ import annotations

from npusched.cost.blocks import find_block
from npusched.cost.types import CostFm, CostOp
from npusched.graph.block_query import BlockOf, BlockQuery
from npusched.hardware.target import Accelerator


def block_finder(accelerator: Accelerator) -> BlockOf:
    """Return the function that gives the OFM block (h, w, c) of ``accelerator`` for an op."""

    def block_of(query: BlockQuery) -> tuple[int, int, int]:
        op = CostOp(
            kind=query.kind,
            ifm=CostFm(query.ifm, query.ifm_bits, False, None),
            ofm=CostFm(query.ofm, query.ofm_bits, False, None),
            kernel=query.kernel,
            scaled=query.scaled,
        )
        block = find_block(accelerator, op).ofm_block
        return block.h, block.w, block.c

    return block_of
