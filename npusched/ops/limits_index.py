"""Limits of LSTM, splits, gathers, scatters, ARG_MAX and REVERSE_V2.

Facts: LOWERING §2.4; Vela 5.2.0, tflite_supported_operators.cpp, _u55.cpp and _u85.cpp.
"""

from __future__ import annotations

from npusched.ir import OpKind
from npusched.ir.options import AxisOptions
from npusched.ops.constraint import Constraint, at_most
from npusched.ops.operands import Operands
from npusched.ops.roles import Role
from npusched.ops.window import axis

_LSTM_MAIN_WEIGHTS = range(8)
_LSTM_PEEPHOLE = range(8, 11)
_LSTM_NORMALISATION = range(5, 9)


def _lstm_missing_gate(operands: Operands) -> str | None:
    missing = [s for s in _LSTM_MAIN_WEIGHTS if operands.get(Role.WEIGHTS, s) is None]
    return f"missing (input {missing[0] + 1})" if missing else None


def _lstm_peephole(operands: Operands) -> str | None:
    used = any(operands.get(Role.WEIGHTS, s) is not None for s in _LSTM_PEEPHOLE)
    return "peephole" if used else None


def _lstm_projection(operands: Operands) -> str | None:
    used = operands.get(Role.WEIGHTS, 11) is not None or operands.get(Role.BIAS, 4) is not None
    return "projection" if used else None


def _lstm_normalisation(operands: Operands) -> str | None:
    used = any(operands.get(Role.BIAS, s) is not None for s in _LSTM_NORMALISATION)
    return "layer normalisation" if used else None


_LSTM_FIX = "train with a plain LSTM cell (no peephole, projection, normalisation or CIFG)"
LSTM_LIMITS = (
    Constraint(
        limit="lstm_gates",
        what="gate weights",
        allowed="LSTMs with all eight gate weights",
        fix=_LSTM_FIX,
        find=_lstm_missing_gate,
    ),
    *(
        Constraint(limit=limit, what="variant", allowed="plain LSTMs", fix=_LSTM_FIX, find=find)
        for limit, find in (
            ("lstm_peephole", _lstm_peephole),
            ("lstm_projection", _lstm_projection),
            ("lstm_normalisation", _lstm_normalisation),
        )
    ),
)


def _split_count(operands: Operands) -> str | None:
    options = operands.op.options
    count = options.count if isinstance(options, AxisOptions) else 0
    results = len(operands.outputs)
    return None if count == results else f"{count} with {results} results"


SPLIT_COUNT = Constraint(
    limit="split_count",
    what="number of splits",
    allowed="as many results as splits",
    fix="keep every result of the split",
    find=_split_count,
)


def _gather_axis(operands: Operands) -> str | None:
    options = operands.op.options
    if not isinstance(options, AxisOptions):
        return None
    rank = len(operands.ifm_shape())
    along = options.axis + (rank if options.axis < 0 else 0)
    return None if along == options.batch_dims else f"{along} with batch_dims {options.batch_dims}"


GATHER_AXIS = Constraint(
    limit="gather_axis",
    what="axis",
    allowed="gathers along the first axis after the batch axes (axis = batch_dims)",
    fix="transpose so that the gathered axis comes first",
    find=_gather_axis,
)


def _scatter_shape(operands: Operands) -> str | None:
    shape = operands.get(Role.PARAMS)
    return None if shape is not None and shape.tensor.is_constant else "computed"


def _scatter_indices(operands: Operands) -> str | None:
    indices = operands.get(Role.IFM)
    return None if indices is not None and indices.tensor.is_constant else "computed"


def _scatter_depth(operands: Operands) -> int | None:
    return axis(operands.ifm_shape(), 0)


def _scatter_repeats(operands: Operands) -> str | None:
    indices = operands.get(Role.IFM)
    values = None if indices is None else indices.values
    if values is None or len(set(values)) == len(values):
        return None
    return f"{len(values) - len(set(values))} repeated"


_SCATTER_FIX = "scatter with constant, unique, one-dimensional indices"
SCATTER_LIMITS = (
    Constraint(
        limit="scatter_shape",
        what="result shape",
        allowed="constant result shapes",
        fix=_SCATTER_FIX,
        find=_scatter_shape,
    ),
    Constraint(
        limit="scatter_indices",
        what="indices",
        allowed="constant indices",
        fix=_SCATTER_FIX,
        find=_scatter_indices,
        gate=True,
    ),
    at_most("scatter_index_depth", "index depth", 1, _scatter_depth, fix=_SCATTER_FIX),
    Constraint(
        limit="scatter_unique",
        what="indices",
        allowed="indices that do not repeat",
        fix=_SCATTER_FIX,
        find=_scatter_repeats,
    ),
)


def _argmax_axis(operands: Operands) -> str | None:
    values = operands.params()
    if not values:
        return "computed" if operands.get(Role.PARAMS) is not None else "missing"
    rank = len(operands.ifm_shape())
    return None if values[0] in (-1, rank - 1) else f"{values[0]} of rank {rank}"


ARGMAX_LIMITS_U55 = (
    at_most(
        "argmax_depth",
        "depth",
        127,
        lambda operands: axis(operands.ifm_shape(), 0),
        fix="take the maximum of at most 127 channels, or compute it on the CPU",
    ),
    Constraint(
        limit="argmax_axis",
        what="axis",
        allowed="the last axis only",
        fix="transpose so that the axis comes last",
        find=_argmax_axis,
    ),
)


def _reversed_axes(operands: Operands) -> str | None:
    values = operands.params()
    if values is None:
        return "computed" if operands.kind is OpKind.REVERSE_V2 else None
    return ",".join(str(v) for v in values) if values else None


REVERSE_NOTHING_U55 = Constraint(
    limit="reverse_axes",
    what="axes",
    allowed="no reversal at all",
    fix="reverse the constant data (weights) at conversion time instead",
    find=_reversed_axes,
)
