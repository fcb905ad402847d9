"""Average pools that U85 cannot divide in one go: a sum, a product, a shift.

Sources: Vela 5.2.0, ``compiler/scheduler_decompose.cpp`` (DecomposeAvgPool, Scaling),
``architecture/ethos_u_scaling.cpp`` (QuantizePoolingScale).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npusched.graph.lower.scaling import UNIT, Scale, average_pool_scale, without_trailing_zeros
from npusched.graph.types import KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import DataType

_SHIFT = 30
"""Bits of the multiplier that the product drops; the rest of the shift is an op of its own."""


def sum_and_scale(graph: WorkGraph, op: WorkOp) -> tuple[WorkOp, list[WorkOp]]:
    """Return (the pool as a plain sum, the ops that divide its result).

    The divisor is the number of taps inside the IFM, so multipliers and shifts differ from
    position to position along padded axes.
    """
    shape = op.ofm.region
    sums = graph.new_tensor(f"{op.name}/sums", shape, DataType.INT32)
    scaled = graph.new_tensor(f"{op.name}/scaled", shape, DataType.INT32)
    pool = op.clone()
    pool.kind, pool.ofm_rescale = KernelKind.SUM_POOL, None
    pool.ofms = [Link(tensor=sums, shape=shape)]
    multipliers, shifts = _divisors(op)
    product = _elementwise(graph, op, KernelKind.MUL, sums, "pool_scale", multipliers)
    product.ofms = [Link(tensor=scaled, shape=shape)]
    product.ofm_rescale = Rescale(
        multipliers=(1,), shifts=(_SHIFT,), rounding=Rounding.TRUNCATE_LOWER
    )
    shift = _elementwise(graph, op, KernelKind.ASR, scaled, "pool_shift", shifts)
    shift.ofms = [op.ofm.copy()]
    return pool, [product, shift]


def _elementwise(
    graph: WorkGraph,
    op: WorkOp,
    kind: KernelKind,
    source: WorkTensor,
    name: str,
    table: npt.NDArray[np.int32],
) -> WorkOp:
    constant = graph.new_tensor(name, table.shape, DataType.INT32, data=table)
    return WorkOp(
        kind=kind,
        source_ops=op.source_ops,
        ifms=[
            Link(tensor=source, shape=source.shape),
            Link(tensor=constant, shape=constant.shape),
        ],
        rounding=op.rounding,
        name=op.name,
    )


def _divisors(op: WorkOp) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return multipliers and shifts of shape (1, h, w, 1); an axis without padding has size 1."""
    kernel = op.kernel
    _, ifm_h, ifm_w, _ = op.ifm.region[-4:]
    _, ofm_h, ofm_w, _ = op.ofm.region[-4:]
    rows = _taps(kernel.h, kernel.stride_h, kernel.pad_top, kernel.pad_bottom, ifm_h, ofm_h)
    columns = _taps(kernel.w, kernel.stride_w, kernel.pad_left, kernel.pad_right, ifm_w, ofm_w)
    rescale = op.ofm_rescale
    scale = UNIT if rescale is None else Scale(rescale.multipliers[0], rescale.shifts[0])
    pairs = [_divisor(row * column, scale) for row in rows for column in columns]
    shape = (1, len(rows), len(columns), 1)
    multipliers = np.array([pair.multiplier for pair in pairs], dtype=np.uint32)
    shifts = np.array([pair.shift - _SHIFT for pair in pairs], dtype=np.int32)
    return multipliers.view(np.int32).reshape(shape), shifts.reshape(shape)


def _taps(size: int, stride: int, before: int, after: int, ifm: int, ofm: int) -> list[int]:
    """Return how many taps lie inside the IFM, per output position of an axis."""
    starts = [index * stride - before for index in range(ofm if before or after else 1)]
    return [min(start + size, ifm) - max(start, 0) for start in starts]


def _divisor(count: int, scale: Scale) -> Scale:
    if count == 1 and without_trailing_zeros(scale) == UNIT:
        return Scale(1 << _SHIFT, _SHIFT)
    return average_pool_scale(count, scale, Family.U55)
