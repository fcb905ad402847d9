"""What the kernels of small models compute, against the reference kernels of LiteRT.

``BUILTIN_REF`` is the yardstick (SIM.md §4). Where the NPU, as Vela drives it, is known to differ,
the tables below say by how much and why.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from npusched.graph.build import build_graph
from npusched.graph.types import Placement
from npusched.hardware.target import Family
from npusched.ir import DataType, Model
from npusched.tflite.reader import read_model
from tests.graph.lower.kernel_arithmetic import Stored
from tests.graph.lower.kernel_executor import execute
from tests.graph.lower.lower_models import build, families

HAS_LITERT = importlib.util.find_spec("ai_edge_litert") is not None
needs_litert = pytest.mark.skipif(
    not HAS_LITERT, reason="LiteRT is not installed: pip install ai-edge-litert (extra 'prove')"
)

MODELS = {
    f"{family}/{name}": make for family, makes in families().items() for name, make in makes.items()
}

NO_REFERENCE = {
    "elu": "LiteRT's reference kernels lack int8 ELU",
    "fc_tanh_int16": "LiteRT refuses TANH fused into FULLY_CONNECTED",
    "conv_tanh_int8": "LiteRT ignores TANH fused into CONV_2D",
    "prelu_int16": "LiteRT gives 0 for every negative int16 value",
    "prelu_equal_int16": "LiteRT gives 0 for every negative int16 value",
    "prelu_steep_int16": "LiteRT gives 0 for every negative int16 value",
    "squared_difference_int16": "LiteRT has no int16 SQUARED_DIFFERENCE",
    "div": "LiteRT refuses divisors of zero; the NPU's rounding of DIV is not published",
    "variable": "LiteRT needs the variable assigned before it is read",
    "tconv_2x2s4_SAME_int8": "Vela shifts SAME results where the stride exceeds the kernel",
}
"""Models without a usable reference, with the reason."""

SUMS = "sum_"
"""LiteRT adds int8 and int16 SUM without rescaling: those are checked against real numbers."""

TOLERANCE = {
    "fc_computed_weights": 1,
    "leaky_int16_-0.5": 1,
    "lstm_1": 1,
    "lstm_batch": 1,
    "lstm_clip": 1,
    "lstm_time_major": 1,
    "lstm_time_major_4": 1,
}
"""Largest difference allowed, in units of the result.

The NPU rounds products with computed weights twice, LiteRT once (SIM.md §4). Vela builds a negative
int16 slope from other roundings. The NPU's sigmoid interpolates a table where LiteRT's LSTM
evaluates a series.
"""

SMALL_INPUTS = ("matmul_plain_int16", "matmul_adj", "matmul_heads_int16", "matmul_broadcast_int16")
"""LiteRT wraps int16 products that do not fit; the NPU saturates."""


def _inputs(model: Model, name: str, seed: int) -> list[Stored]:
    """Return random inputs: over the whole range, or (odd seeds) close to its middle."""
    rng = np.random.default_rng(seed)
    graph = model.subgraphs[0]
    found: list[Stored] = []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        if tensor.dtype is DataType.BOOL:
            found.append(rng.integers(0, 2, tensor.shape).astype(np.int8))
            continue
        info = np.iinfo(tensor.dtype.label)
        low, high = (info.min, info.max) if info.bits < 32 else (-1000, 1000)
        spread = 20 if name.startswith(SMALL_INPUTS) else 10
        if name.startswith(("rsqrt_int16", "log_int16")):
            low = 1
        if seed % 2 == 0 and spread == 10:
            values = rng.integers(low, high, tensor.shape, endpoint=True)
        else:
            normal = rng.normal((low + high) / 2, (high - low) / spread, tensor.shape)
            values = np.clip(np.rint(normal), low, high)
        found.append(values.astype(tensor.dtype.label))
    return found


def _reference(content: bytes, model: Model, inputs: list[Stored]) -> list[Stored]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    graph = model.subgraphs[0]
    places = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    for index, values in zip(graph.inputs, inputs, strict=True):
        tensor = graph.tensors[index]
        stored = values.astype(bool) if tensor.dtype is DataType.BOOL else values
        interpreter.set_tensor(places[tensor.name], stored)
    interpreter.invoke()
    return [interpreter.get_tensor(index).ravel() for index in graph.outputs]


def _real_sum(model: Model, inputs: list[Stored]) -> list[Stored]:
    """Round ``zo + sum(x - zi) * si / so`` to the nearest integer of the result's type."""
    graph = model.subgraphs[0]
    ifm, ofm = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    axes = graph.tensors[graph.ops[0].inputs[1]].data
    assert ifm.quantization is not None
    assert ofm.quantization is not None
    assert axes is not None
    zero_in, zero_out = ifm.quantization.zero_points[0], ofm.quantization.zero_points[0]
    total = (inputs[0].astype(np.int64) - zero_in).sum(axis=tuple(int(a) for a in axes.ravel()))
    exact = zero_out + total * ifm.quantization.scales[0] / ofm.quantization.scales[0]
    info = np.iinfo(ofm.dtype.label)
    return [np.clip(np.floor(exact + 0.5), info.min, info.max).ravel()]


@needs_litert
@pytest.mark.parametrize("name", MODELS)
def test_kernels_compute_what_litert_computes(name: str) -> None:
    short = name.split("/")[1]
    if short in NO_REFERENCE:
        pytest.skip(NO_REFERENCE[short])
    content = build(MODELS[name])
    model = read_model(content, short)
    graphs = [build_graph(model, family) for family in (Family.U55, Family.U85)]
    on_npu = [g for g in graphs if all(op.placement is Placement.NPU for op in g.ops)]
    for seed in (0, 1):
        inputs = _inputs(model, short, seed)
        if short.startswith(SUMS):
            expected = _real_sum(model, inputs)
        else:
            expected = _reference(content, model, inputs)
        for graph in on_npu:
            for result, wanted in zip(execute(graph, inputs), expected, strict=True):
                difference = np.abs(result.astype(np.int64) - wanted.astype(np.int64))
                assert int(difference.max(initial=0)) <= TOLERANCE.get(short, 0)
