"""SOFTMAX as its passes (Vela 5.2.0, ``compiler/softmax.cpp``; LOWERING.md §5).

Over the last axis, the others folded to (1, h, w, c). Everything after the exponential runs on
(1, h, w, 1) sums except the last two products. Fixed-point formats: exponentials Q0.31 (8-bit) or
Q0.15 (16-bit), sums Q12.19, the reciprocal by three Newton steps in Q2.29 (8-bit) or by table.
"""

from __future__ import annotations

from math import prod

from npusched.graph.lower import lut, scaling
from npusched.graph.lower.common import (
    NO_SCALE,
    ONE,
    Quant,
    add_kernel,
    is_u85,
    quant,
    scalar,
    temporary,
    use,
)
from npusched.graph.lower.transpose import add_transpose
from npusched.graph.types import Activation, Kernel, KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, Shape
from npusched.ir.options import SoftmaxOptions

TWO = Quant(2.0)
MIN_TRANSPOSED_DEPTH = 16
ACCUMULATION_BITS = 12
"""Integer bits of the sum of exponentials."""


def lower_softmax(graph: WorkGraph, op: WorkOp) -> None:
    """Replace a SOFTMAX by its passes: 28 or 29 kernels for 8 bit, 15 for 16 bit."""
    shape = _hwc(op.ifm.shape)
    passes = _Passes(graph, op, shape)
    if op.ifm.tensor.dtype is DataType.INT16:
        _lower16(passes)
    else:
        _lower8(passes)
    graph.remove(op)


def _hwc(shape: Shape) -> Shape:
    """Fold to (1, h, w, c): missing axes in front are 1, surplus ones go into h."""
    padded = (1,) * (3 - len(shape)) + shape
    return (1, prod(padded[:-2]), padded[-2], padded[-1])


class _Passes:
    """Names and adds the kernels of one softmax."""

    def __init__(self, graph: WorkGraph, op: WorkOp, shape: Shape) -> None:
        options = op.options
        self.graph, self.op, self.shape = graph, op, shape
        self.reduced = (*shape[:3], 1)
        self.beta = options.beta if isinstance(options, SoftmaxOptions) else 1.0
        self._count = 0

    def tensor(self, dtype: DataType, shape: Shape) -> WorkTensor:
        """Add the result of a pass."""
        self._count += 1
        return temporary(self.graph, self.op, f"softmax_{self._count}", shape, dtype)

    def constant(self, name: str, value: int) -> Link:
        """Add an int32 constant."""
        return use(scalar(self.graph, name, value))

    def run(
        self,
        kind: KernelKind,
        ifms: list[Link],
        *,
        how: Quant = NO_SCALE,
        dtype: DataType = DataType.INT32,
        shape: Shape | None = None,
        rounding: Rounding = Rounding.DOUBLE,
        activation: Activation | None = None,
    ) -> WorkTensor:
        """Add a pass with a new result (by default int32 sums) and return that tensor."""
        result = self.tensor(dtype, self.reduced if shape is None else shape)
        ofm = use(result, how)
        add_kernel(self.graph, self.op, kind, ifms, ofm, rounding=rounding, activation=activation)
        return result

    def maximum(self, rounding: Rounding) -> WorkTensor:
        """Pass 0: the maximum over the channels, by a pool over rows of h*w by c."""
        _, h, w, c = self.shape
        ifm, dtype = self.op.ifm, self.op.ifm.tensor.dtype
        result = self.tensor(dtype, self.reduced)
        if self._transposes():
            rows = self._channels_first()
            moved = rows.shape
            source = use(rows, quant(ifm))
            kernel = Kernel(h=moved[1])
            ofm = use(result, _no_scale(ifm), (1, 1, moved[2], moved[3]))
        else:
            source = use(ifm.tensor, quant(ifm), (1, h * w, c, 1))
            kernel = Kernel(w=c)
            ofm = use(result, _no_scale(ifm), (1, h * w, 1, 1))
        add_kernel(
            self.graph,
            self.op,
            KernelKind.MAX_POOL,
            [source],
            ofm,
            rounding=rounding,
            kernel=kernel,
        )
        return result

    def _transposes(self) -> bool:
        """True where a transpose first makes the pool faster (8-bit U85)."""
        _, h, w, _ = self.shape
        moved_depth = w if w > 1 else h
        return (
            is_u85(self.graph)
            and self.op.ifm.tensor.dtype is not DataType.INT16
            and h * w > 1
            and moved_depth >= MIN_TRANSPOSED_DEPTH
        )

    def _channels_first(self) -> WorkTensor:
        """Transpose to (c, h, w), or to (c, w, h) if w is 1."""
        perm = (0, 3, 1, 2) if self.shape[2] > 1 else (0, 3, 2, 1)
        moved = tuple(self.shape[axis] for axis in perm)
        ifm = self.op.ifm
        result = self.tensor(ifm.tensor.dtype, moved)
        source = use(ifm.tensor, NO_SCALE, self.shape)
        add_transpose(self.graph, self.op, source, use(result), perm)
        return result


def _no_scale(link: Link) -> Quant:
    return Quant(None, link.zero_point)


def _lower8(passes: _Passes) -> None:
    """8-bit softmax: exponentials by table, the reciprocal of the sum by Newton's method."""
    op, run, constant = passes.op, passes.run, passes.constant
    ifm, ofm = op.ifm, op.ofm
    highest = passes.maximum(Rounding.DOUBLE)

    # Differences are written as int8 with zero point 127; the table turns them into Q0.31.
    source = use(ifm.tensor, quant(ifm), passes.shape)
    difference = run(
        KernelKind.SUB,
        [source, use(highest, _no_scale(ifm))],
        how=Quant(1.0, 127),
        dtype=DataType.INT8,
        shape=passes.shape,
    )
    table = Activation(
        lut=lut.softmax_exp8(passes.beta, ifm.scale or 1.0),
        lut_dtype=DataType.INT32,
        function="exp",
    )
    exponential = run(
        KernelKind.LUT,
        [use(difference, Quant(1.0, 127))],
        how=Quant(1.0, 127),
        shape=passes.shape,
        activation=table,
    )

    # The sum in Q12.19, normalised by its leading zeros to half the denominator in Q0.31.
    scaled = run(
        KernelKind.ASR,
        [use(exponential), constant("right_shift12", ACCUMULATION_BITS)],
        shape=passes.shape,
        rounding=Rounding.NATURAL,
    )
    total = run(KernelKind.REDUCE_SUM, [use(scaled)], rounding=Rounding.NATURAL)
    headroom_plus_one = run(KernelKind.CLZ, [use(total)])
    offset = ACCUMULATION_BITS + 31 - ofm.tensor.dtype.bits
    right_shift = run(KernelKind.SUB, [constant("headroom_offset", offset), use(headroom_plus_one)])
    headroom = run(KernelKind.SUB, [use(headroom_plus_one), constant("one", 1)])
    half = run(KernelKind.SHL, [use(total), use(headroom)], how=ONE)
    reciprocal = _reciprocal(passes, half)

    product = run(
        KernelKind.MUL,
        [use(exponential, ONE), use(reciprocal, ONE)],
        how=ONE,
        shape=passes.shape,
    )
    shift = [use(product, ONE), use(right_shift)]
    if ifm.tensor.dtype is DataType.INT8 and ofm.tensor.dtype is DataType.INT16:
        unsigned = run(KernelKind.ASR, shift, how=ONE, shape=passes.shape, rounding=Rounding.DOUBLE)
        zero_point = constant("zero_point", ofm.zero_point)
        add_kernel(
            passes.graph,
            op,
            KernelKind.ADD,
            [use(unsigned, ONE), zero_point],
            use(ofm.tensor, ONE, passes.shape[1:]),
            rounding=Rounding.NATURAL,
        )
        return
    result = use(ofm.tensor, quant(ofm), passes.shape[1:])
    add_kernel(passes.graph, op, KernelKind.ASR, shift, result, rounding=Rounding.NATURAL)


def _reciprocal(passes: _Passes, half: WorkTensor) -> WorkTensor:
    """Return 1 / (2 * half) in Q2.29: 48/17 - 32/17 * half, then three Newton steps."""
    run, constant = passes.run, passes.constant
    slope = constant("neg_32_over_17", -((32 << 29) // 17))
    slope.scale = 1.0
    first = run(KernelKind.MUL, [use(half, ONE), slope], how=TWO)
    estimate = run(
        KernelKind.ADD,
        [use(first, TWO), constant("48_over_17", (48 << 29) // 17)],
        how=ONE,
    )
    one = scalar(passes.graph, "one_q29", 1 << 29)
    four = scalar(passes.graph, "four", 4)
    for _ in range(3):
        error = run(KernelKind.MUL, [use(estimate, ONE), use(half, ONE)], how=TWO)
        rest = run(KernelKind.SUB, [use(one), use(error, TWO)], how=ONE)
        step = run(KernelKind.MUL, [use(estimate, ONE), use(rest, ONE)], how=TWO)
        raised = run(KernelKind.MUL, [use(step, TWO), use(four)])
        estimate = run(KernelKind.ADD, [use(estimate, ONE), use(raised)], how=ONE)
    return estimate


def _lower16(passes: _Passes) -> None:
    """16-bit softmax: exponentials and the reciprocal by interpolating tables."""
    op, run, constant = passes.op, passes.run, passes.constant
    ifm, ofm = op.ifm, op.ofm
    highest = passes.maximum(Rounding.NATURAL)
    source = use(ifm.tensor, quant(ifm), passes.shape)
    difference = run(
        KernelKind.SUB, [source, use(highest, _no_scale(ifm))], how=quant(ifm), shape=passes.shape
    )

    # Rescaled so that int16 spans exp's argument range; the table gives Q0.15.
    unit = lut.SOFTMAX_EXP_RANGE / lut.INT16_SPAN
    factor = scaling.mul_scale_double(ifm.scale or 1.0, passes.beta, unit)
    multiplier = constant("exp_multiplier", factor.multiplier)
    multiplier.scale = passes.beta
    rescaled = run(
        KernelKind.MUL,
        [use(difference, quant(ifm)), multiplier],
        how=Quant(unit),
        shape=passes.shape,
    )
    argument = run(
        KernelKind.ADD,
        [use(rescaled), constant("int16_max", 32767)],
        dtype=DataType.INT16,
        shape=passes.shape,
    )
    exponential = run(
        KernelKind.LUT,
        [use(argument)],
        dtype=DataType.INT16,
        shape=passes.shape,
        activation=Activation(lut=lut.softmax_exp16(), lut_dtype=DataType.INT32, function="exp16"),
    )

    # The sum, less its leading one, as a fraction in Q0.15; 1 / (1 + x) by table.
    total = run(KernelKind.REDUCE_SUM, [use(exponential)], rounding=Rounding.NATURAL)
    headroom_plus_one = run(KernelKind.CLZ, [use(total)])
    shift_right = run(KernelKind.SUB, [constant("const_31", 31), use(headroom_plus_one)])
    leading = run(KernelKind.SHL, [constant("one", 1), use(shift_right)])
    rest = run(KernelKind.SUB, [use(total), use(leading)])
    normalised = run(KernelKind.SHL, [use(rest), use(headroom_plus_one)])
    fraction = run(
        KernelKind.ASR,
        [use(normalised), constant("shift15", 15)],
        rounding=Rounding.NATURAL,
    )
    centred = run(
        KernelKind.SUB, [use(fraction), constant("half_range", 32768)], dtype=DataType.INT16
    )
    reciprocal = run(
        KernelKind.LUT,
        [use(centred)],
        dtype=DataType.INT16,
        activation=Activation(
            lut=lut.softmax_reciprocal16(), lut_dtype=DataType.INT32, function="reciprocal16"
        ),
    )

    product = run(KernelKind.MUL, [use(exponential), use(reciprocal)], shape=passes.shape)
    add_kernel(
        passes.graph,
        op,
        KernelKind.ASR,
        [use(product), use(shift_right)],
        use(ofm.tensor, quant(ofm), passes.shape[1:]),
        rounding=Rounding.NATURAL,
    )
