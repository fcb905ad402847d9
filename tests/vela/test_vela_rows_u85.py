"""Costs of U85 rows, given Vela's blocks, on a generated network: cycles and memory cycles."""

from __future__ import annotations

import pytest

from benchmarks.crosscheck import slices_of
from npusched.graph.types import KernelKind
from npusched.hardware import load_target
from npusched.tflite.builder import Builder
from npusched.tflite.reader import read_model
from npusched.vela.options import VelaOptions
from npusched.vela.recost import compatible_costs
from npusched.vela.rows import read_rows
from npusched.vela.runner import compile_model

SIZES = [128, 256, 512, 1024, 2048]


def network(dtype: str) -> bytes:
    """Activations that write slices, staged graph inputs, transposed staged results, chains."""
    net = Builder(seed=11)
    x = net.input("x", (1, 24, 20, 48), dtype)
    left = net.conv2d(x, 64, 1, activation="RELU6")
    right = net.conv2d(x, 32, 3, activation="RELU")
    joined = net.concat([left, right], 3)
    net.output(net.transpose(net.conv2d(joined, 80, (5, 1)), (0, 3, 2, 1)))
    net.output(net.conv2d(net.input("z", (1, 12, 24, 96), dtype), 256, 1))
    pooled = net.avg_pool2d(x, 2, stride=2)
    net.output(net.pad(net.add(pooled, 0.5, activation="RELU"), ((0, 0), (1, 1), (2, 0), (0, 0))))
    net.output(
        net.mul(net.sub(net.depthwise_conv2d(x, 3), x), net.input("y", (1, 24, 20, 48), dtype))
    )
    net.output(net.resize_nearest(pooled, (24, 20)))
    net.output(net.softmax(net.fully_connected(pooled, 90)))
    return net.build()


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("macs", SIZES)
def test_costs_equal_vela(macs: int, dtype: str) -> None:
    """NPU cycles, cycles of every memory and MACs of each row, for two staging budgets."""
    target = load_target(f"ethos-u85-{macs}")
    content = network(dtype)
    model = read_model(content, "network")
    for arena_bytes in (1 << 15, 1 << 22):
        options = VelaOptions(arena_cache_size_bytes=arena_bytes)
        result = compile_model(content, target, options, cache=None)
        rows = read_rows(result.database, target)
        costs = compatible_costs(target, rows, slices_of(target, result, model, rows))
        for row in rows:
            if row.op.kind is not KernelKind.CPU:
                cost = costs[row.id]
                busy = dict.fromkeys((memory.name for memory in target.memories), 0)
                ours = (cost.npu_cycles, busy | dict(cost.memory_cycles), cost.macs, cost.cycles)
                theirs = (row.npu_cycles, dict(row.access_cycles), row.macs, row.op_cycles)
                assert ours == theirs, (row.name, row.op)
