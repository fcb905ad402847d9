"""Loading and running compiled files: containers, inputs, refusals by name."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npusched.errors import ModelError, SimError
from npusched.hardware import load_target
from npusched.sim import litert, reference
from npusched.sim.container import read_compiled_file
from npusched.sim.figures import Purpose, count_figures
from npusched.sim.mutate import payload, register_writes
from npusched.sim.reference import random_inputs, reference_values
from npusched.sim.run import Executable, bind_inputs, draw_inputs, open_compiled
from npusched.tflite.reader import read_model
from npusched.vela.options import StreamFormat, VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.stream import Register, StreamOpKind, decode_stream
from tests.sim.sim_models import MODELS, compiled, corpus_model, executable, tall_network


@pytest.fixture(scope="module")
def ready() -> Executable:
    """A small network, all on the NPU."""
    return executable(MODELS["network"](), "ethos-u55-128")


def test_batches_equal_single_runs(ready: Executable) -> None:
    drawn = draw_inputs(ready, 5, seed=4)
    together = ready.run(drawn)
    for number in range(5):
        alone = ready.run({index: values[number : number + 1] for index, values in drawn.items()})
        for index, values in alone.items():
            assert np.array_equal(values[0], together[index][number])


def test_inputs_are_seeded(ready: Executable) -> None:
    first, again, other = (draw_inputs(ready, 2, seed) for seed in (0, 0, 1))
    for index, values in first.items():
        assert np.array_equal(values, again[index])
        assert not np.array_equal(values, other[index])


def test_inputs_by_name(ready: Executable) -> None:
    graph = ready.graph
    name = graph.tensors[graph.inputs[0]].name
    shape = graph.tensors[graph.inputs[0]].shape
    one = np.zeros(shape, np.int8)
    assert bind_inputs(graph, {name: one})[graph.inputs[0]].shape == (1, *shape)
    with pytest.raises(SimError, match="unknown: y; missing: x"):
        bind_inputs(graph, {"y": one})
    with pytest.raises(SimError, match="does not fit"):
        ready.run({graph.inputs[0]: np.zeros((1, *shape), np.uint8)})
    with pytest.raises(SimError, match="does not fit"):
        ready.run({})


def test_both_payload_formats_run_the_same() -> None:
    content = MODELS["network"]()
    options = VelaOptions(stream_format=StreamFormat.COP2)
    made = compile_model(content, load_target("ethos-u55-128"), options, cache=None).compiled
    first, second = executable(content, "ethos-u55-128"), open_compiled(made)
    assert second.file.operators[0].stream.payload_format == "COP2"
    drawn = draw_inputs(first, 2, seed=0)
    for a, b in zip(first.run(drawn).values(), second.run(drawn).values(), strict=True):
        assert np.array_equal(a, b)


def test_u85_is_refused() -> None:
    content = MODELS["conv"]()
    made = compile_model(content, load_target("ethos-u85-128"), cache=None).compiled
    with pytest.raises(SimError, match="U85"):
        open_compiled(made)


def test_random_damage_never_gives_a_traceback() -> None:
    """Flipped bytes anywhere in a compiled file: an error of ours, or a file that loads."""
    made = compiled(MODELS["conv"](), "ethos-u55-128")
    generator = np.random.default_rng(5)
    refused = 0
    for _ in range(150):
        raw = bytearray(made)
        for _ in range(3):
            raw[int(generator.integers(len(raw)))] ^= 1 << int(generator.integers(8))
        try:
            open_compiled(bytes(raw))
        except (SimError, ModelError):
            refused += 1
    assert refused > 30


def edited(
    content: bytes, config: str, register: Register, change: Callable[[int], int]
) -> Executable:
    """Compile, then change every write of one register."""
    ready = executable(content, config)
    operator = ready.file.operators[0]
    words = list(operator.stream.words)
    hits = 0
    for place, code in register_writes(operator.stream):
        if code == register:
            hits += 1
            words[place] = words[place] & 0xFFFF | change(words[place] >> 16) << 16
    assert hits
    stream = decode_stream(payload(operator.stream, tuple(words)))
    return replace(ready, programs=(replace(operator, stream=stream).load(),))


@pytest.mark.parametrize(
    ("register", "value", "why"),
    [
        (Register.ACTIVATION, 3, "TANH"),
        (Register.ACTIVATION, 4, "SIGMOID"),
        (Register.ACTIVATION, 9, "activation function 9"),
        (Register.ACTIVATION, 1 << 12, "clip range"),
        (Register.ACTIVATION, 16, "no constant"),
        (Register.ACC_FORMAT, 2, "float accumulators"),
        (Register.IFM_UPSCALE, 3, "IFM_UPSCALE"),
        (Register.KERNEL_STRIDE, 1 << 5, "decomposition"),
        (Register.IFM_PRECISION, 3 << 2, "64-bit"),
        (Register.IFM_PRECISION, 2 << 6, "format of the IFM"),
        (Register.OFM_PRECISION, 3 << 14, "rounding of OFM"),
        (Register.IFM_REGION, 5, "region 5"),
        (Register.OFM_REGION, 0, "writes to constants|leaves its memory"),
    ],
)
def test_unmodelled_states_are_refused_by_name(register: Register, value: int, why: str) -> None:
    with pytest.raises(SimError, match=why):
        edited(MODELS["conv"](), "ethos-u55-128", register, lambda _: value)


def test_unset_registers_are_refused_by_name() -> None:
    """A stream of one operation and nothing else."""
    ready = executable(MODELS["conv"](), "ethos-u55-128")
    operator = ready.file.operators[0]
    for code, name in ((0x2, "IFM_UPSCALE|KERNEL_STRIDE"), (0x10, "DMA_SOURCE_REGION")):
        stream = decode_stream(payload(operator.stream, (code, 0xFFFF0000)))
        with pytest.raises(SimError, match=rf"({name}).*never set"):
            replace(operator, stream=stream).load()


def test_reference_without_litert_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: object, **named: object) -> object:
        if name.startswith("ai_edge_litert"):
            raise ImportError(name)
        return real(name, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SimError, match="not installed") as caught:
        litert.Reference(MODELS["conv"]())
    assert "npusched[prove]" in caught.value.hint


def test_a_crash_of_litert_is_an_error(corpus_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reference kernel of SVDF with 8-bit state corrupts memory; the next model still runs.

    Then LiteRT crashes, or loops for ever.
    """
    monkeypatch.setattr(reference, "LIMIT_S", 20.0)
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    model = read_model(corpus_model(corpus_dir, "tflm_keyword_scrambled_8bit"), "m")
    graph = model.subgraphs[0]
    with pytest.raises(SimError, match="crashed"):
        reference_values(model.content, random_inputs(graph, 8, 0), graph.outputs, keeps_all=True)
    content = MODELS["conv"]()
    graph = read_model(content, "m").subgraphs[0]
    assert reference_values(content, random_inputs(graph, 1, 0), graph.outputs)


def test_litert_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    content = MODELS["conv"]()
    graph = read_model(content, "m").subgraphs[0]
    monkeypatch.setattr(reference, "LIMIT_S", 0.0)
    with pytest.raises(SimError, match="crashed"):
        reference_values(content, random_inputs(graph, 200, 0), graph.outputs)
    monkeypatch.undo()
    assert reference_values(content, random_inputs(graph, 1, 0), graph.outputs)


def test_figures_by_hand() -> None:
    """conv 9x7x13 -> 20 channels, 3x3 SAME: 9*7*20*9*13 MACs; it reads 819 bytes, writes 1260."""
    ready = executable(MODELS["conv"](), "ethos-u55-128")
    figures = count_figures(ready.programs[0])
    assert figures.kernels == (("conv", 1),)
    assert figures.macs == 9 * 7 * 20 * 9 * 13
    maps = next(each for each in figures.traffic if each.purpose is Purpose.FEATURE_MAP)
    assert (maps.memory, maps.read_bytes, maps.written_bytes) == ("scratch", 819, 1260)
    assert maps.fetched_bytes >= maps.read_bytes


@pytest.mark.parametrize("arena", [None, 8192])
def test_figures_agree_with_the_stream(arena: int | None) -> None:
    """DMA bytes as the stream decoder adds them up; weights read at least once each."""
    ready = executable(tall_network(), "ethos-u55-128", arena)
    operator = ready.file.operators[0]
    figures = count_figures(ready.programs[0])
    stream = operator.stream
    assert figures.dma_bytes == stream.dma_bytes
    assert figures.kernel_count == len(stream.kernels)
    waits = (StreamOpKind.DMA_WAIT, StreamOpKind.KERNEL_WAIT)
    assert figures.waits == sum(op.kind in waits for op in stream.ops)
    weights = [each for each in figures.traffic if each.purpose is Purpose.WEIGHTS]
    assert sum(each.read_bytes for each in weights) == sum(op.weight_bytes for op in stream.kernels)
    assert all(each.fetched_bytes >= each.read_bytes for each in weights)
    scratch = next(each for each in figures.memories if each.memory == "scratch")
    assert scratch.touched_bytes <= scratch.high_water_bytes <= scratch.size_bytes


def test_graph_tensors_are_placed_in_the_scratch(ready: Executable) -> None:
    file = read_compiled_file(ready.content)
    operator = file.operators[0]
    for placed in (*operator.inputs, *operator.outputs):
        assert placed.address >= 0
        assert placed.address + placed.tensor.size_bytes <= operator.regions[1].size_bytes
