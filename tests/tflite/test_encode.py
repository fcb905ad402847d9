"""Writing: records, options and whole files survive a round trip; the bytes are deterministic."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from npusched.ir import ActivationKind, OpKind, Options, Padding
from npusched.tflite.decode import decode
from npusched.tflite.encode import BUFFER_ALIGNMENT, encode
from npusched.tflite.options import OPTION_TABLES, read_options
from npusched.tflite.records import Record, Value
from npusched.tflite.schema import TABLES, UNIONS, Field
from npusched.tflite.write_options import write_options

_LIMITS = {"b": 8, "B": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64, "Q": 64}


def _scalar(field: Field) -> st.SearchStrategy[int | float]:
    if field.code == "?":
        return st.booleans()
    if field.code in "fd":
        return st.floats(allow_nan=False, width=32)
    bits = _LIMITS[field.code]
    low = -(1 << (bits - 1)) if field.code.islower() else 0
    return st.integers(low, low + (1 << bits) - 1)


@st.composite
def _records(draw: st.DrawFn, table: str, depth: int = 0) -> Record:
    """Any record of the schema, a few elements per vector."""
    values: dict[str, Value] = {}
    for field in TABLES[table].fields.values():
        if not draw(st.booleans()):
            continue
        values[field.name] = draw(_value(field, depth))
    return Record(table, values)


def _value(field: Field, depth: int) -> st.SearchStrategy[Any]:
    size = 3 if depth < 2 else 1
    one: st.SearchStrategy[Any]
    if field.base == "u8" and field.is_vector:
        return st.binary(max_size=9)
    if field.is_union:
        return st.sampled_from(UNIONS[field.base][1:4]).flatmap(lambda t: _records(t, depth + 1))
    if field.code:
        one = _scalar(field)
    elif field.base == "str":
        one = st.text("abc/:é", max_size=6)
    else:
        one = _records(field.base, depth + 1)
    return st.lists(one, max_size=size).map(tuple) if field.is_vector else one


def _plain(record: Record) -> object:
    """The record without fields at their default, for comparison."""
    found = {}
    for name, value in record.values.items():
        field = TABLES[record.table].fields[name]
        if isinstance(value, Record):
            found[name] = _plain(value)
        elif isinstance(value, tuple):
            found[name] = tuple(_plain(v) if isinstance(v, Record) else v for v in value)
        elif isinstance(value, bytes | memoryview):
            found[name] = bytes(value)
        elif not isinstance(value, int | float) or value != field.default:
            found[name] = value
    return record.table, found


@given(_records("Model"))
@settings(max_examples=60, deadline=None)
def test_any_record_tree_round_trips(record: Record) -> None:
    content = encode(record)
    assert _plain(decode(content)) == _plain(record)
    assert encode(record) == content
    assert encode(decode(content)) == content


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_constants_are_aligned(blobs: list[bytes]) -> None:
    buffers = tuple(Record("Buffer", {"data": blob}) for blob in blobs)
    content = encode(Record("Model", {"description": "x" * len(blobs), "buffers": buffers}))
    start = struct.unpack_from("<I", content)[0]
    assert start % 4 == 0
    views = [r.blob("data") for r in decode(content).records("buffers")]
    for blob, view in zip(blobs, views, strict=True):
        assert bytes(view) == blob
    marked = encode(Record("Buffer", {"data": b"\xabMARK\xab"}))
    assert marked.index(b"\xabMARK\xab") % BUFFER_ALIGNMENT == 0


def test_wide_fields_are_aligned() -> None:
    content = encode(Record("Buffer", {"offset": 0x1122334455667788, "size": 3}))
    assert content.index(struct.pack("<Q", 0x1122334455667788)) % 8 == 0
    vector = encode(Record("QuantizationParameters", {"zero_point": (0x1122334455667788,)}))
    assert vector.index(struct.pack("<Q", 0x1122334455667788)) % 8 == 0


def test_equal_layouts_share_a_vtable() -> None:
    one = len(encode(Record("Model", {"metadata": (Record("Metadata", {"buffer": 1}),)})))
    two = len(encode(Record("Model", {"metadata": (Record("Metadata", {"buffer": 1}),) * 2})))
    assert two - one == 4 + 8  # one more offset and one more table


def test_a_wrong_value_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        encode(Record("Model", {"subgraphs": (1, 2)}))


_NOT_STORED: dict[OpKind, dict[str, Any]] = {
    OpKind.CONV_2D: {"depth_multiplier": 1},
    OpKind.TRANSPOSE_CONV: {"depth_multiplier": 1, "dilation_h": 1, "dilation_w": 1},
    OpKind.MUL: {"pot_scale_int16": True},
    OpKind.DIV: {"pot_scale_int16": True},
    OpKind.PACK: {"batch_dims": 0},
    OpKind.UNPACK: {"batch_dims": 0},
    OpKind.SPLIT: {"batch_dims": 0, "axis": 0},
    OpKind.SPLIT_V: {"batch_dims": 0, "axis": 0},
    OpKind.GATHER: {"count": 0},
    OpKind.LSTM: {"time_major": False},
}
_STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(1, 1000),
    "bool": st.booleans(),
    "float": st.floats(-1e6, 1e6, width=32),
    "str": st.text("abc_", max_size=5),
    "Padding": st.sampled_from(Padding),
    "ActivationKind": st.sampled_from(ActivationKind),
    "tuple[int, ...]": st.lists(st.integers(-5, 99), max_size=4).map(tuple),
}


@pytest.mark.parametrize("kind", sorted(OPTION_TABLES))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_options_round_trip(kind: OpKind, data: st.DataObject) -> None:
    """Every option of every kind comes back as it was written."""
    table = OPTION_TABLES[kind]
    ones = {
        name: 1 for name, f in TABLES[table].fields.items() if f.base == "i32" and not f.is_vector
    }
    shape: Options = read_options(kind, Record(table, dict.fromkeys(ones, 1)), "op")
    changes: dict[str, Any] = {
        name: data.draw(_STRATEGIES[stated], label=name)
        for name, stated in type(shape).__annotations__.items()
    }
    if "subgraphs" in changes:
        changes["subgraphs"] = tuple(range(len(getattr(shape, "subgraphs"))))  # noqa: B009
        if kind is not OpKind.STABLEHLO_COMPOSITE:
            changes["name"] = ""
    options = replaced(shape, **{**changes, **_NOT_STORED.get(kind, {})})
    record = write_options(kind, options)
    assert record is not None
    assert record.table == table
    assert read_options(kind, decode(encode(record), table), "op") == options
