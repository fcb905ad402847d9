"""A slow, plain executor of scheduled NPU kernels: it shows that they mean what the file says.

For tests only; the arithmetic is in ``kernel_arithmetic``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower.scaling import Scale, average_pool_scale, dtype_range
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import (
    Access,
    Activation,
    Kernel,
    KernelKind,
    Reverse,
    Rounding,
    ScheduledOp,
    SubOp,
    Upscale,
)
from npusched.hardware.target import Family
from npusched.ir import DataType
from tests.graph.lower.kernel_arithmetic import (
    NUMPY,
    Array,
    Stored,
    activated,
    bent,
    rescaled,
    scaled,
    wrapped,
)

K = KernelKind


# --- memory --------------------------------------------------------------------------------


class Memory:
    """Stored values of every feature map, by id; equal persistent tensors share one array."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.arrays: dict[int, Stored] = {}
        self._states: dict[object, Stored] = {}

    def array(self, tensor: int) -> Stored:
        """Return the flat storage of a tensor, allocated on first use."""
        if tensor not in self.arrays:
            fm = self.graph.feature_maps[tensor]
            dtype = NUMPY[fm.dtype]
            if fm.data is not None:
                found: Stored = np.ascontiguousarray(fm.data).astype(dtype).ravel()
            elif fm.is_persistent:
                key = fm.source or fm.name
                found = self._states.setdefault(key, np.zeros(prod(fm.shape), dtype))
            else:
                found = np.zeros(prod(fm.shape), dtype)
            self.arrays[tensor] = found
        return self.arrays[tensor]

    def region(self, access: Access) -> Stored:
        """Return a writable view of what an access touches."""
        flat = self.array(access.tensor).view(NUMPY[access.dtype])
        whole = flat.reshape(access.view) if flat.size > 1 else flat[:1].reshape(1, 1, 1, 1)
        n, h, w, c = access.offset
        sn, sh, sw, sc = access.shape
        return whole[n : n + sn, h : h + sh : access.step_h, w : w + sw : access.step_w, c : c + sc]

    def read(self, access: Access) -> Array:
        """Return the values of an access."""
        return self.region(access).astype(np.int64)


# --- kernels -------------------------------------------------------------------------------


def execute(
    graph: OpGraph, inputs: Sequence[Stored], *, single_rounding: bool = False
) -> list[Stored]:
    """Run every NPU kernel in order and return the graph's outputs, flat, as stored.

    ``single_rounding``: fully connected kernels round once, as LiteRT's reference kernels do and
    the NPU does not (SIM.md §4).
    """
    memory = Memory(graph)
    for tensor, values in zip(graph.inputs, inputs, strict=True):
        memory.array(tensor)[:] = values.ravel()
    for op in graph.ops:
        if single_rounding and op.kind is K.FULLY_CONNECTED and op.ofm_rescale is not None:
            op = replace(op, ofm_rescale=replace(op.ofm_rescale, rounding=Rounding.NATURAL))
        for piece in pieces_of(op):
            _run(memory, piece, graph.family)
    return [memory.array(tensor) for tensor in graph.outputs]


def pieces_of(op: ScheduledOp) -> list[ScheduledOp]:
    """Return the pieces that an op stands for."""
    if op.pieces is None:
        return [op]
    found = []
    for at in itertools.product(*(range(count) for count in op.pieces.grid)):
        ifms = tuple(
            _moved(link, at, step) for link, step in zip(op.ifms, op.pieces.ifm_steps, strict=False)
        )
        found.append(
            replace(
                op,
                ifms=ifms,
                ofms=(_moved(op.ofm, at, op.pieces.ofm_step),),
                sub_ops=tuple(
                    replace(sub, ofm=_moved(sub.ofm, at, op.pieces.ofm_step)) for sub in op.sub_ops
                ),
                pieces=None,
            )
        )
    return found[::-1] if op.pieces.backwards else found


def _moved(access: Access, at: Sequence[int], step: Sequence[int]) -> Access:
    n, h, w, c = (offset + i * s for offset, i, s in zip(access.offset, at, step, strict=True))
    return replace(access, offset=(n, h, w, c))


def _run(memory: Memory, op: ScheduledOp, family: Family | None) -> None:
    values = [memory.read(access) - access.zero_point for access in op.ifms]
    result = _kernel(op, values, family)
    if op.sub_ops and op.sub_ops[0].kind in (K.SIGMOID, K.TANH):
        stored = result + op.ofm.zero_point  # the unit takes more than 16 bits
    else:
        stored = _stored(op, result, op.ofm, op.activation, op.ifms)
    stored = _rearranged(stored, op.transpose, op.reverse)
    before, written = op.ofm, op.ofm
    for number, sub in enumerate(op.sub_ops):
        after = op.sub_ops[number + 1] if number + 1 < len(op.sub_ops) else None
        wide = after is not None and after.kind in (K.SIGMOID, K.TANH)
        stored = _sub(memory, sub, stored, before, family, wide=wide)
        before = written = sub.ofm
    region = memory.region(written)
    region[...] = stored.reshape(region.shape).astype(region.dtype)


def _stored(
    op: ScheduledOp | SubOp,
    value: Array,
    ofm: Access,
    activation: Activation | None,
    ifms: Sequence[Access],
) -> Array:
    """Zero point, clamp to the type, then activation: what is stored."""
    if op.kind in (K.SIGMOID, K.TANH):
        return bent(value, tanh=op.kind is K.TANH)
    if op.kind is K.LUT and ifms:
        index = value + ofm.zero_point
        low, high = dtype_range(ifms[0].dtype)
        return activated(np.clip(index, low, high), activation, ifms[0].dtype)
    if ofm.dtype.bits >= 32:
        return activated(wrapped(value + ofm.zero_point, ofm.dtype), activation, ofm.dtype)
    value = value + ofm.zero_point
    unclipped = activation is not None and activation.function == "unclipped"
    if unclipped:
        return wrapped(value, ofm.dtype)
    low, high = dtype_range(ofm.dtype)
    return np.clip(activated(np.clip(value, low, high), activation, ofm.dtype), low, high)


def _sub(
    memory: Memory, sub: SubOp, value: Array, before: Access, family: Family | None, *, wide: bool
) -> Array:
    """Run a fused or chained op on the stored value of the op before it; ``wide``: unclipped."""
    if sub.kind in (K.TRANSPOSE, K.REVERSE):
        return _rearranged(value, sub.transpose, sub.reverse)
    if sub.kind in (K.SIGMOID, K.TANH):
        return bent(value, tanh=sub.kind is K.TANH)
    if not sub.chained:
        return activated(value, sub.activation, before.dtype)
    others = [memory.read(access) - access.zero_point for access in sub.ifms]
    inner = value - sub.chain_zero_point
    values = [inner, *others] if sub.chain_input == 0 else [*others, inner]
    source = replace(before, tensor=-1)
    accesses = [source, *sub.ifms] if sub.chain_input == 0 else [*sub.ifms, source]
    op = ScheduledOp(
        id=0,
        kind=sub.kind,
        placement=memory.graph.ops[0].placement,
        source_ops=(),
        ifms=tuple(accesses),
        ofms=(sub.ofm,),
        ofm_rescale=sub.ofm_rescale,
        ifm_rescales=sub.ifm_rescales,
        activation=sub.activation,
    )
    result = _kernel(op, values, family)
    if wide:
        return result + sub.ofm.zero_point
    return _stored(op, result, sub.ofm, sub.activation, accesses)


def _rearranged(value: Array, transpose: Sequence[int] | None, reverse: Reverse) -> Array:
    if transpose is not None:
        value = value.transpose(0, *(1 + axis for axis in transpose))
    axis = {Reverse.H: 1, Reverse.W: 2, Reverse.C: 3}.get(reverse)
    return value if axis is None else np.flip(value, axis)


def _kernel(op: ScheduledOp, values: list[Array], family: Family | None) -> Array:
    """Return the rescaled result, before zero point and clamp."""
    if op.weights is not None:
        return rescaled(_convolution(op, values[0]), op.ofm_rescale)
    unary = _UNARY.get(op.kind)
    if unary is not None:
        return rescaled(unary(values[0]), op.ofm_rescale)
    if op.kind in _BINARY:
        return _binary(op, *values)
    x = values[0]
    match op.kind:
        case K.AVG_POOL:
            return _average(op, x, family or Family.U55)
        case K.MAX_POOL | K.REDUCE_MAX:
            return rescaled(_windows(op, x, -(1 << 40)).max(axis=(3, 4)), op.ofm_rescale)
        case K.REDUCE_MIN:
            return np.asarray(_windows(op, x, 1 << 40).min(axis=(3, 4)))
        case K.REDUCE_ANY:
            return np.asarray(-(_windows(op, x, 0) != 0).any(axis=(3, 4)).astype(np.int64))
        case K.REDUCE_ALL:
            return np.asarray(-(_windows(op, x, 1) != 0).all(axis=(3, 4)).astype(np.int64))
        case K.REDUCE_SUM:
            return rescaled(x.sum(axis=3, keepdims=True), op.ofm_rescale)
        case K.ARG_MAX:
            return np.asarray(x.argmax(axis=2)[:, :, None, :], np.int64)
        case K.LEAKY_RELU:
            positive, negative = (rescaled(x, side) for side in op.ifm_rescales)
            return np.where(x >= 0, positive, negative)
        case K.MATMUL:
            return rescaled(np.einsum("nhwc,nhdc->nhwd", x, values[1]), op.ofm_rescale)
        case K.RESIZE:
            return _resize(op, x)
        case K.GATHER:
            rows = np.broadcast_to(np.arange(x.shape[1])[:, None], values[1].shape[2:])
            return x[:, rows, values[1][0, 0]]
        case K.SCATTER:
            result = x.copy()
            result[0, 0, values[1][0, 0, 0]] = values[2][0, 0]
            return result
    raise AssertionError(f"no meaning for {op.kind}")


_UNARY: dict[KernelKind, Callable[[Array], Array]] = {
    **dict.fromkeys(
        (
            K.QUANTIZE,
            K.MEMORY_COPY,
            K.TRANSPOSE,
            K.REVERSE,
            K.RESCALE,
            K.RELU,
            K.RELU6,
            K.RELU0_TO_1,
            K.RELU_N1_TO_1,
            K.CLAMP,
            K.LUT,
            K.SIGMOID,
            K.TANH,
        ),
        lambda x: x,
    ),
    K.ABS: np.abs,
    K.NOT: np.invert,
    K.LOGICAL_NOT: lambda x: -(x == 0).astype(np.int64),
    K.CLZ: lambda x: np.array(
        [32 - int(v & 0xFFFFFFFF).bit_length() for v in x.ravel()], np.int64
    ).reshape(x.shape),
}

_BINARY: dict[KernelKind, Callable[[Array, Array], Array]] = {
    K.ADD: np.add,
    K.SUB: np.subtract,
    K.MUL: np.multiply,
    K.MINIMUM: np.minimum,
    K.MAXIMUM: np.maximum,
    K.SHL: lambda a, b: wrapped(a << b, DataType.INT32),
    K.ASR: lambda a, b: scaled(a, 1, np.broadcast_to(b, a.shape), Rounding.NATURAL),
    K.AND: np.bitwise_and,
    K.OR: np.bitwise_or,
    K.AND_NOT: lambda a, b: a & ~b,
    K.LOGICAL_AND: lambda a, b: -((a != 0) & (b != 0)).astype(np.int64),
    K.LOGICAL_OR: lambda a, b: -((a != 0) | (b != 0)).astype(np.int64),
    K.EQUAL: lambda a, b: -(a == b).astype(np.int64),
    K.NOT_EQUAL: lambda a, b: -(a != b).astype(np.int64),
    K.GREATER: lambda a, b: -(a > b).astype(np.int64),
    K.GREATER_EQUAL: lambda a, b: -(a >= b).astype(np.int64),
}


def _binary(op: ScheduledOp, a: Array, b: Array) -> Array:
    """Elementwise: input rescales, the operation, the output rescale (int32 MUL: shift only)."""
    bits = op.ifms[0].dtype.bits
    left = 0
    if op.kind in (K.ADD, K.SUB) and op.ifm_rescales:
        left = 20 if bits == 8 else 15
    if op.ifm_rescales:
        a, b = (
            rescaled(value, rescale, left)
            for value, rescale in zip((a, b), op.ifm_rescales, strict=True)
        )
    a, b = np.broadcast_arrays(a, b)
    result = _BINARY[op.kind](a, b)
    wide_product = op.kind is K.MUL and bits >= 32
    if op.kind is K.ASR:
        return result
    return rescaled(result, op.ofm_rescale, only_shift=wide_product)


# --- windows -------------------------------------------------------------------------------


def _enlarged(op: ScheduledOp, x: Array) -> Array:
    if op.upscale is Upscale.NONE:
        return x
    n, h, w, c = x.shape
    if op.upscale is Upscale.NEAREST:
        return x.repeat(2, axis=1).repeat(2, axis=2)
    spread = np.zeros((n, 2 * h, 2 * w, c), np.int64)
    spread[:, ::2, ::2] = x
    return spread


def _windows(op: ScheduledOp, x: Array, fill: int) -> Array:
    """Return (n, oh, ow, kh, kw, c): the taps of every output position, padding as ``fill``."""
    kernel = op.kernel
    if op.kind in (K.REDUCE_MAX, K.REDUCE_MIN, K.REDUCE_ANY, K.REDUCE_ALL):
        kernel = Kernel(h=kernel.h, w=kernel.w)
    x = _enlarged(op, x)
    _, oh, ow, _ = (
        op.ofm.shape[0],
        -(-op.ofm.shape[1] // op.ofm.step_h),
        -(-op.ofm.shape[2] // op.ofm.step_w),
        op.ofm.shape[3],
    )
    high = (oh - 1) * kernel.stride_h + kernel.dilated_h
    wide = (ow - 1) * kernel.stride_w + kernel.dilated_w
    n, h, w, c = x.shape
    padded = np.full((n, max(high, h + kernel.pad_top), max(wide, w + kernel.pad_left), c), fill)
    padded[:, kernel.pad_top : kernel.pad_top + h, kernel.pad_left : kernel.pad_left + w] = x
    rows = np.arange(oh)[:, None] * kernel.stride_h + np.arange(kernel.h) * kernel.dilation_h
    columns = np.arange(ow)[:, None] * kernel.stride_w + np.arange(kernel.w) * kernel.dilation_w
    taken = padded[:, rows[:, None, :, None], columns[None, :, None, :]]
    return np.asarray(taken, np.int64)


def _convolution(op: ScheduledOp, x: Array) -> Array:
    weights = op.weights
    assert weights is not None
    assert weights.values is not None
    zeros = np.array(weights.zero_points, np.int64)
    w = np.asarray(weights.values, np.int64) - zeros.reshape(-1, 1, 1, 1)
    taps = _windows(op, x, 0)
    if op.kind is K.DEPTHWISE:
        acc = np.einsum("nhwyxc,cyx->nhwc", taps, w[..., 0])
    else:
        acc = np.einsum("nhwyxc,oyxc->nhwo", taps, w)
    return np.asarray(acc if weights.bias is None else acc + np.array(weights.bias, np.int64))


def _average(op: ScheduledOp, x: Array, family: Family) -> Array:
    kernel = op.kernel
    total = _windows(op, x, 0).sum(axis=(3, 4))
    if kernel.pad_top or kernel.pad_left or kernel.pad_bottom or kernel.pad_right:
        live = _windows(op, np.ones_like(x), 0).sum(axis=(3, 4))
        away = (2 * np.abs(total) + live) // (2 * live)
        return np.asarray(np.sign(total) * away, np.int64)
    count = kernel.h * kernel.w
    scale = op.ofm_rescale
    own = Scale(1, 0) if scale is None else Scale(scale.multipliers[0], scale.shifts[0])
    if count == 1:
        return rescaled(total, scale)
    found = average_pool_scale(count, own, Family.U55 if family is Family.U85 else family)
    return scaled(total, found.multiplier, found.shift, Rounding.NATURAL)


def _resize(op: ScheduledOp, x: Array) -> Array:
    """The U85 resize unit: sums of four neighbours with integer weights, or the nearest one."""
    assert op.resize is not None
    nh, dh, nw, dw = op.resize
    rows = _resize_axis(op.ofm.shape[1], x.shape[1], nh, dh)
    columns = _resize_axis(op.ofm.shape[2], x.shape[2], nw, dw)
    if not op.interpolate:
        r = [low if 2 * rest < nh else high for low, high, rest in rows]
        c = [low if 2 * rest < nw else high for low, high, rest in columns]
        return x[:, r][:, :, c]
    result = np.zeros((x.shape[0], len(rows), len(columns), x.shape[3]), np.int64)
    for i, (r0, r1, fr) in enumerate(rows):
        for j, (c0, c1, fc) in enumerate(columns):
            result[:, i, j] = (
                x[:, r0, c0] * (nh - fr) * (nw - fc)
                + x[:, r0, c1] * (nh - fr) * fc
                + x[:, r1, c0] * fr * (nw - fc)
                + x[:, r1, c1] * fr * fc
            )
    return rescaled(result, op.ofm_rescale)


def _resize_axis(outputs: int, inputs: int, n: int, d: int) -> list[tuple[int, int, int]]:
    """Per output: its two inputs, clamped, and the distance from the first in 1/n."""
    half_pixel = n % 2 == 0 and d % 2 == 0
    offset = (d - n) // 2 if half_pixel else 0
    found = []
    for i in range(outputs):
        position = i * d + offset
        low = position // n
        clamped = [min(max(k, 0), inputs - 1) for k in (low, low + 1)]
        found.append((clamped[0], clamped[1], position - low * n))
    return found
