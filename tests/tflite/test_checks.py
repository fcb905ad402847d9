"""A file that decodes can still be no model: what the graph checks refuse, and how they say it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from npusched.errors import ModelError
from npusched.ir import OpKind
from npusched.ir.options import CallOptions
from npusched.tflite import Builder, read_model, verify


def _cycle(b: Builder) -> None:
    x = b.input("x", (1, 4))
    y, z = b.tensor("y", (1, 4), "int8"), b.tensor("z", (1, 4), "int8")
    b.op(OpKind.MAXIMUM, [x, z], [y])
    b.op(OpKind.RELU, [y], [z])
    b.output(z)


def _self_loop(b: Builder) -> None:
    y = b.tensor("y", (1, 4), "int8")
    b.op(OpKind.RELU, [y], [y])
    b.output(y)


def _out_of_order(b: Builder) -> None:
    x = b.input("x", (1, 4))
    y, z = b.tensor("y", (1, 4), "int8"), b.tensor("z", (1, 4), "int8")
    b.op(OpKind.RELU, [y], [z])
    b.op(OpKind.RELU, [x], [y])
    b.output(z)


def _written_twice(b: Builder) -> None:
    x = b.input("x", (1, 4))
    y = b.tensor("y", (1, 4), "int8")
    b.op(OpKind.RELU, [x], [y])
    b.op(OpKind.RELU6, [x], [y])
    b.output(y)


def _input_written(b: Builder) -> None:
    x, z = b.input("x", (1, 4)), b.input("z", (1, 4))
    b.op(OpKind.RELU, [x], [z])
    b.output(z)


def _constant_written(b: Builder) -> None:
    x, c = b.input("x", (4,)), b.const((1, 2, 3, 4), "int8")
    b.op(OpKind.RELU, [x], [c])
    b.output(c)


def _never_made(b: Builder) -> None:
    y = b.tensor("y", (1, 4), "int8")
    b.output(b.relu(y))


def _output_never_made(b: Builder) -> None:
    b.input("x", (1, 4))
    b.output(b.tensor("y", (1, 4), "int8"))


def _empty_activation(b: Builder) -> None:
    b.output(b.relu(b.input("x", (1, 0, 4))))


def _too_large(b: Builder) -> None:
    b.output(b.relu(b.input("x", (1, 1 << 20, 1 << 20, 16))))


def _many_axes(b: Builder) -> None:
    b.output(b.relu(b.input("x", (1,) * 40)))


def _missing_operand(b: Builder) -> None:
    x, y = b.input("x", (1, 4)), b.tensor("y", (1, 4), "int8")
    b.op(OpKind.ADD, [x], [y])
    b.output(y)


def _absent_operand(b: Builder) -> None:
    x, y = b.input("x", (1, 4)), b.tensor("y", (1, 4), "int8")
    b.op(OpKind.ADD, [x, None], [y])
    b.output(y)


def _no_result(b: Builder) -> None:
    b.op(OpKind.RELU, [b.input("x", (1, 4))], [])


def _wrong_shape(b: Builder) -> None:
    x, y = b.input("x", (1, 4)), b.tensor("y", (1, 5), "int8")
    b.op(OpKind.RELU, [x], [y])
    b.output(y)


def _no_such_subgraph(b: Builder) -> None:
    b.op(OpKind.CALL_ONCE, [], [], CallOptions(subgraphs=(7,)))


def _recursive(b: Builder) -> None:
    other = b.subgraph("other")
    b.op(OpKind.CALL_ONCE, [], [], CallOptions(subgraphs=(1,)))
    other.op(OpKind.CALL_ONCE, [], [], CallOptions(subgraphs=(0,)))


@pytest.mark.parametrize(
    ("make", "what", "why"),
    [
        (_cycle, "op 0 MAXIMUM runs too early", "cycle"),
        (_self_loop, "op 0 RELU runs too early", "cycle"),
        (_out_of_order, "op 0 RELU runs too early", "op 1 RELU makes later"),
        (_written_twice, "tensor 1 is written twice", "op 0 RELU and op 1 RELU6"),
        (_input_written, "tensor 1 is written twice", "the caller and op 0 RELU"),
        (_constant_written, "is written but constant", "4 bytes"),
        (_never_made, "op 0 RELU reads tensor 0", "no op writes it"),
        (_output_never_made, "returns tensor 1", "no op writes it"),
        (_empty_activation, "tensor 0 of subgraph 0 is empty", "[1, 0, 4]"),
        (_too_large, "too large", "1048576"),
        (_many_axes, "too large", "axes"),
        (_missing_operand, "shapes of op 0 ADD", "input 1 is missing"),
        (_absent_operand, "shapes of op 0 ADD", "input 1 is missing"),
        (_no_result, "shapes of op 0 RELU", "0 outputs, expected 1"),
        (_wrong_shape, "shapes of op 0 RELU", "output 1 is [1, 5], its inputs make [1, 4]"),
        (_no_such_subgraph, "op 0 CALL_ONCE runs subgraph 7", "there are 1"),
        (_recursive, "run each other in a circle", "[0, 1]"),
    ],
)
def test_refused(make: Callable[[Builder], None], what: str, why: str) -> None:
    b = Builder()
    make(b)
    content = b.build()
    with pytest.raises(ModelError) as caught:
        read_model(content, "m")
    error = caught.value
    assert what in error.what
    assert why in error.why
    assert error.hint
    with pytest.raises(ModelError):
        verify(content)


def test_a_variable_needs_no_writer() -> None:
    b = Builder()
    state = b.variable("state", (1, 4), scale=0.1)
    b.output(b.add(b.input("x", (1, 4)), state))
    verify(b.build())


def test_an_empty_constant_is_a_value() -> None:
    """RESHAPE to a scalar has an empty shape tensor."""
    b = Builder()
    x = b.input("x", (1,))
    y = b.tensor("y", (), "int8")
    b.op(OpKind.RESHAPE, [x, b.tensor("shape", (0,), "int32")], [y])
    b.output(y)
    graph = read_model(b.build(), "m").subgraphs[0]
    assert graph.tensors[2].is_constant


def test_a_long_chain_of_subgraphs_is_checked_in_linear_time() -> None:
    b = Builder()
    count = 2000
    graphs = [b, *(b.subgraph(f"g{i}") for i in range(count))]
    for index, graph in enumerate(graphs[:-1]):
        graph.op(OpKind.CALL_ONCE, [], [], CallOptions(subgraphs=(index + 1,)))
    start = time.perf_counter()
    verify(b.build())
    assert time.perf_counter() - start < 2
