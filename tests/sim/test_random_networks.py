"""Random networks on random accelerators: whatever Vela makes of them is exact, or named."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from npusched.errors import SimError, VelaError
from npusched.hardware import load_target
from npusched.sim.proof import Verdict, prove_compiled
from npusched.tflite import Builder
from npusched.tflite.graph_builder import Ref
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.runner import compile_model

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

CONFIGS = (
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
)
SEEDS = range(36)


def conv(b: Builder, r: random.Random, x: Ref) -> Ref:
    """Any kernel up to 5x5, stride up to 3, dilation up to 2."""
    stride = r.choice((1, 1, 2, 3))
    return b.conv2d(
        x,
        r.choice((1, 3, 8, 16, 17, 33)),
        (r.randint(1, 5), r.randint(1, 5)),
        stride=stride,
        dilation=1 if stride > 1 else r.choice((1, 2)),
        activation=r.choice(("NONE", "RELU", "RELU6")),
        per_channel=r.random() < 0.7,
    )


def depthwise(b: Builder, r: random.Random, x: Ref) -> Ref:
    """Any kernel up to 6x6."""
    return b.depthwise_conv2d(x, (r.randint(1, 6), r.randint(1, 6)), stride=r.choice((1, 2, 3)))


def pool(b: Builder, r: random.Random, x: Ref) -> Ref:
    """Maximum or average, padded."""
    chosen: Callable[..., Ref] = r.choice((b.max_pool2d, b.avg_pool2d))
    window = (r.randint(1, 4), r.randint(1, 4))
    return chosen(x, window, stride=r.choice((1, 2)), padding="SAME")


def pointwise(b: Builder, r: random.Random, x: Ref) -> Ref:
    """Activations and tables."""
    chosen: Callable[..., Ref] = r.choice((b.relu, b.relu6, b.hard_swish, b.leaky_relu))
    return chosen(x)


def binary(b: Builder, r: random.Random, x: Ref) -> Ref:
    """A residual join, or a constant operand."""
    chosen: Callable[..., Ref] = r.choice((b.add, b.sub, b.mul))
    return chosen(x, r.choice((b.depthwise_conv2d(x, 3), b.relu(x), 0.5)))


def move(b: Builder, r: random.Random, x: Ref) -> Ref:
    """Pads, joins, cuts, resizes."""
    _, h, w, _ = x.shape
    match r.randint(0, 3):
        case 0:
            return b.pad(x, ((0, 0), (r.randint(0, 2), 1), (0, r.randint(0, 2)), (0, 0)))
        case 1:
            return b.concat([x, b.max_pool2d(x, 3, stride=1, padding="SAME")], r.randint(1, 3))
        case 2 if h * w < 200:
            return b.resize_nearest(x, (2 * h, 2 * w))
        case _:
            return b.conv2d(x, 8, 1)


STEPS = (conv, conv, depthwise, pool, pointwise, binary, move)


def network(seed: int) -> tuple[bytes, random.Random]:
    """A network of one to six steps, and the generator for the rest of the choices."""
    r = random.Random(seed)
    b = Builder(f"random{seed}", seed=seed)
    shape = (1, r.randint(1, 40), r.randint(1, 30), r.choice((1, 3, 8, 16, 17, 20, 32)))
    x = b.input("x", shape, r.choice(("int8", "int8", "int8", "uint8", "int16")))
    for _ in range(r.randint(1, 6)):
        x = r.choice(STEPS)(b, r, x)
    b.output(x)
    return b.build(), r


@pytest.mark.parametrize("seed", SEEDS)
def test_random_network_is_exact(seed: int) -> None:
    content, r = network(seed)
    options = VelaOptions(
        arena_cache_size_bytes=r.choice((None, 4096, 16384)), optimise=r.choice(list(Optimise))
    )
    config = r.choice(CONFIGS)
    try:
        made = compile_model(content, load_target(config), options, cache=None).compiled
    except VelaError as error:
        pytest.skip(f"Vela cannot compile it: {error.why}")
    try:
        proof = prove_compiled(content, made, 2, seed=seed)
    except SimError as error:
        pytest.skip(f"not comparable: {error.what}: {error.why}")
    assert proof.verdict is Verdict.EQUAL, (config, proof.difference, proof.outputs)
