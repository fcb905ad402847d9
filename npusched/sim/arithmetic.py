"""What a kernel's registers mean numerically: ``KernelState`` -> ``Arithmetic`` (SIM.md §3)."""

from __future__ import annotations

import numpy as np

from npusched.errors import SimError
from npusched.graph.types import Rounding
from npusched.sim.decode import Prepared
from npusched.sim.kernels import (
    Arithmetic,
    Binary,
    Clamp,
    Operands,
    Scaling,
    Table,
    Unary,
    Window,
)
from npusched.sim.reader import MODELLED_HINT
from npusched.sim.state import KernelState, ScaleMode
from npusched.sim.views import Pool
from npusched.vela.stream import StreamOpKind

_SHIFTS = {1: 19, 2: 14}
"""Left shift of the operand that is not scaled, by bytes per element (SIM.md §3)."""

_HEADROOM = {1: 20, 2: 15}


def make_arithmetic(state: KernelState, prepared: Prepared | None, table: bytes) -> Arithmetic:
    """Return the arithmetic of a kernel; ``table`` are the bytes of its table, if any.

    Raises SimError for combinations that are not modelled.
    """
    rounding = state.rounding
    operation = _operation(state)
    adds = operation in (Binary.ADD, Binary.SUB)
    return Arithmetic(
        operation=operation,
        dtype=state.ofm.dtype,
        window=state.window,
        mode=state.upscale,
        ifm_zero_point=state.ifm.zero_point,
        ifm2_zero_point=state.ifm2.zero_point if state.ifm2 else 0,
        scalar=state.scalar,
        ifm2_is_first=state.broadcast.is_first if state.broadcast else False,
        weights=prepared.weights if prepared else None,
        operands=_operands(state) if adds and state.has_global_scale else None,
        shift_rounding=Scaling.one(1, 0, rounding) if operation is Binary.SHR else None,
        scaling=_scaling(state, operation, prepared, rounding),
        limits=_limits(state),
        table=_table(state, table),
    )


def _operation(state: KernelState) -> Window | Binary | Unary:
    function = state.function
    if isinstance(function, Binary | Unary):
        return function
    if state.kind is StreamOpKind.CONV:
        return Window.CONV
    if state.kind is StreamOpKind.DEPTHWISE:
        return Window.DEPTHWISE
    if function is Pool.MAX:
        return Window.MAX_POOL
    if function is Pool.REDUCE_SUM:
        return Window.REDUCE_SUM
    window = state.window
    padded = window.pad_top or window.pad_left or window.pad_bottom or window.pad_right
    return Window.AVERAGE_POOL if padded else Window.SUM_POOL


def _refuse(state: KernelState, why: str) -> SimError:
    return SimError(
        f"cannot execute {state.label} at byte {state.offset_bytes}", why, MODELLED_HINT
    )


def _operands(state: KernelState) -> Operands:
    """Return how the operands of an addition are scaled (SIM.md §3 "ADD/SUB")."""
    multiplier, shift = state.opa_scale
    if state.scale_mode is ScaleMode.BOTH_16:
        return Operands(multiplier, state.opb_scale & 0xFFFF)
    size = state.ifm.dtype.itemsize
    if size not in _SHIFTS:
        raise _refuse(state, f"32-bit scaling of operands of {8 * size} bits is not modelled")
    scaling = Scaling.one(multiplier, shift, state.operand_rounding, headroom_bits=_HEADROOM[size])
    if state.scale_mode is ScaleMode.A_32:
        return Operands(a=scaling, shift=_SHIFTS[size])
    return Operands(b=scaling, shift=_SHIFTS[size])


def _scaling(
    state: KernelState,
    operation: Window | Binary | Unary,
    prepared: Prepared | None,
    rounding: Rounding,
) -> Scaling | None:
    """Return the scaling of results, None where there is none."""
    if operation is Window.AVERAGE_POOL:
        return None
    if prepared is not None and not state.has_global_scale:
        return Scaling(prepared.scales.multiplier, prepared.scales.shift, rounding)
    if not state.has_global_scale:
        if isinstance(operation, Window) and operation is not Window.MAX_POOL:
            raise _refuse(state, "a pool without a global scale is not modelled")
        return None
    multiplier, shift = state.ofm_scale
    if operation is Binary.MUL and state.ifm.dtype.itemsize == 4:
        multiplier = 1
    if multiplier == 1 and shift == 0:
        return None
    return Scaling.one(multiplier, shift, rounding)


def _limits(state: KernelState) -> Clamp | None:
    """Return zero point and clamp; an unclipped 32-bit OFM has neither (SIM.md §3 "Epilogue")."""
    size = state.ofm.dtype.itemsize
    if state.clip is None and size == 4:
        return None
    is_signed = (state.clip or state.ofm.dtype.str[1:])[0] == "i"
    low, high = state.minimum, state.maximum
    if is_signed:
        low, high = (value - (value >> 15 << 16) for value in (low, high))
    if size < 4:
        kind = np.iinfo(state.ofm.dtype.str)
        low, high = max(low, int(kind.min)), min(high, int(kind.max))
    if low > high:
        raise _refuse(state, f"its clamp is empty: {low} to {high}")
    return Clamp(state.ofm.zero_point, low, high)


def _table(state: KernelState, raw: bytes) -> Table | None:
    """Return the table of a kernel (SIM.md §3 "Epilogue")."""
    if state.table is None:
        return None
    size = state.ofm.dtype.itemsize
    is_signed = (state.clip or state.ofm.dtype.str[1:])[0] == "i"
    if size == 2:
        if state.clip not in (None, "i2"):
            raise _refuse(state, "a table of 16-bit entries with an 8-bit index is not modelled")
        return Table(entries=np.frombuffer(raw, np.uint32), interpolates=True)
    if size == 4 and state.clip not in ("i1", "u1"):
        raise _refuse(state, "a table of 32-bit entries needs an 8-bit clip range")
    return Table(entries=np.frombuffer(raw, state.ofm.dtype), is_signed=is_signed)
