"""Convolution and depthwise convolution: exact accumulators.

Sums of products are formed by matrix products in float32 or float64 where the largest possible
sum is below 2**24 or 2**53, so that every partial sum is an integer that the type holds exactly,
whatever the order of additions. A fully connected layer is a 1x1 convolution; a transposed
convolution is a convolution of the upscaled IFM (``Upscale.ZEROS``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npusched.graph.types import Kernel, Upscale
from npusched.sim.kernels.arrays import Array, Ints
from npusched.sim.kernels.geometry import prepare, taps, windows

_INT32_BOUND = 1 << 31


@dataclass(frozen=True, slots=True)
class PreparedConv:
    """Weights as a matrix (kh*kw*i, o) in the type that makes the product exact."""

    matrix: Array
    bias: Ints
    accumulator: npt.DTypeLike

    @staticmethod
    def of(weights: Array, bias: Ints, *, ifm_bound: int) -> PreparedConv:
        """Prepare OHWI ``weights`` (zero point subtracted) and one bias per output channel.

        ``ifm_bound`` is the largest magnitude of an IFM element after its zero point.
        """
        o = weights.shape[0]
        flat = weights.reshape(o, -1).astype(np.int64)
        bound = int(np.abs(flat).sum(axis=1).max(initial=0)) * ifm_bound
        dtype = _exact_type(bound)
        return PreparedConv(
            np.ascontiguousarray(flat.T).astype(dtype), bias, _accumulator(bound, bias)
        )


@dataclass(frozen=True, slots=True)
class PreparedDepthwise:
    """Weights per tap (kh*kw, c) in an integer type that holds all sums."""

    taps: Array
    bias: Ints
    accumulator: npt.DTypeLike

    @staticmethod
    def of(weights: Array, bias: Ints, *, ifm_bound: int) -> PreparedDepthwise:
        """Prepare weights of shape (c, kh, kw, 1); else like ``PreparedConv.of``."""
        flat = weights.reshape(weights.shape[0], -1).astype(np.int64)
        bound = int(np.abs(flat).sum(axis=1).max(initial=0)) * ifm_bound
        dtype = _accumulator(bound, bias)
        return PreparedDepthwise(np.ascontiguousarray(flat.T).astype(dtype), bias, dtype)


def _exact_type(bound: int) -> npt.DTypeLike:
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def _accumulator(bound: int, bias: Ints) -> npt.DTypeLike:
    largest = bound + int(np.abs(bias).max(initial=0))
    return np.int32 if largest < _INT32_BOUND else np.int64


def conv(
    ifm: Array,
    weights: PreparedConv,
    kernel: Kernel,
    *,
    zero_point: int,
    ofm_shape: tuple[int, int],
    mode: Upscale = Upscale.NONE,
) -> Ints:
    """Return the accumulators (n, oh, ow, o), bias included.

    ``ifm`` is stored values (n, h, w, i); ``ofm_shape`` is (oh, ow): rows and columns that no
    window reaches are ignored. Padding counts as the zero point.
    """
    values = prepare(
        ifm,
        kernel,
        zero_point=zero_point,
        ofm_shape=ofm_shape,
        mode=mode,
        dtype=weights.matrix.dtype,
    )
    n = len(values)
    oh, ow = ofm_shape
    if kernel.h == kernel.w == 1:
        flat = values[:, :: kernel.stride_h, :: kernel.stride_w].reshape(n * oh * ow, -1)
    else:
        flat = windows(values, kernel).reshape(n * oh * ow, -1)
    product = (flat @ weights.matrix).astype(weights.accumulator)
    product += weights.bias.astype(weights.accumulator)
    return product.reshape(n, oh, ow, -1)


def depthwise(
    ifm: Array,
    weights: PreparedDepthwise,
    kernel: Kernel,
    *,
    zero_point: int,
    ofm_shape: tuple[int, int],
    mode: Upscale = Upscale.NONE,
) -> Ints:
    """Return the accumulators (n, oh, ow, c), bias included; else like ``conv``."""
    values = prepare(
        ifm,
        kernel,
        zero_point=zero_point,
        ofm_shape=ofm_shape,
        mode=mode,
        dtype=weights.accumulator,
    )
    total: Ints | None = None
    for tap, weight in zip(taps(values, kernel), weights.taps, strict=True):
        part = tap * weight
        if total is None:
            total = part
        else:
            total += part
    assert total is not None
    total += weights.bias.astype(weights.accumulator)
    return total
