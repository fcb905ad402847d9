"""Cycles of ops on the host CPU, and of handing work to the NPU (GROUND_TRUTH §5).

A host kernel costs one dispatch, so many cycles per MAC and so many per result element, by cost
class. An NPU call costs a fixed number of CPU cycles (driver, interrupt), and cache maintenance for
every byte that changes hands.
"""

from __future__ import annotations

import math

import msgspec

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Access, ScheduledOp
from npusched.hardware.target import HostCpu, Target
from npusched.ops.catalogue import spec
from npusched.ops.macs import HostWork


class CpuCost(msgspec.Struct, frozen=True):
    """Cost of one op on the host. ``cycles`` at the CPU's clock; bytes by memory name, sorted.

    The bytes are logical ones (no padding): each operand once.
    """

    cycles: int
    macs: int
    bytes_read: tuple[tuple[str, int], ...]
    bytes_written: tuple[tuple[str, int], ...]


def host_cycles(cpu: HostCpu, work: HostWork) -> int:
    """CPU cycles of one kernel call, rounded up; classes absent from a table are free there."""
    per_mac = cpu.cycles_per_mac.get(work.cost_class.value, 0.0)
    per_element = cpu.cycles_per_element.get(work.cost_class.value, 0.0)
    return math.ceil(cpu.dispatch_cycles + per_mac * work.macs + per_element * work.elements)


def npu_call_cycles(cpu: HostCpu, handed_over_bytes: int) -> int:
    """CPU cycles of one NPU call: driver, and cache maintenance of what changes hands."""
    maintenance = cpu.cache_maintenance_cycles_per_byte * handed_over_bytes
    return math.ceil(cpu.npu_invoke_cycles + maintenance)


def cpu_cost(
    target: Target, op: ScheduledOp, graph: OpGraph, *, work: HostWork | None = None
) -> CpuCost:
    """Cost of a scheduled CPU op.

    ``work`` (``ops.host_work`` of its source op) is exact; without it the op is costed by its
    results' elements in the cost class of its source op's kind, MACs unknown.
    """
    if work is None:
        work = op.host_work or _work_from_shapes(op, graph)
    return CpuCost(
        cycles=host_cycles(target.cpu, work),
        macs=work.macs,
        bytes_read=_bytes(target, graph, op.ifms),
        bytes_written=_bytes(target, graph, op.ofms),
    )


def _work_from_shapes(op: ScheduledOp, graph: OpGraph) -> HostWork:
    kind = graph.sources[op.source_ops[0][1]].kind
    return HostWork(
        cost_class=spec(kind).cost_class, macs=0, elements=sum(ofm.elements for ofm in op.ofms)
    )


def _bytes(
    target: Target, graph: OpGraph, accesses: tuple[Access, ...]
) -> tuple[tuple[str, int], ...]:
    """Logical bytes of the regions touched: constants in their memory, the rest in the arena."""
    sums: dict[str, int] = {}
    for access in accesses:
        stored = graph.feature_maps.get(access.tensor)
        constant = stored is not None and stored.is_constant
        memory = target.roles.const if constant else target.roles.arena
        size = (access.elements * access.dtype.bits + 7) // 8
        sums[memory] = sums.get(memory, 0) + size
    return tuple(sorted(sums.items()))
