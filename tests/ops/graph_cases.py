"""Small graphs in which neighbours decide an op's place, with the ops expected on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npusched.ir import ActivationKind, Model, OpKind, Padding
from npusched.ir.options import BinaryOptions, ConvOptions, VarHandleOptions
from tests.ops.one_op import Node, T, ints, model_of


@dataclass(frozen=True)
class GraphCase:
    """A model and the indices of the ops that stay on the CPU per family."""

    name: str
    model: Model
    u55: frozenset[int]
    u85: frozenset[int]


def _case(name: str, model: Model, u55: set[int], u85: set[int] | None = None) -> GraphCase:
    return GraphCase(name, model, frozenset(u55), frozenset(u55 if u85 is None else u85))


BLOCK = (2, 2)


def dilated(
    *,
    activation: ActivationKind = ActivationKind.NONE,
    second_reader: bool = False,
    views: bool = False,
    weights: str = "int8",
    stride: int = 1,
) -> Model:
    """SPACE_TO_BATCH_ND, CONV_2D 3x3, BATCH_TO_SPACE_ND over 1x8x8x4 with blocks of 2x2.

    Padded by 2 on every side: 12x12 -> 4 images of 6x6 -> conv VALID -> 4x4 -> 8x8.
    """
    source, result = T((1, 8, 8, 4)), T((1, 8, 8, 4))
    crops = T((2, 2), "int32", None, values=0)
    pads = T((2, 2), "int32", None, values=2)
    spread, convolved = T((4, 6, 6, 4)), T((4, 4, 4, 4))
    options = ConvOptions(
        padding=Padding.VALID, stride_h=stride, stride_w=stride, activation=activation
    )
    inner_in = spread
    nodes = [Node(OpKind.SPACE_TO_BATCH_ND, (source, ints(*BLOCK), pads), (spread,))]
    if views:
        inner_in = T((4, 6, 6, 4))
        nodes.append(Node(OpKind.RESHAPE, (spread, ints(4, 6, 6, 4)), (inner_in,)))
    kernel = T((4, 3, 3, 4), weights, values=1)
    bias = T((4,), "int32", None, values=0)
    nodes.append(Node(OpKind.CONV_2D, (inner_in, kernel, bias), (convolved,), options))
    nodes.append(Node(OpKind.BATCH_TO_SPACE_ND, (convolved, ints(*BLOCK), crops), (result,)))
    if second_reader:
        nodes.append(Node(OpKind.RELU, (convolved,), (T((4, 4, 4, 4)),)))
    return model_of(*nodes)


def graph_cases() -> Iterator[GraphCase]:
    """Every case."""
    yield _case("dilated convolution", dilated(), set())
    yield _case("dilated convolution through a view", dilated(views=True), set())
    fused = dilated(activation=ActivationKind.RELU)
    yield _case("dilated convolution with a fused activation", fused, {0, 2})
    yield _case("dilated convolution, second reader", dilated(second_reader=True), {0, 2})
    yield _case("dilated convolution, wide weights", dilated(weights="int16"), {0, 1, 2})
    shape = (1, 4, 4, 8)
    x, middle, out = T(shape), T(shape), T(shape)
    unused = Node(OpKind.SQRT, (x,), (T(shape),))
    chain = (Node(OpKind.RELU, (x,), (middle,)), Node(OpKind.ABS, (middle,), (out,)))
    yield _case("an op that reaches no output", model_of(*chain, unused, outputs=(out,)), set())
    x, middle, out = T(shape), T(shape), T(shape)
    model = model_of(
        Node(OpKind.RELU, (x,), (middle,)),
        Node(OpKind.CUSTOM, (middle,), (out,), custom_code="my_op"),
    )
    yield _case("a custom op", model, {1})
    a, b, total = T(shape, "int32", None), T(shape, "int32", None), T(shape, "int32", None)
    options = BinaryOptions(activation=ActivationKind.RELU6)
    model = model_of(Node(OpKind.ADD, (a, b), (total,), options))
    yield _case("an activation drags its op along", model, {0}, set())
    for dtype, u85 in (("int8", set()), ("float32", {0, 1, 2})):
        handle = T((), "resource", None)
        read, value = T(shape, dtype), T(shape, dtype)
        name = VarHandleOptions(shared_name="state")
        nodes = (
            Node(OpKind.VAR_HANDLE, (), (handle,), name),
            Node(OpKind.READ_VARIABLE, (handle,), (read,)),
            Node(OpKind.ASSIGN_VARIABLE, (handle, value), ()),
        )
        yield _case(f"a variable of {dtype}", model_of(*nodes), {0, 1, 2}, u85)
    less, picked = T(shape, "bool"), T(shape)
    x, y = T(shape), T(shape)
    model = model_of(
        Node(OpKind.LESS, (x, y), (less,)), Node(OpKind.SELECT_V2, (less, x, y), (picked,))
    )
    yield _case("a bool between two ops", model, {0, 1}, set())
    scalar = T((), "int8")
    model = model_of(Node(OpKind.RELU, (T(shape),), (scalar,)))
    yield _case("a result without a shape", model, {0})
