"""Acceptance: what the cases expect is stated by the tool, fact by fact."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case_facts import FACTS
from tests.cases.stated import Check, NotApplicable, Stated, alive_for, at, between, each, says
from tests.conftest import corpus_path


def cases() -> list[dict[str, Any]]:
    """The cases of the corpus; none where it is absent."""
    folder = corpus_path()
    if folder is None:
        return []
    found = json.loads((folder / "cases" / "CASES.json").read_text(encoding="utf-8"))["cases"]
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def folder(corpus_dir: Path) -> Path:
    return corpus_dir / "cases"


def test_no_fact_is_missing(corpus_dir: Path) -> None:  # noqa: ARG001 - skips without the corpus
    """Every fact of every case is in the table, and nothing else."""
    expected = {
        case["name"]: [hashlib.sha256(text.encode()).hexdigest()[:8] for text in case["expected"]]
        for case in cases()
    }
    assert {name: list(facts) for name, facts in FACTS.items()} == expected


def test_every_fact_is_stated_or_does_not_apply() -> None:
    """A fact may be not applicable only with a reason, and each case states something."""
    for name, facts in FACTS.items():
        entries = [entry for mine in facts.values() for entry in mine]
        assert all(facts.values()), name
        assert any(isinstance(entry, Stated) for entry in entries), name
        assert all(entry.why for entry in entries if isinstance(entry, NotApplicable))


@pytest.mark.parametrize("name", FACTS)
def test_the_facts_of_a_case(name: str, folder: Path) -> None:
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    stated = [e for facts in FACTS[name].values() for e in facts if isinstance(e, Stated)]
    if any(entry.command.startswith("prove") for entry in stated):
        pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    faults = [entry.fault(folder, f"{name}.tflite") for entry in stated]
    assert not [fault for fault in faults if fault], "\n".join(filter(None, faults))


def test_paths() -> None:
    """The table's own language does what it says, and notices what is wrong."""
    value = {"a": [{"k": 1, "v": [5]}, {"k": None, "v": [7, 8]}], "s": ["x y", "z"]}
    assert at(value, "a[k=1].v[0]") == 5
    assert at(value, "a[k=null].v#") == 2
    assert at(value, "a[*].v[0]") == [5, 7]
    assert at(value, "a[k=1*].k") == [1]
    with pytest.raises(AssertionError, match="no entry"):
        at(value, "a[k=2].v")
    assert says("x y", "z").holds(value["s"])
    assert not says("w").holds(value["s"])
    assert not each(Check("", bool)).holds([])
    assert not between(1, 2).holds(2.5)
    place = {"tensor": "t", "first_step": 1, "end_step": 3, "offset": 0, "size_bytes": 16}
    plan = {
        "segments": [{"index": k, "source_ops": [[0, k]]} for k in range(4)],
        "allocation": [place, {**place, "tensor": "u", "first_step": 3, "end_step": 4}],
    }
    assert alive_for("t", 1, 2).holds(at(plan, ""))
    assert not alive_for("t", 2, 3).holds(plan)
    assert not alive_for("t", 7).holds(plan)
    plan["allocation"][1] = {**place, "tensor": "u", "offset": 8}
    assert not alive_for("t", 1, 2).holds(plan)
