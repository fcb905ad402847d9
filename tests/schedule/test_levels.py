"""Fusion levels of the file's ops, worked by hand."""

from __future__ import annotations

import numpy as np

from npusched.graph.batchnorm import find_batch_norms
from npusched.ir import (
    ActivationKind,
    DataType,
    Op,
    OpKind,
    Padding,
    Quantization,
    Subgraph,
    Tensor,
)
from npusched.ir.options import BinaryOptions, ConvOptions, Options
from npusched.schedule.levels import Level, as_stored, converted, source_levels, unfused
from npusched.schedule.types import Amounts

SCALE = Quantization(scales=(0.1,), zero_points=(0,))


class Net:
    """A few ops on int8 tensors, by hand."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.outputs: list[int] = []

    def tensor(self, *shape: int, constant: bool = False) -> int:
        data = np.ones(shape, dtype=np.int8) if constant else None
        self.tensors.append(
            Tensor(
                index=len(self.tensors),
                name=f"t{len(self.tensors)}",
                shape=shape,
                dtype=DataType.INT8,
                quantization=SCALE,
                data=data,
            )
        )
        return len(self.tensors) - 1

    def op(self, kind: OpKind, inputs: list[int], shape: tuple[int, ...], options: Options) -> int:
        out = self.tensor(*shape)
        self.ops.append(
            Op(
                index=len(self.ops),
                kind=kind,
                inputs=tuple(inputs),
                outputs=(out,),
                options=options,
            )
        )
        return out

    def batch_norm(self, x: int, relu: bool = True) -> int:
        shape = self.tensors[x].shape
        y = self.op(OpKind.MUL, [x, self.tensor(shape[-1], constant=True)], shape, BinaryOptions())
        y = self.op(OpKind.ADD, [y, self.tensor(shape[-1], constant=True)], shape, BinaryOptions())
        return self.op(OpKind.RELU6, [y], shape, BinaryOptions()) if relu else y

    def subgraph(self) -> Subgraph:
        return Subgraph(
            index=0,
            name="main",
            tensors=tuple(self.tensors),
            ops=tuple(self.ops),
            inputs=(0,),
            outputs=tuple(self.outputs),
        )


CONV = ConvOptions(padding=Padding.SAME)


def _levels(net: Net) -> dict[str, Level]:
    free = Amounts()
    return {x.level: x for x in source_levels(net.subgraph(), lambda _: free, lambda _: free)}


def _block(h: int, w: int, c: int, d: int) -> Net:
    net = Net()
    x = net.tensor(1, h, w, c)
    x = net.op(
        OpKind.DEPTHWISE_CONV_2D, [x, net.tensor(1, 3, 3, c, constant=True)], (1, h, w, c), CONV
    )
    x = net.batch_norm(x)
    x = net.op(OpKind.CONV_2D, [x, net.tensor(d, 1, 1, c, constant=True)], (1, h, w, d), CONV)
    net.outputs.append(net.batch_norm(x))
    return net


def test_worked_example() -> None:
    """56x56x32 int8 = 100,352 B (a), 56x56x64 = 200,704 B (b).

    As stored, 8 calls: dw, MUL, ADD, RELU6 read and write a; pw reads a, writes b; MUL, ADD,
    RELU6 read and write b: 4*2a + a + b + 3*2b = 2,308,096.
    L0, 6 calls (MUL+ADD one): 3*2a + a + b + 2*2b = 1,705,984. L1, 2 calls: 2a + a + b = 501,760.
    """
    levels = _levels(_block(56, 56, 32, 64))
    got = {k: (v.traffic_bytes, v.dispatches) for k, v in levels.items()}
    assert got == {"as_stored": (2_308_096, 8), "L0": (1_705_984, 6), "L1": (501_760, 2)}


def test_second_block_by_hand() -> None:
    """20x30x8: a = 4,800 B; 20x30x24: b = 14,400 B.

    As stored 9a + 7b = 43,200 + 100,800 = 144,000. L0: 7a + 5b = 33,600 + 72,000 = 105,600.
    L1: 3a + b = 28,800.
    """
    levels = _levels(_block(20, 30, 8, 24))
    got = [levels[k].traffic_bytes for k in ("as_stored", "L0", "L1")]
    assert got == [144_000, 105_600, 28_800]


def test_batch_norm_behind_a_pool_is_not_folded() -> None:
    """Pool 4x4x8 -> 2x2x8 (128 -> 32 B), then MUL+ADD (32 B each way): it stays one call in L1."""
    net = Net()
    x = net.op(OpKind.MAX_POOL_2D, [net.tensor(1, 4, 4, 8)], (1, 2, 2, 8), BinaryOptions())
    net.outputs.append(net.batch_norm(x, relu=False))
    (norm,) = find_batch_norms(net.subgraph())
    assert norm.linear is None
    assert "MAX_POOL_2D #0" in norm.blocker
    levels = _levels(net)
    assert (levels["as_stored"].dispatches, levels["as_stored"].traffic_bytes) == (3, 160 + 128)
    assert (levels["L1"].dispatches, levels["L1"].traffic_bytes) == (2, 160 + 64)


def test_second_reader_stops_folding() -> None:
    net = Net()
    x = net.op(
        OpKind.CONV_2D,
        [net.tensor(1, 4, 4, 8), net.tensor(8, 1, 1, 8, constant=True)],
        (1, 4, 4, 8),
        CONV,
    )
    net.outputs += [net.batch_norm(x), x]
    (norm,) = find_batch_norms(net.subgraph())
    assert norm.linear is None
    assert "read elsewhere" in norm.blocker


def test_activation_field_is_a_call_of_its_own_at_l0() -> None:
    """Conv with RELU6 field, 128 B in and out: stored 256 B, 1 call; L0 512 B, 2 calls."""
    net = Net()
    relu = ConvOptions(padding=Padding.SAME, activation=ActivationKind.RELU6)
    weights = [net.tensor(1, 4, 4, 8), net.tensor(8, 1, 1, 8, constant=True)]
    net.outputs.append(net.op(OpKind.CONV_2D, weights, (1, 4, 4, 8), relu))
    graph = net.subgraph()
    assert [len(as_stored(graph)), len(unfused(graph, [])), len(converted(graph, []))] == [1, 2, 1]
    levels = _levels(net)
    assert [levels[k].traffic_bytes for k in ("as_stored", "L0", "L1")] == [256, 512, 256]
