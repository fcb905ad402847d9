"""What a boundary case is, and short ways to make one-op models."""

from __future__ import annotations

from dataclasses import dataclass

from npusched.ir import ActivationKind, Model, OpKind, Options, Padding
from npusched.ir.options import (
    ConvOptions,
    NoOptions,
    PoolOptions,
)
from tests.ops.one_op import Node, T, model_of

SAME, VALID = Padding.SAME, Padding.VALID


@dataclass(frozen=True)
class Boundary:
    """A model of one op and the first limit that it breaks per family ("" = runs on the NPU)."""

    name: str
    model: Model
    u55: str
    u85: str


def one(
    name: str,
    kind: OpKind,
    inputs: tuple[T | None, ...],
    output: T | tuple[T, ...],
    options: Options | None = None,
    *,
    u55: str = "",
    u85: str = "",
    both: str | None = None,
) -> Boundary:
    """Return a case; ``both`` sets both expectations."""
    outputs = output if isinstance(output, tuple) else (output,)
    node = Node(kind, inputs, outputs, options or NoOptions())
    return Boundary(
        name, model_of(node), u55 if both is None else both, u85 if both is None else both
    )


def conv_size(size: int, kernel: int, stride: int, padding: Padding, dilation: int = 1) -> int:
    """Result size of a window along one axis."""
    if padding is SAME:
        return -(-size // stride)
    return -(-(size - (kernel - 1) * dilation) // stride)


def conv(
    name: str,
    *,
    size: tuple[int, int] = (12, 12),
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: Padding = VALID,
    depth: tuple[int, int] = (4, 8),
    dtype: str = "int8",
    weights: T | None = None,
    bias: T | None = None,
    kind: OpKind = OpKind.CONV_2D,
    activation: ActivationKind = ActivationKind.NONE,
    u55: str = "",
    u85: str = "",
    both: str | None = None,
) -> Boundary:
    """A CONV_2D or DEPTHWISE_CONV_2D."""
    ins, outs = depth
    depthwise = kind is OpKind.DEPTHWISE_CONV_2D
    shape = (1, *kernel, outs) if depthwise else (outs, *kernel, ins)
    out = [
        conv_size(s, k, t, padding, d)
        for s, k, t, d in zip(size, kernel, stride, dilation, strict=True)
    ]
    options = ConvOptions(
        padding=padding,
        stride_h=stride[0],
        stride_w=stride[1],
        dilation_h=dilation[0],
        dilation_w=dilation[1],
        depth_multiplier=outs // ins if depthwise else 1,
        activation=activation,
    )
    inputs = (
        T((1, *size, ins), dtype),
        weights or T(shape, values=1),
        bias or T((outs,), "int64" if dtype == "int16" else "int32", None, values=0),
    )
    result = T((1, *out, outs), dtype)
    return one(name, kind, inputs, result, options, u55=u55, u85=u85, both=both)


def pool(
    name: str,
    kind: OpKind,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: Padding = VALID,
    *,
    dtype: str = "int8",
    u55: str = "",
    u85: str = "",
    both: str | None = None,
) -> Boundary:
    """A pool over one channel group of 4."""
    out = [conv_size(s, k, t, padding) for s, k, t in zip(size, kernel, stride, strict=True)]
    options = PoolOptions(
        padding=padding,
        stride_h=stride[0],
        stride_w=stride[1],
        filter_h=kernel[0],
        filter_w=kernel[1],
    )
    inputs = (T((1, *size, 4), dtype),)
    return one(name, kind, inputs, T((1, *out, 4), dtype), options, u55=u55, u85=u85, both=both)


def same(
    name: str,
    kind: OpKind,
    t: T,
    out: T | None = None,
    options: Options | None = None,
    **expected: str,
) -> Boundary:
    """A unary op; the result is like the input unless given."""
    result = out or T(t.shape, t.dtype, t.scale, t.zero, axis=t.axis)
    return one(name, kind, (t,), result, options, **expected)
