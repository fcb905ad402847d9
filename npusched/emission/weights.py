"""Encoded weights of a kernel: the template's, or encoded again for other blocks or slices.

A chunk holds what one kernel reads: per core its scales, then its weights, each padded to 16 bytes.
Core k has channels c0 + k, c0 + k + cores, ... (SIM.md §3 "Two cores").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from npusched.emission.mlw_encode import encode_mlw
from npusched.emission.parts import ByteRange, CoreChunk, EncodedChunk, align_up
from npusched.errors import SimError
from npusched.sim.decode import weight_layout
from npusched.sim.kernels.arrays import Array
from npusched.sim.mlw import decode_mlw
from npusched.sim.state import KernelState
from npusched.sim.weights import (
    SCALE_BYTES,
    WeightLayout,
    arrange_weights,
    interleave,
    weight_order,
)

_Volume = npt.NDArray[np.int16]


class Cores(Protocol):
    """What of the machine decides how weights are laid out."""

    @property
    def cores(self) -> int:
        """Cores that share the output channels."""

    @property
    def ofm_ublock_depth(self) -> int:
        """Channels of an OFM micro-block."""


class WeightedKernel(Protocol):
    """A kernel of the template with its encoded bytes, one entry per core in use."""

    @property
    def state(self) -> KernelState:
        """What its registers say."""

    @property
    def weights(self) -> tuple[bytes, ...]:
        """Encoded weights as the kernel reads them."""

    @property
    def scales(self) -> tuple[bytes, ...]:
        """Scales as the kernel reads them, padding included."""


@dataclass(frozen=True, slots=True)
class _Decoded:
    """All weights (OHWI) and scales (a row of 10 bytes per channel) of a kernel."""

    volume: _Volume
    scales: npt.NDArray[np.uint8]


class WeightEncoder:
    """Makes the chunks of a template's kernels; remembers what it has decoded and encoded."""

    def __init__(self, machine: Cores) -> None:
        self._cores = machine.cores
        self._ublock_depth = machine.ofm_ublock_depth
        self._decoded: dict[tuple[object, ...], _Decoded] = {}
        self._chunks: dict[tuple[object, ...], EncodedChunk] = {}

    def encode_chunk(
        self, kernel: WeightedKernel, block_depth: int, c0: int, c1: int
    ) -> EncodedChunk:
        """Return the chunk of output channels ``c0`` to ``c1`` (not included).

        ``block_depth``: OFM block depth in channels, all cores. The template's own bytes if it has
        that block depth and all channels; else encoded again, and checked by decoding. Raises
        SimError for damaged weights, and ValueError for channels that the kernel does not have.
        """
        state = kernel.state
        if not 0 <= c0 < c1 <= state.ofm.c:
            raise ValueError(f"{state.label} has {state.ofm.c} channels, not {c0} to {c1}")
        if (block_depth, c0, c1) == (state.block.c, 0, state.ofm.c):
            return _join(kernel.scales, kernel.weights, block_depth, c0, c1)
        key = (*self._key(kernel), block_depth, c0, c1)
        found = self._chunks.get(key)
        if found is None:
            found = self._chunks[key] = self._encode(kernel, block_depth, c0, c1)
        return found

    def _key(self, kernel: WeightedKernel) -> tuple[object, ...]:
        """What the meaning of a kernel's weights depends on."""
        layouts = tuple(
            self._layout(kernel.state, core, kernel.state.ofm.c, kernel.state.block.c)
            for core in range(len(kernel.weights))
        )
        return (kernel.weights, kernel.scales, layouts)

    def _layout(
        self, state: KernelState, core: int, channels: int, block_depth: int
    ) -> WeightLayout:
        return weight_layout(state, core, channels, block_depth, self._cores, self._ublock_depth)

    def _decode(self, kernel: WeightedKernel) -> _Decoded:
        key = self._key(kernel)
        found = self._decoded.get(key)
        if found is None:
            state = kernel.state
            volumes, scales = [], []
            for core, (raw, scale) in enumerate(zip(kernel.weights, kernel.scales, strict=True)):
                layout = self._layout(state, core, state.ofm.c, state.block.c)
                volumes.append(arrange_weights(decode_mlw(raw), layout))
                scales.append(_scale_rows(scale, layout.ohwi[0]))
            found = _Decoded(interleave(tuple(volumes)), interleave(tuple(scales)))
            self._decoded[key] = found
        return found

    def _encode(self, kernel: WeightedKernel, block_depth: int, c0: int, c1: int) -> EncodedChunk:
        decoded = self._decode(kernel)
        weights, scales = [], []
        for core in range(min(self._cores, c1 - c0)):
            layout = self._layout(kernel.state, core, c1 - c0, block_depth)
            volume = decoded.volume[c0:c1][core :: self._cores]
            weights.append(_encode_volume(volume, layout))
            scales.append(decoded.scales[c0:c1][core :: self._cores].tobytes())
        return _join(scales, weights, block_depth, c0, c1)


def _scale_rows(scales: bytes, channels: int) -> Array:
    """Return the scales of each channel, undecoded. Raises SimError if there are too few."""
    if len(scales) < SCALE_BYTES * channels:
        raise SimError(
            "the kernel's scales are too short",
            f"{len(scales)} bytes for {channels} channels of {SCALE_BYTES}",
            "the compiled file is damaged: compile again",
        )
    raw = np.frombuffer(scales, np.uint8, SCALE_BYTES * channels)
    return raw.reshape(channels, SCALE_BYTES)


def _encode_volume(volume: _Volume, layout: WeightLayout) -> bytes:
    """Encode one core's weights, and see that they come out again."""
    order = weight_order(layout)
    stream = np.where(order >= 0, volume.ravel()[order], 0).astype(np.int16)
    encoded = encode_mlw(stream)
    if not np.array_equal(arrange_weights(decode_mlw(encoded), layout), volume):
        raise AssertionError(f"encoded weights of shape {layout.ohwi} decode to other values")
    return encoded


def _join(
    scales: Sequence[bytes], weights: Sequence[bytes], block_depth: int, c0: int, c1: int
) -> EncodedChunk:
    """Lay out a chunk: scales and weights of each core in turn."""
    data = bytearray()
    cores = []
    for pair in zip(scales, weights, strict=True):
        places = []
        for part in pair:
            size = align_up(len(part))
            places.append(ByteRange(len(data), size))
            data += part.ljust(size, b"\0")
        cores.append(CoreChunk(*places))
    return EncodedChunk(bytes(data), tuple(cores), block_depth, c0, c1)
