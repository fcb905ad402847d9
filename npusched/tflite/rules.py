"""Shape rules, part 1: operands, and the ops that compute (convolutions, pools, matrices, ...).

A rule takes the operands of an op and returns the shapes of its outputs, as the TFLite kernels'
Prepare functions define them. It raises ShapeError where the operands contradict each other and
NeedsValues where a shape depends on values that are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Final, NoReturn, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.ir import Options, Padding, Shape
from npusched.ir.options import (
    BatchMatMulOptions,
    ConvOptions,
    FullyConnectedOptions,
    LstmOptions,
    PoolOptions,
    ReduceOptions,
    SvdfOptions,
)

MAX_PARAMETERS: Final = 1 << 16
"""Elements of a shape, permutation, list of sizes, ... taken as meant."""


class ShapeError(ValueError):
    """The operands' shapes contradict each other; the text says how."""


class NeedsValues(ValueError):  # noqa: N818
    """The shape depends on values that are only known at run time."""


class Operand(msgspec.Struct, frozen=True):
    """An input as rules see it: its shape, and its values where they are known."""

    shape: Shape
    values: npt.NDArray[np.generic] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def ints(self) -> tuple[int, ...]:
        """All values as integers, flattened. Raises NeedsValues if they are not known."""
        if self.values is None:
            raise NeedsValues
        if self.values.dtype.kind not in "iub":
            raise ShapeError("a shape parameter is not an integer")
        if self.values.size > MAX_PARAMETERS:
            raise ShapeError(f"a shape parameter has {self.values.size} elements")
        return tuple(int(v) for v in self.values.reshape(-1))


Operands: TypeAlias = Sequence[Operand | None]
Rule: TypeAlias = Callable[[Options, Operands], tuple[Shape, ...]]


def fail(text: str) -> NoReturn:
    """Raise ShapeError."""
    raise ShapeError(text)


def need(operands: Operands, index: int, rank: int | None = None) -> Operand:
    """Return operand ``index``, which must exist (and have ``rank`` axes)."""
    operand = operands[index] if index < len(operands) else None
    if operand is None:
        fail(f"input {index} is missing")
    if rank is not None and operand.rank != rank:
        fail(f"input {index} has shape {list(operand.shape)}, expected {rank} axes")
    return operand


def optional(operands: Operands, index: int) -> Operand | None:
    """Return operand ``index`` or None."""
    return operands[index] if index < len(operands) else None


def axis_of(axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front."""
    if not -rank <= axis < rank:
        fail(f"axis {axis} does not exist in {rank} axes")
    return axis % rank


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape of numpy-style broadcasting."""

    def two(a: Shape, b: Shape) -> Shape:
        rank = max(len(a), len(b))
        a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
        if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
            fail(f"shapes {list(a)} and {list(b)} do not broadcast")
        return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))

    return reduce(two, shapes)


def window(size: int, kernel: int, stride: int, padding: Padding, dilation: int = 1) -> int:
    """Output size of one axis of a convolution or pool."""
    span = (kernel - 1) * dilation + 1
    if padding is Padding.SAME:
        return -(-size // stride)
    if size < span:
        fail(f"a window of {span} does not fit an axis of {size}")
    return (size - span) // stride + 1


def weights_of(operands: Operands, index: int, rank: int) -> Shape:
    """Return the shape of weights, which cannot be empty."""
    shape = need(operands, index, rank).shape
    if 0 in shape:
        fail(f"weights {list(shape)} are empty")
    return shape


def _bias(operands: Operands, index: int, channels: int) -> None:
    bias = optional(operands, index)
    if bias is not None and bias.elements != channels:
        fail(f"bias of {bias.elements} elements for {channels} output channels")


def conv(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """CONV_2D: ifm NHWC, weights OHWI (I = C / groups), bias O."""
    assert isinstance(options, ConvOptions)
    n, h, w, c = need(operands, 0, 4).shape
    filters, kernel_h, kernel_w, depth = weights_of(operands, 1, 4)
    if depth < 1 or c % depth or filters % (c // depth):
        fail(f"{filters} filters of depth {depth} do not suit {c} input channels")
    _bias(operands, 2, filters)
    out_h = window(h, kernel_h, options.stride_h, options.padding, options.dilation_h)
    out_w = window(w, kernel_w, options.stride_w, options.padding, options.dilation_w)
    return ((n, out_h, out_w, filters),)


def depthwise(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """DEPTHWISE_CONV_2D: ifm NHWC, weights 1HW(C*multiplier), bias."""
    assert isinstance(options, ConvOptions)
    n, h, w, c = need(operands, 0, 4).shape
    one, kernel_h, kernel_w, filters = weights_of(operands, 1, 4)
    if one != 1 or c < 1 or filters % c:
        fail(f"depthwise weights of {filters} channels do not suit {c} input channels")
    _bias(operands, 2, filters)
    out_h = window(h, kernel_h, options.stride_h, options.padding, options.dilation_h)
    out_w = window(w, kernel_w, options.stride_w, options.padding, options.dilation_w)
    return ((n, out_h, out_w, filters),)


def transpose_conv(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """TRANSPOSE_CONV: output shape, weights OHWI, ifm NHWC, bias O."""
    assert isinstance(options, ConvOptions)
    filters, kernel_h, kernel_w, depth = weights_of(operands, 1, 4)
    n, h, w, c = need(operands, 2, 4).shape
    out = need(operands, 0).ints()
    if len(out) != 4 or out[3] != filters or out[0] != n or depth != c:
        fail(f"output {list(out)}, {filters} filters of depth {depth}, ifm {[n, h, w, c]}")
    _bias(operands, 3, filters)
    back_h = window(out[1], kernel_h, options.stride_h, options.padding)
    back_w = window(out[2], kernel_w, options.stride_w, options.padding)
    if (back_h, back_w) != (h, w):
        fail(f"output {list(out)} needs an ifm of {back_h}x{back_w}, there are {h}x{w}")
    return (out,)


def pool(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """Pools: ifm NHWC."""
    assert isinstance(options, PoolOptions)
    n, h, w, c = need(operands, 0, 4).shape
    out_h = window(h, options.filter_h, options.stride_h, options.padding)
    out_w = window(w, options.filter_w, options.stride_w, options.padding)
    return ((n, out_h, out_w, c),)


def fully_connected(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """FULLY_CONNECTED: ifm of any rank, weights OI, bias O."""
    assert isinstance(options, FullyConnectedOptions)
    ifm, (units, depth) = need(operands, 0), weights_of(operands, 1, 2)
    if depth < 1 or ifm.elements % depth:
        fail(f"ifm {list(ifm.shape)} is no multiple of the weights' depth {depth}")
    _bias(operands, 2, units)
    if options.keep_num_dims:
        if not ifm.shape or ifm.shape[-1] != depth:
            fail(f"the last axis of {list(ifm.shape)} is not the weights' depth {depth}")
        return ((*ifm.shape[:-1], units),)
    return ((ifm.elements // depth, units),)


def batch_matmul(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """BATCH_MATMUL: x [..., M, K] and y [..., K, N], each perhaps transposed."""
    assert isinstance(options, BatchMatMulOptions)
    x, y = need(operands, 0).shape, need(operands, 1).shape
    if min(len(x), len(y)) < 2:
        fail(f"matrices {list(x)} and {list(y)} need two axes")
    m, k = (x[-1], x[-2]) if options.adj_x else (x[-2], x[-1])
    k2, n = (y[-1], y[-2]) if options.adj_y else (y[-2], y[-1])
    if k != k2:
        fail(f"matrices {list(x)} and {list(y)} do not match: {k} against {k2}")
    return ((*broadcast(x[:-2], y[:-2]), m, n),)


def elementwise(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """Two or more operands that broadcast."""
    return (broadcast(*(need(operands, i).shape for i in range(len(operands)))),)


def unary(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """One output like the first input."""
    return (need(operands, 0).shape,)


def prelu(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """PRELU: alpha broadcasts to the ifm."""
    ifm = need(operands, 0).shape
    if broadcast(ifm, need(operands, 1).shape) != ifm:
        fail(f"alpha {list(need(operands, 1).shape)} does not broadcast to {list(ifm)}")
    return (ifm,)


def select(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """SELECT: the condition may be one value per row of x."""
    shape = broadcast(need(operands, 1).shape, need(operands, 2).shape)
    condition = need(operands, 0).shape
    if len(condition) <= 1 and condition != shape:
        return (shape,)
    return (broadcast(condition, shape),)


def reduction(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """MEAN, SUM, ...: the axes are input 1."""
    assert isinstance(options, ReduceOptions)
    ifm = need(operands, 0)
    axes = {axis_of(a, ifm.rank) for a in need(operands, 1).ints()} if ifm.rank else set()
    if options.keep_dims:
        return (tuple(1 if i in axes else size for i, size in enumerate(ifm.shape)),)
    return (tuple(size for i, size in enumerate(ifm.shape) if i not in axes),)


def arg_extreme(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """ARG_MAX, ARG_MIN: the axis is input 1."""
    ifm = need(operands, 0)
    (axis,) = need(operands, 1).ints()[:1] or (0,)
    gone = axis_of(axis, ifm.rank)
    return (ifm.shape[:gone] + ifm.shape[gone + 1 :],)


def sequence_lstm(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: ifm [batch, time, features] (or time major), 24 inputs."""
    assert isinstance(options, LstmOptions)
    rows, steps, features = need(operands, 0, 3).shape
    cells, depth = weights_of(operands, 2, 2)
    outputs = need(operands, 6, 2).shape[1]
    if depth != features:
        fail(f"{features} features, but input weights of depth {depth}")
    for index in (2, 3, 4):
        if need(operands, index, 2).shape != (cells, depth):
            fail(f"input weights {index} are {list(need(operands, index).shape)}")
    for index in (6, 7, 8):
        if need(operands, index, 2).shape != (cells, outputs):
            fail(f"recurrent weights {index} are {list(need(operands, index).shape)}")
    batch = steps if options.time_major else rows
    for index, size in ((18, outputs), (19, cells)):
        if need(operands, index).elements != batch * size:
            fail(f"state {index} has {need(operands, index).elements} elements, not {batch}x{size}")
    return ((rows, steps, outputs),)


def svdf(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """SVDF: ifm [batch, features], feature weights [filters, features], time weights."""
    assert isinstance(options, SvdfOptions)
    batch, features = need(operands, 0, 2).shape
    filters, depth = weights_of(operands, 1, 2)
    if depth != features or filters % options.rank or need(operands, 2, 2).shape[0] != filters:
        fail(f"weights [{filters}, {depth}] of rank {options.rank} for {features} features")
    return ((batch, filters // options.rank),)
