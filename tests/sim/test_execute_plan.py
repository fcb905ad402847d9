"""Plans executed through bytes at their addresses equal the interpreter; broken ones do not."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.plan_damage import differing, moved, offset_of, with_rows
from npusched.demos import demo
from npusched.errors import SimError
from npusched.graph.types import Access, Layout
from npusched.hardware import load_target
from npusched.ir import DataType
from npusched.schedule import check_plan
from npusched.schedule.types import BufferKind
from npusched.sim.execute_plan import PlanExecutor, execute_plan
from npusched.sim.plan_memory import ByteMemory, Place
from npusched.tflite import Builder
from tests.sim.plan_kit import graph_for, interpreted, plans_for, runs_on_npu
from tests.sim.sim_models import corpus_model

CONFIGS = ("ethos-u55-128", "ethos-u65-256")


def _all_plans_equal(content: bytes, config: str) -> None:
    graph = graph_for(content, config)
    inputs, values = interpreted(content, config)
    for plan in plans_for(content, config):
        executed = execute_plan(graph, plan, inputs)
        assert differing(executed, values) == []
        written = {op.final_ofm.tensor for op in graph.ops}
        assert written <= {*executed.tensors, *executed.rolled}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["mlpt_vww", "mlpt_resnet8", "mlpt_kws"])
def test_mlperf_tiny_plans(corpus_dir: Path, name: str, config: str) -> None:
    _all_plans_equal(corpus_model(corpus_dir, name), config)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["block", "unet"])
def test_demo_plans(name: str, config: str) -> None:
    _all_plans_equal(demo(name), config)


@pytest.mark.parametrize("seed", range(40))
def test_random_plans_agree_with_the_checker(seed: int) -> None:
    """A plan without faults computes what the graph means; one with faults is refused."""
    pytest.importorskip("ai_edge_litert", reason="the module of the networks needs LiteRT")
    from tests.sim.test_random_networks import network

    content, _ = network(seed)
    config = CONFIGS[seed % 2]
    graph = graph_for(content, config)
    if not runs_on_npu(graph):
        pytest.skip("a part of this network runs on the CPU")
    inputs, values = interpreted(content, config)
    for plan in plans_for(content, config):
        if check_plan(graph, load_target(config), plan):
            with pytest.raises(SimError):
                execute_plan(graph, plan, inputs)
        else:
            assert differing(execute_plan(graph, plan, inputs), values) == []


def pyramid() -> bytes:
    builder = Builder("pyramid", seed=2)
    x = builder.input("x", (1, 41, 24, 16), "int8")
    x = builder.conv2d(x, 24, (3, 3), activation="RELU")
    y = builder.depthwise_conv2d(x, 3)
    x = builder.add(x, y)
    x = builder.conv2d(x, 16, (3, 3), stride=2)
    x = builder.conv2d(x, 32, (5, 3))
    builder.output(builder.max_pool2d(x, 3, stride=2, padding="SAME"))
    return builder.build()


def test_one_row_fewer_fails() -> None:
    """Refused by the tags, and without them the values are wrong."""
    content, config = pyramid(), "ethos-u55-128"
    graph = graph_for(content, config)
    inputs, values = interpreted(content, config)
    tried = 0
    for plan in plans_for(content, config):
        for number, buffer in enumerate(plan.buffers):
            if buffer.kind is not BufferKind.ROLLING:
                continue
            fewer = with_rows(plan, number, -1)
            with pytest.raises(SimError):
                execute_plan(graph, fewer, inputs)
            if buffer.rows > 1:
                executed = execute_plan(graph, fewer, inputs, is_checked=False)
                assert differing(executed, values), buffer.name
                tried += 1
            with pytest.raises(SimError, match="does not fit its place"):
                execute_plan(graph, with_rows(plan, number, 1 + buffer.rows), inputs)
    assert tried >= 3


def test_overlapping_addresses_fail() -> None:
    """Any two buffers that are alive together: refused; most of them also give wrong values."""
    content, config = pyramid(), "ethos-u55-128"
    graph = graph_for(content, config)
    inputs, values = interpreted(content, config)
    wrong = tried = 0
    for plan in plans_for(content, config):
        maps = [k for k, b in enumerate(plan.buffers) if b.kind is not BufferKind.WEIGHTS]
        for first, second in combinations(maps, 2):
            a, b = plan.buffers[first], plan.buffers[second]
            together = max(a.first_step, b.first_step) < min(a.end_step, b.end_step)
            if not together or a.memory != b.memory or b.in_place_of == a.tensor:
                continue
            if a.in_place_of == b.tensor or offset_of(plan, first) == offset_of(plan, second):
                continue
            overlapping = moved(plan, second, offset_of(plan, first))
            with pytest.raises(SimError):
                execute_plan(graph, overlapping, inputs)
            if offset_of(plan, first) + b.size_bytes > dict(plan.allocations)[a.memory].peak_bytes:
                continue
            executed = execute_plan(graph, overlapping, inputs, is_checked=False)
            tried += 1
            wrong += bool(differing(executed, values))
    assert tried >= 5
    assert wrong >= tried // 2


def test_overwritten_weights_are_refused() -> None:
    """The tags notice it even if nobody compares addresses."""
    content, config = demo("block"), "ethos-u55-128"
    graph = graph_for(content, config)
    inputs, _ = interpreted(content, config)
    plan = plans_for(content, config)[0]
    found = [
        (w, m)
        for w, weights in enumerate(plan.buffers)
        for m, other in enumerate(plan.buffers)
        if weights.kind is BufferKind.WEIGHTS
        and other.kind is not BufferKind.WEIGHTS
        and other.memory == weights.memory
        and other.first_step == weights.first_step
        and weights.end_step - weights.first_step > 1
    ]
    assert found
    weights, other = found[0]
    executor = PlanExecutor(graph, plan)
    broken = moved(plan, weights, offset_of(plan, other))
    executor.offsets[weights] = offset_of(broken, weights)
    with pytest.raises(SimError, match="overwritten while they are needed"):
        executor.run(inputs)


def _place(layout: Layout, rows: int = 0) -> Place:
    return Place(
        number=3,
        name="map",
        memory="sram",
        offset_bytes=32,
        size_bytes=2048,
        layout=layout,
        rolling_rows=rows,
    )


def test_bricks_by_hand() -> None:
    """int16 (1, 4, 3, 20): row 2, column 1, channel 17 in brick 1 of two.

    A row is 2 bricks * 3 columns * 16 channels * 2 bytes = 192 bytes. In a rolling buffer of 2
    rows, row 2 is in slot 0: 32 + 0 + 1 * 96 + 1 * 32 + 1 * 2 = 162; whole: 162 + 2 * 192 = 546.
    """
    access = Access(tensor=0, shape=(1, 4, 3, 20), view=(1, 4, 3, 20), dtype=DataType.INT16)
    content = np.arange(4 * 3 * 20, dtype=np.int16).reshape(1, 4, 3, 20) * 100
    wanted = content[0, 2, 1, 17]
    memory = ByteMemory("sram", 4096)
    memory.write(_place(Layout.NHCWB16), access, content)
    assert memory.data[546:548].view(np.int16)[0] == wanted
    rolling = _place(Layout.NHCWB16, 2)
    for row in range(3):
        memory.write(rolling, access, content[:, row : row + 1], (row, row + 1))
    assert memory.data[162:164].view(np.int16)[0] == wanted
    np.testing.assert_array_equal(memory.read(rolling, access, (1, 3)), content[:, 1:3])
    with pytest.raises(SimError, match="row 0 of 'map' is not where it should be"):
        memory.read(rolling, access, (0, 1))


def test_slices_in_bricks_and_rows() -> None:
    """Channels 5 to 24 of 40, every second row and column from 1."""
    access = Access(
        tensor=0,
        shape=(1, 5, 3, 20),
        view=(1, 6, 4, 40),
        offset=(0, 1, 1, 5),
        step_h=2,
        step_w=2,
        dtype=DataType.INT8,
    )
    content = np.random.default_rng(1).integers(-128, 128, (1, 3, 2, 20), np.int8)
    for layout in Layout:
        memory = ByteMemory("sram", 4096)
        memory.write(_place(layout), access, content)
        np.testing.assert_array_equal(memory.read(_place(layout), access), content)
        whole = replace(access, shape=access.view, offset=(0, 0, 0, 0), step_h=1, step_w=1)
        with pytest.raises(SimError, match="holds nothing"):
            memory.read(_place(layout), whole)
