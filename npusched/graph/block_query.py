"""What lowering must ask of the hardware: the block size of an op's result."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from npusched.graph.types import Kernel, KernelKind, Shape4


class BlockQuery(msgspec.Struct, frozen=True):
    """The op whose block size is wanted. ``kernel`` is 1x1 with the op's dilation."""

    kind: KernelKind
    ifm: Shape4
    ofm: Shape4
    ifm_bits: int
    ofm_bits: int
    kernel: Kernel
    scaled: bool


BlockOf = Callable[[BlockQuery], tuple[int, int, int]]
"""Returns the OFM block (h, w, c) that the hardware would use; see ``cost.pieces``."""


def default_block(query: BlockQuery) -> tuple[int, int, int]:
    """Return a block without knowing the accelerator: the 4x4 that U55's search favours."""
    _, height, width, depth = query.ofm
    return min(height, 4), min(width, 4), depth
