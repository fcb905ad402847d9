"""Classes of kernels that several passes ask about (Vela 5.2.0, ``compiler/op_type.hpp``)."""

from __future__ import annotations

from npusched.graph.types import KernelKind
from npusched.ir import OpKind

Kind = OpKind | KernelKind

_K = KernelKind

UNARY = frozenset({_K.ABS, _K.LEAKY_RELU, _K.CLZ, _K.NOT, _K.LOGICAL_NOT})

BINARY = frozenset(
    {
        _K.ADD,
        _K.SUB,
        _K.MUL,
        _K.DIV,
        _K.MINIMUM,
        _K.MAXIMUM,
        _K.SHL,
        _K.ASR,
        _K.AND,
        _K.OR,
        _K.XOR,
        _K.AND_NOT,
        _K.LOGICAL_AND,
        _K.LOGICAL_OR,
        _K.EQUAL,
        _K.NOT_EQUAL,
        _K.GREATER,
        _K.GREATER_EQUAL,
        _K.LESS,
        _K.LESS_EQUAL,
    }
)

CLIPPING = frozenset({_K.RELU, _K.RELU0_TO_1, _K.RELU6, _K.RELU_N1_TO_1, _K.CLAMP})

ACTIVATIONS = CLIPPING | {_K.SIGMOID, _K.TANH, _K.LUT}

CONVOLUTIONS = frozenset({_K.CONV2D, _K.DEPTHWISE})
"""Ops that regor calls convolutions; FullyConnected is not one of them."""

POOLS = frozenset(
    {
        _K.MAX_POOL,
        _K.AVG_POOL,
        _K.SUM_POOL,
        _K.REDUCE_SUM,
        _K.REDUCE_MIN,
        _K.REDUCE_MAX,
        _K.REDUCE_ANY,
        _K.REDUCE_ALL,
        _K.ARG_MAX,
    }
)

REDUCTIONS = POOLS - {_K.MAX_POOL, _K.AVG_POOL, _K.SUM_POOL}

REARRANGING = frozenset({_K.TRANSPOSE, _K.REVERSE})


def is_binary(kind: Kind) -> bool:
    """Return True for elementwise kernels with two inputs."""
    return kind in BINARY


def is_elementwise(kind: Kind) -> bool:
    """Return True for kernels of the elementwise unit."""
    return kind in BINARY or kind in UNARY


def is_elementwise_like(kind: Kind) -> bool:
    """Return True for kernels that may be given any shape with the same elements."""
    return (
        is_elementwise(kind)
        or kind in ACTIVATIONS
        or kind in (_K.RESCALE, _K.QUANTIZE, _K.MEMORY_COPY)
    )


def is_windowed(kind: Kind) -> bool:
    """Return True for convolutions and pools."""
    return kind in CONVOLUTIONS or kind in POOLS
