"""What the reader makes of a file's features."""

from __future__ import annotations

import struct
from dataclasses import fields, replace

import numpy as np
import pytest

from npusched.errors import ModelError
from npusched.ir import DataType, OpKind, Quantization
from npusched.ir.options import (
    BinaryOptions,
    CallOptions,
    ConvOptions,
    CustomOptions,
    NoOptions,
    VarHandleOptions,
)
from npusched.tflite import Builder, is_vela_compiled, read_model
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from tests.tflite.builder_zoo import MODELS, call_once


def _edit(content: bytes, **changes: Value) -> bytes:
    """Return the file with fields of its root replaced."""
    root = decode(content)
    return encode(Record("Model", {**root.values, **changes}))


def test_per_channel_quantisation() -> None:
    graph = read_model(MODELS["conv"](), "m").subgraphs[0]
    weights, bias = (graph.tensors[i] for i in graph.ops[0].inputs[1:])
    assert weights.quantization is not None
    assert weights.quantization.axis == 0
    assert len(weights.quantization.scales) == 16
    assert weights.quantization.zero_points == (0,) * 16
    assert bias.dtype is DataType.INT32
    assert bias.quantization is not None
    ifm = graph.tensors[graph.inputs[0]].quantization
    assert ifm is not None
    assert bias.quantization.scales == tuple(
        float(np.float32(ifm.scales[0] * s)) for s in weights.quantization.scales
    )


def test_constants_are_views_of_the_file_and_read_only() -> None:
    graph = read_model(MODELS["conv"](), "m").subgraphs[0]
    data = graph.tensors[graph.ops[0].inputs[1]].data
    assert data is not None
    assert data.base is not None
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_int4_is_unpacked() -> None:
    """-8 and 7 share a byte, low nibble first: 0x78; the odd last value is padded with 0."""
    b = Builder()
    x = b.input("x", (1, 5), scale=1.0, zero_point=0)
    w = b.const([[-8, 7, -1, 0, 3]], "int4", scale=1.0)
    b.output(b.fully_connected(x, 1, weights=w, bias=False))
    content = b.build()
    assert bytes([0x78, 0x0F, 0x03]) in content
    tensor = read_model(content, "m").subgraphs[0].tensors[w.index]
    assert tensor.data is not None
    assert tensor.data.tolist() == [[-8, 7, -1, 0, 3]]
    assert (tensor.dtype, tensor.stored_bytes, tensor.size_bytes) == (DataType.INT4, 3, 3)


@pytest.mark.parametrize(
    ("dtype", "raw", "values"),
    [
        ("bfloat16", struct.pack("<2H", 0x3F80, 0xC020), [1.0, -2.5]),
        ("float16", struct.pack("<2H", 0x3C00, 0xC100), [1.0, -2.5]),
        ("bool", b"\x00\x01", [False, True]),
        ("int64", struct.pack("<2q", -(2**62), 5), [-(2**62), 5]),
        ("string", struct.pack("<4i", 2, 16, 18, 21) + b"hiyou", [b"hi", b"you"]),
    ],
)
def test_constant_types(dtype: str, raw: bytes, values: list[object]) -> None:
    b = Builder()
    ref = b.tensor("c", (2,), dtype, data=raw)
    b.output(ref)
    tensor = read_model(b.build(), "m").subgraphs[0].tensors[0]
    assert tensor.data is not None
    assert tensor.data.tolist() == values


@pytest.mark.parametrize(
    ("dtype", "raw"),
    [
        ("int32", bytes(7)),
        ("int32", bytes(12)),
        ("int4", bytes(2)),
        ("string", struct.pack("<4i", 2, 16, 18, 99) + b"hiyou"),
        ("string", struct.pack("<i", 2**31 - 1)),
    ],
)
def test_constants_that_do_not_fit_their_buffer(dtype: str, raw: bytes) -> None:
    b = Builder()
    b.output(b.tensor("c", (2,), dtype, data=raw))
    with pytest.raises(ModelError, match="does not match its buffer"):
        read_model(b.build(), "m")


def test_buffers_behind_the_flatbuffer() -> None:
    """Large models keep constants at an offset of the file; 16 bytes are added in front of them."""
    b = Builder()
    b.output(b.const([1, 2, 3, 4], "int16"))
    root = decode(b.build())
    tail = struct.pack("<4h", 1, 2, 3, 4)
    for _ in range(2):  # the offset is known only when the size is
        size = len(encode(root))
        buffers = (Record("Buffer", {}), Record("Buffer", {"offset": size, "size": len(tail)}))
        root = Record("Model", {**root.values, "buffers": buffers})
    content = encode(root) + tail
    model = read_model(content, "m")
    data = model.subgraphs[0].tensors[0].data
    assert data is not None
    assert data.tolist() == [1, 2, 3, 4]
    assert model.const_bytes == 8
    with pytest.raises(ModelError, match="outside the file"):
        read_model(content[:-1], "m")


def test_variables_and_call_once() -> None:
    graphs = read_model(call_once(), "m").subgraphs
    main, init = graphs
    kinds = [op.kind for op in main.ops]
    assert kinds[:3] == [OpKind.CALL_ONCE, OpKind.VAR_HANDLE, OpKind.READ_VARIABLE]
    assert main.ops[0].options == CallOptions(subgraphs=(1,))
    assert main.ops[1].options == VarHandleOptions(shared_name="state")
    assert init.ops[-1].kind is OpKind.ASSIGN_VARIABLE
    assert init.ops[-1].outputs == ()


def test_lstm_state_is_variable() -> None:
    graph = read_model(MODELS["lstm"](), "m").subgraphs[0]
    op = graph.ops[0]
    assert len(op.inputs) == 24
    assert op.inputs[9:12] == (-1, -1, -1)
    assert [graph.tensors[i].is_variable for i in op.inputs[18:20]] == [True, True]
    assert len(op.intermediates) == 5


def test_signatures() -> None:
    model = read_model(MODELS["branches"](), "m")
    (signature,) = model.signatures
    assert (signature.key, signature.subgraph) == ("serve", 0)
    assert signature.inputs == (("image", 0),)


def test_custom_op() -> None:
    op = read_model(MODELS["custom"](), "m").subgraphs[0].ops[1]
    assert (op.kind, op.custom_code) == (OpKind.CUSTOM, "MyOp")
    assert op.options == CustomOptions(code="MyOp", data=b"\x01\x02")
    assert op.inputs[1] == -1


@pytest.mark.parametrize("code", [127, 209, 4000, 2**31 - 1, -5])
def test_unknown_operator_code(code: int) -> None:
    content = MODELS["relu"]()
    codes = (Record("OperatorCode", {"deprecated_builtin_code": 127, "builtin_code": code}),)
    op = read_model(_edit(content, operator_codes=codes), "m").subgraphs[0].ops[0]
    assert op.kind is OpKind.UNKNOWN
    assert op.options == NoOptions()


def test_old_files_have_only_the_old_code_field() -> None:
    codes = (Record("OperatorCode", {"deprecated_builtin_code": 21}),)
    op = read_model(_edit(MODELS["relu"](), operator_codes=codes), "m").subgraphs[0].ops[0]
    assert op.kind is OpKind.RELU6


def test_unknown_tensor_type_is_read() -> None:
    b = Builder()
    b.output(b.tensor("c", (4,), "int8", data=bytes(2)))
    root = decode(b.build())
    graph = root.records("subgraphs")[0]
    tensor = graph.records("tensors")[0]
    changed = Record("Tensor", {**tensor.values, "type": 19})
    content = _edit(
        b.build(), subgraphs=(Record("SubGraph", {**graph.values, "tensors": (changed,)}),)
    )
    found = read_model(content, "m").subgraphs[0].tensors[0]
    assert found.dtype is DataType.UNKNOWN
    assert found.data is not None
    assert found.data.tolist() == [0, 0]


def test_vela_output_is_recognised() -> None:
    b = Builder()
    x = b.input("x", (1, 8))
    y, scratch = b.tensor("y", (1, 2), "int8"), b.tensor("scratch", (64,), "uint8")
    b.custom("ethos-u", [b.const([1], "uint8"), scratch, x], [y])
    b.output(y)
    assert is_vela_compiled(read_model(b.build(), "m"))
    assert not is_vela_compiled(read_model(MODELS["custom"](), "m"))


def test_composite_names_its_subgraph() -> None:
    b = Builder()
    body = b.subgraph("body")
    z = body.input("z", (1, 4))
    body.output(body.relu(z))
    x = b.input("x", (1, 4))
    y = b.tensor("y", (1, 4), "int8")
    b.op(OpKind.STABLEHLO_COMPOSITE, [x], [y], CallOptions(subgraphs=(1,), name="odml.rms"))
    b.output(y)
    op = read_model(b.build(), "m").subgraphs[0].ops[0]
    assert op.options == CallOptions(subgraphs=(1,), name="odml.rms")


def test_defaults_of_absent_options() -> None:
    """No option table: the schema's defaults; a convolution cannot do without strides."""
    b = Builder()
    x = b.input("x", (1, 4), "int16", scale=1.0)
    y = b.tensor("y", (1, 4), "int16", scale=1.0)
    b.op(OpKind.ADD, [x, x], [y])
    b.output(y)
    assert read_model(b.build(), "m").subgraphs[0].ops[0].options == BinaryOptions()
    b = Builder()
    x = b.input("x", (1, 4, 4, 1))
    y = b.tensor("y", (1, 4, 4, 1), "int8")
    w = b.const(np.ones((1, 1, 1, 1)), "int8", scale=1.0)
    b.op(OpKind.CONV_2D, [x, w], [y])
    b.output(y)
    with pytest.raises(ModelError, match="impossible option") as caught:
        read_model(b.build(), "m")
    assert "stride_h is 0" in caught.value.why


def test_foreign_option_table() -> None:
    b = Builder()
    x = b.input("x", (1, 4))
    y = b.tensor("y", (1, 4), "int8")
    b.op(OpKind.SOFTMAX, [x], [y], table=Record("Pool2DOptions", {"stride_w": 1}))
    b.output(y)
    with pytest.raises(ModelError, match="impossible option"):
        read_model(b.build(), "m")


@pytest.mark.parametrize(
    ("scale", "zero_point", "text"),
    [
        (float("nan"), 0, "scale nan"),
        (float("inf"), 0, "scale inf"),
        (0.0, 0, "scale 0.0"),
        (-1.0, 0, "scale -1.0"),
        (1e12, 0, "scale 999999"),
        (1.0, 128, "zero points 128"),
        (1.0, -(2**40), "zero points"),
    ],
)
def test_impossible_quantisation(scale: float, zero_point: int, text: str) -> None:
    b = Builder()
    b.output(b.input("x", (1, 4), scale=scale, zero_point=zero_point))
    with pytest.raises(ModelError, match="quantisation of tensor 0") as caught:
        read_model(b.build(), "m")
    assert text in caught.value.why


def test_quantisation_lengths() -> None:
    """Scales per channel suit their axis; one zero point counts for all; a dead channel is 0."""
    b = Builder()
    b.output(b.const(np.zeros((2, 3)), "int8", scale=(1.0, 0.0, 2.0), zero_point=(0, 0, 0), axis=1))
    found = read_model(b.build(), "m").subgraphs[0].tensors[0].quantization
    assert found == Quantization(scales=(1.0, 0.0, 2.0), zero_points=(0, 0, 0), axis=1)
    b = Builder()
    b.output(b.const(np.zeros((2, 3)), "int8", scale=(1.0, 2.0, 3.0), zero_point=(0,), axis=1))
    found = read_model(b.build(), "m").subgraphs[0].tensors[0].quantization
    assert found is not None
    assert found.zero_points == (0, 0, 0)
    b = Builder()
    b.output(b.const(np.zeros((2, 3)), "int8", scale=(1.0, 2.0), zero_point=(0, 0), axis=1))
    with pytest.raises(ModelError, match="quantisation"):
        read_model(b.build(), "m")


def test_float_ranges_are_no_quantisation() -> None:
    b = Builder()
    x = b.input("x", (1, 4), "float32")
    b.output(x)
    assert read_model(b.build(), "m").subgraphs[0].tensors[0].quantization is None


@pytest.mark.parametrize("name", sorted(MODELS))
def test_built_models_round_trip(name: str) -> None:
    """Decoding what was encoded gives the same tree, and the reader's options the same tables."""
    content = MODELS[name]()
    assert encode(decode(content)) == content
    model = read_model(content, name)
    assert model == replace(read_model(content, name))
    assert model.size_bytes == len(content)
    assert {f.name for f in fields(model)} >= {"sha256", "notes", "content"}


def test_conv_options() -> None:
    op = read_model(MODELS["conv_valid_s2"](), "m").subgraphs[0].ops[0]
    assert isinstance(op.options, ConvOptions)
    assert (op.options.padding, op.options.stride_h, op.options.stride_w) == ("VALID", 2, 2)
    assert op.version == 3
