"""Our schema and decoder against the ``tflite`` package, which is generated from the schema."""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import pytest

from npusched.ir import OpKind
from npusched.tflite import load_model, read_model
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record
from npusched.tflite.schema import OPERATORS, TABLES, TENSOR_TYPES, UNIONS, Field, TableSpec
from tests.conftest import corpus_models
from tests.tflite.builder_zoo import MODELS

tflite: ModuleType = pytest.importorskip("tflite")

NEWER_THAN_THE_PACKAGE = {"BlockwiseQuantization", "StablehloCaseOptions"}
FLAGS = {
    "i8": "Int8",
    "u8": "Uint8",
    "bool": "Bool",
    "i16": "Int16",
    "u16": "Uint16",
    "i32": "Int32",
    "u32": "Uint32",
    "i64": "Int64",
    "u64": "Uint64",
    "f32": "Float32",
    "f64": "Float64",
}


class _Reader(Protocol):
    """A table of the package."""

    def Init(self, buf: bytes, pos: int) -> None: ...  # noqa: N802


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _known_tables() -> list[TableSpec]:
    return [spec for name, spec in TABLES.items() if name not in NEWER_THAN_THE_PACKAGE]


@pytest.mark.parametrize("spec", _known_tables(), ids=lambda spec: spec.name)
def test_every_field_has_its_slot_and_type(spec: TableSpec) -> None:
    """The package's accessor reads the vtable entry 4 + 2 * slot with the same type."""
    reader = getattr(tflite, spec.name)
    for field in spec.fields.values():
        source = inspect.getsource(getattr(reader, _camel(field.name)))
        assert f"self._tab.Offset({4 + 2 * field.slot})" in source, (spec.name, field)
        if field.code:
            assert f"number_types.{FLAGS[field.base]}Flags" in source, (spec.name, field)
        elif field.base == "str":
            assert "self._tab.String(" in source, (spec.name, field)
        elif field.is_union:
            assert "self._tab.Union(" in source, (spec.name, field)
        else:
            assert f"obj = {field.base}()" in source, (spec.name, field)


def test_no_table_or_field_is_forgotten() -> None:
    """Every accessor of the package with a vtable entry is a field of ours."""
    for name, reader in vars(tflite).items():
        if not inspect.isclass(reader) or not hasattr(reader, "GetRootAs"):
            continue
        source = inspect.getsource(reader)
        ours = {4 + 2 * f.slot for f in TABLES[name].fields.values()}
        ours |= {2 + 2 * f.slot for f in TABLES[name].fields.values() if f.is_union}
        theirs = {int(part.split(")")[0]) for part in source.split("self._tab.Offset(")[1:]}
        assert theirs == ours, name


def test_enumerations() -> None:
    codes = {k: v for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    assert {kind.value: code for code, kind in enumerate(OPERATORS)} == codes
    types = {k: v for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
    assert {dtype.name: code for code, dtype in enumerate(TENSOR_TYPES)} == types
    for union in UNIONS:
        members = getattr(tflite, union)
        known = {k: v for k, v in vars(members).items() if isinstance(v, int)}
        ours = {name or "NONE": code for code, name in enumerate(UNIONS[union])}
        assert known.items() <= ours.items()
        assert set(ours) - set(known) <= NEWER_THAN_THE_PACKAGE


def _same(record: Record, reader: _Reader) -> None:
    """Compare a record with the package's view of the same table, all the way down."""
    for field in TABLES[record.table].fields.values():
        name = _camel(field.name)
        get = getattr(reader, name)
        if field.is_vector:
            _same_vector(record, field, reader, name)
        elif field.is_union:
            code = getattr(reader, f"{name}Type")()
            child = record.record(field.name)
            assert (child.table if child else "") == UNIONS[field.base][code]
            if child is not None:
                raw = get()
                found = getattr(tflite, child.table)()
                found.Init(raw.Bytes, raw.Pos)
                _same(child, found)
        elif field.base == "str":
            assert record.text(field.name) == (get() or b"").decode()
        elif field.code in ("f", "d"):
            assert record.real(field.name) == get()
        elif field.name == "builtin_code":  # the package looks into the older field as well
            older = record.integer("deprecated_builtin_code")
            assert max(record.integer("builtin_code"), older) == get()
        elif field.code:
            assert record.integer(field.name) == get()
        else:
            table, found = record.record(field.name), get()
            assert (table is None) == (found is None)
            if table is not None:
                _same(table, found)


def _same_vector(record: Record, field: Field, reader: _Reader, name: str) -> None:
    count = getattr(reader, f"{name}Length")()
    if field.base == "u8":
        expected = getattr(reader, f"{name}AsNumpy")() if count else np.zeros(0, np.uint8)
        assert bytes(record.blob(field.name)) == bytes(expected)
    elif field.code:
        expected = getattr(reader, f"{name}AsNumpy")() if count else np.zeros(0)
        ours = record.reals(field.name) if field.code in "fd" else record.ints(field.name)
        assert np.array_equal(np.array(ours), expected, equal_nan=field.code in "fd")
    else:
        children = record.records(field.name)
        assert len(children) == count
        for index, child in enumerate(children):
            _same(child, getattr(reader, name)(index))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_built_models_read_the_same(name: str) -> None:
    """What the encoder writes, the package reads (the package trusts every offset)."""
    content = MODELS[name]()
    _same(decode(content), tflite.Model.GetRootAs(content, 0))


def test_corpus_reads_the_same(corpus_dir: Path) -> None:
    models = corpus_models()
    assert len(models) > 50, corpus_dir
    for path in models:
        content = path.read_bytes()
        root = decode(content)
        _same(root, tflite.Model.GetRootAs(content, 0))
        again = encode(root)
        assert encode(decode(again)) == again, path.name


def test_corpus_matches_its_manifest(corpus_dir: Path) -> None:
    entries = json.loads((corpus_dir / "models" / "MANIFEST.json").read_text())
    assert entries
    for entry in entries:
        model = load_model(corpus_dir / "models" / entry["file"])
        ops = [op for graph in model.subgraphs for op in graph.ops]
        names = (f"CUSTOM:{op.custom_code}" if op.custom_code else op.kind.value for op in ops)
        assert Counter(names) == Counter(entry["ops"]), entry["file"]
        assert (len(ops), model.sha256) == (entry["op_count"], entry["sha256"]), entry["file"]
        tensors = [t for graph in model.subgraphs for t in graph.tensors]
        assert sum(t.is_sparse for t in tensors) == entry["sparse_tensors"], entry["file"]
        first = model.subgraphs[0]
        inputs = [first.tensors[i] for i in first.inputs]
        assert [[t.dtype.name, *t.shape] for t in inputs] == entry["inputs"], entry["file"]
        assert not any(op.kind is OpKind.UNKNOWN for op in ops), entry["file"]


def test_cases_have_their_source_facts(corpus_dir: Path) -> None:
    cases = json.loads((corpus_dir / "cases" / "CASES.json").read_text())["cases"]
    assert cases
    for case in cases:
        model, facts = load_model(corpus_dir / "cases" / case["file"]), case["source_facts"]
        ops = [op for graph in model.subgraphs for op in graph.ops]
        assert len(ops) == facts["n_source_ops"], case["name"]
        assert Counter(op.kind.value for op in ops) == Counter(facts["ops"]), case["name"]
        assert model.size_bytes == facts["file_bytes"], case["name"]
        assert model.const_bytes == facts["const_bytes"], case["name"]


@pytest.mark.parametrize(
    ("file", "limit_s"),
    [("mlpt_vww.tflite", 0.05), ("gap_mobilenet_v3_large_min_uint8.tflite", 0.25)],
)
def test_reading_is_quick(corpus_dir: Path, file: str, limit_s: float) -> None:
    """3 ms and 9 ms on an idle core; the best of 5 is far below the limit on a busy one."""
    content = (corpus_dir / "models" / file).read_bytes()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        read_model(content, file)
        times.append(time.perf_counter() - start)
    assert min(times) < limit_s
