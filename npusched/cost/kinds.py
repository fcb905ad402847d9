"""Which hardware unit runs a kernel, per family (VELA_SPEC §1.1, §1.2; VELA_SPEC_2 §4).

Source: Vela 5.2.0, ``ArchEthosU55::GetHWOp`` and ``ArchEthosU85::GetHWOp``.
"""

from __future__ import annotations

from enum import StrEnum

from npusched.graph.types import KernelKind
from npusched.hardware.target import Accelerator, AcceleratorU55

K = KernelKind


class Unit(StrEnum):
    """The part of the NPU that decides a kernel's cost."""

    CONV = "conv"
    DEPTHWISE = "depthwise"
    POOL = "pool"
    REDUCE_SUM = "reduce_sum"
    ELEMENTWISE = "elementwise"
    RESIZE = "resize"
    DMA = "dma"
    TRANSPOSE = "transpose"
    MATMUL = "matmul"
    NONE = "none"


BINARY_ELEMENTWISE = frozenset(
    {
        K.ADD,
        K.SUB,
        K.MUL,
        K.DIV,
        K.MINIMUM,
        K.MAXIMUM,
        K.SHL,
        K.ASR,
        K.AND,
        K.OR,
        K.XOR,
        K.AND_NOT,
        K.LOGICAL_AND,
        K.LOGICAL_OR,
        K.EQUAL,
        K.NOT_EQUAL,
        K.GREATER,
        K.GREATER_EQUAL,
        K.LESS,
        K.LESS_EQUAL,
    }
)
"""Two-input element-wise kernels."""

UNARY_ELEMENTWISE = frozenset({K.ABS, K.LEAKY_RELU, K.CLZ, K.NOT, K.LOGICAL_NOT})
"""One-input element-wise kernels that use the element-wise unit."""

ELEMENTWISE = BINARY_ELEMENTWISE | UNARY_ELEMENTWISE
"""Kernels of the element-wise unit."""

RELU_LIKE = frozenset({K.RELU, K.RELU0_TO_1, K.RELU_N1_TO_1, K.RELU6})
"""Activations that Vela costs as Relu on U55/U65 (a Clamp is not among them)."""

TABLE_LIKE = frozenset({K.SIGMOID, K.TANH, K.LUT})
"""Activations that Vela costs as a look-up table on U55/U65."""

ACTIVATIONS = RELU_LIKE | TABLE_LIKE | {K.CLAMP}
"""Kernels that can be fused behind another one."""

_COPIES = frozenset({K.QUANTIZE, K.MEMORY_COPY, K.REVERSE, K.RESCALE}) | ACTIVATIONS
"""Kernels that run as a 1x1 pool."""

_COMMON = {
    **dict.fromkeys(ELEMENTWISE, Unit.ELEMENTWISE),
    **dict.fromkeys(_COPIES, Unit.POOL),
    K.CONV2D: Unit.CONV,
    K.FULLY_CONNECTED: Unit.CONV,
    K.DEPTHWISE: Unit.DEPTHWISE,
    K.AVG_POOL: Unit.POOL,
    K.SUM_POOL: Unit.POOL,
    K.MAX_POOL: Unit.POOL,
    K.REDUCE_MAX: Unit.POOL,
    K.REDUCE_MIN: Unit.POOL,
    K.REDUCE_ANY: Unit.POOL,
    K.REDUCE_ALL: Unit.POOL,
    K.ARG_MAX: Unit.POOL,
    K.REDUCE_SUM: Unit.REDUCE_SUM,
    K.RESIZE: Unit.RESIZE,
    K.GATHER: Unit.DMA,
    K.SCATTER: Unit.DMA,
    K.CPU: Unit.NONE,
}

_UNITS_U55 = {**_COMMON, K.TRANSPOSE: Unit.TRANSPOSE, K.MATMUL: Unit.MATMUL}
_UNITS_U85 = {**_COMMON, K.TRANSPOSE: Unit.POOL, K.MATMUL: Unit.CONV}

MAC_UNITS = frozenset({Unit.CONV, Unit.DEPTHWISE, Unit.POOL, Unit.REDUCE_SUM})
"""Units whose cost follows the MAC formula (VELA_SPEC §3.2)."""


def unit_of(accelerator: Accelerator, kind: KernelKind) -> Unit:
    """Return the unit that runs ``kind``; ``Unit.NONE`` for CPU ops."""
    table = _UNITS_U55 if isinstance(accelerator, AcceleratorU55) else _UNITS_U85
    return table[kind]
