"""The bounds-checked decoder: whatever the bytes, a ModelError with its place or a record tree."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import ModelError
from npusched.tflite import load_model, read_model, verify
from npusched.tflite.decode import MAX_TABLES, decode
from npusched.tflite.schema import MAX_DEPTH, TABLES, UNIONS
from tests.tflite.builder_zoo import MODELS

CONV = MODELS["conv"]()


def _refused(content: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        verify(content)
    error = caught.value
    for line in (error.what, error.why, error.hint):
        assert line, error
        assert "\n" not in line
    return error


def test_every_truncation_is_refused() -> None:
    """All offsets of a flatbuffer point forward, so no proper prefix of the file is complete."""
    tail = len(CONV.rstrip(b"\0"))
    for size in range(tail):
        _refused(CONV[:size])


def test_truncation_names_the_place() -> None:
    error = _refused(CONV[:200])
    assert error.values["size_bytes"] == 200
    assert "of 200" in error.why


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 5000])
def test_random_bytes(size: int) -> None:
    for seed in range(20):
        noise = random.Random(seed).randbytes(size)
        _refused(noise)
        _refused(noise[:4] + b"TFL3" + noise[8:])


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_behind_the_identifier(tail: bytes) -> None:
    """Nothing that short and arbitrary has a graph."""
    for root in (8, len(tail) // 2):
        content = struct.pack("<I", root) + b"TFL3" + tail
        with pytest.raises(ModelError):
            verify(content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"TFL3", "not a TFLite file"),
        (b"hello world, this is a text file\n", "text file"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS"),
        (b"PK\x03\x04" + bytes(40), "zip"),
        (b"\x1f\x8b" + bytes(40), "gzip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5"),
        (struct.pack("<I", 8) + b"TOSA" + bytes(40), "TOSA"),
        (struct.pack("<I", 8) + b"TFL2" + bytes(40), "not a TFLite file"),
    ],
)
def test_other_files_are_named(content: bytes, text: str) -> None:
    assert text in _refused(content).what


def test_appended_bytes_are_no_harm() -> None:
    """Metadata packers append a zip archive to the flatbuffer."""
    model = read_model(CONV + b"PK\x03\x04" + bytes(500), "m")
    assert len(model.subgraphs[0].ops) == 1


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "ok.tflite").write_bytes(CONV)
    assert load_model(tmp_path / "ok.tflite").name == "ok"
    for path, text in ((tmp_path, "directory"), (tmp_path / "no.tflite", "does not exist")):
        with pytest.raises(ModelError, match=text):
            load_model(path)
    with pytest.raises(ModelError, match=r"ok\.tflite"):
        load_model(tmp_path / "no.tflite")
    with pytest.raises(ModelError):
        load_model(str(tmp_path) + "/\0")


def _root_table(fields: bytes, tail: bytes) -> bytes:
    """A Model table whose only field is ``subgraphs`` (slot 2), followed by ``tail``.

    Layout: 0 root offset, 4 TFL3, 8 vtable of 10 bytes (size 10, table 8, slots 0 0 4), padding,
    20 table (distance to its vtable 12, offset of the vector), 28 the tail.
    """
    vtable = struct.pack("<5H", 10, 8, 0, 0, 4)
    return (
        struct.pack("<I", 20) + b"TFL3" + vtable + b"\0\0" + struct.pack("<i", 12) + fields + tail
    )


@pytest.mark.parametrize("count", [0xFFFFFFFF, 0x7FFFFFFF, 0x40000000, 100])
def test_huge_counts(count: int) -> None:
    """The count is compared with the bytes left before anything is allocated."""
    content = _root_table(struct.pack("<I", 4), struct.pack("<I", count) + bytes(64))
    error = _refused(content)
    assert f"claims {count} elements" in error.why


def test_offset_zero_is_a_cycle() -> None:
    assert "leads out of the file" in _refused(_root_table(struct.pack("<I", 0), bytes(64))).why


def test_shared_tables_cannot_explode() -> None:
    """A vector of n offsets that all lead to one subgraph, whose n tensors are all the same one.

    2,000 x 2,000 = 4 million visits in a file of 16 kB; the budget of this file is 16,000 / 4
    tables, so that decoding stops at once.
    """
    count = 2000
    subgraphs = 28  # the vector: count, then offsets
    subgraph = subgraphs + 4 + 4 * count + 8  # its vtable (8 bytes) lies before it
    tensors = subgraph + 8
    tensor = tensors + 4 + 4 * count + 4  # its vtable (4 bytes) lies before it
    body = struct.pack("<I", count)
    body += b"".join(struct.pack("<I", subgraph - (32 + 4 * i)) for i in range(count))
    body += struct.pack("<4H", 6, 8, 4, 0)
    body += struct.pack("<iI", 8, 4)
    body += struct.pack("<I", count)
    body += b"".join(struct.pack("<I", tensor - (tensors + 4 + 4 * i)) for i in range(count))
    body += struct.pack("<2H", 4, 4) + struct.pack("<i", 4)
    start = time.process_time()
    error = _refused(_root_table(struct.pack("<I", 4), body))
    assert "more tables" in error.why
    assert time.process_time() - start < 2


def test_schema_does_not_nest_deeply() -> None:
    """The schema is a tree of tables without recursion, well inside MAX_DEPTH."""

    def depth(table: str, above: tuple[str, ...]) -> int:
        assert table not in above, (table, above)
        below = []
        for field in TABLES[table].fields.values():
            if field.is_union:
                below += [name for name in UNIONS[field.base] if name]
            elif not field.code and field.base != "str":
                below.append(field.base)
        return 1 + max((depth(name, (*above, table)) for name in below), default=0)

    assert depth("Model", ()) <= MAX_DEPTH
    assert MAX_TABLES <= 200_000


def test_control_characters_do_not_reach_the_terminal() -> None:
    content = CONV.replace(b"conv_2d0/weights", b"conv\x1b[2J\n/weight")
    names = [t.name for t in read_model(content, "m").subgraphs[0].tensors]
    assert "conv\ufffd[2J\ufffd/weight" in names


def test_decode_returns_what_is_there() -> None:
    root = decode(CONV)
    assert root.integer("version") == 3
    assert root.records("subgraphs")[0].text("name") == "conv2d"
    assert root.records("operator_codes")[0].integer("builtin_code") == 3
    assert root.records("metadata") == ()
    with pytest.raises(TypeError):
        root.text("version")
