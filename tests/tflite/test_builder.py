"""The builder: deterministic files with sensible quantisation, for every op that it knows."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.ir import ActivationKind, DataType, OpKind, Tensor
from npusched.tflite import Builder, read_model
from npusched.tflite.quantize import (
    Spread,
    activated,
    normal,
    quantization_of,
    quantize_weights,
)
from tests.tflite.builder_zoo import MODELS


@pytest.mark.parametrize("name", sorted(MODELS))
def test_same_calls_same_bytes(name: str) -> None:
    assert MODELS[name]() == MODELS[name]()


def test_the_seed_changes_weights_only() -> None:
    sizes = set()
    contents = set()
    for seed in range(3):
        b = Builder("m", seed=seed)
        b.output(b.conv2d(b.input("x", (1, 8, 8, 8)), 8))
        contents.add(b.build())
        sizes.add(len(b.build()))
    assert len(contents) == 3
    assert len(sizes) == 1


def _single(name: str) -> tuple[list[Tensor], OpKind]:
    graph = read_model(MODELS[name](), name).subgraphs[0]
    return list(graph.tensors), graph.ops[0].kind


@pytest.mark.parametrize(
    ("name", "weights", "bias"),
    [
        ("conv", "INT8", "INT32"),
        ("conv_uint8", "UINT8", "INT32"),
        ("conv_int16", "INT8", "INT64"),
        ("conv_float", "FLOAT32", "FLOAT32"),
        ("conv_hybrid", "INT8", "FLOAT32"),
        ("conv_int4", "INT4", "INT32"),
        ("fc_int16", "INT8", "INT64"),
    ],
)
def test_weight_and_bias_types(name: str, weights: str, bias: str) -> None:
    """TFLite quantisation specification: int8 weights, bias int32 (int64 for int16 maps)."""
    graph = read_model(MODELS[name](), name).subgraphs[0]
    types = [graph.tensors[i].dtype.name for i in graph.ops[0].inputs]
    assert types[1:] == [weights, bias]


@pytest.mark.parametrize(
    ("name", "scale", "zero_point"),
    [
        ("softmax", 1 / 256, -128),
        ("softmax_int16", 1 / 32768, 0),
        ("logistic", 1 / 256, -128),
        ("tanh", 1 / 128, 0),
        ("tanh_int16", 1 / 32768, 0),
    ],
)
def test_fixed_result_scales(name: str, scale: float, zero_point: int) -> None:
    graph = read_model(MODELS[name](), name).subgraphs[0]
    found = graph.tensors[graph.outputs[0]].quantization
    assert found is not None
    assert (found.scales, found.zero_points) == ((scale,), (zero_point,))


@pytest.mark.parametrize("name", ["max_pool", "reshape", "pad", "concat", "slice", "tile"])
def test_moves_keep_the_quantisation(name: str) -> None:
    graph = read_model(MODELS[name](), name).subgraphs[0]
    ifm, ofm = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    assert ifm.quantization == ofm.quantization


def test_default_input_scale() -> None:
    """Mean 0 and std 1 in 8 bits: +-4 over 255 steps, zero point -128 + 4 / (8/255) = -0.5 -> 0."""
    scale, zero_point = quantization_of(Spread(), DataType.INT8)
    assert scale == pytest.approx(8 / 255)
    assert zero_point in (-1, 0)
    assert quantization_of(Spread(), DataType.INT16) == (float(np.float32(4 / 32767)), 0)
    assert quantization_of(Spread(), DataType.FLOAT32) == (None, 0)


@given(st.floats(-5, 5), st.floats(0.01, 10), st.sampled_from([DataType.INT8, DataType.UINT8]))
def test_zero_is_exact_and_the_range_is_covered(mean: float, std: float, dtype: DataType) -> None:
    """The zero point is a value of the type, and both bounds lie within half a step of it."""
    spread = Spread(mean, std)
    scale, zero_point = quantization_of(spread, dtype)
    assert scale is not None
    first = -128 if dtype is DataType.INT8 else 0
    assert first <= zero_point <= first + 255
    low, high = spread.bounds
    assert (first - zero_point) * scale == pytest.approx(low, abs=0.51 * scale)
    assert (first + 255 - zero_point) * scale == pytest.approx(high, abs=0.51 * scale)


def test_activation_spreads() -> None:
    """A rectified standard normal: mean 1/sqrt(2 pi) = 0.3989, mean square 1/2, range 0 to 4."""
    found = activated(Spread(), ActivationKind.RELU)
    assert found.mean == pytest.approx(1 / math.sqrt(2 * math.pi), abs=0.01)
    assert found.power == pytest.approx(0.5, abs=0.01)
    assert found.bounds == (0.0, 4.0)
    assert activated(Spread(std=3.0), ActivationKind.RELU6).bounds == (0.0, 6.0)
    assert activated(Spread(), ActivationKind.RELU_N1_TO_1).bounds == (-1.0, 1.0)


def test_normal_values() -> None:
    """Four uniform pieces: std 1, limits 2 * sqrt(3) = 3.46; the first ones are pinned."""
    values = normal(0, 1, (100, 100))
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1, abs=0.02)
    assert np.abs(values).max() < 3.465
    assert not np.array_equal(values, normal(0, 2, (100, 100)))
    centred = normal(0, 1, (4, 3, 3, 5), centred=(1, 2, 3))
    assert np.abs(centred.sum(axis=(1, 2, 3))).max() < 1e-9


@pytest.mark.parametrize(("dtype", "limit"), [(DataType.INT8, 127), (DataType.INT4, 7)])
def test_weight_quantisation(dtype: DataType, limit: int) -> None:
    """Symmetric: the largest value of each channel becomes the limit; half a step of error."""
    real = normal(1, 1, (3, 2, 2, 5)) * np.array([1.0, 10.0, 0.1]).reshape(3, 1, 1, 1)
    stored, scales, zeros = quantize_weights(real, dtype, 0)
    assert np.abs(stored.astype(np.int64)).max(axis=(1, 2, 3)).tolist() == [limit] * 3
    assert zeros == (0, 0, 0)
    steps = np.array(scales).reshape(3, 1, 1, 1)
    assert (np.abs(stored * steps - real) <= 0.501 * steps).all()


def test_uint8_weights_have_one_offset_scale() -> None:
    stored, scales, zeros = quantize_weights(normal(1, 1, (3, 4)), DataType.UINT8, None)
    assert stored.dtype == np.uint8
    assert (len(scales), zeros) == (1, (128,))


def test_given_weights_are_used() -> None:
    b = Builder()
    x = b.input("x", (1, 2), scale=0.5, zero_point=0)
    b.output(b.fully_connected(x, 1, weights=[[1.0, -0.5]], name="fc"))
    graph = read_model(b.build(), "m").subgraphs[0]
    weights = graph.tensors[graph.ops[0].inputs[1]]
    assert weights.data is not None
    assert weights.quantization is not None
    real = weights.data.astype(np.float64) * weights.quantization.scales[0]
    assert real.tolist() == [[pytest.approx(1.0), pytest.approx(-0.5, abs=0.004)]]


def test_batch_norm_is_mul_and_add() -> None:
    graph = read_model(MODELS["batch_norm"](), "m").subgraphs[0]
    assert [op.kind for op in graph.ops] == [OpKind.CONV_2D, OpKind.MUL, OpKind.ADD]
    for op in graph.ops[1:]:
        constant = graph.tensors[op.inputs[1]]
        assert constant.is_constant
        assert constant.shape == (1, 1, 1, 8)


def test_unknown_shapes_are_a_programming_error() -> None:
    b = Builder()
    with pytest.raises(ValueError, match="no shape rule"):
        b.apply(OpKind.WHERE, [b.input("x", (4,))])


def test_metadata_and_signature() -> None:
    content = MODELS["branches"]()
    assert b"hello" in content
    assert read_model(content, "m").signatures[0].key == "serve"


def test_importing_the_reader_is_light() -> None:
    """Neither the schema package nor a graph or text library comes with it."""
    code = (
        "import sys, npusched.tflite\n"
        "heavy = {'tflite', 'networkx', 'rich', 'click', 'flatbuffers', 'ethosu'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
