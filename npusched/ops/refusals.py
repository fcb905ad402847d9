"""What makes Vela 5.2.0 refuse a whole file, although TFLite runs it.

Vela checks some rules on every op before it looks at any placement, and stops at the first op that
breaks one. We still plan such a file: the op goes to the CPU with the rule as its reason. Facts:
LOWERING §2.1; Vela 5.2.0, tflite_model_semantics.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from math import isfinite, prod

import msgspec
import numpy as np

from npusched.ir import DataType, Op, OpKind, Shape, Subgraph, Tensor
from npusched.ir.options import (
    AxisOptions,
    ConcatOptions,
    ConvOptions,
    FullyConnectedOptions,
    SoftmaxOptions,
)
from npusched.ops.constraint import RULES_VERSION, Reason, shape_text
from npusched.ops.operands import Operands
from npusched.ops.roles import INPUT_ROLES, Role

Check = Callable[[Operands], str | None]
"""Returns what is wrong with an op, as text, or None."""


class Rule(msgspec.Struct, frozen=True):
    """One rule: its id, what it demands, what to do, and the check."""

    limit: str
    demand: str
    fix: str
    check: Check

    def reason(self, operands: Operands) -> Reason | None:
        """Return the reason if the op breaks the rule."""
        value = self.check(operands)
        if value is None:
            return None
        text = (
            f"Vela {RULES_VERSION} refuses the whole file: {operands.kind} {value}; "
            f"it demands {self.demand}"
        )
        return Reason(limit=self.limit, value=value, text=text, fix=self.fix)


def _stored(shape: Shape) -> Shape:
    """Return the shape as the checks see it: a scalar counts as a vector of one element."""
    return shape or (1,)


def _ifm(operands: Operands, slot: int = 0) -> Tensor | None:
    operand = operands.get(Role.IFM, slot)
    return operand.tensor if operand is not None else None


def _ofm(operands: Operands) -> Tensor | None:
    return operands.outputs[0].tensor if operands.outputs else None


def _types(operands: Operands) -> tuple[DataType, DataType] | None:
    ifm, ofm = _ifm(operands), _ofm(operands)
    return None if ifm is None or ofm is None else (ifm.dtype, ofm.dtype)


def _shapes(operands: Operands) -> tuple[Shape, Shape] | None:
    ifm, ofm = _ifm(operands), _ofm(operands)
    return None if ifm is None or ofm is None else (_stored(ifm.shape), _stored(ofm.shape))


def _arrow(pair: tuple[DataType, DataType]) -> str:
    return f"from {pair[0].label} to {pair[1].label}"


def _infinite_scale(operands: Operands) -> str | None:
    for operand in operands.all:
        quantization = operand.tensor.quantization
        for scale in quantization.scales if quantization is not None else ():
            if not isfinite(scale):
                return f"has the quantisation scale {scale}"
    ifm, ofm = _ifm(operands), _ofm(operands)
    if ifm is None or ofm is None or ifm.quantization is None or ofm.quantization is None:
        return None
    if not ifm.quantization.scales or not ofm.quantization.scales:
        return None
    with np.errstate(all="ignore"):
        ratio = np.float32(ifm.quantization.scales[0]) / np.float32(ofm.quantization.scales[0])
    return None if np.isfinite(ratio) else f"has the scale ratio {ratio}"


def _first_input_missing(operands: Operands) -> str | None:
    op = operands.op
    roles = INPUT_ROLES.get(op.kind, (Role.IFM,))
    if not op.inputs or not op.outputs or Role.IFM not in roles:
        return None
    return "lacks its first input" if operands.get(Role.IFM) is None else None


def _conv_depth(operands: Operands) -> str | None:
    ifm, weights = _ifm(operands), operands.weights
    if ifm is None or weights is None:
        return None
    depth, kernel = _stored(ifm.shape)[-1], _stored(weights.tensor.shape)
    if kernel[-1] <= 0 or depth % kernel[-1] != 0 or depth < kernel[-1]:
        return f"has input depth {depth} and filter depth {kernel[-1]}"
    groups = depth // kernel[-1]
    return None if kernel[0] % groups == 0 else f"has {kernel[0]} filters in {groups} groups"


def _depthwise_depth(operands: Operands) -> str | None:
    shapes, options = _shapes(operands), operands.op.options
    if not isinstance(options, ConvOptions):
        return "has no options"
    if shapes is None or shapes[0][-1] * options.depth_multiplier == shapes[1][-1]:
        return None
    return (
        f"has input depth {shapes[0][-1]}, multiplier {options.depth_multiplier}, "
        f"result depth {shapes[1][-1]}"
    )


def _other_type(operands: Operands) -> str | None:
    types = _types(operands)
    return None if types is None or types[0] is types[1] else f"goes {_arrow(types)}"


def _other_shape(operands: Operands) -> str | None:
    shapes = _shapes(operands)
    if shapes is None or shapes[0] == shapes[1]:
        return None
    return f"goes from {shape_text(shapes[0])} to {shape_text(shapes[1])}"


def _softmax_types(operands: Operands) -> str | None:
    types = _types(operands)
    if types is None or types[0] is types[1] or types == (DataType.INT8, DataType.INT16):
        return None
    return f"goes {_arrow(types)}"


def _softmax_beta(operands: Operands) -> str | None:
    options = operands.op.options
    if not isinstance(options, SoftmaxOptions):
        return "has no options"
    return None if options.beta >= 0 else f"has beta {options.beta:g}"


def _split_axis(operands: Operands) -> str | None:
    ifm, values, options = _ifm(operands), operands.params(), operands.op.options
    if ifm is None:
        return None
    if not values:
        return "has an axis that is not constant"
    rank, axis = len(ifm.shape), values[0]
    if not -rank < axis <= rank or not -rank <= axis < rank:
        return f"splits axis {axis} of rank {rank}"
    size = ifm.shape[axis]
    count = options.count if isinstance(options, AxisOptions) else 0
    if size <= 0 or count < 0 or (count and size % count):
        return f"splits size {size} into {count}"
    return None


def _inferred_splits(operands: Operands) -> str | None:
    values = operands.params()
    if values is None:
        return "has sizes that are not constant"
    count = values.count(-1)
    return None if count <= 1 else f"leaves {count} sizes open"


def _concat_shapes(operands: Operands) -> str | None:
    options, ofm = operands.op.options, _ofm(operands)
    if not isinstance(options, ConcatOptions):
        return "has no options"
    if ofm is None:
        return None
    result = _stored(ofm.shape)
    rank = len(ofm.shape)
    axis = options.axis + (rank if options.axis < 0 else 0)
    if not 0 <= axis < rank:
        return f"joins axis {options.axis} of rank {rank}"
    total = 0
    for operand in operands.inputs:
        shape = operand.tensor.shape
        rest = [i for i in range(min(len(shape), rank)) if i != axis]
        if len(shape) != rank or any(shape[i] != result[i] for i in rest):
            return f"joins {shape_text(shape)} into {shape_text(result)}"
        total += shape[axis]
    open_axis = axis in ofm.dynamic_axes
    return None if total == result[axis] or open_axis else f"joins {total} into {result[axis]}"


def _broadcast(operands: Operands) -> str | None:
    shapes, second = _shapes(operands), _ifm(operands, 1)
    if shapes is None:
        return None
    first, result = (_rank4(s) for s in shapes)
    if first == result:
        return None
    text = f"makes {shape_text(shapes[1])} of {shape_text(shapes[0])}"
    if second is None:
        return text
    other = _rank4(_stored(second.shape))
    aligned = zip(first, other, strict=False)
    fits = all(a == b or 1 in (a, b) for a, b in aligned)
    union = tuple(max(p) for p in zip_longest(first[::-1], other[::-1], fillvalue=1))[::-1]
    if other == result or (fits and union == result):
        return None
    return f"{text} and {shape_text(second.shape)}"


def _rank4(shape: Shape) -> Shape:
    return (1,) * (4 - len(shape)) + shape


def _arithmetic_types(operands: Operands) -> str | None:
    first, second, ofm = _ifm(operands), _ifm(operands, 1), _ofm(operands)
    if first is None or second is None or ofm is None:
        return None
    if first.dtype is not second.dtype:
        return f"mixes {first.dtype.label} and {second.dtype.label}"
    signed = first.dtype.is_signed and not ofm.dtype.is_signed
    unsigned = first.dtype.is_integer and not first.dtype.is_signed
    wrong = unsigned and ofm.dtype not in (first.dtype, DataType.INT32)
    return f"goes {_arrow((first.dtype, ofm.dtype))}" if signed or wrong else None


def _reshape_scale(operands: Operands) -> str | None:
    ifm, ofm = _ifm(operands), _ofm(operands)
    if ifm is None or ofm is None or ifm.quantization is None or ofm.quantization is None:
        return None
    before, after = ifm.quantization.scales, ofm.quantization.scales
    if not before or not after or np.float32(before[0]) == np.float32(after[0]):
        return None
    return f"changes the scale from {before[0]:g} to {after[0]:g}"


def _reshape_elements(operands: Operands) -> str | None:
    shapes, ifm, ofm = _shapes(operands), _ifm(operands), _ofm(operands)
    if shapes is None or ifm is None or ofm is None:
        return None
    if ifm.dynamic_axes or ofm.dynamic_axes or prod(shapes[0]) == prod(shapes[1]):
        return None
    return f"goes from {shape_text(shapes[0])} to {shape_text(shapes[1])}"


def _input_count(count: int) -> Check:
    def check(operands: Operands) -> str | None:
        have = len(operands.op.inputs)
        return None if have == count else f"has {have} inputs"

    return check


def _pad_shape(operands: Operands) -> str | None:
    shapes, ofm, values = _shapes(operands), _ofm(operands), operands.params()
    if shapes is None or ofm is None or any(axis < len(ofm.shape) - 1 for axis in ofm.dynamic_axes):
        return None
    if values is None:
        return "has paddings that are not constant"
    sizes, result = shapes
    if len(values) < 2 * len(sizes) or len(result) < len(sizes):
        return f"has {len(values)} paddings for rank {len(sizes)}"
    want = tuple(s + values[2 * i] + values[2 * i + 1] for i, s in enumerate(sizes))
    if want == result[: len(want)]:
        return None
    return f"gives {shape_text(result)} instead of {shape_text(want)}"


def _not_in(types: tuple[DataType, ...], role: Role = Role.IFM, slot: int = 0) -> Check:
    def check(operands: Operands) -> str | None:
        operand = operands.get(role, slot)
        if operand is None or operand.tensor.dtype in types:
            return None
        what = {Role.OFM: "result", Role.PARAMS: "parameter"}.get(role, "input")
        return f"has the {what} type {operand.tensor.dtype.label}"

    return check


def _keep_rank(operands: Operands) -> str | None:
    options, shapes = operands.op.options, _shapes(operands)
    if not isinstance(options, FullyConnectedOptions):
        return "has no options"
    if not options.keep_num_dims or shapes is None or len(shapes[0]) == len(shapes[1]):
        return None
    return f"keeps its axes but goes from rank {len(shapes[0])} to {len(shapes[1])}"


def _lstm_form(operands: Operands) -> str | None:
    shapes, op = _shapes(operands), operands.op
    if shapes is not None and (len(shapes[0]), len(shapes[1])) != (3, 3):
        return f"has rank {len(shapes[0])} to {len(shapes[1])}"
    if len(op.inputs) != 24:
        return f"has {len(op.inputs)} inputs"
    return None if len(op.intermediates) == 5 else f"has {len(op.intermediates)} intermediates"


def _permutation_size(operands: Operands) -> str | None:
    ifm, order = _ifm(operands), operands.get(Role.PARAMS)
    if ifm is None or order is None:
        return None
    size = _stored(order.tensor.shape)[-1]
    rank = len(_stored(ifm.shape))
    return None if size == rank else f"permutes rank {rank} with {size} axes"


def _matrix_ranks(operands: Operands) -> str | None:
    first, second, ofm = _ifm(operands), _ifm(operands, 1), _ofm(operands)
    if first is None or second is None or ofm is None:
        return None
    a, b, result = (_stored(t.shape) for t in (first, second, ofm))
    text = f"makes {shape_text(result)} of {shape_text(a)} and {shape_text(b)}"
    rank = max(len(a), len(b))
    if min(len(a), len(b), len(result)) < 2 or len(result) != rank:
        return text
    lead_a = ((1,) * (rank - len(a)) + a)[:-2]
    lead_b = ((1,) * (rank - len(b)) + b)[:-2]
    for x, y, z in zip(lead_a, lead_b, result[:-2], strict=True):
        if (x != y and 1 not in (x, y)) or max(x, y) != z:
            return text
    return None


_BYTES = (DataType.INT8, DataType.UINT8)
_WORDS = (DataType.INT8, DataType.INT16)
_INDICES = (DataType.INT16, DataType.INT32, DataType.INT64)
_AXES = (DataType.INT32, DataType.UINT32)
_ANY = (
    Rule("scale_ratio", "finite quantisation scales", "calibrate again", _infinite_scale),
    Rule("first_input", "every op's first input", "export the model again", _first_input_missing),
)
_QUANTISE_FIX = "quantise input and result alike, to int8"
_SHAPE_FIX = "export the model again with consistent shapes"
_SAME_TYPE = Rule("same_type", "equal types of input and result", _QUANTISE_FIX, _other_type)
_BROADCAST = Rule("broadcast", "inputs that broadcast to the result", _SHAPE_FIX, _broadcast)
_ARITHMETIC = Rule(
    "arithmetic_types",
    "inputs of one type and a result of that sign",
    _QUANTISE_FIX,
    _arithmetic_types,
)
_EIGHT_BIT = Rule(
    "input_8bit", "an int8 or uint8 input", "quantise this op's input to int8", _not_in(_BYTES)
)
_UNARY = (_BROADCAST, _SAME_TYPE)
_SUMS = (_BROADCAST, _ARITHMETIC)
_RESHAPES = (
    Rule("reshape_scale", "one scale on both sides", "keep the scale of the input", _reshape_scale),
    Rule("reshape_elements", "as many elements on both sides", _SHAPE_FIX, _reshape_elements),
)

RULES: dict[OpKind, tuple[Rule, ...]] = {
    OpKind.CONV_2D: (
        Rule("conv_groups", "whole groups of channels and filters", _SHAPE_FIX, _conv_depth),
    ),
    OpKind.DEPTHWISE_CONV_2D: (
        Rule("depth_multiplier", "input depth x multiplier = result depth", _SHAPE_FIX,
             _depthwise_depth),
    ),
    OpKind.AVERAGE_POOL_2D: (_SAME_TYPE,),
    OpKind.MAX_POOL_2D: (_SAME_TYPE,),
    OpKind.CONCATENATION: (
        Rule("concat_shapes", "inputs that add up along the axis", _SHAPE_FIX, _concat_shapes),
    ),
    OpKind.MINIMUM: _UNARY,
    OpKind.MAXIMUM: _UNARY,
    OpKind.ABS: _UNARY,
    OpKind.EXP: _UNARY,
    OpKind.GELU: _UNARY,
    OpKind.ELU: _UNARY,
    OpKind.LEAKY_RELU: _UNARY,
    OpKind.RSQRT: _UNARY,
    OpKind.SQUARED_DIFFERENCE: (_BROADCAST,),
    OpKind.ADD: _SUMS,
    OpKind.SUB: _SUMS,
    OpKind.MUL: _SUMS,
    OpKind.RESHAPE: _RESHAPES,
    OpKind.SQUEEZE: _RESHAPES,
    OpKind.EXPAND_DIMS: _RESHAPES,
    OpKind.SOFTMAX: (
        Rule("softmax_shape", "equal shapes of input and result", _SHAPE_FIX, _other_shape),
        Rule("softmax_types", "equal types, or int8 to int16", _QUANTISE_FIX, _softmax_types),
        Rule("softmax_beta", "a beta of at least 0", "use a positive beta", _softmax_beta),
    ),
    OpKind.SPLIT: (Rule("split", "an axis that splits evenly", _SHAPE_FIX, _split_axis),),
    OpKind.SPLIT_V: (Rule("split_sizes", "at most one open size", _SHAPE_FIX, _inferred_splits),),
    OpKind.STRIDED_SLICE: (
        Rule("slice_inputs", "4 inputs", "export the model again", _input_count(4)),
    ),
    OpKind.FULLY_CONNECTED: (
        Rule("keep_num_dims", "equal ranks where axes are kept", _SHAPE_FIX, _keep_rank),
    ),
    OpKind.PAD: (
        Rule("pad_inputs", "2 inputs", "export the model again", _input_count(2)),
        Rule("pad_shape", "a result of input plus padding", _SHAPE_FIX, _pad_shape),
    ),
    OpKind.HARD_SWISH: (_EIGHT_BIT, _SAME_TYPE),
    OpKind.ARG_MAX: (
        _EIGHT_BIT,
        Rule("argmax_result", "an int32 or int64 result", "export the model again",
             _not_in((DataType.INT32, DataType.INT64), Role.OFM)),
    ),
    OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM: (
        Rule("lstm_input", "an int8 or int16 input", _QUANTISE_FIX, _not_in(_WORDS)),
        _SAME_TYPE,
        Rule("lstm_form", "rank 3, 24 inputs and 5 intermediates",
             "export the LSTM with full-integer quantisation", _lstm_form),
    ),
    OpKind.GATHER: (
        Rule("gather_indices", "int16, int32 or int64 indices", "store the indices as int32",
             _not_in(_INDICES, Role.IFM, 1)),
        _SAME_TYPE,
    ),
    OpKind.TRANSPOSE: (
        Rule("permutation_type", "an int32 permutation", "store the permutation as int32",
             _not_in(_AXES, Role.PARAMS)),
        Rule("permutation_size", "one entry per axis", _SHAPE_FIX, _permutation_size),
    ),
    OpKind.BATCH_MATMUL: (
        Rule("matrix_shapes", "matrices whose leading axes broadcast", _SHAPE_FIX, _matrix_ranks),
    ),
}  # fmt: skip
"""Rules per kind, in the order in which they are checked."""


def refused(operands: Operands) -> Reason | None:
    """Return why the op makes Vela 5.2.0 refuse the file, None if it does not."""
    for rule in (*_ANY, *RULES.get(operands.kind, ())):
        reason = rule.reason(operands)
        if reason is not None:
            return reason
    return None


def refused_ops(
    subgraph: Subgraph, operands: Callable[[Op], Operands]
) -> Iterator[tuple[int, Reason]]:
    """Yield (op index, reason) for every op of ``subgraph`` that makes Vela refuse the file."""
    for op in subgraph.ops:
        reason = refused(operands(op))
        if reason is not None:
            yield op.index, reason
