"""MACs and host work against hand arithmetic and the facts of the cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npusched.ir import Model, OpKind, Padding
from npusched.ir.options import (
    BatchMatMulOptions,
    ConvOptions,
    FullyConnectedOptions,
    PoolOptions,
    ReduceOptions,
    SvdfOptions,
)
from npusched.ops import CostClass, host_work, source_macs
from npusched.tflite import load_model
from tests.ops.boundaries_rare import lstm
from tests.ops.one_op import Node, T, ints, model_of


def _macs(model: Model) -> int:
    return sum(source_macs(g, op) for g in model.subgraphs for op in g.ops)


def _model(kind: OpKind, inputs: tuple[T | None, ...], output: T, options: object) -> Model:
    return model_of(Node(kind, inputs, (output,), options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # 6x6x8 results x (3x3x4 weights each) = 288 x 36
        (
            _model(
                OpKind.CONV_2D,
                (T((1, 8, 8, 4)), T((8, 3, 3, 4), values=1)),
                T((1, 6, 6, 8)),
                ConvOptions(padding=Padding.VALID),
            ),
            10368,
        ),
        # 4x4x6 results x 2x3 window
        (
            _model(
                OpKind.DEPTHWISE_CONV_2D,
                (T((1, 4, 4, 6)), T((1, 2, 3, 6), values=1)),
                T((1, 4, 4, 6)),
                ConvOptions(padding=Padding.SAME),
            ),
            576,
        ),
        # 4x4 input pixels x 3x3 window x 2 input x 5 output channels
        (
            _model(
                OpKind.TRANSPOSE_CONV,
                (ints(1, 8, 8, 5), T((5, 3, 3, 2), values=1), T((1, 4, 4, 2))),
                T((1, 8, 8, 5)),
                ConvOptions(padding=Padding.SAME, stride_h=2, stride_w=2),
            ),
            1440,
        ),
        # 3 rows x 16 inputs x 4 outputs
        (
            _model(
                OpKind.FULLY_CONNECTED,
                (T((3, 16)), T((4, 16), values=1), None),
                T((3, 4)),
                FullyConnectedOptions(),
            ),
            192,
        ),
        # 2 products of 3x5 by 5x7
        (
            _model(
                OpKind.BATCH_MATMUL,
                (T((2, 3, 5)), T((2, 5, 7))),
                T((2, 3, 7)),
                BatchMatMulOptions(),
            ),
            210,
        ),
        # the same with x stored transposed
        (
            _model(
                OpKind.BATCH_MATMUL,
                (T((2, 5, 3)), T((2, 5, 7))),
                T((2, 3, 7)),
                BatchMatMulOptions(adj_x=True),
            ),
            210,
        ),
        # 3 steps x 4 gates x (4 inputs + 8 units) x 8 units
        (model_of(lstm()), 1152),
        # 1 x (6 filters x 10 inputs + 6 filters x 4 steps of memory)
        (
            _model(
                OpKind.SVDF,
                (
                    T((1, 10)),
                    T((6, 10), values=1),
                    T((6, 4), values=1),
                    None,
                    T((1, 24), variable=True),
                ),
                T((1, 6)),
                SvdfOptions(),
            ),
            84,
        ),
    ],
)
def test_macs_by_hand(model: Model, expected: int) -> None:
    assert _macs(model) == expected


def test_pool_costs_its_window() -> None:
    """2x2x4 results of 3x3 windows: 16 x 9 elements, no MACs."""
    options = PoolOptions(padding=Padding.VALID, stride_h=1, stride_w=1, filter_h=3, filter_w=3)
    model = _model(OpKind.MAX_POOL_2D, (T((1, 4, 4, 4)),), T((1, 2, 2, 4)), options)
    graph = model.subgraphs[0]
    work = host_work(graph, graph.ops[0])
    assert (work.cost_class, work.macs, work.elements) == (CostClass.POOL, 0, 144)


def test_reduction_costs_its_inputs() -> None:
    model = _model(
        OpKind.MEAN, (T((1, 4, 4, 8)), ints(1, 2)), T((1, 1, 1, 8)), ReduceOptions(keep_dims=True)
    )
    graph = model.subgraphs[0]
    assert host_work(graph, graph.ops[0]).elements == 128


def test_pointwise_convolutions_have_their_own_class() -> None:
    for side, expected in ((1, CostClass.POINTWISE_CONV), (3, CostClass.CONV)):
        out = 9 - side
        model = _model(
            OpKind.CONV_2D,
            (T((1, 8, 8, 4)), T((8, side, side, 4), values=1)),
            T((1, out, out, 8)),
            ConvOptions(padding=Padding.VALID),
        )
        graph = model.subgraphs[0]
        assert host_work(graph, graph.ops[0]).cost_class is expected


def test_macs_of_every_case(corpus_dir: Path) -> None:
    """``source_facts.macs`` were counted from the files by another program."""
    cases = json.loads((corpus_dir / "cases" / "CASES.json").read_text())["cases"]
    assert len(cases) >= 20
    for case in cases:
        model = load_model(corpus_dir / "cases" / case["file"])
        assert _macs(model) == case["source_facts"]["macs"], case["name"]
