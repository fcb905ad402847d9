"""Shape rules by hand, against numpy, and through whole graphs with given input shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import ModelError
from npusched.ir import OpKind, Options, Padding, Shape
from npusched.ir.options import (
    AxisOptions,
    BatchMatMulOptions,
    ConcatOptions,
    ConvOptions,
    FullyConnectedOptions,
    NoOptions,
    PoolOptions,
    ReduceOptions,
    ReshapeOptions,
    SqueezeOptions,
    StridedSliceOptions,
)
from npusched.tflite import Builder, read_model
from npusched.tflite.rules import Operand, ShapeError, window
from npusched.tflite.shapes import infer
from tests.tflite.builder_zoo import MODELS


def _ints(*values: int) -> Operand:
    return Operand((len(values),), np.array(values, np.int32))


def _conv(padding: str, stride: int = 1, dilation: int = 1) -> ConvOptions:
    return ConvOptions(
        padding=Padding(padding),
        stride_h=stride,
        stride_w=stride,
        dilation_h=dilation,
        dilation_w=dilation,
    )


IFM = Operand((1, 7, 10, 6))
FC = FullyConnectedOptions()


@pytest.mark.parametrize(
    ("kind", "options", "operands", "shapes"),
    [
        # SAME: ceil(7/2) = 4, ceil(10/2) = 5. VALID 3x3: 7-2 = 5, 10-2 = 8; dilated by 2, the
        # kernel spans 5: 7-4 = 3, 10-4 = 6. Grouped: 6 channels in 2 groups of depth 3.
        ("CONV_2D", _conv("SAME", 2), [IFM, Operand((4, 3, 3, 6))], [(1, 4, 5, 4)]),
        ("CONV_2D", _conv("VALID"), [IFM, Operand((4, 3, 3, 6))], [(1, 5, 8, 4)]),
        ("CONV_2D", _conv("VALID", 1, 2), [IFM, Operand((4, 3, 3, 6))], [(1, 3, 6, 4)]),
        ("CONV_2D", _conv("SAME"), [IFM, Operand((4, 1, 1, 3))], [(1, 7, 10, 4)]),
        ("DEPTHWISE_CONV_2D", _conv("SAME"), [IFM, Operand((1, 3, 3, 12))], [(1, 7, 10, 12)]),
        (
            "TRANSPOSE_CONV",
            _conv("VALID", 2),
            [_ints(1, 15, 21, 4), Operand((4, 3, 3, 6)), IFM],
            [(1, 15, 21, 4)],
        ),
        ("FULLY_CONNECTED", FC, [Operand((5, 2, 8)), Operand((3, 8))], [(10, 3)]),
        (
            "FULLY_CONNECTED",
            FullyConnectedOptions(keep_num_dims=True),
            [Operand((5, 2, 8)), Operand((3, 8))],
            [(5, 2, 3)],
        ),
        (
            "BATCH_MATMUL",
            BatchMatMulOptions(adj_y=True),
            [Operand((2, 1, 5, 7)), Operand((3, 4, 7))],
            [(2, 3, 5, 4)],
        ),
        ("ADD", NoOptions(), [Operand((4, 1)), Operand((3, 1, 5))], [(3, 4, 5)]),
        ("MEAN", ReduceOptions(), [IFM, _ints(1, -2)], [(1, 6)]),
        ("MEAN", ReduceOptions(keep_dims=True), [IFM, _ints(1, 2)], [(1, 1, 1, 6)]),
        ("ARG_MAX", NoOptions(), [IFM, _ints(-1)], [(1, 7, 10)]),
        ("RESHAPE", ReshapeOptions(new_shape=(-1, 6)), [IFM], [(70, 6)]),
        ("RESHAPE", ReshapeOptions(new_shape=(2, 2)), [IFM, _ints(420)], [(420,)]),
        ("SQUEEZE", SqueezeOptions(), [Operand((1, 3, 1))], [(3,)]),
        ("SQUEEZE", SqueezeOptions(squeeze_dims=(-1,)), [Operand((1, 3, 1))], [(1, 3)]),
        ("CONCATENATION", ConcatOptions(axis=-1), [IFM, IFM], [(1, 7, 10, 12)]),
        ("SPLIT", AxisOptions(count=2), [_ints(3), IFM], [(1, 7, 10, 3)] * 2),
        ("SPLIT_V", AxisOptions(count=2), [IFM, _ints(2, -1), _ints(1)],
         [(1, 2, 10, 6), (1, 5, 10, 6)]),
        ("PAD", NoOptions(), [IFM, _ints(0, 0, 1, 2, 3, 0, 0, 0)], [(1, 10, 13, 6)]),
        ("TILE", NoOptions(), [Operand((2, 3)), _ints(1, 4)], [(2, 12)]),
        ("GATHER", AxisOptions(axis=1), [IFM, Operand((2, 2))], [(1, 2, 2, 10, 6)]),
        ("GATHER", AxisOptions(axis=1, batch_dims=1), [Operand((3, 7)), Operand((3, 2))],
         [(3, 2)]),
        ("SPACE_TO_BATCH_ND", NoOptions(), [IFM, _ints(2, 2), _ints(0, 1, 0, 0)],
         [(4, 4, 5, 6)]),
        ("BATCH_TO_SPACE_ND", NoOptions(), [Operand((4, 4, 5, 6)), _ints(2, 2), _ints(0, 1, 0, 0)],
         [(1, 7, 10, 6)]),
        ("SHAPE", NoOptions(), [IFM], [(4,)]),
        ("BROADCAST_TO", NoOptions(), [Operand((1, 6)), _ints(5, 6)], [(5, 6)]),
    ],
)  # fmt: skip
def test_by_hand(kind: str, options: Options, operands: list[Operand], shapes: list[Shape]) -> None:
    assert infer(OpKind(kind), options, operands) == tuple(shapes)


@pytest.mark.parametrize(
    ("kind", "options", "operands"),
    [
        ("CONV_2D", _conv("SAME"), [IFM, Operand((4, 3, 3, 4))]),
        ("CONV_2D", _conv("SAME"), [IFM, Operand((5, 3, 3, 3))]),
        ("CONV_2D", _conv("SAME"), [IFM, Operand((4, 0, 3, 6))]),
        ("CONV_2D", _conv("SAME"), [Operand((1, 7, 6)), Operand((4, 3, 3, 6))]),
        ("CONV_2D", _conv("VALID"), [IFM, Operand((4, 8, 3, 6))]),
        ("CONV_2D", _conv("SAME"), [IFM, Operand((4, 3, 3, 6)), Operand((5,))]),
        ("DEPTHWISE_CONV_2D", _conv("SAME"), [IFM, Operand((1, 3, 3, 8))]),
        ("TRANSPOSE_CONV", _conv("SAME", 2), [_ints(1, 20, 20, 4), Operand((4, 3, 3, 6)), IFM]),
        ("FULLY_CONNECTED", FC, [Operand((5, 7)), Operand((3, 8))]),
        ("BATCH_MATMUL", BatchMatMulOptions(), [Operand((5, 7)), Operand((8, 3))]),
        ("ADD", NoOptions(), [Operand((4,)), Operand((3,))]),
        ("MEAN", ReduceOptions(), [IFM, _ints(4)]),
        ("RESHAPE", ReshapeOptions(new_shape=(-1, 11)), [IFM]),
        ("RESHAPE", ReshapeOptions(new_shape=(-1, -1)), [IFM]),
        ("CONCATENATION", ConcatOptions(axis=3), [IFM, Operand((1, 7, 9, 6))]),
        ("SPLIT", AxisOptions(count=4), [_ints(3), IFM]),
        ("UNPACK", AxisOptions(axis=0, count=2**31 - 1), [Operand((2**31 - 1,))]),
        ("SLICE", NoOptions(), [Operand((4,)), _ints(2), _ints(3)]),
        ("TRANSPOSE", NoOptions(), [IFM, _ints(0, 1, 1, 2)]),
        ("STRIDED_SLICE", StridedSliceOptions(), [IFM, _ints(0), _ints(1), _ints(0)]),
        ("PRELU", NoOptions(), [Operand((1, 4)), Operand((3, 4))]),
    ],
)
def test_contradictions(kind: str, options: Options, operands: list[Operand]) -> None:
    with pytest.raises(ShapeError):
        infer(OpKind(kind), options, operands)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
def test_window_counts_positions(size: int, kernel: int, stride: int, dilation: int) -> None:
    """VALID counts the starts at which the whole window fits; SAME every ``stride``-th row."""
    span = (kernel - 1) * dilation + 1
    starts = [s for s in range(0, size, stride) if s + span <= size]
    if starts:
        assert window(size, kernel, stride, Padding.VALID, dilation) == len(starts)
    assert window(size, kernel, stride, Padding.SAME, dilation) == len(range(0, size, stride))


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_strided_slice_is_numpys(shape: list[int], data: st.DataObject) -> None:
    """The rule gives the shape that numpy gives for the same slices."""
    count = len(shape)
    ends = st.integers(-6, 6)
    begin = [data.draw(ends) for _ in shape]
    end = [data.draw(ends) for _ in shape]
    step = [data.draw(st.sampled_from([-2, -1, 1, 2, 3])) for _ in shape]
    masks = [data.draw(st.integers(0, 2**count - 1)) for _ in range(2)]
    options = StridedSliceOptions(begin_mask=masks[0], end_mask=masks[1])
    slices = tuple(
        slice(
            None if masks[0] >> i & 1 else begin[i],
            None if masks[1] >> i & 1 else end[i],
            step[i],
        )
        for i in range(count)
    )
    operands = [Operand(tuple(shape)), _ints(*begin), _ints(*end), _ints(*step)]
    found = infer(OpKind.STRIDED_SLICE, options, operands)
    assert found == (np.zeros(shape)[slices].shape,)


def test_pool_rule() -> None:
    options = PoolOptions(padding=Padding.VALID, stride_h=2, stride_w=3, filter_h=3, filter_w=2)
    assert infer(OpKind.MAX_POOL_2D, options, [IFM]) == ((1, 3, 3, 6),)


def test_no_rule_and_unknown_values() -> None:
    assert infer(OpKind.WHERE, NoOptions(), [IFM]) is None
    assert infer(OpKind.RESHAPE, ReshapeOptions(), [IFM, Operand((2,))]) is None


def _dynamic(shape: Shape, signature: Shape, flatten: bool = False) -> bytes:
    b = Builder()
    x = b.input("image", shape, shape_signature=signature)
    y = b.conv2d(x, 8, stride=2)
    y = b.max_pool2d(y) if not flatten else y
    y = b.reshape(y, (1, -1)) if flatten else b.mean(y)
    b.output(b.fully_connected(y, 4))
    b.signature("serve", {"input": x}, {})
    return b.build()


def test_dynamic_batch_is_taken_as_one_and_said_once() -> None:
    model = read_model(_dynamic((1, 32, 32, 3), (-1, 32, 32, 3)), "m")
    assert model.notes == ("the batch is dynamic: taken as 1",)
    assert model.subgraphs[0].tensors[0].shape == (1, 32, 32, 3)
    assert model.subgraphs[0].tensors[0].dynamic_axes == (0,)


def test_dynamic_height_is_refused_with_the_option_to_pass() -> None:
    b = Builder()
    b.output(b.conv2d(b.input("image", (1, 1, 1, 3), shape_signature=(1, -1, -1, 3)), 8))
    content = b.build()
    with pytest.raises(ModelError, match="dynamic shape") as caught:
        read_model(content, "m")
    assert "--input-shape image=1,96,96,3" in caught.value.hint
    found = read_model(content, "m", input_shapes={"image": (1, 5, 6, 3)})
    assert found.subgraphs[0].tensors[found.subgraphs[0].outputs[0]].shape == (1, 5, 6, 8)
    assert "[1, -1, -1, 3]" in caught.value.why


def test_a_dynamic_shape_with_a_size_is_used() -> None:
    model = read_model(_dynamic((1, 32, 32, 3), (1, -1, -1, 3)), "m")
    assert model.notes == ("input image is dynamic: taken as [1, 32, 32, 3]",)


@pytest.mark.parametrize("name", ["image", "input"])
def test_given_shape_is_propagated(name: str) -> None:
    """24x40 by a stride of 2 is 12x20, pooled 6x10, mean over both; the batch stays 2."""
    model = read_model(_padded(), "m", input_shapes={name: (2, 24, 40, 3)})
    graph = model.subgraphs[0]
    shapes = [graph.tensors[op.outputs[0]].shape for op in graph.ops]
    assert shapes == [(2, 12, 20, 8), (2, 6, 10, 8), (2, 8), (2, 4)]
    assert model.notes == ()


def _padded() -> bytes:
    return _dynamic((1, 32, 32, 3), (-1, -1, -1, 3))


def test_given_shape_that_does_not_suit() -> None:
    """Flattened 4x4x8 = 128 features feed a layer of 16*16*8 = 2048."""
    content = _dynamic((1, 32, 32, 3), (1, -1, -1, 3), flatten=True)
    with pytest.raises(ModelError, match="does not suit op 2 FULLY_CONNECTED") as caught:
        read_model(content, "m", input_shapes={"image": (1, 8, 8, 3)})
    assert "2048" in caught.value.why


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"imag": (1, 8, 8, 3)}, "no graph input is called 'imag'"),
        ({"image": (1, 8, 8)}, "does not suit graph input 'image'"),
        ({"image": (1, 0, 8, 3)}, "does not suit graph input 'image'"),
        ({"image": (1, 8, 8, 4)}, "does not suit op 0 CONV_2D"),
        ({"image": (1, 2**20, 2**20, 3)}, "too large"),
    ],
)
def test_wrong_given_shapes(shapes: dict[str, Shape], text: str) -> None:
    with pytest.raises(ModelError, match=text) as caught:
        read_model(_padded(), "m", input_shapes=shapes)
    assert caught.value.hint


def test_given_shape_meets_an_op_without_a_rule() -> None:
    b = Builder()
    x = b.input("x", (1, 4))
    y = b.tensor("y", (1, 4), "int8")
    b.custom("Mystery", [x], [y])
    b.output(y)
    with pytest.raises(ModelError, match="op 0 Mystery"):
        read_model(b.build(), "m", input_shapes={"x": (1, 8)})
    assert read_model(b.build(), "m", input_shapes={"x": (1, 4)}).subgraphs[0].ops


def test_shape_arithmetic_is_followed() -> None:
    """Flatten as converters write it: SHAPE, STRIDED_SLICE, PACK with -1, RESHAPE."""
    b = Builder()
    x = b.input("x", (1, 4, 6), shape_signature=(-1, 4, 6))
    shape = b.tensor("shape", (3,), "int32")
    b.op(OpKind.SHAPE, [x], [shape])
    batch = b.tensor("batch", (), "int32")
    ints = [b.const((value,)) for value in (0, 1, 1)]
    b.op(OpKind.STRIDED_SLICE, [shape, *ints], [batch], StridedSliceOptions(shrink_axis_mask=1))
    target = b.tensor("target", (2,), "int32")
    b.op(OpKind.PACK, [batch, b.const(-1)], [target], AxisOptions(count=2))
    flat = b.tensor("flat", (1, 24), "int8")
    b.op(OpKind.RESHAPE, [x, target], [flat], ReshapeOptions())
    b.output(flat)
    model = read_model(b.build(), "m", input_shapes={"x": (5, 4, 6)})
    assert model.subgraphs[0].tensors[flat.index].shape == (5, 24)


@pytest.mark.parametrize("name", ["conv", "depthwise", "max_pool", "relu", "add_int8", "softmax"])
def test_a_larger_batch_passes_through(name: str) -> None:
    content = MODELS[name]()
    graph = read_model(content, name).subgraphs[0]
    wanted = {graph.tensors[i].name: (3, *graph.tensors[i].shape[1:]) for i in graph.inputs}
    found = read_model(content, name, input_shapes=wanted).subgraphs[0]
    for index in graph.outputs:
        assert found.tensors[index].shape == (3, *graph.tensors[index].shape[1:])
