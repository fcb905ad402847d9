"""The graph interpreter against LiteRT's reference kernels and against a second executor."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from npusched.demos import demo
from npusched.errors import SimError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import KernelKind
from npusched.hardware.target import Family
from npusched.sim.interpret import Interpreter, interpret
from npusched.sim.kernels.arrays import Array
from npusched.sim.reference import reference_values
from npusched.tflite import Builder, read_model
from tests.graph.lower.kernel_executor import execute
from tests.graph.lower.lower_models import build, families
from tests.sim.plan_kit import graph_for, inputs_for, runs_on_npu
from tests.sim.sim_models import corpus_model

needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None,
    reason="LiteRT is not installed: pip install ai-edge-litert (extra 'prove')",
)

CONFIGS = {
    Family.U55: "ethos-u55-128",
    Family.U65: "ethos-u65-256",
    Family.U85: "ethos-u85-256",
}

UNPUBLISHED = ("logistic_int16", "tanh_int16", "fc_tanh_int16", "lstm_")
"""Models with the NPU's own sigmoid or tanh."""

SMALL = {name: make for makes in families().values() for name, make in makes.items()}


def _equals_reference(content: bytes, config: str, seed: int) -> None:
    runs = inputs_for(content, seed)
    subgraph = read_model(content, "model").subgraphs[0]
    batch = {index: np.stack([run[k] for run in runs]) for k, index in enumerate(subgraph.inputs)}
    wanted = reference_values(content, batch, subgraph.outputs)
    interpreter = Interpreter(graph_for(content, config))
    for number, inputs in enumerate(runs):
        values = interpreter.run(inputs)
        for index, output in zip(subgraph.outputs, values.outputs, strict=True):
            np.testing.assert_array_equal(output.ravel(), wanted[index][number].ravel())


@needs_litert
@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-256"])
@pytest.mark.parametrize("name", ["mlpt_ad01", "mlpt_kws", "mlpt_resnet8", "mlpt_vww"])
def test_mlperf_tiny_equals_the_reference(corpus_dir: Path, name: str, config: str) -> None:
    _equals_reference(corpus_model(corpus_dir, name), config, 3)


@needs_litert
@pytest.mark.parametrize("name", ["autoencoder", "block", "ds_cnn", "resnet8", "unet"])
def test_demos_equal_the_reference(name: str) -> None:
    _equals_reference(demo(name), "ethos-u55-128", 5)


@needs_litert
@pytest.mark.parametrize("seed", range(24))
def test_random_networks_equal_the_reference(seed: int) -> None:
    """Asymmetric padding, strides on odd heights, dilations, joins; int8, uint8, int16."""
    from tests.sim.test_random_networks import network

    content, _ = network(seed)
    if not runs_on_npu(graph_for(content, "ethos-u65-256")):
        pytest.skip("a part of this network runs on the CPU")
    _equals_reference(content, "ethos-u65-256", seed)


@needs_litert
def test_transposed_operand_of_a_product_keeps_its_zero_point() -> None:
    """The transpose that the product wants merges with the file's own, which has a zero point."""
    builder = Builder("attention")
    x = builder.input("x", (1, 9, 4, 16), "int8", scale=0.03, zero_point=7)
    queries = builder.transpose(x, (0, 2, 1, 3))
    keys = builder.transpose(builder.relu(x), (0, 2, 3, 1))
    builder.output(builder.batch_matmul(queries, keys))
    _equals_reference(builder.build(), "ethos-u55-128", 2)


@pytest.mark.parametrize("name", SMALL)
def test_hardware_mode_equals_a_plain_executor(name: str) -> None:
    """Two executors that share no arithmetic agree on every family that can run the model."""
    content = build(SMALL[name])
    for family, config in CONFIGS.items():
        graph = graph_for(content, config)
        if not runs_on_npu(graph):
            continue
        why = _refusal(graph)
        if why:
            unpublished = name.startswith(UNPUBLISHED) and "not published" in why
            assert unpublished or family is Family.U85, why
            continue
        for inputs in inputs_for(content, 7):
            stored = [_as_stored(values) for values in inputs]
            values = interpret(graph, stored, single_rounding=False)
            wanted = execute(graph, stored)
            for output, flat in zip(values.outputs, wanted, strict=True):
                np.testing.assert_array_equal(output.ravel(), flat)


def _refusal(graph: OpGraph) -> str:
    """Why the graph cannot be executed, "" if it can."""
    try:
        Interpreter(graph)
    except SimError as error:
        return error.why
    return ""


def _as_stored(values: Array) -> Array:
    return values.astype(np.int8) if values.dtype == np.bool_ else values


def _fully_connected() -> bytes:
    builder = Builder("fc", seed=4)
    builder.output(builder.fully_connected(builder.input("x", (1, 64), "int8"), 200))
    return builder.build()


def test_double_rounding_differs_by_one_at_most() -> None:
    """SIM.md §4: the NPU rounds a fully connected result twice, at halves that is 1 too much."""
    content = _fully_connected()
    graph = graph_for(content, "ethos-u55-128")
    assert [op.kind for op in graph.ops] == [KernelKind.FULLY_CONNECTED]
    once, twice = Interpreter(graph), Interpreter(graph, single_rounding=False)
    largest = 0
    for inputs in inputs_for(content, 1, 40):
        (a,), (b,) = once.run(inputs).outputs, twice.run(inputs).outputs
        largest = max(largest, int(np.abs(a.astype(int) - b).max()))
    assert largest == 1


def test_refuses_by_name() -> None:
    tanh = graph_for(build(SMALL["tanh_int16"]), "ethos-u55-128")
    with pytest.raises(SimError, match=r"cannot execute op 0, Tanh 'tanh0'"):
        Interpreter(tanh)
    host = graph_for(demo("block"), "cortex-m55")
    with pytest.raises(SimError, match="runs on the CPU"):
        Interpreter(host)


def test_refuses_wrong_inputs() -> None:
    graph = graph_for(_fully_connected(), "ethos-u55-128")
    with pytest.raises(SimError, match="2 inputs for a graph with 1"):
        interpret(graph, [np.zeros(64, np.int8)] * 2)
    with pytest.raises(SimError, match="has 63 elements"):
        interpret(graph, [np.zeros(63, np.int8)])
