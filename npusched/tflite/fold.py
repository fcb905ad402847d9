"""Evaluation of the few integer ops that converters use to compute shapes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from npusched.ir import OpKind, Options
from npusched.ir.options import AxisOptions, ConcatOptions, ReduceOptions, StridedSliceOptions
from npusched.tflite.rules import Operands

MAX_ELEMENTS: Final = 64
"""Larger tensors are data, not shapes."""


def fold(kind: OpKind, options: Options, operands: Operands) -> npt.NDArray[np.generic] | None:
    """Return the value of an op's (only) output if it follows from shapes and known integers.

    None wherever it does not, whatever the reason: the caller then treats it as unknown.
    """
    if kind is OpKind.SHAPE and operands and operands[0] is not None:
        return np.array(operands[0].shape, np.int64)
    values = [o.values for o in operands if o is not None and o.values is not None]
    if len(values) != len(operands) or not values:
        return None
    if any(v.size > MAX_ELEMENTS or v.dtype.kind not in "iub" for v in values):
        return None
    args = [v.astype(np.int64) for v in values]
    try:
        return _evaluate(kind, options, args)
    except (ValueError, IndexError, ArithmeticError):
        return None


def _evaluate(
    kind: OpKind, options: Options, args: list[npt.NDArray[np.int64]]
) -> npt.NDArray[np.generic] | None:
    match kind:
        case OpKind.STRIDED_SLICE if isinstance(options, StridedSliceOptions) and args[0].ndim == 1:
            (start,), (stop,), (step,) = (a.reshape(-1).tolist() for a in args[1:4])
            if options.shrink_axis_mask:
                return np.asarray(args[0][start])
            first = None if options.begin_mask else start
            return args[0][first : None if options.end_mask else stop : step]
        case OpKind.PACK if isinstance(options, AxisOptions):
            return np.stack(args, axis=options.axis)
        case OpKind.CONCATENATION if isinstance(options, ConcatOptions):
            return np.concatenate(args, axis=options.axis)
        case OpKind.GATHER:
            return np.take(args[0], args[1])
        case OpKind.REDUCE_PROD if isinstance(options, ReduceOptions):
            return np.asarray(args[0].prod(keepdims=options.keep_dims))
        case OpKind.CAST | OpKind.SQUEEZE:
            return args[0]
        case OpKind.RESHAPE:
            return args[0].reshape(args[1].tolist()) if len(args) > 1 else None
        case OpKind.ADD:
            return args[0] + args[1]
        case OpKind.SUB:
            return args[0] - args[1]
        case OpKind.MUL:
            return args[0] * args[1]
        case OpKind.FLOOR_DIV:
            return args[0] // args[1]
        case _:
            return None
