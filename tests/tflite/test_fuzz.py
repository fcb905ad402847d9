"""Mutated files: a ModelError of three lines, or a model. Nothing else, and quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from npusched.errors import ModelError
from npusched.ir import Model
from npusched.tflite import read_model
from tests.conftest import corpus_models
from tests.fuzzing import mutations
from tests.tflite.builder_zoo import MODELS

SMALL_BYTES = 100_000


def _survives(content: bytes, seed: int, count: int) -> tuple[int, int]:
    """Return (models read, files refused); anything but ModelError fails the test."""
    accepted = refused = 0
    for label, mutated in mutations(content, seed, count):
        start = time.perf_counter()
        try:
            _touch(read_model(mutated, "fuzz"))
            accepted += 1
        except ModelError as error:
            lines = (error.what, error.why, error.hint)
            assert all(line and "\n" not in line for line in lines), (label, lines)
            refused += 1
        assert time.perf_counter() - start < 5, label
    return accepted, refused


def _touch(model: Model) -> None:
    """What every reader of a model relies on."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            assert tensor.data is None or not tensor.data.flags.writeable
            assert tensor.size_bytes >= 0
        for op in graph.ops:
            assert all(-1 <= t < len(graph.tensors) for t in (*op.inputs, *op.outputs))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_mutated_built_models(name: str) -> None:
    _survives(MODELS[name](), seed=1, count=12)


def test_mutations_are_varied_and_repeatable() -> None:
    """Some mutants are read and some refused; the same seed gives the same bytes."""
    content = MODELS["branches"]()
    accepted, refused = _survives(content, seed=7, count=200)
    assert accepted > 5
    assert refused > 50
    first = [mutated for _, mutated in mutations(content, 3, 20)]
    assert first == [mutated for _, mutated in mutations(content, 3, 20)]
    assert first != [mutated for _, mutated in mutations(content, 4, 20)]


def test_mutated_corpus(corpus_dir: Path) -> None:
    small = [p for p in corpus_models() if p.stat().st_size < SMALL_BYTES]
    assert small, corpus_dir
    for path in small:
        _survives(path.read_bytes(), seed=2, count=8)
