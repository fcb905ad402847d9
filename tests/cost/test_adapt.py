"""Scheduled ops as cost ops: layouts, memories, tables, followers."""

from __future__ import annotations

import pytest

from npusched.cost.adapt import cost_op, table_bytes
from npusched.graph.types import (
    Access,
    Activation,
    FeatureMap,
    KernelKind,
    Layout,
    Placement,
    ScheduledOp,
    SubOp,
)
from npusched.ir import DataType

SHAPE = (1, 8, 8, 24)


def access(tensor: int, dtype: DataType = DataType.INT8) -> Access:
    return Access(tensor=tensor, shape=SHAPE, view=SHAPE, dtype=dtype)


def feature_map(number: int, layout: Layout, *, constant: bool = False) -> FeatureMap:
    return FeatureMap(
        id=number,
        name=str(number),
        shape=SHAPE,
        dtype=DataType.INT8,
        layout=layout,
        is_constant=constant,
    )


MAPS = {
    0: feature_map(0, Layout.NHWC),
    1: feature_map(1, Layout.NHCWB16),
    2: feature_map(2, Layout.NHWC, constant=True),
}


def scheduled(**changes: object) -> ScheduledOp:
    fields: dict[str, object] = {
        "id": 0,
        "kind": KernelKind.ADD,
        "placement": Placement.NPU,
        "source_ops": ((0, 0),),
        "ifms": (access(0), access(2)),
        "ofms": (access(1),),
        **changes,
    }
    return ScheduledOp(**fields)  # type: ignore[arg-type]


def test_memories_and_layouts() -> None:
    op = cost_op(scheduled(), MAPS, {0: "dram", 1: "sram"}, const_memory="flash")
    assert (op.ifm.memory, op.ifm.brick) == ("dram", False)
    assert op.ifm2 is not None
    assert op.ifm2.memory == "flash"
    assert (op.written.memory, op.written.brick) == ("sram", True)


def test_chain_with_a_table() -> None:
    """Add (int16 result) -> chained Mul whose IFM1 is the chain -> fused table to int8."""
    chained = SubOp(
        kind=KernelKind.MUL,
        source_ops=((0, 1),),
        ofm=access(-1, DataType.INT16),
        chained=True,
        ifms=(access(0, DataType.INT16),),
        chain_input=1,
    )
    table = Activation(lut=(0,) * 256, lut_dtype=DataType.INT8)
    fused = SubOp(kind=KernelKind.LUT, source_ops=((0, 2),), ofm=access(1), activation=table)
    op = cost_op(
        scheduled(ofms=(access(-1, DataType.INT16),), sub_ops=(chained, fused)), MAPS, {1: "sram"}
    )
    assert op.ofm.memory is None
    assert op.ofm.brick, "what never reaches memory counts as bricks"
    first, second = op.subs
    assert first.ifm is not None
    assert first.ifm2 is None
    assert [sub.ifm_bits for sub in op.subs] == [16, 16]
    assert second.ofm.bits == 8
    assert (op.lut_bytes, op.lut_is_primary) == (256, False)


def test_own_table_is_loaded_visibly() -> None:
    table = Activation(lut=(0,) * 512, lut_dtype=DataType.INT16)
    op = cost_op(scheduled(kind=KernelKind.TANH, ifms=(access(0),), activation=table), MAPS, {})
    assert (op.lut_bytes, op.lut_is_primary) == (2048, True)
    clamp = scheduled(activation=Activation(minimum=0, maximum=6))
    assert cost_op(clamp, MAPS, {}).lut_bytes == 0
    assert table_bytes(None) == 0


def test_cpu_ops_have_no_kernel() -> None:
    with pytest.raises(ValueError, match="runs on the CPU"):
        cost_op(scheduled(kind=KernelKind.CPU), MAPS, {})
