"""Host CPU cycles: table lookup, stand-ins, NPU calls, CPU ops of a graph."""

from __future__ import annotations

import pytest

from npusched.cost.cpu import cpu_cost, host_cycles, npu_call_cycles
from npusched.graph.opgraph import OpGraph, SourceOp, SourcePlacement
from npusched.graph.types import Access, FeatureMap, KernelKind, Placement, ScheduledOp
from npusched.hardware import load_target, target_names
from npusched.hardware.target import HostCpu
from npusched.ir import DataType, OpKind
from npusched.ops.catalogue import CostClass
from npusched.ops.macs import HostWork

CPU = HostCpu(
    name="test",
    clock_hz=1e8,
    cycles_per_mac={"conv": 1.5},
    cycles_per_element={"conv": 10.0, "elementwise": 4.0, "copy": 1.0, "other": 7.0},
    dispatch_cycles=100,
    npu_invoke_cycles=2000,
    cache_maintenance_cycles_per_byte=0.25,
)


def work(cost_class: CostClass, macs: int, elements: int) -> HostWork:
    return HostWork(cost_class=cost_class, macs=macs, elements=elements)


def test_cycles_by_hand() -> None:
    """Conv of 1000 MACs and 10 results: 100 + 1500 + 100. Elementwise, 25: 100 + 100."""
    assert host_cycles(CPU, work(CostClass.CONV, 1000, 10)) == 1700
    assert host_cycles(CPU, work(CostClass.ELEMENTWISE, 0, 25)) == 200


def test_classes_without_an_entry_cost_a_dispatch() -> None:
    """Elementwise has no price per MAC here, sorting none at all."""
    assert host_cycles(CPU, work(CostClass.ELEMENTWISE, 77, 25)) == 200
    assert host_cycles(CPU, work(CostClass.SORT, 5, 50)) == 100


def test_npu_call() -> None:
    """2000 for the driver, a quarter of a cycle for each of 4096 bytes."""
    assert npu_call_cycles(CPU, 4096) == 3024


@pytest.mark.parametrize("name", target_names())
def test_every_host_costs_every_class(name: str) -> None:
    """No class of work but control flow is free on any shipped host."""
    cpu = load_target(name).cpu
    for cost_class in set(CostClass) - {CostClass.CONTROL}:
        assert host_cycles(cpu, work(cost_class, 10_000, 10_000)) > cpu.dispatch_cycles, cost_class


def test_cpu_op_of_a_graph() -> None:
    """Bytes are logical ones, booked to the arena and (constants) to the constants' memory."""
    target = load_target("ethos-u55-128")
    shape = (1, 2, 3, 5)

    def access(tensor: int) -> Access:
        return Access(tensor=tensor, shape=shape, view=shape, dtype=DataType.INT16)

    op = ScheduledOp(
        id=0,
        kind=KernelKind.CPU,
        placement=Placement.CPU,
        source_ops=((0, 0),),
        ifms=(access(0), access(1)),
        ofms=(access(2),),
    )
    maps = {
        number: FeatureMap(
            id=number, name=str(number), shape=shape, dtype=DataType.INT16, is_constant=number == 1
        )
        for number in range(3)
    }
    source = SourceOp(ref=(0, 0), kind=OpKind.ADD, placement=SourcePlacement.CPU)
    graph = OpGraph(
        family=None,
        subgraph=0,
        ops=(op,),
        feature_maps=maps,
        inputs=(0,),
        outputs=(2,),
        sources=(source,),
    )
    cost = cpu_cost(target, op, graph)
    assert dict(cost.bytes_read) == {target.roles.arena: 60, target.roles.const: 60}
    assert dict(cost.bytes_written) == {target.roles.arena: 60}
    assert cost.cycles == host_cycles(target.cpu, work(CostClass.ELEMENTWISE, 0, 30))
    told = cpu_cost(target, op, graph, work=work(CostClass.CONV, 999, 1))
    assert told.macs == 999
