"""``npusched.prove`` and ``npusched.inspect``: compiled files from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import npusched
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model


@pytest.fixture(scope="module")
def compiled() -> bytes:
    result = compile_model(demo("chain:2"), load_target("ethos-u55-128"), VelaOptions(), cache=None)
    return result.compiled


def test_a_model_is_compiled_and_proved(compiled: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    proof = npusched.prove("demo:chain:2", "ethos-u55-128", inputs=2)
    assert (proof.verdict, proof.inputs, proof.outputs_equal) == ("equal", 2, True)
    path = tmp_path / "chain_vela.tflite"
    path.write_bytes(compiled)
    again = npusched.prove("demo:chain:2", load_target("ethos-u55-128"), compiled=path, inputs=2)
    assert again.outputs == proof.outputs
    assert again.compiler == "chain_vela.tflite"


def test_a_compiled_file_is_looked_into(compiled: bytes, tmp_path: Path) -> None:
    found = npusched.inspect(compiled)
    assert found.timing is None
    assert found.totals.npu_ops == 2
    path = tmp_path / "chain_vela.tflite"
    path.write_bytes(compiled)
    timed = npusched.inspect(path, "ethos-u55-128")
    assert timed.name == "chain_vela.tflite"
    assert timed.timing is not None
    with pytest.raises(npusched.ModelError):
        npusched.inspect("demo:chain:2")
