"""Our weight encoder: decodes to what went in, equals Vela's byte for byte, slices as it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evidence_weights import streams_of
from npusched.cost.weight_coding import encoded_bytes
from npusched.emission.mlw_encode import encode_mlw
from npusched.emission.parts import EncodedChunk
from npusched.emission.weights import WeightEncoder
from npusched.errors import SimError
from npusched.hardware import load_target
from npusched.sim.decode import weight_layout
from npusched.sim.kernels.arrays import Array
from npusched.sim.mlw import decode_mlw
from npusched.sim.program import Machine
from npusched.sim.run import open_compiled
from npusched.sim.state import KernelState
from npusched.sim.weights import arrange_weights, interleave
from npusched.vela.options import Feature, VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.stream import AddressRange
from tests.sim.sim_models import compiled, corpus_model, one_op


@dataclass(frozen=True)
class Kernel:
    """A kernel of a compiled file with its bytes."""

    state: KernelState
    weights: tuple[bytes, ...]
    scales: tuple[bytes, ...]


def distribution(kind: int, seed: int, count: int) -> Array:
    """Weights: uniform, sparse, few values, narrow, zero, one value, changing along the stream."""
    rng = np.random.default_rng(seed)
    match kind:
        case 0:
            return rng.integers(-255, 256, count).astype(np.int16)
        case 1:
            dense = rng.integers(-128, 128, count)
            return np.where(rng.random(count) < rng.random(), 0, dense).astype(np.int16)
        case 2:
            values = rng.integers(-255, 256, rng.integers(1, 40))
            return rng.choice(values, count).astype(np.int16)
        case 3:
            return np.clip(rng.normal(0, rng.uniform(0.3, 60), count), -255, 255).astype(np.int16)
        case 4:
            return np.full(count, rng.integers(-1, 2), np.int16)
        case _:
            parts = [distribution(int(k), seed + 1, count) for k in rng.integers(0, 5, 4)]
            return np.concatenate(parts)


@given(kind=st.integers(0, 5), seed=st.integers(0, 2**31), count=st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_comes_out_again(kind: int, seed: int, count: int) -> None:
    """And it takes the bytes that plans reckon with."""
    values = distribution(kind, seed, count)
    stream = encode_mlw(values)
    assert np.array_equal(decode_mlw(stream), values)
    assert len(stream) == encoded_bytes(values)


def test_a_long_stream_has_sections_and_slices() -> None:
    """300,000 values: three sections of 128 Ki, each of several slices of 32,767."""
    values = distribution(1, 3, 300_000)
    assert np.array_equal(decode_mlw(encode_mlw(values)), values)


@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-512"])
@pytest.mark.parametrize("name", ["mlpt_kws", "mlpt_resnet8", "mlzoo_ds_cnn_s_int16"])
def test_streams_equal_those_of_vela(corpus_dir: Path, name: str, config: str) -> None:
    """Decoding Vela's streams and encoding them again gives Vela's bytes."""
    streams, note = streams_of(compiled(corpus_model(corpus_dir, name), config))
    assert streams
    assert not note
    for stream in streams:
        assert encode_mlw(decode_mlw(stream)) == stream


def kernels(content: bytes, config: str) -> tuple[Machine, list[Kernel]]:
    """Compile without weight buffering and return the kernels with weights."""
    disable = (Feature.CASCADING, Feature.FM_STAGING)
    options = VelaOptions(disable=disable)
    made = compile_model(content, load_target(config), options, cache=None).compiled
    executable = open_compiled(made)
    regions = executable.programs[0].regions

    def read(parts: tuple[AddressRange, ...]) -> tuple[bytes, ...]:
        found = []
        for part in parts:
            content = regions[part.region].content
            assert content is not None
            found.append(content[part.address : part.address + part.length_bytes])
        return tuple(found)

    states = [kernel.state for kernel in executable.programs[0].kernels]
    return executable.programs[0].machine, [
        Kernel(state, read(state.weights), read(state.scales)) for state in states if state.weights
    ]


def volume(machine: Machine, state: KernelState, chunk: EncodedChunk) -> tuple[Array, Array]:
    """Decode a chunk: weights (OHWI) and a row of scales per channel."""
    channels = chunk.c1 - chunk.c0
    volumes, scales = [], []
    for core, part in enumerate(chunk.cores):
        layout = weight_layout(
            state, core, channels, chunk.block_depth, machine.cores, machine.ofm_ublock_depth
        )
        start = part.weights.offset_bytes
        raw = chunk.data[start : start + part.weights.length_bytes]
        volumes.append(arrange_weights(decode_mlw(raw), layout))
        start = part.scales.offset_bytes
        rows = np.frombuffer(chunk.data, np.uint8, 10 * layout.ohwi[0], start)
        scales.append(rows.reshape(-1, 10))
    return interleave(tuple(volumes)), interleave(tuple(scales))


MODELS: dict[str, Callable[[], bytes]] = {
    "conv": one_op("conv2d", 40, 3),
    "pointwise": one_op("conv2d", 72, 1, shape=(1, 9, 7, 40)),
    "depthwise": one_op("depthwise_conv2d", 3, shape=(1, 9, 7, 40)),
    "wide": one_op("conv2d", 40, 3, dtype="int16"),
}


@pytest.mark.parametrize("config", ["ethos-u55-32", "ethos-u55-128", "ethos-u65-512"])
@pytest.mark.parametrize("name", MODELS)
def test_slices_and_blocks_hold_the_same_weights(name: str, config: str) -> None:
    """Whatever the block depth and the channels, decoding gives the same weights and scales."""
    machine, (kernel,) = kernels(MODELS[name](), config)
    state = kernel.state
    encoder = WeightEncoder(machine)
    depth = state.ofm.c
    whole = encoder.encode_chunk(kernel, state.block.c, 0, depth)
    original = tuple(
        part.ljust(-(-len(part) // 16) * 16, b"\0")
        for pair in zip(kernel.scales, kernel.weights, strict=True)
        for part in pair
    )
    assert whole.data == b"".join(original)
    weights, scales = volume(machine, state, whole)
    for block, c0, c1 in ((16, 0, depth), (32, 0, depth), (16, 16, depth), (24, 16, 17)):
        chunk = encoder.encode_chunk(kernel, block, c0, c1)
        assert len(chunk.data) % 16 == 0
        assert len(chunk.cores) == min(machine.cores, c1 - c0)
        for part in chunk.cores:
            for place in (part.scales, part.weights):
                assert place.offset_bytes % 16 == place.length_bytes % 16 == 0
        again, again_scales = volume(machine, state, chunk)
        assert np.array_equal(again, weights[c0:c1])
        assert np.array_equal(again_scales, scales[c0:c1])
        assert encoder.encode_chunk(kernel, block, c0, c1) is chunk or block == state.block.c


def test_encoding_again_gives_velas_bytes() -> None:
    """At the template's own block depth, in two steps: never its bytes by copy, but equal."""
    machine, (kernel,) = kernels(MODELS["pointwise"](), "ethos-u65-512")
    encoder = WeightEncoder(machine)
    whole = encoder.encode_chunk(kernel, kernel.state.block.c, 0, kernel.state.ofm.c)
    again = encoder._encode(kernel, kernel.state.block.c, 0, kernel.state.ofm.c)
    assert again == whole


def test_bad_channels_and_scales_are_refused() -> None:
    machine, (kernel,) = kernels(MODELS["conv"](), "ethos-u55-128")
    encoder = WeightEncoder(machine)
    with pytest.raises(ValueError, match="40 channels"):
        encoder.encode_chunk(kernel, 16, 32, 48)
    short = Kernel(kernel.state, kernel.weights, (kernel.scales[0][:100],))
    with pytest.raises(SimError, match="too short"):
        encoder.encode_chunk(short, 8, 0, 40)
