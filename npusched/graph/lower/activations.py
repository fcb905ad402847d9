"""Activation functions of their own: tables, native units, or a few elementwise kernels.

Source: LOWERING.md §5, §9; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp``.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from npusched.graph.lower import lut, scaling
from npusched.graph.lower.common import (
    NO_SCALE,
    ONE,
    Quant,
    add_kernel,
    constant,
    is_u85,
    like,
    quant,
    scalar,
    scale_of,
    use,
)
from npusched.graph.lower.lut import Table
from npusched.graph.lower.scaling import UNIT
from npusched.graph.types import Activation, KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType
from npusched.ir.options import GeluOptions, LeakyReluOptions

EIGHT_BIT = (DataType.INT8, DataType.UINT8)


def add_table(graph: WorkGraph, op: WorkOp, table: Table, function: str) -> None:
    """Replace ``op`` by a table lookup: the table holds the whole requantisation.

    The kernel itself scales nothing and applies the input's zero point on both sides, so that
    the index is the stored input value.
    """
    ifm, ofm = op.ifm, op.ofm
    dtype = DataType.INT32 if len(table) == lut.STEPS16 else ofm.tensor.dtype
    add_kernel(
        graph,
        op,
        KernelKind.LUT,
        [ifm],
        replace(ofm, scale=ifm.scale, zero_point=ifm.zero_point),
        rounding=Rounding.NATURAL,
        activation=Activation(lut=table, lut_dtype=dtype, function=function),
    )
    graph.remove(op)


def _real_table8(op: WorkOp, function: lut.RealFunction) -> Table:
    return lut.table8(
        function,
        dtype=op.ifm.tensor.dtype,
        ifm_scale=scale_of(op.ifm),
        ifm_zero_point=op.ifm.zero_point,
        ofm_scale=scale_of(op.ofm),
        ofm_zero_point=op.ofm.zero_point,
    )


def _real_table16(op: WorkOp, function: lut.RealFunction) -> Table:
    return lut.table16(
        function,
        ifm_scale=scale_of(op.ifm),
        ifm_zero_point=op.ifm.zero_point,
        ofm_scale=scale_of(op.ofm),
        ofm_zero_point=op.ofm.zero_point,
    )


def _real_table(op: WorkOp, function: lut.RealFunction) -> Table:
    eight = op.ifm.tensor.dtype in EIGHT_BIT
    return _real_table8(op, function) if eight else _real_table16(op, function)


# --- tables of real functions --------------------------------------------------------------


def lower_exp(graph: WorkGraph, op: WorkOp) -> None:
    """EXP: a table."""
    add_table(graph, op, _real_table(op, lut.exp32), "exp")


def lower_log(graph: WorkGraph, op: WorkOp) -> None:
    """LOG: a table; the smallest output where the logarithm is undefined."""
    minimum = lut.log_minimum(op.ifm.tensor.dtype, scale_of(op.ofm), op.ofm.zero_point)
    add_table(graph, op, _real_table(op, lut.log32(minimum)), "log")


def lower_gelu(graph: WorkGraph, op: WorkOp) -> None:
    """GELU: an 8-bit table."""
    options = op.options
    approximate = isinstance(options, GeluOptions) and options.approximate
    function = lut.gelu_approximate if approximate else lut.gelu
    add_table(graph, op, _real_table8(op, function), "gelu")


def lower_elu(graph: WorkGraph, op: WorkOp) -> None:
    """ELU: an 8-bit table."""
    add_table(graph, op, _real_table8(op, lut.elu), "elu")


def lower_rsqrt(graph: WorkGraph, op: WorkOp) -> None:
    """RSQRT: a table."""
    if op.ifm.tensor.dtype is DataType.INT8:
        table = lut.rsqrt8(
            ifm_scale=scale_of(op.ifm),
            ifm_zero_point=op.ifm.zero_point,
            ofm_scale=scale_of(op.ofm),
            ofm_zero_point=op.ofm.zero_point,
        )
    else:
        table = _real_table16(op, lut.rsqrt32(scale_of(op.ofm)))
    add_table(graph, op, table, "rsqrt")


def lower_hard_swish(graph: WorkGraph, op: WorkOp) -> None:
    """HARD_SWISH: an 8-bit table."""
    table = lut.hard_swish8(
        dtype=op.ifm.tensor.dtype,
        ifm_scale=scale_of(op.ifm),
        ifm_zero_point=op.ifm.zero_point,
        ofm_scale=scale_of(op.ofm),
        ofm_zero_point=op.ofm.zero_point,
    )
    add_table(graph, op, table, "hard_swish")


def lower_logistic(graph: WorkGraph, op: WorkOp) -> None:
    """LOGISTIC: an 8-bit table, or the 16-bit unit (U55/U65) or table (U85)."""
    _sigmoid_or_tanh(graph, op, KernelKind.SIGMOID, lut.sigmoid)


def lower_tanh(graph: WorkGraph, op: WorkOp) -> None:
    """TANH: as LOGISTIC."""
    _sigmoid_or_tanh(graph, op, KernelKind.TANH, math.tanh)


def _sigmoid_or_tanh(
    graph: WorkGraph, op: WorkOp, kind: KernelKind, function: lut.RealFunction
) -> None:
    ifm, ofm = op.ifm, op.ofm
    fused = any(writer.source_ops == op.source_ops for writer in ifm.tensor.writers)
    if fused:  # Vela gives the TANH of another op's activation field unit scales
        ifm.scale = ofm.scale = 1.0
    if ifm.tensor.dtype in EIGHT_BIT and ifm.tensor.dtype is ofm.tensor.dtype:
        add_table(graph, op, _real_table8(op, function), kind.value.lower())
        return
    unscaled = ifm.scale is None or fused
    add_kernel(
        graph,
        op,
        kind,
        [ifm],
        ofm,
        ofm_scale=UNIT if unscaled else None,
        activation=native_activation(graph, kind),
    )
    graph.remove(op)


def native_activation(graph: WorkGraph, kind: KernelKind) -> Activation:
    """Describe an int16 SIGMOID or TANH kernel: the unit on U55/U65, a table on U85."""
    name = kind.value.lower()
    if not is_u85(graph):
        return Activation(function=name)
    table = lut.sigmoid_tanh16(tanh=kind is KernelKind.TANH)
    return Activation(lut=table, lut_dtype=DataType.INT16, function=name)


# --- LEAKY_RELU and PRELU ------------------------------------------------------------------


def lower_leaky_relu(graph: WorkGraph, op: WorkOp) -> None:
    """LEAKY_RELU: Relu, Abs, an 8-bit table, the native 16-bit kernel, or elementwise kernels."""
    options = op.options
    alpha = scaling.float32(options.alpha if isinstance(options, LeakyReluOptions) else 0.0)
    leaky_relu(graph, op, alpha=alpha, factor=1, alpha_quant=None)
    graph.remove(op)


def leaky_relu(
    graph: WorkGraph, op: WorkOp, *, alpha: float, factor: int, alpha_quant: Quant | None
) -> None:
    """Add the kernels of a leaky relu of slope ``alpha``.

    A PRELU with equal slopes passes ``alpha_quant`` (the alpha tensor's) and ``factor``, the
    stored alpha less its zero point; a LEAKY_RELU passes None and 1.
    """
    ifm, ofm = op.ifm, op.ofm
    dtype = ifm.tensor.dtype
    equal = ifm.scale is not None and quant(ifm) == quant(ofm)
    if alpha == 0:
        _relu(graph, op, ofm)
    elif alpha == -1:
        add_kernel(graph, op, KernelKind.ABS, [ifm], ofm)
    elif dtype in EIGHT_BIT:
        table = lut.leaky_relu8(
            dtype=dtype,
            ifm_scale=scale_of(ifm),
            ifm_zero_point=ifm.zero_point,
            ofm_scale=scale_of(ofm),
            ofm_zero_point=ofm.zero_point,
            alpha_scale=alpha if alpha_quant is None else (alpha_quant.scale or 1.0),
            alpha_factor=factor,
        )
        add_kernel(
            graph,
            op,
            KernelKind.LUT,
            [ifm],
            replace(ofm, scale=ifm.scale, zero_point=ifm.zero_point),
            rounding=Rounding.NATURAL,
            activation=Activation(lut=table, lut_dtype=dtype, function="leaky_relu"),
        )
    elif alpha < 0 or alpha_quant is not None or not (is_u85(graph) or equal):
        _leaky_relu16(graph, op, alpha, factor, alpha_quant)
    else:
        _native_leaky_relu(graph, op, alpha)


def _native_leaky_relu(graph: WorkGraph, op: WorkOp, alpha: float) -> None:
    """The hardware's own kernel: (positive side, negative side) scales are its input rescales."""
    ifm, ofm = op.ifm, op.ofm
    if is_u85(graph):
        sides = scaling.leaky_relu_scales(scale_of(ifm), scale_of(ofm), alpha)
    else:
        sides = (UNIT, scaling.quantize_scale(alpha))
    added = add_kernel(graph, op, KernelKind.LEAKY_RELU, [ifm], ofm, ofm_scale=UNIT)
    added.ifm_rescales = tuple(side.rescale() for side in sides)


def _leaky_relu16(
    graph: WorkGraph, op: WorkOp, alpha: float, factor: int, alpha_quant: Quant | None
) -> None:
    """16-bit: max(alpha * x, x) for alpha in [0, 1], else relu(x) + alpha * min(x, 0)."""
    ifm, ofm = op.ifm, op.ofm
    if alpha_quant is None:
        alpha_quant = Quant(abs(alpha))
        factor = -1 if alpha < 0 else 1
    slope = use(scalar(graph, "alpha", factor, DataType.INT16), Quant(alpha_quant.scale))
    if 0 <= alpha <= 1:
        scaled = _product(graph, op, ifm, slope, "alpha")
        identity = ifm
        if quant(ifm) != quant(ofm):
            one = use(scalar(graph, "one", 1, DataType.INT16), ONE)
            identity = use(_product(graph, op, ifm, one, "identity"), quant(ofm))
        add_kernel(graph, op, KernelKind.MAXIMUM, [use(scaled, quant(ofm)), identity], ofm)
        return
    negative = _minimum_with_zero(graph, op, quant(ifm))
    scaled = _product(graph, op, use(negative, quant(ifm)), slope, "alpha")
    positive = like(graph, ofm, "relu")
    _relu(graph, op, use(positive, quant(ofm)))
    add_kernel(graph, op, KernelKind.ADD, [use(positive, quant(ofm)), use(scaled, quant(ofm))], ofm)


def _product(graph: WorkGraph, op: WorkOp, ifm: Link, factor: Link, name: str) -> WorkTensor:
    """Add ``ifm * factor`` in the quantisation of the op's result."""
    result = like(graph, op.ofm, name)
    add_kernel(graph, op, KernelKind.MUL, [ifm, factor], use(result, quant(op.ofm)))
    return result


def _minimum_with_zero(graph: WorkGraph, op: WorkOp, zero_quant: Quant) -> WorkTensor:
    """Add ``min(x, 0)``, quantised as the input; ``zero_quant`` is that of the constant."""
    ifm = op.ifm
    result = like(graph, ifm, "negative")
    zero = use(scalar(graph, "zero", 0, ifm.tensor.dtype), zero_quant)
    add_kernel(graph, op, KernelKind.MINIMUM, [ifm, zero], use(result, quant(ifm)))
    return result


def _relu(graph: WorkGraph, op: WorkOp, ofm: Link) -> None:
    """Add a RELU of the op's input, bounded below by the zero point of ``ofm``."""
    add_kernel(
        graph,
        op,
        KernelKind.RELU,
        [op.ifm],
        ofm,
        activation=Activation(minimum=ofm.zero_point, function="relu"),
    )


def lower_prelu(graph: WorkGraph, op: WorkOp) -> None:
    """PRELU: leaky relu if all slopes are equal, max(alpha * x, x) if none exceeds 1, else sums."""
    ifm, alpha, ofm = op.ifms[0], graph.link(op.params[1]), op.ofm
    values = alpha.tensor.data
    if values is not None and values.size:
        offset = alpha.zero_point
        low, high = int(values.min()) - offset, int(values.max()) - offset
        unit = scaling.float32(scale_of(alpha))
        if low == high:
            slope = scaling.float32(low * unit)
            leaky_relu(graph, op, alpha=slope, factor=low, alpha_quant=quant(alpha))
            graph.remove(op)
            return
        if scaling.float32(high * unit) <= 1:
            _prelu_maximum(graph, op, alpha)
            graph.remove(op)
            return
    negative = _minimum_with_zero(graph, op, NO_SCALE)
    scaled = _product(graph, op, use(negative, quant(ifm)), alpha, "alpha")
    positive = like(graph, ofm, "relu")
    _relu(graph, op, use(positive, quant(ofm)))
    same = Quant(1.0, ofm.zero_point)
    add_kernel(
        graph,
        op,
        KernelKind.ADD,
        [use(scaled, same), use(positive, same)],
        ofm,
        ofm_scale=UNIT,
    )
    graph.remove(op)


def _prelu_maximum(graph: WorkGraph, op: WorkOp, alpha: Link) -> None:
    ifm, ofm = op.ifms[0], op.ofm
    scaled = _product(graph, op, ifm, alpha, "alpha")
    identity = ifm
    if quant(ifm) != quant(ofm):
        dtype = DataType.INT16 if ifm.tensor.dtype is DataType.INT16 else DataType.INT8
        one = use(constant(graph, "one", np.array([1]), dtype), ONE)
        identity = use(_product(graph, op, ifm, one, "identity"), quant(ofm))
    add_kernel(graph, op, KernelKind.MAXIMUM, [use(scaled, quant(ofm)), identity], ofm)
