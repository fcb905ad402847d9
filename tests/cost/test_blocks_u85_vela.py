"""Block choice on Ethos-U85 against Vela itself: corpus models and a generated one, all sizes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from npusched.cost.blocks_u85 import find_block
from npusched.graph.types import KernelKind
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU85, Target
from npusched.tflite.builder import Builder
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.rows import VelaRow, read_rows
from npusched.vela.runner import compile_model

SIZES = [128, 256, 512, 1024, 2048]
MODELS = ["mlpt_vww", "mlpt_kws", "seanet_leaky_relu0_int16", "coral_split_concat"]
SEED = 20261201


def npu(target: Target) -> AcceleratorU85:
    assert isinstance(target.accelerator, AcceleratorU85)
    return target.accelerator


def rows_of(content: bytes, target: Target, options: VelaOptions) -> list[VelaRow]:
    """Rows with a block, each query once."""
    result = compile_model(content, target, options, cache=None)
    rows = {row.stripe_op: row for row in read_rows(result.database, target) if row.block}
    return list(rows.values())


def assert_same_blocks(target: Target, rows: list[VelaRow]) -> None:
    wrong = [
        (row.name, row.stripe_op, row.block, ours)
        for row in rows
        if (ours := find_block(npu(target), row.stripe_op)) != row.block
    ]
    assert wrong == []


@pytest.mark.parametrize("macs", SIZES)
def test_corpus_rows(macs: int, corpus_dir: Path) -> None:
    """A seeded sample of 150 distinct kernels per size, cascades (small arena) included."""
    target = load_target(f"ethos-u85-{macs}")
    rows: list[VelaRow] = []
    for name in MODELS:
        content = (corpus_dir / "models" / f"{name}.tflite").read_bytes()
        for optimise, arena in ((Optimise.PERFORMANCE, 1 << 22), (Optimise.SIZE, 1 << 16)):
            options = VelaOptions(optimise=optimise, arena_cache_size_bytes=arena)
            rows += rows_of(content, target, options)
    random.Random(SEED).shuffle(rows)
    assert len(rows) >= 100
    assert_same_blocks(target, rows[:150])


def generated_network(dtype: str) -> bytes:
    """Kinds that the corpus hardly has, in 8 or 16 bits, one after the other or side by side."""
    net = Builder(seed=7)
    x = net.input("x", (1, 30, 22, 24), dtype)
    wide = net.conv2d(x, 40, (1, 17))
    net.output(net.conv2d(wide, 8, (11, 11), activation="RELU"))
    spread = net.depthwise_conv2d(x, (5, 3), multiplier=4, stride=2)
    net.output(net.max_pool2d(spread, (3, 2), stride=(2, 2)))
    net.output(net.resize_nearest(x, (60, 44)))
    net.output(net.resize_bilinear(x, (45, 33), half_pixel_centers=True))
    turned = net.transpose(net.conv2d(x, 16, 3, dilation=2), (0, 3, 1, 2))
    net.output(net.conv2d(turned, 33, 1))
    net.output(net.transpose(x, (0, 2, 1, 3)))
    net.output(net.transpose_conv(x, 12, 3, stride=2))
    column = net.input("column", (1, 30, 1, 24), dtype)
    net.output(net.mul(net.add(x, column), net.input("row", (1, 1, 22, 1), dtype)))
    net.output(net.mean(x, (1, 2)))
    net.output(net.sum(x, (3,)))
    net.output(net.softmax(net.fully_connected(x, 70)))
    rows = net.input("left", (1, 1, 75, 48), dtype)
    net.output(net.batch_matmul(rows, net.input("right", (1, 1, 48, 90), dtype)))
    net.output(net.gather(x, [3, 1, 2], 1))
    if dtype == "int8":
        net.output(net.arg_max(x, 3))
    return net.build()


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("macs", SIZES)
def test_generated_rows(macs: int, dtype: str) -> None:
    target = load_target(f"ethos-u85-{macs}")
    rows = rows_of(generated_network(dtype), target, VelaOptions())
    kinds = {row.stripe_op.kind for row in rows}
    expected = {KernelKind.RESIZE, KernelKind.MATMUL, KernelKind.TRANSPOSE, KernelKind.REDUCE_SUM}
    assert expected <= kinds
    assert len(rows) > 25
    assert_same_blocks(target, rows)
