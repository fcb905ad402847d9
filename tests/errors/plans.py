"""Triggers of the errors of executing plans: the interpreter, the bytes, the ops on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache

import numpy as np
from msgspec.structs import replace

from benchmarks.plan_damage import moved, offset_of
from npusched.demos import demo
from npusched.graph.types import Access, Layout, Placement
from npusched.ir import DataType, OpKind
from npusched.schedule import Plan
from npusched.schedule.types import BufferKind
from npusched.sim import host, host_ops
from npusched.sim.execute_plan import PlanExecutor, _Execution, check_addresses, execute_plan
from npusched.sim.host import HostGroup, check_variables, run_host
from npusched.sim.interpret import checked, constant_array, region_of
from npusched.sim.meaning import meaning_of, numpy_type
from npusched.sim.plan_memory import ByteMemory
from npusched.sim.plan_memory import Place as Bytes
from npusched.tflite import Builder, read_model
from tests.errors.place import Place, Table, Trigger
from tests.sim.plan_kit import graph_for, inputs_for, plans_for
from tests.tflite.builder_zoo import call_once

CONFIG = "ethos-u55-128"
NAME = "m\nap\x1b[2J"


@cache
def _block() -> bytes:
    return demo("block")


def _plan() -> Plan:
    return plans_for(_block(), CONFIG)[0]


def _execution(content: bytes, plan: Plan) -> _Execution:
    executor = PlanExecutor(graph_for(content, CONFIG), plan, is_checked=False)
    return _Execution(executor, inputs_for(content, 0, 1)[0])


def _run(change: Callable[[Plan], Plan]) -> Trigger:
    """Execute a plan after a change to it."""

    def run(_: Place) -> None:
        plan = change(_plan())
        execute_plan(graph_for(_block(), CONFIG), plan, inputs_for(_block(), 0, 1)[0])

    return run


def _late_buffer(plan: Plan) -> Plan:
    first = plan.buffers[0]
    return replace(plan, buffers=(replace(first, first_step=1), *plan.buffers[1:]))


def _overlapping(_: Place) -> None:
    plan = _plan()
    first, second = _together(plan)
    check_addresses(moved(plan, second, offset_of(plan, first)))


def _together(plan: Plan) -> tuple[int, int]:
    """Two feature maps that are needed at the same time, in one memory."""
    return next(
        (i, k)
        for i, a in enumerate(plan.buffers)
        for k, b in enumerate(plan.buffers)
        if i < k
        and a.memory == b.memory
        and BufferKind.WEIGHTS not in (a.kind, b.kind)
        and max(a.first_step, b.first_step) < min(a.end_step, b.end_step)
        and a.tensor not in (b.in_place_of, b.tensor)
        and a.in_place_of != b.tensor
    )


def _stepped_stripes(_: Place) -> None:
    """An op that takes every second row, asked for one row of its result."""
    b = Builder("stepped")
    x = b.max_pool2d(b.input("x", (1, 8, 8, 16)), 2, stride=1)
    b.output(b.strided_slice(x, (0, 0, 0, 0), (1, 7, 7, 16), (1, 2, 2, 1)))
    content = b.build()
    execution = _execution(content, plans_for(content, CONFIG)[0])
    meaning = next(
        meaning
        for each in execution.meanings
        for meaning in each
        if any(access.step_h > 1 for access in meaning.op.ifms)
    )
    execution._kernel(meaning, (0, 1))


def _written_over_its_source(_: Place) -> None:
    plan = _plan()
    first, second = _together(plan)
    execution = _execution(_block(), plan)
    source, target = (execution._place(k, plan.buffers[k]) for k in (first, second))
    execution._check_apart(source, dataclasses.replace(target, offset_bytes=source.offset_bytes))


def _no_rows(_: Place) -> None:
    buffer = replace(_plan().buffers[0], kind=BufferKind.ROLLING, rows=0, name=NAME)
    _execution(_block(), _plan())._place(0, buffer)


def _bytes(rows: int = 0, size_bytes: int = 2048) -> Bytes:
    return Bytes(
        number=3,
        name=NAME,
        memory="sram",
        offset_bytes=32,
        size_bytes=size_bytes,
        layout=Layout.NHWC,
        rolling_rows=rows,
    )


_ACCESS = Access(tensor=0, shape=(1, 4, 3, 20), view=(1, 4, 3, 20), dtype=DataType.INT8)


def _overwritten_weights(_: Place) -> None:
    memory = ByteMemory("sram", 4096)
    memory.claim(_bytes())
    memory.write(dataclasses.replace(_bytes(), number=4), _ACCESS, np.zeros((1, 4, 3, 20), np.int8))
    memory.check_claim(_bytes())


def _cpu_op(_: Place) -> None:
    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 8, 8, 4), "float32")))
    graph = graph_for(b.build(), CONFIG)
    assert graph.ops[0].placement is Placement.CPU
    meaning_of(graph.ops[0], graph.family)


def _nothing_of_the_host(place: Place) -> None:
    place.patch.setattr(host, "reference_values", lambda *_, **__: {})
    run_host(HostGroup((0,), (), (7,), b"", is_stateful=False), {})


def _crossing_variable(_: Place) -> None:
    """One group assigns the variable, the next one reads it."""
    graph = read_model(call_once(), "m").subgraphs[0]
    of = {op.kind: op.index for op in graph.ops}
    groups = [
        HostGroup((of[kind],), (), (), b"", is_stateful=True)
        for kind in (OpKind.ASSIGN_VARIABLE, OpKind.READ_VARIABLE)
    ]
    check_variables(graph, groups)


def _another_size(place: Place) -> None:
    """A host op gives more values than the file says."""
    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 4), "float32")))
    content = b.build()
    graph = graph_for(content, CONFIG)
    ops = host_ops.HostOps(read_model(content, "m"), graph)
    place.patch.setattr(
        host_ops, "run_host", lambda group, _: {group.outputs[0]: np.zeros((1, 99), np.float32)}
    )
    ops.run(graph.ops[0], [{0: np.zeros((1, 4), np.float32)}])


def _input_of_another_size(_: Place) -> None:
    graph = graph_for(_block(), CONFIG)
    checked(graph, [np.zeros(3, np.int8)])


def _constant_without_values(_: Place) -> None:
    graph = graph_for(_block(), CONFIG)
    constant_array(graph.feature_maps[graph.inputs[0]])


PLANS: Table = {
    "sim.execute_plan:_offsets": _run(lambda plan: replace(plan, allocations=())),
    "sim.execute_plan:check_addresses": _overlapping,
    "sim.execute_plan:_Execution._kernel": _stepped_stripes,
    "sim.execute_plan:_Execution._check_apart": _written_over_its_source,
    "sim.execute_plan:_Execution._find": _run(_late_buffer),
    "sim.execute_plan:_Execution._place": _no_rows,
    "sim.plan_memory:ByteMemory.check_claim": _overwritten_weights,
    "sim.plan_memory:ByteMemory._rows": lambda _: ByteMemory("sram", 4096).read(
        _bytes(rows=2), _ACCESS, (0, 3)
    ),
    "sim.plan_memory:ByteMemory._check": lambda _: ByteMemory("sram", 4096).read(_bytes(), _ACCESS),
    "sim.plan_memory:ByteMemory._arrays": lambda _: ByteMemory("sram", 4096).read(
        _bytes(size_bytes=9), _ACCESS
    ),
    "sim.host:run_host": _nothing_of_the_host,
    "sim.host:check_variables": _crossing_variable,
    "sim.host_ops:HostOps.run": _another_size,
    "sim.interpret:checked": lambda _: checked(graph_for(_block(), CONFIG), []),
    "sim.interpret:checked#2": _input_of_another_size,
    "sim.interpret:constant_array": _constant_without_values,
    "sim.interpret:region_of": lambda _: region_of(np.zeros(8, np.int8), _ACCESS),
    "sim.meaning:numpy_type": lambda _: numpy_type(DataType.INT4),
    "sim.meaning:_refuse": _cpu_op,
}
