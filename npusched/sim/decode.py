"""Weights and scales of kernels, decoded once for equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npusched.cost.types import Traversal
from npusched.errors import SimError
from npusched.sim.kernels import PreparedConv, PreparedDepthwise
from npusched.sim.kernels.arrays import Array
from npusched.sim.mlw import decode_mlw
from npusched.sim.state import KernelState
from npusched.sim.weights import (
    ChannelScales,
    WeightLayout,
    arrange_weights,
    decode_scales,
    interleave,
)
from npusched.vela.stream import StreamOpKind


@dataclass(frozen=True, slots=True)
class Prepared:
    """Weights of one kernel: the OHWI volume, its form for the arithmetic, and the scales."""

    volume: Array
    weights: PreparedConv | PreparedDepthwise
    scales: ChannelScales


class WeightDecoder:
    """Decodes weights for a machine of ``cores`` cores; remembers what it has decoded."""

    def __init__(self, cores: int, ofm_ublock_depth: int) -> None:
        self._cores = cores
        self._ublock = ofm_ublock_depth
        self._volumes: dict[tuple[bytes, WeightLayout], Array] = {}
        self._prepared: dict[tuple[object, ...], Prepared] = {}

    def prepare(
        self, state: KernelState, weights: Sequence[bytes], scales: Sequence[bytes]
    ) -> Prepared | None:
        """Return the weights of a convolution or depthwise kernel, None for other kernels.

        ``weights`` and ``scales`` have the encoded bytes of each core in use. Raises SimError for
        damaged weights, and for numbers of streams that do not fit the channels.
        """
        if state.kind not in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE):
            return None
        channels = state.ofm.c
        streams = min(channels, self._cores)
        if len(weights) != streams or len(scales) != streams:
            raise SimError(
                f"{state.label} has {len(weights)} weight and {len(scales)} scale streams",
                f"{channels} channels on {self._cores} cores need {streams}",
                "the stream is damaged or made for another accelerator: compile the model again",
            )
        layouts = [
            weight_layout(state, core, channels, state.block.c, self._cores, self._ublock)
            for core in range(streams)
        ]
        bound = ifm_bound(state)
        key = (tuple(weights), tuple(scales), tuple(layouts), bound)
        known = self._prepared.get(key)
        if known is None:
            known = self._prepared[key] = self._decode(state, weights, scales, layouts, bound)
        return known

    def _decode(
        self,
        state: KernelState,
        weights: Sequence[bytes],
        scales: Sequence[bytes],
        layouts: Sequence[WeightLayout],
        bound: int,
    ) -> Prepared:
        volume = interleave(
            tuple(self._volume(raw, each) for raw, each in zip(weights, layouts, strict=True))
        )
        parts = [
            decode_scales(raw, layout.ohwi[0]) for raw, layout in zip(scales, layouts, strict=True)
        ]
        joined = ChannelScales(
            bias=interleave(tuple(part.bias for part in parts)),
            multiplier=interleave(tuple(part.multiplier for part in parts)),
            shift=interleave(tuple(part.shift for part in parts)),
        )
        form = PreparedDepthwise if state.kind is StreamOpKind.DEPTHWISE else PreparedConv
        return Prepared(volume, form.of(volume, joined.bias, ifm_bound=bound), joined)

    def _volume(self, raw: bytes, layout: WeightLayout) -> Array:
        found = self._volumes.get((raw, layout))
        if found is None:
            found = self._volumes[raw, layout] = arrange_weights(decode_mlw(raw), layout)
        return found


def weight_layout(
    state: KernelState, core: int, channels: int, block_depth: int, cores: int, ublock_depth: int
) -> WeightLayout:
    """Return how core ``core``'s stream of a kernel is laid out (SIM.md §3 "Two cores").

    ``channels`` and ``block_depth`` count the output channels of all cores.
    """
    window = state.window
    is_depthwise = state.kind is StreamOpKind.DEPTHWISE
    traversal = Traversal.PART_KERNEL if state.is_part_kernel else Traversal.DEPTH_FIRST
    return WeightLayout(
        ohwi=(
            (channels - core + cores - 1) // cores,
            window.h,
            window.w,
            1 if is_depthwise else state.ifm.c,
        ),
        block_depth=(block_depth - core + cores - 1) // cores,
        ublock_depth=ublock_depth,
        traversal=Traversal.DEPTHWISE if is_depthwise else traversal,
        wide=state.ifm.dtype.itemsize == 2,
        dilation_h=window.dilation_h,
        dilation_w=window.dilation_w,
    )


def ifm_bound(state: KernelState) -> int:
    """Return the largest magnitude of an IFM element after its zero point."""
    limits = np.iinfo(state.ifm.dtype.str)
    zero = state.ifm.zero_point
    return max(abs(int(limits.min) - zero), abs(int(limits.max) - zero))
