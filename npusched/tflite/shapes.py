"""Shape inference over the ops of a graph: to check what a file states, and to reshape it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from npusched.errors import ModelError
from npusched.ir import Op, OpKind, Options, Shape, Subgraph, Tensor
from npusched.tflite import move_rules as move
from npusched.tflite import rules
from npusched.tflite.fold import fold
from npusched.tflite.rules import NeedsValues, Operand, Operands, Rule, ShapeError


class _Entry(msgspec.Struct, frozen=True):
    """What an op takes: inputs that must be there, outputs (None: as the rule says), its rule."""

    required: int
    outputs: int | None
    rule: Rule


def _many(names: str, required: int, rule: Rule) -> dict[OpKind, _Entry]:
    return {OpKind(name): _Entry(required, 1, rule) for name in names.split()}


_ENTRIES: Final[dict[OpKind, _Entry]] = {
    **_many(
        """ABS NEG EXP LOG SQRT RSQRT SIN COS SQUARE FLOOR CEIL ROUND SIGN ELU GELU RELU RELU6
        RELU_N1_TO_1 RELU_0_TO_1 LOGISTIC TANH HARD_SWISH LEAKY_RELU LOGICAL_NOT SOFTMAX
        LOG_SOFTMAX L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION QUANTIZE DEQUANTIZE CAST
        ZEROS_LIKE CUMSUM REVERSE_V2 FAKE_QUANT""",
        1,
        rules.unary,
    ),
    **_many(
        """ADD SUB MUL DIV MINIMUM MAXIMUM SQUARED_DIFFERENCE POW FLOOR_DIV FLOOR_MOD LESS GREATER
        LESS_EQUAL GREATER_EQUAL EQUAL NOT_EQUAL LOGICAL_AND LOGICAL_OR ATAN2 BITWISE_XOR
        RIGHT_SHIFT""",
        2,
        rules.elementwise,
    ),
    **_many("ADD_N", 1, rules.elementwise),
    **_many("SELECT", 3, rules.select),
    **_many("SELECT_V2", 3, rules.elementwise),
    **_many("PRELU", 2, rules.prelu),
    **_many("CONV_2D", 2, rules.conv),
    **_many("DEPTHWISE_CONV_2D", 2, rules.depthwise),
    **_many("TRANSPOSE_CONV", 3, rules.transpose_conv),
    **_many("AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D", 1, rules.pool),
    **_many("FULLY_CONNECTED", 2, rules.fully_connected),
    **_many("BATCH_MATMUL", 2, rules.batch_matmul),
    **_many("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ANY REDUCE_ALL", 2, rules.reduction),
    **_many("ARG_MAX ARG_MIN", 2, rules.arg_extreme),
    **_many("UNIDIRECTIONAL_SEQUENCE_LSTM", 1, rules.sequence_lstm),
    **_many("SVDF", 3, rules.svdf),
    **_many("RESHAPE", 1, move.reshape),
    **_many("SQUEEZE", 1, move.squeeze),
    **_many("EXPAND_DIMS", 2, move.expand_dims),
    **_many("TRANSPOSE", 2, move.transpose),
    **_many("CONCATENATION", 1, move.concat),
    **_many("PACK", 1, move.pack),
    OpKind.UNPACK: _Entry(1, None, move.unpack),
    OpKind.SPLIT: _Entry(2, None, move.split),
    OpKind.SPLIT_V: _Entry(3, None, move.split_v),
    **_many("SLICE", 3, move.cut),
    **_many("STRIDED_SLICE", 4, move.strided_slice),
    **_many("PAD PADV2 MIRROR_PAD", 2, move.pad),
    **_many("TILE", 2, move.tile),
    **_many("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", 2, move.resize),
    **_many("GATHER", 2, move.gather),
    **_many("SPACE_TO_BATCH_ND", 3, move.space_to_batch),
    **_many("BATCH_TO_SPACE_ND", 3, move.batch_to_space),
    **_many("SHAPE", 1, move.shape_of),
    **_many("RANK", 1, move.rank_of),
    **_many("FILL", 2, move.fill),
    **_many("BROADCAST_TO", 2, move.broadcast_to),
}


def infer(kind: OpKind, options: Options, operands: Operands) -> tuple[Shape, ...] | None:
    """Return the output shapes of an op; None if there is no rule or its values are not known.

    Raises ShapeError if the operands contradict each other.
    """
    entry = _ENTRIES.get(kind)
    if entry is None:
        return None
    for index in range(entry.required):
        rules.need(operands, index)
    try:
        return entry.rule(options, operands)
    except NeedsValues:
        return None


def check_shapes(graph: Subgraph, label: str) -> None:
    """Raise ModelError where the file's shapes are not what the ops make of their inputs.

    ``label`` names the subgraph in messages. Unit axes may differ where an op drops or adds them.
    """
    for op in graph.ops:
        entry = _ENTRIES.get(op.kind)
        if entry is None:
            continue
        where = f"op {op.index} {op.kind}{label}"
        try:
            found = infer(op.kind, op.options, _operands(op, graph.tensors))
            if entry.outputs is not None and len(op.outputs) != entry.outputs:
                raise ShapeError(f"{len(op.outputs)} outputs, expected {entry.outputs}")
            if found is not None and len(found) != len(op.outputs):
                raise ShapeError(f"{len(op.outputs)} outputs, expected {len(found)}")
            for index, shape in zip(op.outputs, found or (), strict=False):
                if index >= 0 and not _agree(graph.tensors[index], shape):
                    stated = list(graph.tensors[index].shape)
                    raise ShapeError(f"output {index} is {stated}, its inputs make {list(shape)}")
        except ShapeError as error:
            raise ModelError(
                f"cannot use the model: the shapes of {where} contradict each other",
                str(error),
                "the file is damaged or its converter is faulty: convert the model again",
            ) from None


def _operands(op: Op, tensors: tuple[Tensor, ...]) -> list[Operand | None]:
    return [
        None if index < 0 else Operand(tensors[index].shape, tensors[index].data)
        for index in op.inputs
    ]


def _agree(tensor: Tensor, shape: Shape) -> bool:
    if tensor.shape == shape:
        return True
    if len(tensor.shape) == len(shape):
        return all(
            stated == size or axis in tensor.dynamic_axes
            for axis, (stated, size) in enumerate(zip(tensor.shape, shape, strict=True))
        )
    return [s for s in tensor.shape if s != 1] == [s for s in shape if s != 1]


def propagate(graph: Subgraph, inputs: Mapping[int, Shape]) -> Subgraph:
    """Return the graph with its inputs reshaped and every shape that follows from them.

    Small integer tensors that depend on shapes only (SHAPE, PACK, ...) are evaluated on the way.
    Raises ModelError, naming the op, where a changed shape meets an op that it does not suit or
    that has no shape rule.
    """
    tensors = list(graph.tensors)
    for index, shape in inputs.items():
        tensors[index] = replace(tensors[index], shape=shape, dynamic_axes=())
    changed = {i for i, shape in inputs.items() if graph.tensors[i].shape != shape}
    known: dict[int, npt.NDArray[np.generic]] = {}
    for op in graph.ops:
        operands = [
            None if i < 0 else Operand(tensors[i].shape, known.get(i, tensors[i].data))
            for i in op.inputs
        ]
        value = fold(op.kind, op.options, operands)
        if value is not None and op.outputs:
            known[op.outputs[0]] = value
        if changed.isdisjoint(op.inputs) and known.keys().isdisjoint(op.inputs):
            continue
        for index, shape in zip(op.outputs, _reshaped(op, operands), strict=True):
            if index >= 0 and tensors[index].shape != shape:
                tensors[index] = replace(tensors[index], shape=shape, dynamic_axes=())
                changed.add(index)
    return structs.replace(graph, tensors=tuple(tensors))


def _reshaped(op: Op, operands: Operands) -> tuple[Shape, ...]:
    try:
        found = infer(op.kind, op.options, operands)
        if found is not None and len(found) != len(op.outputs):
            raise ShapeError(f"{len(op.outputs)} outputs, expected {len(found)}")
    except ShapeError as error:
        raise ModelError(
            f"the given input shape does not suit op {op.index} {op.custom_code or op.kind}",
            str(error),
            "give a shape that the model was made for, or export the model with fixed shapes",
        ) from None
    if found is None:
        raise ModelError(
            f"cannot follow the given shape through op {op.index} {op.custom_code or op.kind}",
            "the shape of its result is only known at run time, or there is no rule for it",
            "export the model with fixed shapes",
        )
    return found
