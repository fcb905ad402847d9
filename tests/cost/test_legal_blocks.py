"""Blocks that a kernel may have."""

from __future__ import annotations

import pytest

from npusched.cost.blocks import find_block, legal_blocks
from npusched.cost.types import CostFm, CostOp
from npusched.graph.types import Kernel, KernelKind
from npusched.hardware import load_target


def _op(kind: KernelKind, side: int, channels: int, depth: int) -> CostOp:
    kernel = Kernel(h=3, w=3, pad_top=1, pad_bottom=1, pad_left=1, pad_right=1)
    return CostOp(
        kind=kind,
        ifm=CostFm((1, side, side, channels), 8, True, "sram"),
        ofm=CostFm((1, side, side, depth), 8, True, "sram"),
        kernel=kernel,
        has_scales=True,
    )


def _counts(op: CostOp, block: tuple[int, int, int]) -> tuple[int, int, int]:
    _, h, w, _ = op.ofm.shape
    return -(-h // block[0]), -(-w // block[1]), block[2]


@pytest.mark.parametrize("config", ["ethos-u55-32", "ethos-u55-128", "ethos-u65-512"])
@pytest.mark.parametrize("kind", [KernelKind.CONV2D, KernelKind.DEPTHWISE, KernelKind.MAX_POOL])
@pytest.mark.parametrize("side", [1, 7, 24, 56])
def test_velas_block_stands_among_them(config: str, kind: KernelKind, side: int) -> None:
    """Every listed block is within the limits; one cuts the OFM as Vela's does."""
    accelerator = load_target(config).accelerator
    assert accelerator is not None
    op = _op(kind, side, 32, 48 if kind is KernelKind.CONV2D else 32)
    rule = find_block(accelerator, op)
    found = legal_blocks(accelerator, op)
    shapes = [(b.ofm_block.h, b.ofm_block.w, b.ofm_block.c) for b in found]
    assert len(set(shapes)) == len(shapes) > (0 if side == 1 else 3)
    limit, micro = accelerator.max_ofm_block, rule.ofm_ublock
    for h, w, c in shapes:
        assert h <= limit.h
        assert w <= limit.w
        assert c <= limit.c
        assert (h % micro.h, w % micro.w, c % micro.c) == (0, 0, 0)
    wanted = (rule.ofm_block.h, rule.ofm_block.w, rule.ofm_block.c)
    alike = [shape for shape in shapes if _counts(op, shape) == _counts(op, wanted)]
    assert len(alike) == 1
    assert alike[0][0] <= wanted[0]
    assert alike[0][1] <= wanted[1]
    assert {b.traversal for b in found} == {rule.traversal}


def test_u85_lists_convolutions_only() -> None:
    accelerator = load_target("ethos-u85-256").accelerator
    assert accelerator is not None
    conv = _op(KernelKind.CONV2D, 24, 32, 48)
    rule, found = find_block(accelerator, conv), legal_blocks(accelerator, conv)
    assert len(found) > 3
    wanted = (rule.ofm_block.h, rule.ofm_block.w, rule.ofm_block.c)
    assert _counts(conv, wanted) in {
        _counts(conv, (b.ofm_block.h, b.ofm_block.w, b.ofm_block.c)) for b in found
    }
    assert legal_blocks(accelerator, _op(KernelKind.DEPTHWISE, 24, 32, 32)) == ()
