"""Committed evidence is about the inputs at hand, and a sample of it is measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence import NAMES, input_hash, load, sample, stored


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_those_of_the_report(name: str, corpus_dir: Path) -> None:
    assert corpus_dir.is_dir()
    assert stored(name)["input_sha256"] == input_hash(load(name)), (
        f"inputs changed: run python -m benchmarks.evidence {name}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_sample_measures_the_same(name: str, corpus_dir: Path) -> None:
    assert corpus_dir.is_dir()
    evidence = load(name)
    rows = stored(name)["rows"]
    assert isinstance(rows, list)
    by_case = {tuple(row["case"]): row for row in rows}
    assert set(by_case) == {tuple(case) for case in evidence.cases()}
    for case in sample(evidence):
        assert {"case": list(case), **evidence.measure(case)} == by_case[tuple(case)]
