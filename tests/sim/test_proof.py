"""Proofs of corpus models, and what happens to them when a file is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npusched.errors import NpuschedError, SimError
from npusched.sim.absorbed import Absorption
from npusched.sim.check import check_executable
from npusched.sim.kernels.arrays import Array
from npusched.sim.mutate import draw_mutations, effect, mutate
from npusched.sim.program import LoadedDma
from npusched.sim.proof import Mode, Verdict, prove_compiled
from npusched.sim.run import Executable, open_compiled
from tests.sim.sim_models import MODELS, compiled, corpus_model, executable, tall_network

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

CASES = [
    ("mlpt_vww", "ethos-u55-128", None, False),
    ("mlpt_vww", "ethos-u65-512", 16384, False),
    ("mlpt_kws", "ethos-u55-64", None, True),
    ("mlpt_resnet8", "ethos-u55-128", 16384, False),
    ("mlpt_resnet8", "ethos-u55-256", None, False),
    ("mlpt_ad01", "ethos-u65-512", None, False),
    ("mlzoo_ds_cnn_s_int16", "ethos-u65-512", None, False),
    ("coral_mobilenet_v1_0.25_128_uint8", "ethos-u55-128", None, False),
    ("coral_split_concat", "ethos-u65-256", None, False),
    ("tflm_micro_speech_quantized", "ethos-u55-32", None, False),
]


UP_TO_ONE_LSB = {"mlzoo_ds_cnn_s_int16": {"model/dense/MatMul;model/dense/BiasAdd"}}
"""Results of int16 FULLY_CONNECTED ops, by model: the one exception to finding every tensor."""


@pytest.mark.parametrize(("name", "config", "arena", "size"), CASES)
def test_corpus_models_are_exact(
    name: str, config: str, arena: int | None, size: bool, corpus_dir: Path
) -> None:
    content = corpus_model(corpus_dir, name)
    made = compiled(content, config, arena, size)
    proof = prove_compiled(content, made, 4, seed=3)
    assert proof.verdict is Verdict.EQUAL, proof.difference
    figures = proof.intermediates
    assert figures.equal >= 0.75 * figures.kernels
    assert set(figures.missing) <= UP_TO_ONE_LSB.get(name, set())
    assert not any(check_executable(open_compiled(made)))


def test_mixed_models_run_end_to_end(corpus_dir: Path) -> None:
    """13 NPU operators between host ops, which hand tensors on in the scratch memory."""
    content = corpus_model(corpus_dir, "coral_movenet_lightning")
    made = compiled(content, "ethos-u55-128")
    proof = prove_compiled(content, made, 1, seed=0)
    assert proof.verdict is Verdict.EQUAL, proof.difference
    assert proof.intermediates.coverage == 1.0, proof.intermediates.missing
    assert proof.intermediates.reasons == {Absorption.ACTIVATION: 1, Absorption.HOST: 2}
    ready = open_compiled(made)
    assert len(ready.programs) > 5
    assert not any(check_executable(ready))


def test_variables_around_an_npu_operator(corpus_dir: Path) -> None:
    content = corpus_model(corpus_dir, "mww_okay_nabu_v2")
    proof = prove_compiled(content, compiled(content, "ethos-u55-128"), 2, seed=0)
    assert proof.verdict is Verdict.EQUAL
    assert proof.intermediates.coverage == 1.0, proof.intermediates.missing
    assert proof.intermediates.reasons == {Absorption.ACTIVATION: 1, Absorption.SLICE: 2}


def test_fully_connected_rounds_twice_in_hardware(corpus_dir: Path) -> None:
    """SIM.md §4: with the stream's own rounding ad01 is off by a few units, else by none."""
    content = corpus_model(corpus_dir, "mlpt_ad01")
    made = compiled(content, "ethos-u55-128")
    proof = prove_compiled(content, made, 4, mode=Mode.PROOF)
    assert (proof.verdict, proof.single_rounding) == (Verdict.EQUAL, 10)
    hardware = prove_compiled(content, made, 4, mode=Mode.HARDWARE)
    assert hardware.single_rounding == 0
    assert 0 < hardware.outputs[0].differing < hardware.outputs[0].values
    assert hardware.outputs[0].largest <= 4


def damaged(made: bytes, kernel: int) -> bytes:
    """Change the bias of the first channel of a kernel in the file's constants."""
    ready = open_compiled(made)
    operator = ready.file.operators[0]
    constants = operator.regions[0].content
    assert constants is not None
    chosen = ready.programs[0].kernels[kernel]
    scales = chosen.state.scales[0]
    address = scales.address
    for command in ready.programs[0].commands:
        if command is chosen:
            break
        if isinstance(command, LoadedDma) and command.destination.region == scales.region:
            offset = scales.address - command.destination.address
            if 0 <= offset < command.total_bytes:
                address = command.source.address + offset
    place = made.index(constants) + address
    raw = bytearray(made)
    raw[place + 1] ^= 0x40
    return bytes(raw)


@pytest.mark.parametrize("kernel", [0, 2])
def test_a_wrong_bias_is_found_in_its_kernel(kernel: int) -> None:
    """Bias 16384 too large in one channel: the first kernel that differs is that one, channel 0."""
    content = tall_network(24)
    made = compiled(content, "ethos-u55-128")
    assert prove_compiled(content, made, 3).verdict is Verdict.EQUAL
    proof = prove_compiled(content, damaged(made, kernel), 3)
    assert proof.verdict is Verdict.DIFFERENT
    found = proof.difference
    assert found is not None
    assert found.kernel.startswith(f"kernel {kernel} ")
    assert found.channel == 0
    assert found.op == kernel
    assert found.got != found.expected
    assert f"kernel {kernel}" in str(found)


def test_another_model_is_refused() -> None:
    first, second = MODELS["conv"](), MODELS["add_int8"]()
    with pytest.raises(SimError, match="another model"):
        prove_compiled(first, compiled(second, "ethos-u55-128"), 1)


def written_by(ready: Executable, inputs: dict[int, Array]) -> list[bytes]:
    """What every kernel writes."""
    found: list[bytes] = []
    ready.run(inputs, lambda _, __, written: found.append(written.tobytes()))
    return found


def test_mutations_are_caught(corpus_dir: Path) -> None:
    """Flipped bits in register writes that change what a stream does: >= 85 % of a small sample are
    refused, reported, or change a value (the evidence report has the large one).
    """
    ready = executable(corpus_model(corpus_dir, "mlpt_kws"), "ethos-u55-128")
    operator, program = ready.file.operators[0], ready.programs[0]
    right = effect(program)
    drawn = {
        each.tensor.index: np.random.default_rng(1).integers(-128, 128, (2, *each.tensor.shape))
        for each in operator.inputs
    }
    inputs = {index: values.astype(np.int8) for index, values in drawn.items()}
    trace = written_by(ready, inputs)
    matters = caught = 0
    for mutation in draw_mutations(operator.stream, 60, seed=11):
        try:
            other = replace(operator, stream=mutate(operator.stream, mutation)).load()
        except NpuschedError:
            matters, caught = matters + 1, caught + 1
            continue
        if effect(other) == right:
            continue
        matters += 1
        changed = replace(ready, programs=(other,))
        if any(check_executable(changed)):
            caught += 1
            continue
        caught += written_by(changed, inputs) != trace
    assert matters >= 15
    assert caught >= 0.85 * matters
