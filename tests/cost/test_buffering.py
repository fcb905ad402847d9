"""Our choice of staged weights against Vela's, and against hand arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npusched.cost.buffer_candidates import candidates_of
from npusched.cost.buffering import Before, Candidate, Staged, propose_all, propose_buffering
from npusched.cost.bursts import dma_cycles
from npusched.cost.types import Basis
from npusched.graph.build import build_graph
from npusched.hardware import load_target
from npusched.hardware.target import Target
from npusched.tflite import Builder, read_model
from npusched.vela.options import VelaOptions
from npusched.vela.reader import read_ops
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

SETUPS = ["ethos-u55-32", "ethos-u55-128", "ethos-u65-512", "ethos-u85-256"]
MODELS = [
    "models/mlpt_vww",
    "models/mlpt_kws",
    "models/mlpt_resnet8",
    "models/mlzoo_rnnoise_int8",
    "models/tflm_micro_speech_quantized",
    "cases/batch2_mean",
    "cases/chan17",
]


@pytest.mark.parametrize("name", SETUPS)
def test_choices_are_velas(name: str, corpus_dir: Path) -> None:
    """Staged or not, borders, one buffer or two, prefetch, buffer sizes: equal for every op.

    Nothing of Vela's enters ours: graph, blocks, encoded sizes and slack are all our own.
    """
    target = load_target(name, memory_mode="Shared_Sram")
    assert target.accelerator is not None
    staged = sliced = prefetched = 0
    for path in MODELS:
        content = (corpus_dir / f"{path}.tflite").read_bytes()
        result = compile_model(content, target, VelaOptions(), cache=None)
        graph = build_graph(read_model(content, path), target.accelerator.family)
        candidates = candidates_of(target, graph)
        choices = propose_all(target, [candidate for _, candidate in candidates])
        rows = read_ops(result.database)
        assert len(rows) == len(choices)
        for row, choice, (v, candidate) in zip(rows, choices, candidates, strict=True):
            if candidate.encode is None or row.weights is None:
                continue
            theirs = row.weights
            where = f"{path} op {v}"
            assert (choice is not None) == (theirs.buffering != "None"), where
            if choice is None:
                continue
            assert choice.borders == theirs.depth_slices, where
            assert choice.is_double == (theirs.buffering == "Double"), where
            assert choice.prefetched == theirs.pre_buffer, where
            assert max(choice.sizes) == theirs.max_range_bytes, where
            staged += 1
            sliced += len(choice.sizes) > 1
            prefetched += choice.prefetched
    assert staged > 40
    assert sliced > 3
    assert prefetched > 20


def first_candidate(target: Target, channels: int) -> Candidate:
    """A 3x3 convolution of a 32x32x16 map."""
    assert target.accelerator is not None
    b = Builder(seed=3)
    b.output(b.conv2d(b.input("x", (1, 32, 32, 16)), channels, 3))
    graph = build_graph(read_model(b.build(), "conv"), target.accelerator.family)
    ((_, candidate),) = candidates_of(target, graph)
    return candidate


def proposed(
    target: Target, candidate: Candidate, before: Before | None, limit: int = 1 << 30
) -> Staged | None:
    assert candidate.op is not None
    assert candidate.block is not None
    assert candidate.encode is not None
    return propose_buffering(
        target, candidate.op, candidate.block, candidate.encode, before=before, limit_bytes=limit
    )


def test_time_before_the_op_decides_how_much_is_prefetched() -> None:
    """With all the time that the whole copy takes there is one slice, prefetched.

    With 0.6 of it slice 0 has at least 16 channels and not all 64, and the rest follows it.
    """
    target = load_target("ethos-u55-128")
    candidate = first_candidate(target, 64)
    assert candidate.encode is not None
    whole = dma_cycles(
        target,
        candidate.encode(0, 64),
        source=target.const,
        destination=target.cache,
        basis=Basis.VELA,
    )
    rich = proposed(target, candidate, Before(slack_cycles=whole, slack_bytes=1 << 20))
    assert rich is not None
    assert rich.borders == (0, 64)
    assert rich.prefetched
    assert not rich.is_double
    some = proposed(target, candidate, Before(slack_cycles=int(0.6 * whole), slack_bytes=1 << 20))
    assert some is not None
    assert 16 <= some.borders[1] < 64
    assert some.is_double
    assert sum(some.sizes) >= rich.sizes[0], "slices are encoded apart, padding included"


def test_memory_before_the_op_is_needed_for_a_prefetch() -> None:
    target = load_target("ethos-u55-128")
    candidate = first_candidate(target, 64)
    found = proposed(target, candidate, Before(slack_cycles=10**6, slack_bytes=100))
    assert found is None or not found.prefetched


def test_no_room_no_buffer() -> None:
    """A limit below the smallest slice leaves the weights where they are."""
    target = load_target("ethos-u55-128")
    candidate = first_candidate(target, 64)
    assert candidate.encode is not None
    before = Before(slack_cycles=10**5, slack_bytes=1 << 20)
    limit = candidate.encode(0, 16) - 16
    assert proposed(target, candidate, before, limit) is None
    assert proposed(target, candidate, before) is not None


def test_constants_in_the_same_memory_stay(corpus_dir: Path) -> None:
    """Sram_Only: nothing can be gained."""
    target = load_target("ethos-u55-128", memory_mode="Sram_Only")
    assert target.accelerator is not None
    model = read_model((corpus_dir / "models" / "mlpt_kws.tflite").read_bytes(), "kws")
    graph = build_graph(model, target.accelerator.family)
    candidates = [candidate for _, candidate in candidates_of(target, graph)]
    assert propose_all(target, candidates) == [None] * len(candidates)


def test_adjacent_ops_with_the_same_weights_share_one_copy() -> None:
    """Twice the same convolution: staged whole, because the first holds the second's weights."""
    target = load_target("ethos-u55-128")
    one = replace(first_candidate(target, 64), weights_key="w")
    choices = propose_all(target, [one, one])
    assert all(choice is not None and choice.borders == (0, 64) for choice in choices)
