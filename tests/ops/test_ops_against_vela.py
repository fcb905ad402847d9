"""Placement equals that of the installed Vela: on every boundary case and on real models."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusched.errors import ModelError
from npusched.hardware.target import Family
from npusched.tflite import load_model, read_model
from tests.ops.boundaries import READER_REFUSES, VELA_CRASHES, all_boundaries
from tests.ops.boundary_case import Boundary
from tests.ops.compare_placement import compare
from tests.ops.graph_cases import GraphCase, graph_cases

pytest.importorskip("ethosu.regor", reason="ethos-u-vela is not installed")

MODELS = (
    "mlpt_vww",
    "mww_okay_nabu_v2",
    "aieq_sdpa_composite",
    "tflm_keyword_scrambled_8bit",
    "tflm_trained_lstm_int8",
    "mlzoo_ds_cnn_s_int16",
    "emza_ssd_slim_120x160",
    "mp_custom_gesture_classifier",
)
"""Models with CPU ops, variables, several subgraphs, LSTMs, wide types and floats."""


@pytest.mark.parametrize("family", [Family.U55, Family.U85])
@pytest.mark.parametrize("case", all_boundaries(), ids=lambda case: case.name)
def test_boundary(case: Boundary, family: Family) -> None:
    if case.name in READER_REFUSES:
        with pytest.raises(ModelError):
            read_model(case.model.content, case.name)
        return
    compared = compare(case.model, family)
    if case.name in VELA_CRASHES:
        assert compared.failure
        return
    assert bool(compared.failure) == compared.refused, compared
    assert compared.exceptions == ()


@pytest.mark.parametrize("family", [Family.U55, Family.U85])
@pytest.mark.parametrize("case", list(graph_cases()), ids=lambda case: case.name)
def test_graph(case: GraphCase, family: Family) -> None:
    compared = compare(case.model, family)
    assert compared.failure == ""
    assert compared.exceptions == ()


@pytest.mark.parametrize("family", [Family.U55, Family.U65, Family.U85])
def test_cases(corpus_dir: Path, family: Family) -> None:
    files = sorted((corpus_dir / "cases").glob("*.tflite"))
    assert len(files) >= 20
    for file in files:
        compared = compare(load_model(file), family)
        assert compared.failure == "", file.name
        assert compared.exceptions == (), file.name
        assert compared.ops > 0


@pytest.mark.parametrize("family", [Family.U55, Family.U85])
@pytest.mark.parametrize("name", MODELS)
def test_models(corpus_dir: Path, name: str, family: Family) -> None:
    compared = compare(load_model(corpus_dir / "models" / f"{name}.tflite"), family)
    assert compared.failure == ""
    assert compared.exceptions == ()


def test_a_refused_file(corpus_dir: Path) -> None:
    """The float LSTM is the corpus model that Vela does not read."""
    model = load_model(corpus_dir / "models" / "tflm_trained_lstm_float.tflite")
    compared = compare(model, Family.U55)
    assert compared.refused
    assert compared.failure
