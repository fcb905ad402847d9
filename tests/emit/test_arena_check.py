"""Tensors that are overwritten in the arena are found; Vela's own files have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npusched.emission.arena_check import check_arena
from npusched.emission.container import write_file
from npusched.sim.run import open_compiled
from tests.emit.emit_kit import Parts, emitted_of
from tests.sim.sim_models import compiled, corpus_model, one_op

U55 = "ethos-u55-128"


@pytest.mark.parametrize("name", ["coral_movenet_lightning", "tflm_audio_preprocessor_int8"])
def test_velas_files_with_cpu_ops_have_no_findings(corpus_dir: Path, name: str) -> None:
    """13 NPU operators with tensors that are made bit by bit; 2 among 19 of the host."""
    assert check_arena(open_compiled(compiled(corpus_model(corpus_dir, name), U55))) == ()


def moved(content: bytes, tensor: int, offset: int) -> list[str]:
    """Findings after a tensor has got another place."""
    given = emitted_of(content)
    places = {**given.addresses, tensor: offset}
    written = write_file(replace(given, addresses=places))
    return [str(found) for found in check_arena(open_compiled(written))]


def test_an_input_in_the_wrong_place() -> None:
    """The NPU reads the input where the stream says, 16 bytes beside its tensor."""
    content = compiled(one_op("conv2d", 24, 3, shape=(1, 8, 8, 16))(), U55)
    parts = Parts(content)
    (source,), (result,) = parts.graph.ints("inputs"), parts.graph.ints("outputs")
    places = emitted_of(content).addresses
    (found,) = moved(content, source, places[source] + 16)
    assert "kernel 0" in found
    assert "nobody wrote" in found
    (found,) = moved(content, result, places[result] + 16)
    assert found == f"the end: x overwrote 16 bytes of conv_2d0, from {places[result] + 24 * 64}"


def test_host_tensors_that_still_wait(corpus_dir: Path) -> None:
    """A result of the host over its own operand, and over a tensor that the NPU reads later."""
    content = compiled(corpus_model(corpus_dir, "coral_movenet_lightning"), U55)
    parts = Parts(content)
    places = emitted_of(content).addresses
    host = parts.graph.records("operators")[4]
    (operand, _), (result,) = host.ints("inputs"), host.ints("outputs")
    found = moved(content, result, places[operand])
    assert "op 4 (FLOOR_DIV), while it writes" in found[0]
    assert "overwrote 4 bytes of ArgMax" in found[0]
    # The backbone's features wait in the arena from the first NPU operator on, without a name.
    first = open_compiled(content).programs[0]
    kept = first.kernels[-1].ofm.span[0]
    host = parts.graph.records("operators")[3]
    found = moved(content, host.ints("outputs")[0], kept)
    assert any("NPU" not in each and "ArgMax overwrote" in each for each in found)
