"""Folding batch norms: structure, numbers, and what must not be folded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from npusched import api
from npusched.api import folding
from npusched.api.folding import Deviation
from npusched.demos import demo
from npusched.errors import ModelError, SimError
from npusched.graph.fold import fold_batch_norms
from npusched.hardware import load_target
from npusched.ir import ActivationKind, OpKind, Subgraph, Tensor
from npusched.ir.options import ConvOptions
from npusched.sim import deviation
from npusched.sim.reference import random_inputs, reference_values
from npusched.tflite import Builder, read_model

Real = npt.NDArray[np.float64]


def _real(tensor: Tensor, axis: int = 0) -> Real:
    """Dequantised values of a constant."""
    assert tensor.data is not None
    assert tensor.quantization is not None
    values = tensor.data.astype(np.float64)
    shape = [1] * values.ndim
    if len(tensor.quantization.scales) > 1:
        shape[axis] = -1
    scales = np.asarray(tensor.quantization.scales).reshape(shape)
    zeros = np.asarray(tensor.quantization.zero_points).reshape(shape)
    result: Real = (values - zeros) * scales
    return result


def _pointwise(graph: Subgraph, op: int, x: Real) -> Real:
    """A 1x1 convolution in real numbers: x (pixels, in) -> (pixels, out)."""
    kernel, bias = (graph.tensors[t] for t in graph.ops[op].inputs[1:3])
    result: Real = x @ _real(kernel).reshape(kernel.shape[0], -1).T + _real(bias)
    return result


def _net(*, negative: bool = False, subtract: bool = False) -> bytes:
    builder = Builder("bn", seed=3)
    x = builder.input("x", (1, 4, 4, 8), "int8")
    y = builder.conv2d(x, 6, kernel=(1, 1))
    factor = np.linspace(-1.5 if negative else 0.5, 1.5, 6)
    y = builder.mul(y, factor)
    offset = np.linspace(-1.0, 1.0, 6)
    y = builder.sub(y, offset) if subtract else builder.add(y, offset, activation="RELU6")
    builder.output(y)
    return builder.build()


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("subtract", [False, True])
def test_folded_weights_compute_the_same(negative: bool, subtract: bool) -> None:
    """Real-number outputs of conv, MUL, ADD equal those of the folded conv to 8-bit accuracy."""
    content = _net(negative=negative, subtract=subtract)
    before = read_model(content, "bn").subgraphs[0]
    result = api.fold(content)
    after = read_model(result.content, "bn").subgraphs[0]
    assert [op.kind for op in before.ops] == [
        OpKind.CONV_2D,
        OpKind.MUL,
        OpKind.SUB if subtract else OpKind.ADD,
    ]
    assert [op.kind for op in after.ops] == [OpKind.CONV_2D]
    options = after.ops[0].options
    assert isinstance(options, ConvOptions)
    wanted = ActivationKind.NONE if subtract else ActivationKind.RELU6
    assert options.activation is wanted
    assert after.ops[0].outputs == before.ops[2].outputs == after.outputs
    x = np.random.default_rng(0).normal(size=(16, 8))
    middle = _pointwise(before, 0, x)
    factor = _real(before.tensors[before.ops[1].inputs[1]])
    offset = _real(before.tensors[before.ops[2].inputs[1]])
    expected = middle * factor + (-offset if subtract else offset)
    got = _pointwise(after, 0, x)
    assert np.max(np.abs(got - expected)) < 2e-3 * np.max(np.abs(expected))


def test_integers_stay_where_channels_have_scales() -> None:
    """Only signs and scales change: the stored weights are the old ones times the factor's sign."""
    content = _net(negative=True)
    before = read_model(content, "bn").subgraphs[0]
    after = read_model(api.fold(content).content, "bn").subgraphs[0]
    old = before.tensors[before.ops[0].inputs[1]].data
    new = after.tensors[after.ops[0].inputs[1]].data
    assert old is not None
    assert new is not None
    sign = np.sign(_real(before.tensors[before.ops[1].inputs[1]])).reshape(-1, 1, 1, 1)
    assert np.array_equal(new, np.clip(old * sign, -127, 127).astype(np.int8))


def test_block_becomes_two_calls() -> None:
    """The worked example: 8 ops, two batch norms and two RELU6 that stay ops of their own."""
    result = api.fold(demo("block"))
    assert result.folded == 2
    kinds = [op.kind.value for op in read_model(result.content, "b").subgraphs[0].ops]
    assert kinds == ["DEPTHWISE_CONV_2D", "RELU6", "CONV_2D", "RELU6"]
    report = api.plan(result.content, "ethos-u55-128", use_vela=False)
    assert {level.level: level.dispatches for level in report.fusion_levels}["L2"] == 2


def test_the_deviation_is_that_of_the_two_files() -> None:
    """Counted once more from LiteRT's outputs; the sentence has the same figures."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    content = _net(negative=True)
    result = api.fold(content, inputs=6, seed=4)
    graph = read_model(content, "bn").subgraphs[0]
    drawn = random_inputs(graph, 6, seed=4)
    a, b = (
        reference_values(each, drawn, graph.outputs)[graph.outputs[0]].astype(int)
        for each in (content, result.content)
    )
    gap = np.abs(a - b)
    found = result.deviation
    assert found is not None
    assert (found.inputs, found.values) == (6, gap.size)
    assert found.largest == gap.max() > 0
    assert found.differing == np.count_nonzero(gap) < gap.size
    steps = f"{int(gap.max())} step{'' if gap.max() == 1 else 's'}"
    assert f"outputs differ by at most {steps} in " in result.summary
    assert f"% of {gap.size:,} values (6 random inputs, measured)" in result.summary


def test_equal_outputs_and_floats_have_their_own_sentence() -> None:
    equal = Deviation(largest=0.0, differing=0, values=4000, inputs=20, is_float=False)
    assert str(equal) == "outputs are equal in all 4,000 values (20 random inputs, measured)"
    floats = Deviation(largest=0.25, differing=12, values=4000, inputs=1, is_float=True)
    assert "by at most 0.25 in 0.3 % of 4,000 values (1 random input, measured)" in str(floats)
    one = Deviation(largest=1.0, differing=12, values=4000, inputs=20, is_float=False)
    assert "by at most 1 step in 0.3 %" in str(one)


def test_large_models_are_measured_on_fewer_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    content = _net()
    macs = 4 * 4 * 8 * 6
    monkeypatch.setattr(folding, "MEASURED_MACS", 3 * macs)
    found = api.fold(content).deviation
    assert found is not None
    assert found.inputs == 3
    monkeypatch.setattr(folding, "MEASURED_MACS", 1)
    found = api.fold(content).deviation
    assert found is not None
    assert found.inputs == 1


def test_what_litert_cannot_run_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> object:
        raise SimError("LiteRT cannot run the model", "no such op")

    monkeypatch.setattr(deviation, "reference_values", fail)
    result = api.fold(_net())
    assert result.deviation is None
    assert result.folded == 1
    assert "deviation not measured: LiteRT cannot run the model: no such op" in result.summary
    assert "no inputs were asked for" in api.fold(_net(), inputs=0).summary


def test_nothing_to_fold_is_said() -> None:
    with pytest.raises(ModelError, match="no batch norm that can be folded"):
        api.fold(demo("mobilenet"))


def test_pool_before_batch_norm_is_named() -> None:
    builder = Builder("pool")
    x = builder.input("x", (1, 4, 4, 8), "int8")
    y = builder.batch_norm(builder.max_pool2d(x, 2, stride=2))
    builder.output(y)
    folded, left = fold_batch_norms(read_model(builder.build(), "pool").subgraphs[0])
    assert not folded
    assert ["not linear" in reason for _, reason in left] == [True]


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u85-256"])
def test_folded_plan_is_cheaper(name: str) -> None:
    target = load_target(name)
    before = api.plan(demo("block"), target, use_vela=False)
    after = api.plan(api.fold(demo("block")).content, target, use_vela=False)
    assert after.totals.cycles < before.totals.cycles
    (advice,) = [advice for advice in before.advice if advice.id == "NS102"]
    assert advice.delta.cycles == after.totals.cycles - before.totals.cycles
