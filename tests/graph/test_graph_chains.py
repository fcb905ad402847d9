"""What may run stripe by stripe, what joins a kernel, and what stops both."""

from __future__ import annotations

from itertools import pairwise

import pytest

from npusched.graph.chains import Stop, StopKind, primary_ifm
from npusched.hardware.target import Family
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref
from tests.graph.graph_models import IMAGE, MODELS, Make, graph_of, on, on_cpu


def _conv(b: Builder, x: Ref) -> Ref:
    return b.conv2d(x, 16, 3)


def _both(b: Builder, x: Ref) -> Ref:
    y = _conv(b, x)
    return b.mul(_conv(b, y), y)


def _output_between(b: Builder, x: Ref) -> tuple[Ref, Ref]:
    y = _conv(b, x)
    return y, _conv(b, y)


def _square(b: Builder, x: Ref) -> Ref:
    y = _conv(b, x)
    return b.mul(y, y)


def _slice_between(b: Builder, x: Ref) -> Ref:
    return _conv(b, b.slice(_conv(b, x), (0, 0, 0, 0), (1, 4, 8, 16)))


def _reshape_between(b: Builder, x: Ref) -> Ref:
    return b.abs(b.reshape(b.abs(x), (1, 4, 16, 16)))


def _constant_input(b: Builder, x: Ref) -> Ref:
    data = b.const([[[[1]], [[2]]]], "int8", scale=0.1)
    return b.mul(_conv(b, x), b.add(data, b.input("y", (1, 2, 1, 1))))


FIRST = StopKind.FIRST_OP
STOPS: list[tuple[str, Make, list[StopKind | None]]] = [
    ("convolutions", on(IMAGE, lambda b, x: _conv(b, _conv(b, _conv(b, x)))), [FIRST, None, None]),
    ("residual", MODELS["residual"], [FIRST, None]),
    ("pool", on(IMAGE, lambda b, x: b.avg_pool2d(_conv(b, x), 2)), [FIRST, None]),
    ("second consumer", on(IMAGE, _both), [FIRST, StopKind.SECOND_CONSUMER, None]),
    ("both operands", on(IMAGE, _square), [FIRST, StopKind.SECOND_CONSUMER]),
    ("graph output", on(IMAGE, _output_between), [FIRST, StopKind.GRAPH_OUTPUT]),
    ("slice", on(IMAGE, _slice_between), [FIRST, StopKind.SLICE]),
    ("reshape", on(IMAGE, _reshape_between), [FIRST, StopKind.RESHAPE]),
    (
        "fully connected",
        on(IMAGE, lambda b, x: b.fully_connected(b.reshape(_conv(b, x), (1, -1)), 4)),
        [FIRST, StopKind.FULLY_CONNECTED],
    ),
    (
        "one row",
        on((1, 8, 8, 16), lambda b, x: b.conv2d(_conv(b, x), 8, 8, padding="VALID")),
        [FIRST, StopKind.HEIGHT_1],
    ),
    ("requantisation", MODELS["requantise"], [FIRST, StopKind.REQUANTISATION]),
    (
        "activation",
        on(IMAGE, lambda b, x: _conv(b, b.relu(x))),
        [FIRST, StopKind.ACTIVATION],
    ),
    (
        "upscaled",
        on(IMAGE, lambda b, x: b.transpose_conv(_conv(b, x), 8, 2, stride=2)),
        [FIRST, StopKind.RESAMPLING],
    ),
    (
        "custom op",
        on(IMAGE, lambda b, x: _conv(b, on_cpu(b, _conv(b, x), "y"))),
        [FIRST, StopKind.CUSTOM_OP, StopKind.CUSTOM_OP],
    ),
    (
        "op on the CPU",
        on(IMAGE, lambda b, x: _conv(b, b.quantize(b.dequantize(_conv(b, x))))),
        [FIRST, StopKind.CPU_OP, StopKind.CPU_OP, StopKind.CPU_OP],
    ),
    ("copy", MODELS["concat_rows"], [FIRST, StopKind.ACTIVATION, StopKind.COPY]),
    (
        "several writers",
        MODELS["inception"],
        [FIRST, *[StopKind.OTHER_INPUT] * 2, StopKind.SEVERAL_WRITERS],
    ),
    ("skipped rows", MODELS["every_second"], [FIRST, StopKind.LINEAR_LAYOUT]),
    (
        "pieces",
        on(IMAGE, lambda b, x: b.conv2d(_conv(b, x), 8, 4, stride=4, padding="VALID")),
        [FIRST, StopKind.SPLIT_OP],
    ),
]


@pytest.mark.parametrize(("make", "expected"), [s[1:] for s in STOPS], ids=[s[0] for s in STOPS])
def test_stops_are_named(make: Make, expected: list[StopKind | None]) -> None:
    graph = graph_of(make, Family.U55)
    assert [stop.kind if stop else None for stop in graph.stops] == expected
    assert all(stop.text for stop in graph.stops if stop is not None)


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_chains_cover_all_ops_and_break_at_stops(make: Make, family: Family) -> None:
    graph = graph_of(make, family)
    assert [number for chain in graph.chains for number in chain.ops] == list(range(len(graph.ops)))
    starts = [chain.first for chain in graph.chains]
    assert starts == [i for i, stop in enumerate(graph.stops) if stop is not None]
    for chain in graph.chains:
        for before, after in pairwise(graph.ops[number] for number in chain.ops):
            read = after.ifms[primary_ifm(after)]
            assert read.tensor == before.final_ofm.tensor
            assert graph.readers[read.tensor] == (after.id,)
            assert not graph.feature_maps[read.tensor].is_graph_output


def test_stop_names_the_tensor_in_between() -> None:
    graph = graph_of(on(IMAGE, _output_between), Family.U55)
    between = graph.ops[0].final_ofm.tensor
    assert graph.stops[1] == Stop(StopKind.GRAPH_OUTPUT, 1, between)


def test_chained_ops_are_not_striped() -> None:
    graph = graph_of(on(IMAGE, lambda b, x: b.add(_conv(b, _conv(b, x)), x)), Family.U85)
    assert [stop.kind if stop else None for stop in graph.stops] == [FIRST, StopKind.CHAINED_OPS]


BLOCKERS: list[tuple[str, Family, Make, list[str]]] = [
    ("fits", Family.U85, MODELS["residual"], [""]),
    ("no chains", Family.U55, MODELS["residual"], ["not an activation", ""]),
    ("kernel", Family.U85, on(IMAGE, lambda b, x: _conv(b, _conv(b, x))), ["not elementwise", ""]),
    ("inputs", Family.U85, MODELS["chain"], ["too many inputs", ""]),
    (
        "slots",
        Family.U85,
        on(IMAGE, lambda b, x: b.neg(b.abs(b.neg(b.abs(b.neg(_conv(b, x))))))),
        ["chain is full", ""],
    ),
    ("second consumer", Family.U85, on(IMAGE, _square), ["second consumer", ""]),
    (
        "graph output",
        Family.U85,
        on(IMAGE, lambda b, x: ((y := _conv(b, x)), b.abs(y))),
        ["graph output", ""],
    ),
    ("other tensor", Family.U85, MODELS["concat_5_channels"], ["reads another tensor", ""]),
    (
        "two tables",
        Family.U55,
        on(IMAGE, lambda b, x: b.tanh(b.logistic(_conv(b, x)))),
        ["one activation per kernel", ""],
    ),
    (
        "one table, from an activation",
        Family.U55,
        on(IMAGE, lambda b, x: b.tanh(b.logistic(x))),
        ["two activations", ""],
    ),
    ("CPU", Family.U55, MODELS["with_custom"], ["CPU op", "CPU op", ""]),
]


@pytest.mark.parametrize(
    ("family", "make", "expected"), [case[1:] for case in BLOCKERS], ids=[c[0] for c in BLOCKERS]
)
def test_what_blocks_fusion_is_named(family: Family, make: Make, expected: list[str]) -> None:
    assert [op.fusion_blocker for op in graph_of(make, family).ops] == expected
