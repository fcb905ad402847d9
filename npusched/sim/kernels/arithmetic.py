"""The numeric meaning of one NPU kernel as a value, and the function that applies it to arrays.

``Arithmetic`` knows nothing of addresses, registers or graphs: the stream simulator makes it from
registers, the graph interpreter from a ``ScheduledOp``, and a plan executor applies one
``Arithmetic`` to the rows of each stripe, with the padding that is left there
(``dataclasses.replace`` with another window).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from npusched.graph.types import Kernel, Upscale
from npusched.sim.kernels.arrays import Array, Ints
from npusched.sim.kernels.elementwise import Binary, Operands, Unary, binary, scale_operands, unary
from npusched.sim.kernels.epilogue import Clamp, clamp, lookup8, lookup16, store
from npusched.sim.kernels.geometry import centre, prepare
from npusched.sim.kernels.linear import PreparedConv, PreparedDepthwise, conv, depthwise
from npusched.sim.kernels.pool import average_pool, max_pool, reduce_sum, window_sum
from npusched.sim.kernels.rescale import Scaling, rescale


class Window(StrEnum):
    """Operations that slide a window over one IFM, or sum its channels."""

    CONV = "conv"
    DEPTHWISE = "depthwise"
    MAX_POOL = "max_pool"
    SUM_POOL = "sum_pool"
    """Average pool without padding (its scaling holds 1/taps), and copies (1x1)."""
    AVERAGE_POOL = "average_pool"
    """Average pool with padding: divides by the real taps."""
    REDUCE_SUM = "reduce_sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A look-up table: 256 entries of the OFM's type, or 512 interpolated words.

    ``is_signed``: index 0 belongs to -128. Interpolated tables take 16-bit values.
    """

    entries: Array
    is_signed: bool = True
    interpolates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Everything that decides the values of an OFM.

    ``weights`` for CONV and DEPTHWISE (bias inside). ``operands`` scale those of ADD and SUB.
    ``scalar`` (zero point taken off) stands for IFM2; ``ifm2_is_first``: IFM2 is operand a.
    ``scaling``, ``limits`` and ``table`` follow in this order where present: without ``limits``
    neither zero point nor clamp is applied. ``scales_negatives_only``: LEAKY_RELU.
    """

    operation: Window | Binary | Unary
    dtype: np.dtype[np.generic]
    window: Kernel = field(default_factory=Kernel)
    mode: Upscale = Upscale.NONE
    ifm_zero_point: int = 0
    ifm2_zero_point: int = 0
    scalar: int | None = None
    ifm2_is_first: bool = False
    weights: PreparedConv | PreparedDepthwise | None = None
    operands: Operands | None = None
    shift_rounding: Scaling | None = None
    scaling: Scaling | None = None
    limits: Clamp | None = None
    table: Table | None = None


def run(
    arithmetic: Arithmetic, ifm: Array, ifm2: Array | None = None, *, ofm_shape: tuple[int, int]
) -> Array:
    """Return the OFM (n, oh, ow, c) of stored inputs (n, h, w, c); ``ofm_shape`` is (oh, ow).

    IFMs hold the rows and columns that the window reaches, padding taken off; further ones are
    ignored. IFM2 broadcasts along axes of size 1.
    """
    values = _accumulate(arithmetic, ifm, ifm2, ofm_shape)
    return finish(arithmetic, values)


def finish(arithmetic: Arithmetic, values: Ints) -> Array:
    """Scale, clamp, look up and store exact results."""
    scaling = arithmetic.scaling
    if scaling is not None:
        if arithmetic.operation is Unary.LEAKY_RELU:
            values = np.where(values < 0, rescale(values, scaling), values)
        else:
            values = rescale(values, scaling)
    if arithmetic.limits is not None:
        values = clamp(values, arithmetic.limits)
    table = arithmetic.table
    if table is not None:
        if table.interpolates:
            values = lookup16(values, table.entries)
        else:
            values = lookup8(values, table.entries, is_signed=table.is_signed)
    return store(values, arithmetic.dtype)


def _accumulate(
    arithmetic: Arithmetic, ifm: Array, ifm2: Array | None, ofm_shape: tuple[int, int]
) -> Ints:
    """Return the exact results before scaling."""
    operation = arithmetic.operation
    if isinstance(operation, Binary):
        return _binary(arithmetic, operation, ifm, ifm2)
    if isinstance(operation, Unary):
        return unary(operation, centre(ifm, arithmetic.ifm_zero_point, _wide(ifm)))
    window, weights = arithmetic.window, arithmetic.weights
    match operation:
        case Window.CONV:
            assert isinstance(weights, PreparedConv)
            return conv(
                ifm,
                weights,
                window,
                zero_point=arithmetic.ifm_zero_point,
                ofm_shape=ofm_shape,
                mode=arithmetic.mode,
            )
        case Window.DEPTHWISE:
            assert isinstance(weights, PreparedDepthwise)
            return depthwise(
                ifm,
                weights,
                window,
                zero_point=arithmetic.ifm_zero_point,
                ofm_shape=ofm_shape,
                mode=arithmetic.mode,
            )
        case Window.REDUCE_SUM:
            return reduce_sum(centre(ifm, arithmetic.ifm_zero_point, np.int64))
    lowest = int(np.iinfo(np.int64).min)
    values = prepare(
        ifm,
        window,
        zero_point=arithmetic.ifm_zero_point,
        ofm_shape=ofm_shape,
        mode=arithmetic.mode,
        dtype=np.int64 if operation is Window.MAX_POOL or ifm.itemsize > 1 else np.int32,
        fill=lowest if operation is Window.MAX_POOL else 0,
    )
    match operation:
        case Window.MAX_POOL:
            return max_pool(values, window)
        case Window.SUM_POOL:
            return window_sum(values, window)
        case Window.AVERAGE_POOL:
            return average_pool(values, window)


def _wide(values: Array) -> type[np.signedinteger]:
    """A type for differences of stored values and zero points."""
    return np.int32 if values.itemsize <= 2 else np.int64


def _binary(arithmetic: Arithmetic, operation: Binary, ifm: Array, ifm2: Array | None) -> Ints:
    """Return a (op) b; broadcasting follows from the shapes."""
    a = centre(ifm, arithmetic.ifm_zero_point, _wide(ifm))
    if ifm2 is None:
        assert arithmetic.scalar is not None
        b = np.asarray(arithmetic.scalar, a.dtype)
    else:
        b = centre(ifm2, arithmetic.ifm2_zero_point, _wide(ifm2))
    if arithmetic.ifm2_is_first:
        a, b = b, a
    if arithmetic.operands is not None:
        a, b = scale_operands(a, b, arithmetic.operands)
    return binary(operation, a, b, shift_rounding=arithmetic.shift_rounding)
