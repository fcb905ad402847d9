"""Small networks for the tests of the search, by name, and random ones with branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hypothesis import strategies as st

from npusched.cost.types import BlockConfig, WeightBytes
from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import ScheduledOp
from npusched.hardware import Target, load_target
from npusched.tflite import Builder, read_model
from npusched.tflite.graph_builder import Ref

TARGETS = {
    "shared": load_target("ethos-u55-128", memory_mode="Shared_Sram"),
    "dedicated": load_target("ethos-u65-256", memory_mode="Dedicated_Sram_384KB"),
    "u85": load_target("ethos-u85-256", memory_mode="Dedicated_Sram_384KB"),
}


def sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    """Any sizes do, as long as they depend on the block."""
    assert op.weights is not None
    return WeightBytes(weights=16 * (op.weights.elements // 24 + block.ofm_block.c), scales=10 * 16)


def graph_of(content: bytes, target: Target) -> OpGraph:
    """The scheduled graph of a model on the target's family."""
    assert target.accelerator is not None
    return build_graph(read_model(content, "small"), target.accelerator.family)


def _chain(b: Builder) -> Ref:
    x = b.input("x", (1, 12, 12, 8), "int8")
    for channels in (16, 16, 24, 8):
        x = b.conv2d(x, channels, 3)
    return x


def _separable(b: Builder) -> Ref:
    x = b.conv2d(b.input("x", (1, 16, 16, 3), "int8"), 8, 3, stride=2)
    for channels in (16, 32):
        x = b.conv2d(b.depthwise_conv2d(x, 3), channels, 1)
    return x


def _pools(b: Builder) -> Ref:
    x = b.max_pool2d(b.conv2d(b.input("x", (1, 16, 16, 8), "int8"), 16, 3))
    x = b.conv2d(b.max_pool2d(b.conv2d(x, 32, 3)), 32, 1)
    return b.fully_connected(x, 10)


def _heavy(b: Builder) -> Ref:
    """Weights larger than the maps: prefetched and in slices."""
    x = b.input("x", (1, 6, 6, 32), "int8")
    for channels in (64, 64, 96):
        x = b.conv2d(x, channels, 3)
    return x


def _residual(b: Builder) -> Ref:
    x = b.conv2d(b.input("x", (1, 10, 10, 8), "int8"), 16, 3)
    for _ in range(2):
        x = b.add(b.conv2d(b.conv2d(x, 16, 3), 16, 3), x)
    return x


def _bottleneck(b: Builder) -> Ref:
    x = b.conv2d(b.input("x", (1, 12, 12, 3), "int8"), 8, 3)
    y = b.conv2d(b.depthwise_conv2d(b.conv2d(x, 48, 1), 3), 8, 1)
    return b.conv2d(b.add(x, y), 16, 1)


def _diamond(b: Builder) -> Ref:
    """Two branches of different length from one tensor, added."""
    x = b.conv2d(b.input("x", (1, 10, 10, 8), "int8"), 16, 3)
    left = b.conv2d(x, 16, 1)
    right = b.conv2d(b.conv2d(x, 32, 1), 16, 3)
    return b.add(left, right)


def _concat(b: Builder) -> Ref:
    x = b.conv2d(b.input("x", (1, 8, 8, 8), "int8"), 16, 3)
    left = b.conv2d(x, 16, 3, scale=0.1)
    right = b.conv2d(b.max_pool2d(x, 3, stride=1, padding="SAME"), 32, 1, scale=0.1)
    return b.conv2d(b.concat([left, right]), 16, 1)


def _split(b: Builder) -> Ref:
    x = b.conv2d(b.input("x", (1, 8, 8, 16), "int8"), 32, 1, scale=0.1)
    left, right = b.split(x, 2)
    return b.conv2d(b.concat([b.conv2d(left, 16, 3, scale=0.1), right]), 16, 1)


def _skip(b: Builder) -> Ref:
    """A tensor that is read again at the very end, at the bottom a smaller one."""
    x = b.conv2d(b.input("x", (1, 12, 12, 8), "int8"), 16, 3, scale=0.1)
    y = b.conv2d(b.max_pool2d(x), 32, 3)
    up = b.transpose_conv(y, 16, 2, stride=2, scale=0.1)
    return b.conv2d(b.concat([x, up]), 8, 1)


NETWORKS: dict[str, Callable[[Builder], Ref]] = {
    "chain": _chain,
    "separable": _separable,
    "pools": _pools,
    "heavy": _heavy,
    "residual": _residual,
    "bottleneck": _bottleneck,
    "diamond": _diamond,
    "concat": _concat,
    "split": _split,
    "skip": _skip,
}


@lru_cache
def network(name: str) -> bytes:
    """One of ``NETWORKS`` as a .tflite file."""
    builder = Builder(name)
    builder.output(NETWORKS[name](builder))
    return builder.build()


@st.composite
def branchy(draw: st.DrawFn) -> bytes:
    """One to five steps from any tensors made before: forks, joins, concatenations, splits.

    What nobody reads is an output of the graph.
    """
    b = Builder("branchy", seed=draw(st.integers(0, 99)))
    shape = (1, draw(st.integers(4, 9)), draw(st.integers(3, 7)), draw(st.sampled_from([8, 16])))
    pool = [b.input("x", shape, "int8")]
    read: set[str] = set()
    for _ in range(draw(st.integers(1, 5))):
        x = draw(st.sampled_from(pool))
        partners = [y for y in pool if y.shape == x.shape and y is not x]
        kinds = ["conv", "wide", "depthwise", "pool", "split", *["add", "concat"] * bool(partners)]
        kind = draw(st.sampled_from(kinds))
        if kind in ("add", "concat"):
            y = draw(st.sampled_from(partners))
            pool.append(b.add(x, y) if kind == "add" else b.concat([x, y]))
            read.add(y.name)
        elif kind == "split":
            first, second = b.split(x, 2)
            pool += [b.conv2d(first, 16, 1, scale=0.1), b.conv2d(second, 16, 3, scale=0.1)]
        elif kind == "depthwise":
            pool.append(b.depthwise_conv2d(x, 3, stride=draw(st.integers(1, 2)), scale=0.1))
        elif kind == "pool":
            pool.append(b.max_pool2d(x, 2, stride=1, padding="SAME"))
        else:
            pool.append(b.conv2d(x, 16, 3 if kind == "conv" else 1, scale=0.1))
        read.add(x.name)
    for tensor in pool[1:]:
        if tensor.name not in read:
            b.output(tensor)
    return b.build()
