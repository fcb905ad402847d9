"""Limits of elementwise ops, softmax, pads, MEAN and STRIDED_SLICE, the same on all families.

Facts: LOWERING §2.4; Vela 5.2.0, tflite_supported_operators.cpp.
"""

from __future__ import annotations

from math import prod

from npusched.ir import DataType, Shape
from npusched.ir.options import StridedSliceOptions
from npusched.ops.constraint import Constraint, at_most, shape_text
from npusched.ops.operands import Operands
from npusched.ops.roles import Role
from npusched.ops.window import axis

MAX_MEAN_AXIS = 64 * 64
MAX_MEAN_ELEMENTS = {DataType.INT8: 1 << 24, DataType.UINT8: 1 << 23, DataType.INT16: 1 << 16}
"""2**31 divided by the largest magnitude of the type, so that a 32-bit sum cannot overflow."""
MAX_SOFTMAX_ROWS = 1 << 16
MAX_TRANSPOSE_RANK = 8

_INT8_INT16 = (DataType.INT8, DataType.INT16)


def four_dimensional(shape: Shape) -> Shape:
    """Return ``shape`` with leading 1s up to rank 4 (longer shapes unchanged)."""
    return (1,) * (4 - len(shape)) + shape


def ifm_types(types: tuple[DataType, ...], *, fix: str) -> Constraint:
    """Return the limit that the input has one of ``types``."""

    def find(operands: Operands) -> str | None:
        ifm = operands.get(Role.IFM)
        return None if ifm is None or ifm.tensor.dtype in types else ifm.tensor.dtype.label

    allowed = ", ".join(t.label for t in types)
    return Constraint(limit="input_type", what="input type", allowed=allowed, fix=fix, find=find)


def same_type_and_shape(types: tuple[DataType, ...]) -> tuple[Constraint, ...]:
    """Return the limits of a table op: input of ``types``, result of the same type and shape."""

    def other_type(operands: Operands) -> str | None:
        ifm, ofm = operands.get(Role.IFM), operands.get(Role.OFM)
        if ifm is None or ofm is None or ifm.tensor.dtype is ofm.tensor.dtype:
            return None
        return f"{ifm.tensor.dtype.label} to {ofm.tensor.dtype.label}"

    def other_shape(operands: Operands) -> str | None:
        ifm, ofm = operands.ifm_shape(), operands.ofm_shape
        return None if ifm == ofm else f"{shape_text(ifm)} to {shape_text(ofm)}"

    fix = "quantise input and result to int8"
    return (
        ifm_types(types, fix=fix),
        Constraint(
            limit="result_type",
            what="types",
            allowed="equal types of input and result",
            fix=fix,
            find=other_type,
        ),
        Constraint(
            limit="result_shape",
            what="shapes",
            allowed="equal shapes of input and result",
            fix="reshape before or after the op",
            find=other_shape,
        ),
    )


RSQRT_TYPES = ifm_types(_INT8_INT16, fix="quantise the input to int8 or int16")
GELU_LIMITS = same_type_and_shape((DataType.INT8, DataType.UINT8))
ELU_LIMITS = same_type_and_shape((DataType.INT8,))
LOG_LIMITS = same_type_and_shape(_INT8_INT16)


def _mismatching_quantisation(operands: Operands) -> str | None:
    ofm = operands.get(Role.OFM)
    for slot in (0, 1):
        ifm = operands.get(Role.IFM, slot)
        if ifm is None or ofm is None:
            return "missing input"
        if ifm.tensor.quantization != ofm.tensor.quantization:
            return f"different in input {slot} and result"
    return None


SAME_QUANTISATION = Constraint(
    limit="matching_quantisation",
    what="quantisation",
    allowed="inputs and result with identical scale and zero point",
    fix="insert QUANTIZE so that both inputs and the result share one scale and zero point",
    find=_mismatching_quantisation,
)


def _softmax_rows(operands: Operands) -> int | None:
    shape = four_dimensional(operands.ifm_shape())
    return axis(shape, 1) * axis(shape, 2)


SOFTMAX_ROWS = at_most(
    "softmax_rows",
    "rows (height x width)",
    MAX_SOFTMAX_ROWS,
    _softmax_rows,
    fix="split the tensor, or take the softmax over fewer rows",
)


def _parameter_type(operands: Operands) -> str | None:
    params = operands.get(Role.PARAMS)
    if params is None:
        return "none"
    ok = params.tensor.dtype in (DataType.INT32, DataType.INT64)
    return None if ok else params.tensor.dtype.label


PAD_TYPE = Constraint(
    limit="padding_type",
    what="padding type",
    allowed="paddings stored as int32 or int64",
    fix="store the paddings as int32",
    find=_parameter_type,
)


def _transpose_rank(operands: Operands) -> int | None:
    params = operands.get(Role.PARAMS)
    return None if params is None or not params.shape else params.shape[-1]


TRANSPOSE_RANK = at_most(
    "rank", "rank", MAX_TRANSPOSE_RANK, _transpose_rank, fix="merge axes with a RESHAPE first"
)


def reduced_axes(operands: Operands) -> tuple[bool, ...]:
    """Return for each axis of the input (padded to rank 4 in front) if the op reduces it."""
    shape = operands.ifm_shape()
    chosen = [False] * len(shape)
    for value in operands.params() or ():
        if -len(shape) <= value < len(shape):
            chosen[value] = True
    return (False,) * (4 - len(shape)) + tuple(chosen)


def _mean_batch(operands: Operands) -> int | None:
    return axis(four_dimensional(operands.ifm_shape()), 3)


def _mean_depth(operands: Operands) -> str | None:
    shape = four_dimensional(operands.ifm_shape())
    if not reduced_axes(operands)[-1] or 1 in shape[1:4]:
        return None
    return shape_text(shape)


def _mean_axis(operands: Operands) -> int | None:
    shape = four_dimensional(operands.ifm_shape())
    chosen = reduced_axes(operands)
    return max((s for s, c in zip(shape[-4:], chosen[-4:], strict=True) if c), default=0)


def _mean_elements(operands: Operands) -> str | None:
    ifm = operands.get(Role.IFM)
    limit = None if ifm is None else MAX_MEAN_ELEMENTS.get(ifm.tensor.dtype)
    if limit is None:
        return None
    shape = four_dimensional(operands.ifm_shape())
    value = prod(s for s, c in zip(shape, reduced_axes(operands), strict=True) if c)
    return str(value) if value > limit else None


_MEAN_FIX = "reduce in two steps, or pool first"

MEAN_LIMITS = (
    at_most("batch", "batch", 1, _mean_batch, fix="run the model with batch 1"),
    Constraint(
        limit="depth_reduction",
        what="reduction over channels of",
        allowed="it only where height, width or channels are 1",
        fix="reduce height and width only, or transpose first",
        find=_mean_depth,
    ),
    at_most("reduced_axis", "reduced axis", MAX_MEAN_AXIS, _mean_axis, fix=_MEAN_FIX),
    ifm_types(tuple(MAX_MEAN_ELEMENTS), fix="quantise the input to int8"),
    Constraint(
        limit="reduced_elements",
        what="reduced elements",
        allowed=", ".join(f"at most {n} ({t.label})" for t, n in MAX_MEAN_ELEMENTS.items()),
        fix=_MEAN_FIX,
        find=_mean_elements,
    ),
)


def strided_slice_region(operands: Operands) -> tuple[Shape, Shape] | None:
    """Return (sizes before striding, strides) per axis of the input, None if not constant.

    Reads begin, end and strides with their masks as Vela 5.2.0 does: begins and ends are clamped
    into the axis, a shrunk axis has size 1, an ellipsis skips to the last axes, and a new-axis
    entry consumes an input axis like any other.
    """
    begin, end, strides = (operands.params(slot) for slot in range(3))
    options = operands.op.options
    if begin is None or end is None or strides is None:
        return None
    masks = options if isinstance(options, StridedSliceOptions) else StridedSliceOptions()
    shape = operands.ifm_shape()
    sizes, steps = list(shape), [1] * len(shape)
    count = min(len(begin), len(end), len(strides))
    at = 0
    for spec in range(count):
        bit = 1 << spec
        if masks.ellipsis_mask & bit:
            at = len(shape) - (count - spec - 1)
            continue
        if not 0 <= at < len(shape):
            break
        first, shrink = 0, bool(masks.shrink_axis_mask & bit)
        if not masks.begin_mask & bit or shrink:
            first = begin[spec] + (shape[at] if begin[spec] < 0 else 0)
            first = max(0, min(first, shape[at] - 1))
            sizes[at] = 1 if shrink else shape[at] - first
        if not masks.end_mask & bit and not shrink:
            last = end[spec] + (shape[at] if end[spec] < 0 else 0)
            sizes[at] = max(1, min(last, shape[at])) - first
        steps[at] = strides[spec]
        at += 1
    return tuple(sizes), tuple(steps)


def _slice_axis(operands: Operands) -> str | None:
    region = strided_slice_region(operands)
    if region is None:
        return None
    outside = [s for i, s in enumerate(reversed(region[1])) if i not in (1, 2)]
    return None if prod(outside) == 1 else shape_text(region[1])


def _slice_negative(operands: Operands) -> str | None:
    region = strided_slice_region(operands)
    return None if region is None or min(region[1], default=1) >= 0 else shape_text(region[1])


def _slice_empty(operands: Operands) -> str | None:
    region = strided_slice_region(operands)
    return None if region is None or max(region[0], default=1) > 0 else shape_text(region[0])


STRIDED_SLICE_LIMITS = (
    Constraint(
        limit="slice_stride_axis",
        what="strides",
        allowed="strides other than 1 only along height and width",
        fix="slice the channels or the batch with stride 1, or gather them with a convolution",
        find=_slice_axis,
    ),
    Constraint(
        limit="slice_stride_sign",
        what="strides",
        allowed="strides that are not negative",
        fix="reverse with REVERSE_V2 (Ethos-U85), or fold the flip into the following weights",
        find=_slice_negative,
    ),
    Constraint(
        limit="slice_size",
        what="slice",
        allowed="slices that hold at least one element",
        fix="correct begin and end",
        find=_slice_empty,
    ),
)
