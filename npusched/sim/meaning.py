"""What a scheduled op computes: ``ScheduledOp`` -> ``Meaning`` (SIM.md §3, LOWERING §1-9).

``apply`` computes with it: the graph interpreter on whole tensors, the plan executor on the rows
of each stripe. Ops whose function is unpublished, that the host runs or that only the U85 has are
refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace as changed

from npusched.errors import SimError
from npusched.graph.kinds import CLIPPING, REARRANGING
from npusched.graph.lower.scaling import Scale, add_sub_left_shift, average_pool_scale, dtype_range
from npusched.graph.types import (
    Access,
    Activation,
    Kernel,
    KernelKind,
    Placement,
    Rescale,
    Reverse,
    Rounding,
    ScheduledOp,
    SubOp,
)
from npusched.hardware.target import Family
from npusched.ir import DataType
from npusched.sim.kernels import (
    Arithmetic,
    Binary,
    Clamp,
    Operands,
    PreparedConv,
    PreparedDepthwise,
    Scaling,
    Table,
    Unary,
    Window,
)

_K = KernelKind

_BINARY = {
    _K.ADD: Binary.ADD,
    _K.SUB: Binary.SUB,
    _K.MUL: Binary.MUL,
    _K.MINIMUM: Binary.MIN,
    _K.MAXIMUM: Binary.MAX,
    _K.SHL: Binary.SHL,
    _K.ASR: Binary.SHR,
}

_UNARY = {_K.ABS: Unary.ABS, _K.LEAKY_RELU: Unary.LEAKY_RELU, _K.CLZ: Unary.CLZ}

_WINDOWS = {
    _K.CONV2D: Window.CONV,
    _K.FULLY_CONNECTED: Window.CONV,
    _K.DEPTHWISE: Window.DEPTHWISE,
    _K.MAX_POOL: Window.MAX_POOL,
    _K.REDUCE_MAX: Window.MAX_POOL,
    _K.REDUCE_SUM: Window.REDUCE_SUM,
}

WINDOWED = frozenset({*_WINDOWS, _K.AVG_POOL})
"""Kernels whose results depend on windows of rows of the first input."""

_COPIES = CLIPPING | REARRANGING | {_K.QUANTIZE, _K.MEMORY_COPY, _K.RESCALE, _K.LUT}
"""Kernels that pass every element on: to scaling, zero point, clamp or table."""

_UNPUBLISHED = frozenset({_K.SIGMOID, _K.TANH})

_ROUNDINGS = frozenset({Rounding.DOUBLE, Rounding.NATURAL, Rounding.TRUNCATE})


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of axes: ``transpose`` of (h, w, c), then one axis backwards."""

    transpose: tuple[int, int, int] | None
    reverse: Reverse


@dataclass(frozen=True, slots=True)
class Meaning:
    """An op's kernel, and what is fused behind it, in order; ``dtype`` is what is stored."""

    op: ScheduledOp
    arithmetic: Arithmetic
    after: tuple[Clamp | Table | Turn, ...]
    dtype: np.dtype[np.generic]


def meaning_of(op: ScheduledOp, family: Family | None, *, single_rounding: bool = True) -> Meaning:
    """Return the meaning of an NPU op (of one of its pieces).

    ``single_rounding``: fully connected ops round once, as LiteRT's reference kernels do (proof
    mode); else twice as the NPU does (SIM.md §4). Raises SimError for what is not modelled.
    """
    _refuse_unknown(op)
    after = _first_turn(op)
    before = op.ofm
    for sub in op.sub_ops:
        after += _sub_op(op, sub, before)
        before = sub.ofm
    stored = numpy_type(before.dtype)
    arithmetic = Arithmetic(
        operation=_operation(op),
        dtype=np.dtype(np.int64) if after else stored,
        window=_kernel(op),
        mode=op.upscale,
        ifm_zero_point=op.ifms[0].zero_point,
        ifm2_zero_point=op.ifms[1].zero_point if len(op.ifms) > 1 else 0,
        weights=_weights(op),
        operands=_operands(op),
        shift_rounding=Scaling.one(1, 0, Rounding.NATURAL) if op.kind is _K.ASR else None,
        scaling=_scaling_of(op, family, single_rounding=single_rounding),
        limits=_limits(op),
        table=_own_table(op),
    )
    return Meaning(op, arithmetic, after, stored)


def numpy_type(dtype: DataType) -> np.dtype[np.generic]:
    """Return how elements are stored. Raises SimError for types that memories do not hold.

    Floats are those of CPU ops.
    """
    if dtype is DataType.BOOL:
        return np.dtype(np.int8)
    if dtype.label in ("float16", "float32", "float64"):
        return np.dtype(dtype.label)
    if not dtype.is_integer or dtype.bits < 8:
        raise SimError(
            f"cannot store {dtype.label} values",
            "neither NPU nor simulator has them",
            "a model with such a tensor can be planned, but its plan cannot be proved",
        )
    return np.dtype(dtype.label)


# --- from op to arithmetic -----------------------------------------------------------------


def _refuse(op: ScheduledOp, why: str) -> SimError:
    return SimError(
        f"cannot execute op {op.id}, {op.kind.value} {op.name!r}",
        why,
        "a model with such an op can be planned, but its plan cannot be proved on this target",
    )


def _refuse_unknown(op: ScheduledOp) -> None:
    if op.placement is Placement.CPU:
        raise _refuse(op, "it runs on the CPU")
    kinds = [op.kind, *(sub.kind for sub in op.sub_ops)]
    if any(kind in _UNPUBLISHED for kind in kinds):
        raise _refuse(op, "the NPU's own sigmoid and tanh are not published")
    if any(sub.chained for sub in op.sub_ops):
        raise _refuse(op, "ops chained into a kernel (U85) are not modelled")
    if op.keep_accumulators or not op.write_ofm:
        raise _refuse(op, "accumulators kept between kernels (U85) are not modelled")
    known = {*_BINARY, *_UNARY, *WINDOWED, *_COPIES, _K.MATMUL}
    if op.kind not in known:
        raise _refuse(op, "this kernel is not modelled")
    if op.kind in (_K.CONV2D, _K.FULLY_CONNECTED, _K.DEPTHWISE) and op.weights is None:
        raise _refuse(op, "it has no constant weights")


def _operation(op: ScheduledOp) -> Window | Binary | Unary:
    if op.kind in _BINARY:
        return _BINARY[op.kind]
    if op.kind in _UNARY:
        return _UNARY[op.kind]
    if op.kind is _K.AVG_POOL:
        return Window.AVERAGE_POOL if _is_padded(op.kernel) else Window.SUM_POOL
    return _WINDOWS.get(op.kind, Window.SUM_POOL)


def _is_padded(kernel: Kernel) -> bool:
    return bool(kernel.pad_top or kernel.pad_left or kernel.pad_bottom or kernel.pad_right)


def _kernel(op: ScheduledOp) -> Kernel:
    if op.kind is _K.REDUCE_MAX:
        return Kernel(h=op.kernel.h, w=op.kernel.w)
    return op.kernel if op.kind in WINDOWED else Kernel()


def _weights(op: ScheduledOp) -> PreparedConv | PreparedDepthwise | None:
    weights = op.weights
    if weights is None:
        return None
    if weights.values is None:
        raise _refuse(op, "its weights have no values")
    zeros = np.array(weights.zero_points, np.int64).reshape(-1, 1, 1, 1)
    values = np.asarray(weights.values, np.int64) - zeros
    bias = np.array(weights.bias or [0] * len(values), np.int64)
    low, high = (limit - op.ifms[0].zero_point for limit in dtype_range(op.ifms[0].dtype))
    bound = max(abs(low), abs(high))
    kind = PreparedDepthwise if op.kind is _K.DEPTHWISE else PreparedConv
    return kind.of(values, bias, ifm_bound=bound)


def _scaling(op: ScheduledOp, rescale: Rescale | None, headroom_bits: int = 0) -> Scaling | None:
    """Return the scaling, None for a factor of 1."""
    if rescale is None or (set(rescale.multipliers), set(rescale.shifts)) == ({1}, {0}):
        return None
    if rescale.rounding not in _ROUNDINGS:
        raise _refuse(op, f"rounding {rescale.rounding.value} (U85) is not modelled")
    multipliers = np.array(rescale.multipliers, np.int64)
    shifts = np.array(rescale.shifts, np.int64)
    return Scaling(multipliers, shifts, rescale.rounding, headroom_bits)


def _scaling_of(op: ScheduledOp, family: Family | None, *, single_rounding: bool) -> Scaling | None:
    """Scaling of the result (SIM.md §3, §4; the divisor of average pools: LOWERING §8)."""
    rescale = op.ofm_rescale
    if op.kind is _K.FULLY_CONNECTED and rescale is not None and single_rounding:
        rescale = changed(rescale, rounding=Rounding.NATURAL)
    if op.kind is _K.ASR:
        return None
    if op.kind is _K.LEAKY_RELU:
        positive, negative = op.ifm_rescales
        if _scaling(op, positive) is not None:
            raise _refuse(op, "scaled positive values are not modelled")
        return _scaling(op, negative)
    if op.kind is _K.MUL and op.ifms[0].dtype.bits >= 32 and rescale is not None:
        rescale = changed(rescale, multipliers=(1,) * len(rescale.shifts))
    if op.kind is _K.AVG_POOL:
        count = op.kernel.h * op.kernel.w
        if _is_padded(op.kernel):
            return None
        if count > 1:
            own = Scale(1, 0)
            if rescale is not None:
                own = Scale(rescale.multipliers[0], rescale.shifts[0])
            if family is Family.U85:
                raise _refuse(op, "average pools of the U85 are not modelled")
            found = average_pool_scale(count, own, family or Family.U55)
            return Scaling.one(found.multiplier, found.shift, Rounding.NATURAL)
    return _scaling(op, rescale)


def _operands(op: ScheduledOp) -> Operands | None:
    """How the operands of a binary op are scaled, None if not at all."""
    if op.kind not in _BINARY or not op.ifm_rescales:
        return None
    headroom = add_sub_left_shift(op.ifms[0].dtype.bits) if op.kind in (_K.ADD, _K.SUB) else 0
    a, b = (_scaling(op, rescale, headroom) for rescale in op.ifm_rescales)
    return Operands(1 if a is None else a, 1 if b is None else b)


# --- what follows --------------------------------------------------------------------------


def _limits(op: ScheduledOp) -> Clamp | None:
    """Zero point and limits of the op's own result; an unlimited one has neither."""
    ofm, activation = op.ofm, op.activation
    if op.kind is _K.LUT:
        return Clamp(ofm.zero_point, *dtype_range(op.ifms[0].dtype))
    is_unclipped = activation is not None and activation.function == "unclipped"
    if ofm.dtype.bits >= 32 or is_unclipped:
        wide = Clamp(ofm.zero_point, *dtype_range(DataType.INT32))
        limited = _activation_limits(activation, wide)
        return limited if ofm.zero_point or limited != wide else None
    return _activation_limits(activation, Clamp(ofm.zero_point, *dtype_range(ofm.dtype)))


def _activation_limits(activation: Activation | None, outer: Clamp) -> Clamp:
    """``outer``, narrowed by an activation that clamps."""
    if activation is None or activation.lut is not None:
        return outer
    low, high = activation.minimum, activation.maximum
    return Clamp(
        outer.zero_point,
        outer.minimum if low is None else max(low, outer.minimum),
        outer.maximum if high is None else min(high, outer.maximum),
    )


def _own_table(op: ScheduledOp) -> Table | None:
    source = op.ifms[0].dtype if op.kind is _K.LUT else op.ofm.dtype
    return _table(op.activation, source)


def _table(activation: Activation | None, source: DataType) -> Table | None:
    if activation is None or activation.lut is None:
        return None
    entries = np.array(activation.lut, np.int64)
    if len(entries) == 256:
        return Table(entries=entries, is_signed=dtype_range(source)[0] < 0)
    return Table(entries=(entries & 0xFFFFFFFF).astype(np.uint32), interpolates=True)


def _first_turn(op: ScheduledOp) -> tuple[Clamp | Table | Turn, ...]:
    if op.transpose is None and op.reverse is Reverse.NONE:
        return ()
    return (Turn(op.transpose, op.reverse),)


def _sub_op(op: ScheduledOp, sub: SubOp, before: Access) -> tuple[Clamp | Table | Turn, ...]:
    """What a fused op does to the stored value before it."""
    if sub.kind in REARRANGING:
        return (Turn(sub.transpose, sub.reverse),)
    if sub.activation is None:
        return ()
    table = _table(sub.activation, before.dtype)
    if table is not None:
        return (table,)
    if sub.activation.function == "unclipped":
        raise _refuse(op, "an unclipped op fused behind it is not modelled")
    return (_activation_limits(sub.activation, Clamp(0, *dtype_range(before.dtype))),)
