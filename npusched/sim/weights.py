"""Encoded weights and scales -> the volume that a kernel applies.

The order of weights in a stream is SIM.md §3 "Weights" (Vela 5.2.0, ethos_u55_weight_encoder.cpp):
it depends on the OFM block depth, the traversal, the data width and the micro-blocks. Anything a
stream holds outside the volume must be zero, so a wrong order does not go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npusched.cost.types import Traversal
from npusched.errors import SimError
from npusched.sim.kernels.arrays import Array, Ints

Weights = npt.NDArray[np.int16]
_Index = npt.NDArray[np.int32]

IFM_UBLOCK_DEPTH = 8
"""Channels of an IFM micro-block, all U55 and U65 (VELA_SPEC §1.1)."""

SCALE_BYTES = 10
"""40-bit bias, 32-bit scale, 6-bit shift per channel (SIM.md §3)."""

SUB_KERNEL = 8
"""Largest side of a sub-kernel, undilated (VELA_SPEC §1.1)."""


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """How the weights of one core are laid out in its stream.

    ``ohwi`` is the shape of this core's volume (depthwise: O = channels, I = 1);
    ``block_depth`` the OFM block's channels on this core; ``ublock_depth`` those of an OFM
    micro-block; ``wide`` for 16-bit IFMs; dilations shrink the sub-kernels.
    """

    ohwi: tuple[int, int, int, int]
    block_depth: int
    ublock_depth: int
    traversal: Traversal
    wide: bool = False
    dilation_h: int = 1
    dilation_w: int = 1


@dataclass(frozen=True, slots=True)
class ChannelScales:
    """Bias and rescale per output channel (int64 arrays of equal length)."""

    bias: Ints
    multiplier: Ints
    shift: Ints


@lru_cache(maxsize=256)
def weight_order(layout: WeightLayout) -> _Index:
    """Return for each place in the stream the flat OHWI index it holds, -1 for filling."""
    o, h, w, i = layout.ohwi
    step_h, step_w = SUB_KERNEL // layout.dilation_h, SUB_KERNEL // layout.dilation_w
    parts = [
        _piece(layout, start, ifm, y, x, min(step_h, h - y), min(step_w, w - x))
        for start in range(0, o, layout.block_depth)
        for ifm in range(0, i, _ifm_block_depth(layout))
        for y in range(0, h, step_h)
        for x in range(0, w, step_w)
    ]
    order = np.concatenate(parts)
    order.flags.writeable = False
    return order


def _ifm_block_depth(layout: WeightLayout) -> int:
    if layout.traversal is Traversal.DEPTHWISE:
        return 1
    return 16 if layout.traversal is Traversal.PART_KERNEL or layout.wide else 32


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _piece(
    layout: WeightLayout, start: int, ifm_start: int, y0: int, x0: int, sub_h: int, sub_w: int
) -> _Index:
    """Return the order within one OFM block, IFM block and sub-kernel."""
    o_all, h_all, w_all, i_all = layout.ohwi
    depth = min(layout.block_depth, o_all - start)
    lanes = layout.ublock_depth
    ofm = start + np.arange(_round_up(depth, lanes)).reshape(-1, lanes)
    taps = sub_h * sub_w
    match layout.traversal:
        case Traversal.DEPTHWISE:
            tap = np.arange(_round_up(taps, 4))
            o = ofm[:, None, :]
            t = tap[None, :, None]
            i = np.zeros((1, 1, 1), np.int64)
        case Traversal.PART_KERNEL:
            tap = np.arange(_round_up(taps, 2 if layout.wide else 4))
            clipped = min(_ifm_block_depth(layout), i_all - ifm_start)
            ifm = ifm_start + np.arange(_round_up(clipped, IFM_UBLOCK_DEPTH)).reshape(
                -1, IFM_UBLOCK_DEPTH
            )
            i = ifm[:, None, None, None, :]
            o = ofm[None, :, None, :, None]
            t = tap[None, None, :, None, None]
        case Traversal.DEPTH_FIRST:
            ifm = ifm_start + np.arange(_ifm_block_depth(layout)).reshape(-1, IFM_UBLOCK_DEPTH)
            i = ifm[None, None, :, None, :]
            o = ofm[:, None, None, :, None]
            t = np.arange(taps)[None, :, None, None, None]
    tap_index = (y0 + t // sub_w) * w_all + x0 + t % sub_w
    flat = (o * (h_all * w_all) + tap_index) * i_all + i
    inside = (o < o_all) & (i < i_all) & (t < taps)
    return np.where(inside, flat, -1).astype(np.int32).ravel()


def arrange_weights(values: npt.NDArray[np.int16], layout: WeightLayout) -> Weights:
    """Return decoded ``values`` as a volume of shape ``layout.ohwi``.

    Raises SimError if there are too few, or if anything outside the volume is not zero.
    """
    order = weight_order(layout)
    if len(values) < len(order):
        raise _misfit(layout, f"the stream holds {len(values)} weights, {len(order)} are read")
    used = values[: len(order)]
    inside = order >= 0
    if values[len(order) :].any() or used[~inside].any():
        raise _misfit(layout, "weights outside the kernel's volume are not zero")
    volume = np.zeros(int(np.prod(layout.ohwi)), np.int16)
    volume[order[inside]] = used[inside]
    return volume.reshape(layout.ohwi)


def _misfit(layout: WeightLayout, why: str) -> SimError:
    return SimError(
        f"the weights do not fit the kernel of shape {list(layout.ohwi)} (OHWI)",
        why,
        "the stream is damaged or made for another accelerator: compile the model again",
    )


def decode_scales(data: bytes, channels: int) -> ChannelScales:
    """Return bias, multiplier and shift of ``channels`` channels (10 bytes each, little endian).

    Raises SimError if ``data`` is too short or a shift has bits beyond its six.
    """
    if len(data) < SCALE_BYTES * channels:
        raise SimError(
            "the kernel's scales are too short",
            f"{len(data)} bytes for {channels} channels of {SCALE_BYTES}",
            "the stream is damaged: compile the model again",
        )
    table = np.frombuffer(data, np.uint8, SCALE_BYTES * channels).reshape(channels, SCALE_BYTES)
    if (table[:, 9] > 63).any():
        raise SimError(
            "the kernel's scales are damaged",
            f"shift {int(table[:, 9].max())} has more than 6 bits",
            "the stream is damaged, or reads other bytes than scales: compile the model again",
        )
    wide = table.astype(np.int64)
    weights = np.left_shift(np.int64(1), 8 * np.arange(5, dtype=np.int64))
    bias = wide[:, :5] @ weights
    return ChannelScales(
        bias=np.where(bias >= 1 << 39, bias - (1 << 40), bias),
        multiplier=wide[:, 5:9] @ weights[:4],
        shift=wide[:, 9].copy(),
    )


def interleave(parts: tuple[Array, ...]) -> Array:
    """Join the channels of several cores (first axis): core k has channels k, k + cores, ..."""
    if len(parts) == 1:
        return parts[0]
    total = sum(len(part) for part in parts)
    joined = np.zeros((total, *parts[0].shape[1:]), parts[0].dtype)
    for core, part in enumerate(parts):
        joined[core :: len(parts)] = part
    return joined
